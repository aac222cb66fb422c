"""Studies compared: a model with itself, with its heads permuted, with another size; and what is refused."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from headscope import commands, compare
from headscope.analysis.compare import NEEDS_MODELS, Comparison
from headscope.analysis.head_matching import Behaviour, behaviours, match
from headscope.analysis.smoothness import smoothness_of
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame
from tiny import eager_copy, excited

STATISTICS = ("entropy", "confidence", "previous", "special", "argmax-offset")
Heads = NDArray[np.float64]  # [layer, head, statistic]


def made(
    values: Heads, name: str = "a", stack: str = "encoder", statistics: tuple[str, ...] = STATISTICS
) -> Study:
    rows = [
        Row(
            stack,
            layer,
            head,
            statistic,
            float(values[layer, head, i]),
            values[layer, head, i] - 0.02,
            values[layer, head, i] + 0.02,
            9,
        )
        for i, statistic in enumerate(statistics)
        for layer, head in np.ndindex(values.shape[:2])
    ]
    return Study(to_frame(rows), record={"schema": 1, "model": {"name": name}, "lens": "raw"})


def some(layers: int = 3, heads: int = 4, seed: int = 0) -> Heads:
    return np.random.default_rng(seed).random((layers, heads, len(STATISTICS)))


def pairs_of(comparison: Comparison, within: str) -> dict[tuple[int, int], tuple[int, int]]:
    rows = comparison.matches[comparison.matches["within"] == within]
    return {(r.layer, r.head): (r.other_layer, r.other_head) for r in rows.itertuples()}


# Matching


def test_a_study_compared_with_itself_matches_every_head_to_itself() -> None:
    comparison = compare([made(some()), made(some())])
    assert comparison.names == ["a (1)", "a (2)"]
    for within in ("stack", "depth"):
        assert all(one == other for one, other in pairs_of(comparison, within).items())
    assert len(comparison.matches) == 24
    assert (comparison.matches["distance"] == 0).all()
    assert (comparison.matching["probability"] == 1 / 200).all()
    assert comparison.matching["depth_correlation"].tolist() == [
        pytest.approx(1.0),
        pytest.approx(math.nan, nan_ok=True),
    ]


def test_a_permutation_of_all_heads_is_found() -> None:
    values = some(4, 6)
    order = np.random.default_rng(1).permutation(24)
    moved = values.reshape(24, -1)[order].reshape(values.shape)
    comparison = compare([made(values), made(moved, "b")])
    places = list(np.ndindex(4, 6))
    assert pairs_of(comparison, "stack") == {places[order[i]]: places[i] for i in range(24)}
    assert comparison.matches.query("within == 'stack'")["distance"].max() == 0


def test_a_permutation_within_layers_is_found_among_heads_of_one_depth() -> None:
    values = some(4, 6)
    moved = values[:, ::-1]
    comparison = compare([made(values), made(moved, "b")])
    assert pairs_of(comparison, "depth") == {
        (layer, h): (layer, 5 - h) for layer in range(4) for h in range(6)
    }


def test_independent_heads_match_no_closer_than_shuffled_ones() -> None:
    """Planted absence: at 5 % few of 40 may be found; more than 7 has a chance of 0.4 %."""
    result = 0
    for seed in range(40):
        left, right, _ = behaviours(
            made(some(seed=2 * seed)).heads, made(some(seed=2 * seed + 1)).heads
        )
        result += match(left, right, "stack").probability < 0.05
    assert result <= 7


def test_the_assignment_is_the_best_of_all_and_its_distances_are_those_of_loops() -> None:
    left, right = made(some(1, 3, 0)), made(some(2, 2, 1), "b")
    left_behaviours, right_behaviours, statistics = behaviours(left.heads, right.heads)
    assert statistics == ["entropy", "confidence", "previous", "special"]  # an offset is a mode
    flat = np.concatenate([some(1, 3, 0).reshape(3, -1), some(2, 2, 1).reshape(4, -1)])[:, :4]
    units = (flat - flat.mean(axis=0)) / flat.std(axis=0)

    def distance(i: int, j: int) -> float:
        return math.sqrt(sum((units[i][k] - units[3 + j][k]) ** 2 for k in range(4)) / 4)

    best = min(
        itertools.permutations(range(4), 3),
        key=lambda to: sum(distance(i, j) for i, j in enumerate(to)),
    )
    result = match(left_behaviours, right_behaviours, "stack")
    assert result.pairs.tolist() == [[i, j] for i, j in enumerate(best)]
    assert result.distances == pytest.approx([distance(i, j) for i, j in enumerate(best)])
    error = 0.02 / 1.96
    noise = math.sqrt(np.mean(2 * (error / flat.std(axis=0)) ** 2))
    assert result.noise == pytest.approx(np.full(3, noise))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_deeper_models_layers_go_to_the_nearest_in_depth(swapped: bool) -> None:
    shallow, deep = made(some(2, 3)), made(some(4, 3, 1), "b")
    comparison = compare([deep, shallow] if swapped else [shallow, deep])
    rows = comparison.matches[comparison.matches["within"] == "depth"]
    layers = {(a, b) for a, b in zip(rows["layer"], rows["other_layer"], strict=True)}
    assert {(b, a) if swapped else (a, b) for a, b in layers} <= {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert len(rows) == 6
    assert comparison.matching["unmatched"].tolist() == [6, 6]


def test_without_any_spread_there_is_nothing_to_match() -> None:
    comparison = compare([made(np.ones((2, 4, 5))), made(np.ones((2, 4, 5)), "b")])
    assert comparison.matches.empty
    assert comparison.matching.empty
    assert comparison.smoothness.empty
    assert len(comparison.layers) == 2 * 2 * 4


def test_heads_without_intervals_have_no_noise() -> None:
    study = made(some())
    study.heads["low"] = study.heads["high"] = np.nan
    comparison = compare([study, study])
    assert comparison.matches["noise"].isna().all()


# Layers, roles


def test_layers_are_means_over_heads() -> None:
    values = some()
    layers = compare([made(values), made(some(2, 2, 1), "b")]).layers
    for row in layers[layers["study"] == "a"].itertuples():
        heads = [values[row.layer, h, STATISTICS.index(row.statistic)] for h in range(4)]
        assert row.mean == pytest.approx(sum(heads) / 4)
        assert (row.least, row.most, row.heads) == (min(heads), max(heads), 4)
        assert (row.low, row.high) == pytest.approx((row.mean - 0.02, row.mean + 0.02))
        assert row.depth == row.layer / 2
    assert "argmax-offset" not in set(layers["statistic"])


def test_roles_are_counted_by_layer() -> None:
    first, other = made(some()), made(some(), "b")
    first.tables["roles"] = pd.DataFrame(
        [
            ("encoder", 0, 1, "broad"),
            ("encoder", 0, 2, "broad"),
            ("encoder", 2, 1, "broad"),
            ("encoder", 2, 1, "block"),
        ],
        columns=["stack", "layer", "head", "role"],
    )
    comparison = compare([first, other])
    assert comparison.roles.to_dict("records") == [
        {
            "study": "a",
            "stack": "encoder",
            "layer": 0,
            "role": "broad",
            "heads": 2,
            "of": 4,
            "share": 0.5,
        },
        {
            "study": "a",
            "stack": "encoder",
            "layer": 2,
            "role": "block",
            "heads": 1,
            "of": 4,
            "share": 0.25,
        },
        {
            "study": "a",
            "stack": "encoder",
            "layer": 2,
            "role": "broad",
            "heads": 1,
            "of": 4,
            "share": 0.25,
        },
    ]
    assert comparison.notes == ["No roles in the study of b.", NEEDS_MODELS]


# Smoothness


def test_smoothness_is_that_of_loops() -> None:
    grid = np.random.default_rng(3).random((5, 6))

    def mean(layers: NDArray[np.float64]) -> float:
        return float(np.mean([np.corrcoef(layers[i], layers[i + 1])[0, 1] for i in range(4)]))

    means = grid.mean(axis=1)
    expected = {
        "heads": mean(grid),
        "sorted": mean(np.sort(grid, axis=1)),
        "means": float(np.corrcoef(means[:-1], means[1:])[0, 1]),
    }
    for form, value in expected.items():
        result = smoothness_of(grid, form)  # type: ignore[arg-type]
        assert result is not None
        assert result.value == pytest.approx(value)
        assert (result.pairs, result.heads) == (4, 6)
        assert result.low <= result.value <= result.high
        assert result.null_low < result.null < result.null_high


def test_layers_that_continue_each_other_are_smooth_in_every_form() -> None:
    random = np.random.default_rng(0)
    grid = random.random(8) + np.linspace(0, 1, 12)[:, None] * random.random(8)
    for form in ("heads", "sorted", "means"):
        result = smoothness_of(grid, form)  # type: ignore[arg-type]
        assert result is not None
        assert result.value > 0.95
        assert result.probability < 0.02
        assert result.value > result.null_high


def test_smooth_layers_whose_heads_are_numbered_anew_are_smooth_when_sorted_and_not_in_order() -> (
    None
):
    random = np.random.default_rng(0)
    grid = random.random(8) + np.linspace(0, 1, 12)[:, None] * random.random(8)
    shuffled = random.permuted(grid, axis=1)
    in_order, by_value = smoothness_of(shuffled, "heads"), smoothness_of(shuffled, "sorted")
    assert in_order is not None
    assert by_value is not None
    assert in_order.null_low < in_order.value < in_order.null_high
    assert by_value.probability < 0.02


@pytest.mark.parametrize("form", ["heads", "sorted", "means"])
def test_random_layers_are_called_smooth_no_more_often_than_stated(form: str) -> None:
    """At 5 % of 100, more than 12 has a chance of 0.2 %."""
    random = np.random.default_rng(5)
    actual = [smoothness_of(random.random((6, 5)), form) for _ in range(100)]  # type: ignore[arg-type]
    assert sum(one is not None and one.probability < 0.05 for one in actual) <= 12


def test_layers_of_equal_heads_have_no_correlation() -> None:
    grid = np.random.default_rng(0).random((4, 5))
    grid[0] = 0.1
    result = smoothness_of(grid, "heads")
    assert result is not None
    assert result.pairs == 2
    assert smoothness_of(np.ones((4, 5)), "heads") is None
    assert smoothness_of(np.ones((4, 5)), "means") is None
    assert (
        smoothness_of(np.random.default_rng(0).random((4, 2)), "heads") is None
    )  # two numbers always correlate
    assert smoothness_of(np.random.default_rng(0).random((1, 5)), "heads") is None
    assert smoothness_of(np.random.default_rng(0).random((3, 5)), "means") is None


def test_a_head_with_a_gap_is_left_out() -> None:
    grid = np.random.default_rng(0).random((4, 5))
    holed = grid.copy()
    holed[1, 4] = np.nan
    assert smoothness_of(holed, "heads") == smoothness_of(grid[:, :4], "heads")


# With the models

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", ",", "the", "cat", "sat", "on", "mat", "dog"]
TEXTS = ["the cat sat on the mat .", "the dog sat", "the mat , the dog .", "cat", "on on on the"]


def bert(seed: int = 0, words: list[str] = WORDS, **changes: int) -> AttentionModel:
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    marks = [("[CLS]", words.index("[CLS]")), ("[SEP]", words.index("[SEP]"))]
    core.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=24, **names)
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 16,
    } | changes
    model = BertModel(
        BertConfig(vocab_size=12, max_position_embeddings=24, **size), add_pooling_layer=False
    )
    return AttentionModel(excited(model.eval(), seed), tokenizer, name=f"bert-{seed}")


def two() -> list[Study]:
    return [made(some(2, 4)), made(some(2, 4, 1), "b")]


def eager(model: AttentionModel, ids: list[int]) -> list[NDArray[np.float64]]:
    with torch.no_grad():
        layers = eager_copy(model)(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    return [layer[0].double().numpy() for layer in layers]


def by_hand(p: NDArray[np.float64], q: NDArray[np.float64]) -> tuple[float, float]:
    """(cosine, divergence) of two maps, cell by cell."""
    dot = sum(float(a * b) for a, b in zip(p.ravel(), q.ravel(), strict=True))
    cosine = dot / math.sqrt(float((p**2).sum()) * float((q**2).sum()))
    total = 0.0
    for a, b in zip(p.ravel(), q.ravel(), strict=True):
        m = (a + b) / 2
        total += a * math.log(a / m) / 2 + b * math.log(b / m) / 2
    return cosine, total / len(p)


def test_a_model_has_not_changed_from_itself() -> None:
    comparison = compare(two(), models=[bert(), bert()], texts=TEXTS)
    assert comparison.changes["cosine"].to_numpy() == pytest.approx(1.0)
    assert comparison.changes["js"].to_numpy() == pytest.approx(0.0, abs=1e-12)
    assert comparison.changes["change"].to_numpy() == pytest.approx(0.0, abs=1e-9)
    assert (comparison.changes["floor_cosine"] < 0.999).all()
    assert NEEDS_MODELS not in comparison.notes


@pytest.mark.parametrize("batch_size", [1, 3])
def test_changes_are_those_of_loops_over_eager_attentions(batch_size: int) -> None:
    before, after = bert(0), bert(1)
    comparison = compare(two(), models=[before, after], texts=TEXTS, batch_size=batch_size)
    ids = [before.tokenizer(text)["input_ids"] for text in TEXTS]
    longest = sorted(ids, key=len, reverse=True)
    cut = [
        ([*one[: len(other) - 1], 3], other)
        for one, other in zip(longest[::2], longest[1::2], strict=False)
    ]
    assert len(cut) == 2
    for row in comparison.changes.itertuples():
        maps = [
            (eager(before, one)[row.layer][row.head], eager(after, one)[row.layer][row.head])
            for one in ids
        ]
        result = np.array([by_hand(*both) for both in maps])
        assert (row.cosine, row.js) == pytest.approx(tuple(result.mean(axis=0)), abs=1e-6)
        half = 1.96 * result.std(axis=0, ddof=1) / math.sqrt(5)
        assert (row.cosine_low, row.js_low) == pytest.approx(
            tuple(result.mean(axis=0) - half), abs=1e-6
        )
        floor = np.array(
            [by_hand(*(eager(before, one)[row.layer][row.head] for one in both)) for both in cut]
        )
        assert (row.floor_cosine, row.floor_js) == pytest.approx(
            tuple(floor.mean(axis=0)), abs=1e-6
        )
        assert row.change == pytest.approx(row.js / row.floor_js)
        assert (row.count, row.floor_count) == (5, 2)
    heads = comparison.changes.groupby("layer")[["cosine", "js"]].mean()
    layers = comparison.layer_changes.set_index("layer")[["cosine", "js"]]
    pd.testing.assert_frame_equal(heads, layers)


def test_the_layer_that_was_changed_is_found() -> None:
    before, after = bert(), bert()
    with torch.no_grad():
        after.model.encoder.layer[1].attention.self.query.weight.mul_(-1)
    layers = compare(two(), models=[before, after], texts=TEXTS).layer_changes
    assert layers["js"].tolist()[0] == pytest.approx(0.0, abs=1e-9)
    assert layers["js"].tolist()[1] > 0.05


def test_one_text_has_no_floor_and_no_interval() -> None:
    row = compare(two(), models=[bert(0), bert(1)], texts=TEXTS[:1]).changes.iloc[0]
    assert row["floor_count"] == 0
    assert math.isnan(row["change"])
    assert math.isnan(row["js_low"])


# What is refused


def refusal(*arguments: object, **options: object) -> str:
    with pytest.raises(HeadscopeError) as caught:
        compare(*arguments, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_what_cannot_be_compared_is_refused() -> None:
    assert refusal([made(some())]) == (
        "STUDY: one study cannot be compared. Expected two studies or more. Make another one with headscope analyze."
    )
    effective = made(some(), "b")
    effective.record["lens"] = "effective"
    assert refusal([made(some()), effective]) == (
        "the studies look through different lenses (a: raw, b: effective). Expected one lens."
    )
    nothing = (
        "STUDY: the studies have no statistic of a stack in common. Expected studies made with the same `statistics`, "
        "of models with a stack in common."
    )
    assert refusal([made(some()), made(some(), "b", stack="decoder")]) == nothing
    others = ("self", "next", "cls", "sep", "distance")
    assert refusal([made(some()), made(some(), "b", statistics=others)]) == nothing


def test_models_that_do_not_fit_are_refused() -> None:
    assert refusal(two(), batch_size=0) == "`batch_size` must be at least 1, got 0."
    assert refusal(two(), models=["a"], texts=TEXTS) == (
        "`models`: 1 models for 2 studies. Expected two models for two studies, in the same order."
    )
    assert refusal(two(), models=[bert(), bert()]) == (
        "`models` requires `corpus=FILE`. It has no effect otherwise."
    )
    assert refusal(two(), texts=TEXTS) == (
        "`texts` requires `models=[A, B]`. It has no effect otherwise."
    )
    assert refusal(two(), models=[bert(), bert(1, num_attention_heads=2)], texts=TEXTS) == (
        "bert-0, bert-1: the models have different heads (encoder 2 layers, 8 heads; encoder 2 layers, 4 heads). "
        "Expected one shape, as before and after fine-tuning. Compare their studies alone: heads are then matched by "
        "behaviour."
    )
    words = [*WORDS[:6], *reversed(WORDS[6:])]
    assert refusal(two(), models=[bert(), bert(1, words)], texts=TEXTS) == (
        "bert-0, bert-1: the models have different tokenizers, so their maps are of different tokens. Expected one "
        "tokenizer, as before and after fine-tuning. Compare their studies alone: heads are then matched by behaviour."
    )


def test_a_tokenizer_that_cuts_otherwise_is_refused() -> None:
    other = bert(1)
    other.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP] [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    assert refusal(two(), models=[bert(), other], texts=TEXTS) == (
        "text 1: the two tokenizers split this text differently. Expected one tokenizer, as before and "
        "after fine-tuning."
    )


def test_models_that_the_studies_are_not_of_are_refused() -> None:
    studies = two()
    studies[0].record["model"]["sha256"] = "00"
    assert refusal(studies, models=[bert(), bert()], texts=TEXTS) == (
        "`models` bert-0: these are not the weights that the study of a was made with. Expected the models in the "
        "order of the studies."
    )


def test_the_command_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one").mkdir()
    write_tables(made(some()), Path("one"))
    Path("empty").mkdir()
    for words, line in {
        ("one",): "STUDY: one study cannot be compared. Expected two studies or more. "
        "Make another one with headscope analyze.",
        (
            "one",
            "empty",
        ): "empty/run.json: not a study (No such file or directory). Expected a directory written by "
        "headscope analyze, or by another command that makes a study.",
    }.items():
        monkeypatch.setattr(sys, "argv", ["headscope", "compare", *words, "--out", "out"])
        with pytest.raises(SystemExit) as stop:
            commands.main()
        output = capfd.readouterr()
        assert (stop.value.code, output.out, output.err) == (2, "", f"headscope: {line}\n")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "one"]


def test_studies_on_other_texts_are_noted() -> None:
    first, other = made(some()), made(some(), "b")
    first.record["data"] = {"files": [{"sha256": "x"}], "used": 9, "tokens": 900, "sequences": 9}
    other.record["data"] = {"files": [{"sha256": "y"}], "used": 9, "tokens": 450, "sequences": 9}
    assert compare([first, other]).notes[:2] == [
        "The studies were made on different texts, which may cause part of any difference.",
        "The texts differ in length (tokens on average: a 100, b 50). As texts grow, entropy and distance grow, and "
        "shares of attention fall while their multiples of uniform attention rise: count heads above a threshold only "
        "on texts of similar length.",
    ]


def test_depth_of_a_single_layer_is_its_beginning() -> None:
    single = Behaviour(np.array([[0, 0], [0, 1]]), np.zeros((2, 1)), np.zeros((2, 1)))
    assert single.depth.tolist() == [0.0, 0.0]
