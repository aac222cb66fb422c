"""Relevance as what a search for heads goes by: of the model without those that are gone, units as one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_relevances import labelled
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from headscope import HeadSet
from headscope.config.search import SearchConfig
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate
from headscope.pruning.scores import scores_by
from headscope.pruning.searches.iterative import iterative as iterative_search
from headscope.pruning.searches.rank import rank as rank_search
from headscope.pruning.subset_evaluator import EvaluationOptions, SubsetEvaluator
from headscope.tasks import get_task
from headscope.tasks.base import Task
from headscope.tasks.prepared import IGNORED, Prepared, batch_of
from reference.relevance import by_removal
from tiny import in_double, tiny
from toys import classes_of

sys.path.insert(0, str(Path(__file__).parent.parent / "planted"))
from carrier import CARRIER, classifier, examples

HEADS: dict[str, Any] = {
    "bert": AutoModelForSequenceClassification,
    "albert": AutoModelForSequenceClassification,
    "mistral": AutoModelForCausalLM,
    "marian": AutoModelForSeq2SeqLM,
}
GONE = {
    "bert": ("0.1", "1.*"),
    "albert": ("*.2",),
    "mistral": ("0.0-1",),
    "marian": ("encoder.0.*", "cross.1.0"),
}


def made(family: str) -> tuple[AttentionModel, Task, Prepared]:
    if HEADS[family] is AutoModelForSequenceClassification:
        return in_double(tiny(family, head=HEADS[family], num_labels=3)), *classes_of(family)
    model = in_double(tiny(family, head=HEADS[family]))
    labelled_task = labelled(family)
    assert labelled_task.labels is not None
    labelled_task.labels = [
        [labels[0], *([IGNORED] * (len(labels) - 1))] for labels in labelled_task.labels
    ]
    if family == "mistral":  # its first token sees nothing but itself
        labelled_task.labels = [[*labels[1:], labels[0]] for labels in labelled_task.labels]
    return model, get_task("causal" if family == "mistral" else "translation"), labelled_task


def logits_of(model: AttentionModel, prepared: Prepared, number: int) -> torch.Tensor:
    """The logits of the one thing that is asked of a sequence."""
    result: torch.Tensor = model(batch_of(model, prepared, [number])).logits[0]
    if prepared.labels is None:
        return result
    (position,) = (
        position for position, label in enumerate(prepared.labels[number]) if label != IGNORED
    )
    return result[position]


def by_hand(
    selection: SubsetEvaluator, removed: frozenset[int], wide: int | None
) -> dict[str, NDArray[np.float64]]:
    """[unit] of both, from what is missing without each head of the ablated model, gates held fixed."""
    model, prepared = selection.model, selection.prepared
    gone = selection.heads(removed)
    left = [head for head in model.heads if head not in gone]
    count = len(prepared.sequences)
    missing, output = np.zeros((count, len(left))), np.zeros(count)
    for number in range(count):
        with model.edited(Ablate(gone)):
            with torch.no_grad():
                logits = logits_of(model, prepared, number)
            top, output[number] = int(logits.argmax()), float(logits.max())

            def say(number: int = number, top: int = top) -> torch.Tensor:
                return logits_of(model, prepared, number)[None, top]

            missing[number] = by_removal(model, say, left, wide)[0]
    result = {
        "relevance": np.zeros(len(selection.units)),
        "relevance-signed": np.zeros(len(selection.units)),
    }
    for number in range(count):
        for site in {head.site for head in left}:
            sums = {}
            for u, unit in enumerate(selection.units):
                mine = [
                    missing[number, left.index(head)]
                    for head in unit
                    if head.site == site and head in left
                ]
                if mine:
                    sums[u] = sum(mine)
            whole = sum(abs(value) for value in sums.values())
            for u, value in sums.items():
                result["relevance"][u] += (abs(value) / whole if whole else 0.0) / count
                result["relevance-signed"][u] += (
                    value * np.sign(output[number]) / np.abs(output).mean() / count
                )
    return result


@pytest.mark.parametrize("family", HEADS)
def test_scores_of_a_state_are_those_of_the_heads_that_are_left(family: str) -> None:
    model, task, prepared = made(family)
    selection = SubsetEvaluator(model, task, prepared, EvaluationOptions(batch_size=3))
    gone = HeadSet(",".join(GONE[family]), among=model.heads)
    removed = frozenset(number for number, unit in enumerate(selection.units) if unit[0] in gone)
    assert set(selection.heads(removed)) == set(gone)
    wanted = by_hand(selection, removed, 64 if family == "mistral" else None)
    for by, values in wanted.items():
        mine = scores_by(selection, by)(removed)
        assert not mine[sorted(removed)].any()
        assert np.abs(mine - values).max() < (1e-4 if family == "mistral" else 1e-8), by
        assert np.abs(values).max() > 1e-3


@pytest.mark.parametrize("how", ["rank", "iterative"])
@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
@pytest.mark.parametrize("by", ["relevance", "relevance-signed"])
def test_the_carrier_is_the_last_of_its_layer(
    how: str, rules: Any, by: str, tmp_path: Path
) -> None:
    task = get_task("sst2")
    model = classifier()
    selection = SubsetEvaluator(
        model, task, task.prepare(model, task.items(examples(tmp_path, 40), "dev"))
    )
    scores = scores_by(selection, by, rules)
    path = (
        rank_search(selection, scores)
        if how == "rank"
        else iterative_search(selection, scores, 0.01)
    )
    order: list[str] = []
    for state in path:
        order += [str(head) for head in selection.heads(state.removed) if str(head) not in order]
    order += [str(head) for head in model.heads if str(head) not in order]
    assert [name for name in order if f".{CARRIER[0]}." in name][-1] == f"encoder.{CARRIER}"


def test_a_backward_pass_is_paid_for_once_a_scoring(tmp_path: Path) -> None:
    task = get_task("sst2")
    model = classifier()
    selection = SubsetEvaluator(
        model, task, task.prepare(model, task.items(examples(tmp_path, 20), "dev"))
    )
    before = selection.spent
    single = scores_by(selection, "relevance", "voita")(frozenset())
    assert selection.spent - before == 3
    assert not np.array_equal(single, scores_by(selection, "relevance", "attnlrp")(frozenset()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"search": "rank", "by": "relevance", "relevance_rules": "lrp"},
            "`relevance_rules` must be attnlrp or voita",
        ),
        ({"search": "rank", "by": "relevence"}, "`by` must be ablation, confidence, "),
    ],
)
def test_unknown_rules_and_importances_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadscopeError) as error:
        SearchConfig(remove=1, **options)
    assert str(error.value).startswith(message)
