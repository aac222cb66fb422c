"""Searches for heads on models whose heads were planted: what can go goes first, what must stay stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carrier import CARRIER, HEADS, WIDTH, classifier, examples, write
from transformers import BertForSequenceClassification

from headscope import HeadSet, SearchConfig, prune, search
from headscope.config.names import SCORES, SEARCHES
from headscope.errors import HeadscopeError, choices
from headscope.model.attention_model import AttentionModel
from headscope.pruning.scores import scores_by
from headscope.pruning.search_result import warning_of
from headscope.pruning.searches import paths
from headscope.pruning.searches.beam import beam as beam_search
from headscope.pruning.searches.greedy import greedy as greedy_search
from headscope.pruning.subset_evaluator import (
    EvaluationOptions,
    Memory,
    SubsetEvaluator,
    SubsetState,
)
from headscope.tasks import get_task
from worded import DISLIKED, LIKED, worded


def selection_of(
    model: AttentionModel,
    folder: Path,
    count: int = 80,
    *,
    memory: Memory | None = None,
    **options: object,
) -> SubsetEvaluator:
    task = get_task("sst2")
    prepared = task.prepare(model, task.items(examples(folder, count), "dev"))
    chosen = EvaluationOptions(**options)  # type: ignore[arg-type]
    return SubsetEvaluator(model, task, prepared, chosen, memory)


def quiet(model: AttentionModel, heads: str) -> AttentionModel:
    """These heads write nothing."""
    with torch.no_grad():
        for head in HeadSet(heads, among=model.heads):
            row = head.head * (WIDTH // HEADS)
            dense = model.model.bert.encoder.layer[head.layer].attention.output.dense
            dense.weight[:, row : row + WIDTH // HEADS] = 0.0
    return model


def last(path: object, count: int) -> object:
    """The state after so many steps."""
    return next(state for step, state in enumerate(path, 1) if step == count)  # type: ignore[arg-type, var-annotated]


def kept_of(selection: SubsetEvaluator, removed: frozenset[int]) -> list[str]:
    return [str(head) for head in selection.model.heads if head not in selection.heads(removed)]


CONTROLS = ("random",)  # searches that need not find anything
PATHS = [name for name in SEARCHES if name not in CONTROLS]
OPTIONS: dict[str, dict[str, Any]] = {
    "iterative": {"by": "gradient", "step": 0.01},
    "rank": {"by": "ablation"},
}


def paths_of(search: str, selection: SubsetEvaluator) -> list[Iterator[SubsetState]]:
    config = SearchConfig(remove=1, search=search, **OPTIONS.get(search, {}))
    return paths(selection, config, seed=0)


@pytest.mark.parametrize("search", SEARCHES)
def test_every_path_removes_one_more_head_at_each_step(search: str, tmp_path: Path) -> None:
    selection = selection_of(classifier(), tmp_path, 40)
    for path in paths_of(search, selection):
        assert [len(state.removed) for state in islice(path, 7)] == list(range(1, 8))


@pytest.mark.parametrize("how", PATHS)
def test_the_head_that_carries_the_label_is_the_last_to_go(how: str, tmp_path: Path) -> None:
    selection = selection_of(classifier(), tmp_path)
    final = last(paths_of(how, selection)[0], 7)
    assert (
        str(
            HeadSet(
                set(selection.model.heads) - set(selection.heads(final.removed)),
                among=selection.model.heads,
            )
        )
        == CARRIER
    )
    assert final.outcome.metric == selection.intact.metric


def test_heads_that_write_nothing_cost_nothing(tmp_path: Path) -> None:
    selection = selection_of(quiet(classifier(noise=0.3), "0.1,0.3,1.0"), tmp_path)
    by_unit = {
        next(iter(state.removed)): state for state in selection.children(frozenset(), range(8))
    }
    for unit, state in by_unit.items():
        changes = state.outcome.loss != selection.intact.loss
        assert changes == (
            str(selection.units[unit][0]) not in ("encoder.0.1", "encoder.0.3", "encoder.1.0")
        )


@pytest.mark.parametrize("how", ["beam", "greedy"])
def test_of_duplicate_heads_one_stays(how: str, tmp_path: Path) -> None:
    selection = selection_of(classifier(duplicate="0.1"), tmp_path)
    removed = selection.heads(last(paths_of(how, selection)[0], 7).removed)
    assert len({"encoder.0.1", "encoder.1.2"} - {str(head) for head in removed}) == 1


def cancelling(folder: Path) -> SubsetEvaluator:
    """0.0 and 0.3 write opposite things, loudly: alone neither can go, together they are nothing."""
    model = classifier(noise=0.02)
    with torch.no_grad():
        likes = torch.tensor([1.0] * len(LIKED) + [-1.0] * len(DISLIKED))
        write(model.model, "0.0", (*LIKED, *DISLIKED), likes, 2.0)
        write(model.model, "0.3", (*LIKED, *DISLIKED), likes, -2.0)
    return selection_of(model, folder)


def test_of_all_pairs_the_best_is_found(tmp_path: Path) -> None:
    selection = cancelling(tmp_path)
    every = {pair: selection.evaluate(frozenset(pair)).loss for pair in combinations(range(8), 2)}
    assert every[(0, 3)] == pytest.approx(selection.intact.loss, abs=0.01)
    result_of = last(beam_search(cancelling(tmp_path), width=4, expansion=8, swaps=8), 2)
    assert result_of.outcome.loss <= min(every.values()) + 1e-9


def test_beam_with_all_candidates_and_one_set_is_greedy(tmp_path: Path) -> None:
    first, other = (
        selection_of(classifier(noise=0.5), tmp_path),
        selection_of(classifier(noise=0.5), tmp_path),
    )
    beam, greedy = beam_search(first, width=1, expansion=8, swaps=0), greedy_search(other)
    for _ in range(5):
        mine, theirs = next(beam), next(greedy)
        assert mine.removed == theirs.removed
        assert mine.outcome.loss == pytest.approx(theirs.outcome.loss, abs=1e-6)


@pytest.mark.slow
def test_beam_is_near_the_best_on_small_models_that_can_be_solved(tmp_path: Path) -> None:
    for seed in range(3):
        model = classifier(noise=0.8)
        with torch.no_grad():
            for layer in range(2):
                dense = model.model.bert.encoder.layer[layer].attention.output.dense
                dense.weight += (
                    torch.randn(dense.weight.shape, generator=torch.Generator().manual_seed(seed))
                    * 0.2
                )
        selection = selection_of(model, tmp_path, 60)
        exhaustive = min(
            selection.evaluate(frozenset(three)).loss for three in combinations(range(8), 3)
        )
        result_of = last(beam_search(selection_of(model, tmp_path, 60)), 3).outcome.loss
        assert result_of <= exhaustive * 1.05 + 1e-9


def disturbed(seed: int) -> AttentionModel:
    """Eight heads that all do something, by chance."""
    model = classifier(noise=0.8)
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in range(2):
            dense = model.model.bert.encoder.layer[layer].attention.output.dense
            dense.weight += torch.randn(dense.weight.shape, generator=chance) * 0.6
    return model


def along(path: Iterator[SubsetState], selection: SubsetEvaluator, sizes: int) -> list[float]:
    """What a search goes by, lower is better, at each size."""
    return [selection.cost(state.outcome) for _, state in zip(range(sizes), path, strict=False)]


@pytest.mark.parametrize("objective", ["loss", "metric"])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_beam_is_never_worse_than_the_greedy_path_inside_it(
    seed: int, objective: str, tmp_path: Path
) -> None:
    """Whatever its width, swaps and number of candidates, at every size; with all candidates that is greedy search."""
    model = disturbed(seed)

    def result_of(search: Callable[[SubsetEvaluator], Iterator[SubsetState]]) -> np.ndarray:
        selection = selection_of(model, tmp_path, 40, objective=objective)
        return np.array(along(search(selection), selection, 4))

    greedy = result_of(greedy_search)
    for expansion in (2, 8):
        alone = result_of(
            lambda item, few=expansion: beam_search(item, width=1, expansion=few, swaps=0)
        )
        assert alone[0] == greedy[0], "the first step tries every head"
        wide = result_of(
            lambda item, few=expansion: beam_search(item, width=3, expansion=few, swaps=2)
        )
        assert (wide <= alone).all()
    assert (alone == greedy).all()


def test_a_beam_that_goes_on_finds_the_same_for_the_same_number_of_evaluations(
    tmp_path: Path,
) -> None:
    """Whatever it had finished when it was stopped, what was measured guides it as if it had never been."""

    class Kept(Memory):
        def first(self, count: int) -> Kept:
            part = Kept()
            part._values = dict(list(self._values.items())[:count])
            return part

    def result_of(memory: Memory) -> tuple[list[SubsetState], float]:
        selection = selection_of(disturbed(0), tmp_path, 40, objective="metric", memory=memory)
        path = beam_search(selection, width=2, expansion=3, swaps=1)
        return [state for _, state in zip(range(3), path, strict=False)], selection.spent

    whole = Kept()
    expected = result_of(whole)
    for finished in (2, 5, 9):
        assert result_of(whole.first(finished)) == expected


@pytest.mark.parametrize("objective", ["loss", "metric"])
@pytest.mark.parametrize("seed", range(3))
def test_beam_is_not_worse_than_greedy_for_no_more_evaluations(
    seed: int, objective: str, tmp_path: Path
) -> None:
    """Thirty-two heads by chance; at every size beam has spent no more than greedy, and lost no more."""
    sizes = {"hidden_size": 64, "num_attention_heads": 16, "num_labels": 2}
    model = worded(BertForSequenceClassification, seed=seed, **sizes)
    first, other = (selection_of(model, tmp_path, 48, objective=objective) for _ in range(2))
    for size, mine, theirs in zip(
        range(1, 4),
        beam_search(first, width=2, expansion=8, swaps=2),
        greedy_search(other),
        strict=False,
    ):
        assert len(mine.removed) == len(theirs.removed) == size
        assert first.cost(mine.outcome) <= other.cost(theirs.outcome) + 1e-6
        assert first.spent <= other.spent
    assert other.spent == 1 + 32 + 31 + 30, (
        "greedy tries every head that is left, after the whole model"
    )


@pytest.mark.parametrize(
    ("parent", "candidates"),
    [({0, 5}, [1, 6, 7]), ({4, 5, 6, 7}, [0, 3]), ({0, 1, 2, 3}, [4, 6])],
    ids=["some", "no head in the last layer", "no head in the first"],
)
def test_children_are_what_cut_models_do(
    parent: set[int], candidates: list[int], tmp_path: Path
) -> None:
    selection = selection_of(classifier(noise=0.5), tmp_path)
    states = selection.children(frozenset(parent), candidates)
    assert len(states) == len(candidates)
    for state in states:
        cut = prune(selection.model, list(selection.heads(state.removed))).model
        plain = selection_of(cut, tmp_path)
        assert state.outcome.loss == pytest.approx(plain.intact.loss, abs=1e-6)
        assert state.outcome.metric == plain.intact.metric


def test_slopes_of_removed_heads_say_what_bringing_them_back_does(tmp_path: Path) -> None:
    selection = selection_of(classifier(), tmp_path)
    carrier = [str(unit[0]) for unit in selection.units].index(f"encoder.{CARRIER}")
    off, on = (
        selection.predict_changes(frozenset({carrier})),
        selection.predict_changes(frozenset()),
    )
    assert on[carrier] > 0, "removing it must cost"
    assert off[carrier] < 0, "bringing it back must help"
    assert np.argmax(np.abs(on)) == np.argmax(np.abs(off)) == carrier


@pytest.mark.parametrize("by", SCORES)
def test_every_importance_gives_a_number_for_every_unit_that_is_left(
    by: str, tmp_path: Path
) -> None:
    selection = selection_of(classifier(noise=0.3), tmp_path, 40)
    result_of = scores_by(selection, by)(frozenset({1}))
    left = [number for number in range(8) if number != 1]
    assert np.isfinite(result_of[left]).all()


def test_a_search_goes_by_its_objective(tmp_path: Path) -> None:
    """By the loss a head may go that leaves fewer answers right, by the metric it may not."""
    by_loss = selection_of(classifier(noise=0.8), tmp_path, objective="loss")
    by_metric = selection_of(classifier(noise=0.8), tmp_path, objective="metric")
    everyone = range(8)
    losses, metrics = (
        by_loss.children(frozenset(), everyone),
        by_metric.children(frozenset(), everyone),
    )
    assert losses[0].outcome.loss == min(state.outcome.loss for state in losses)
    assert metrics[0].outcome.metric == max(state.outcome.metric for state in metrics)
    assert get_task("similarity").objective == "metric"
    assert get_task("sst2").objective == "loss"


def test_at_least_so_many_heads_stay_in_every_layer(tmp_path: Path) -> None:
    selection = selection_of(classifier(), tmp_path, 40, at_least=2)
    states = list(greedy_search(selection))
    assert len(states) == 4
    kept = set(selection.model.heads) - set(selection.heads(states[-1].removed))
    assert [sum(head.layer == layer for head in kept) for layer in range(2)] == [2, 2]


def test_only_the_heads_that_may_go_go(tmp_path: Path) -> None:
    model = classifier()
    selection = selection_of(model, tmp_path, 40, among=HeadSet("0.1-3", among=model.heads))
    for path in (greedy_search(selection), beam_search(selection)):
        assert str(selection.heads(list(path)[-1].removed)) == "0.1-3"


def test_a_choice_that_overfits_its_examples_is_reported() -> None:
    def row(removed: int, metric: float, repair: str = "") -> dict[str, Any]:
        return {
            "removed": removed,
            "metric": metric,
            "repair": repair,
            "draw": 0,
            "is_chosen": removed == 30,
        }

    target = SearchConfig(keep_metric=0.99)
    warnings = warning_of(
        target,
        [row(0, 0.8), row(10, 0.81), row(20, 0.793), row(25, 0.9, "fold"), row(30, 0.72)],
        "odd",
    )
    assert warnings is not None
    assert "0.9000 of the metric is left on odd, not 0.99" in warnings
    assert warning_of(target, [row(0, 0.8), row(30, 0.795)], "odd") is None
    assert warning_of(SearchConfig(remove=30), [row(0, 0.8), row(30, 0.1)], "odd") is None


def test_a_search_reports_on_what_it_did_not_choose_on(tmp_path: Path) -> None:
    data = examples(tmp_path, 200)
    result_of = search(
        classifier(),
        task="sst2",
        data=data,
        keep_metric=0.99,
        search="greedy",
    )
    assert str(result_of.plan.heads).count(".") >= 1
    assert len(result_of.plan.heads) == 7
    record = result_of.plan.chosen
    assert [record[side]["split"] for side in ("selected_on", "reported_on")] == [
        "dev:half-a",
        "dev:half-b",
    ]
    assert sum(record[side]["examples"] for side in ("selected_on", "reported_on")) == 200
    assert list(result_of.front["removed"]) == list(range(8))
    assert result_of.front.loc[result_of.front["removed"] == 0, "metric_change"].item() == 0
    cut = result_of.study.heads.query("statistic == 'cut'")
    assert cut["value"].sum() == 7


REFUSED = [
    ({"remove": 8}, "`remove`: cannot remove 8 of 8 heads. Expected at most 7."),
    (
        {"remove": 5, "min_heads_per_layer": 2},
        "`remove`: cannot remove 5 of 8 heads. Expected at most 4, since 2",
    ),
    (
        {"keep_metric": 3.0},
        "`keep_metric`: no set keeps 3 of the metric. Expected at most 1.0",
    ),
    (
        {"remove": 1, "search": "magic"},
        f'`search` must be {choices("", SEARCHES)}, got "magic"',
    ),
    ({"remove": 1, "search": "rank", "by": "luck"}, f"`by` must be {choices('', SCORES)}"),
    ({"remove": 1, "report_on": "dev:half-a"}, "`report_on`: "),
    (
        {"remove": 5, "candidates": "0.*"},
        "`remove`: cannot remove 5 of 4 heads. Expected at most 4.",
    ),
    ({"remove": 1, "candidates": "7.*"}, 'heads "7.*": "7.*" is not in this model.'),
    (
        {"remove": 3, "sparsity": 0.5},
        "search takes one target, got `remove` and `sparsity`.",
    ),
    (
        {"sparsity": 1.5},
        "`sparsity` must be above 0 and below 1, got 1.5",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_searched_for_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    data = examples(tmp_path, 60)
    with pytest.raises(HeadscopeError) as raised:
        search(classifier(), task="sst2", data=data, **options)
    assert str(raised.value).startswith(message), raised.value
