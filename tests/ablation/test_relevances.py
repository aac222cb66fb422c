"""Relevance as an importance: what each task says, shares of a layer, and heads that are planted."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from headscope.ablation.estimates.relevance import Relevances, compute_relevances
from headscope.api.importance import importance
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.reading import Dense, Normalize, TextReading
from headscope.model.relevance.rules import Rules
from headscope.tasks import get_task
from headscope.tasks.base import Task
from headscope.tasks.inference import answers
from headscope.tasks.pooling import Pooling
from headscope.tasks.prepared import IGNORED, Prepared, batch_of
from tiny import shared, tiny
from toys import Means, classes_of, means_of

sys.path.insert(0, str(Path(__file__).parent.parent / "planted"))
from carrier import CARRIER, classifier, examples


def labelled(family: str) -> Prepared:
    """Examples with a label at some places of each, the last one of the target always."""
    result = means_of(family)
    labels = []
    for sequence in result.sequences:
        ids = (sequence.target or sequence.source).ids
        labels.append([token if index % 3 == 0 else IGNORED for index, token in enumerate(ids)])
    return replace(result, labels=labels)


def pairs(family: str, reading: TextReading | None = None, skipped: int = 0) -> Prepared:
    result = means_of(family)
    pooling = Pooling(reading or TextReading(), (skipped,) * len(result.sequences))
    targets = np.array([1.0, 2.0, 3.0])
    return replace(
        result,
        parts=[(0, 1), (2, 3), (4, 7)],
        items=result.items[:3],
        targets=targets,
        extras=pooling,
    )


def pooled_by(pooling: str, *modules: Normalize | Dense, skipped: int = 0) -> Any:
    return lambda family: pairs(family, TextReading(pooling=pooling, modules=modules), skipped)


def dense(activation: str) -> Dense:
    noise = torch.Generator().manual_seed(5)
    weight, bias = torch.randn(6, 32, generator=noise) * 0.1, torch.randn(6, generator=noise)
    return Dense("2_Dense", weight, bias, f"torch.nn.modules.{activation}")


def choices(family: str) -> Prepared:
    result = means_of(family)
    return replace(
        result,
        parts=[(0, 1), (2, 3), (4, 5)],
        items=result.items[:3],
        targets=torch.tensor([0, 1, 0]),
    )


CASES: dict[str, tuple[Any, str, Any]] = {
    "masked/bert": (AutoModelForMaskedLM, "masked", labelled),
    "masked/mobilebert": (AutoModelForMaskedLM, "masked", labelled),
    "masked/esm": (AutoModelForMaskedLM, "masked", labelled),
    "masked/xlm-roberta": (AutoModelForMaskedLM, "masked", labelled),
    "masked/albert": (AutoModelForMaskedLM, "masked", labelled),
    "causal/gpt2": (AutoModelForCausalLM, "causal", labelled),
    "causal/llama": (AutoModelForCausalLM, "causal", labelled),
    "translation/marian": (AutoModelForSeq2SeqLM, "translation", labelled),
    "translation/t5": (AutoModelForSeq2SeqLM, "translation", labelled),
    "translation/m2m_100": (AutoModelForSeq2SeqLM, "translation", labelled),
    "mnli/bert": (AutoModelForSequenceClassification, "mnli", lambda family: classes_of(family)[1]),
    "mnli/roberta": (
        AutoModelForSequenceClassification,
        "mnli",
        lambda family: classes_of(family)[1],
    ),
    "mnli/xlnet": (
        AutoModelForSequenceClassification,
        "mnli",
        lambda family: classes_of(family)[1],
    ),
    "squad/bert": (
        AutoModelForQuestionAnswering,
        "squad",
        lambda family: replace(means_of(family), extras=(20, [])),
    ),
    "choice/bert": (AutoModelForMultipleChoice, "choice", choices),
    "stsb/bert": (None, "stsb", pairs),
    "retrieval/mpnet": (None, "retrieval", pairs),
    "first/bert": (None, "stsb", pooled_by("first")),
    "last/gpt2": (None, "stsb", pooled_by("last")),
    "max/bert": (None, "stsb", pooled_by("max")),
    "max/xlnet": (None, "stsb", pooled_by("max")),
    "weightedmean/bert": (None, "stsb", pooled_by("weightedmean")),
    "mean_sqrt_len/bert": (None, "retrieval", pooled_by("mean_sqrt_len")),
    "dense/bert": (
        None,
        "stsb",
        pooled_by("mean", dense("activation.Tanh"), Normalize("3_Normalize")),
    ),
    "relu/bert": (
        None,
        "stsb",
        pooled_by("max", Normalize("2_Normalize"), dense("activation.ReLU")),
    ),
}


def made(case: str) -> tuple[Any, Task, Prepared]:
    head, task, prepare = CASES[case]
    family = case.partition("/")[2]
    return tiny(family, head=head), get_task(task), prepare(family)


@pytest.mark.parametrize("case", CASES)
def test_all_that_a_task_says_is_shared_out(case: str) -> None:
    model, task, prepared = made(case)
    result = compute_relevances(model, task, prepared, batch_size=3)
    stacks = {stack for stack, _, _ in result.layers}
    output = np.abs(result.outputs).mean()
    sources = sum(
        result.layers[stack, -1, part] for stack in stacks for part in ("enters", "biases")
    )
    sources = sources + sum(
        values
        for (_, layer, part), values in result.layers.items()
        if part == "biases" and layer >= 0
    )
    used = sorted({number for part in prepared.parts for number in part})
    assert np.abs(sources - result.outputs)[used].max() < 1e-4 * output
    assert all(
        np.abs(values).max() < 1e-4 * output
        for (_, _, part), values in result.layers.items()
        if part == "lost"
    )
    assert len(result.importances()["relevance"]) == len(prepared.items)
    assert np.abs(result.signed).max() > 1e-3 * output


@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
@pytest.mark.parametrize(
    "case",
    ["masked/bert", "translation/marian", "stsb/bert", "first/bert", "max/bert", "last/gpt2"],
)
def test_the_size_of_batches_changes_nothing(case: str, rules: Rules) -> None:
    model, task, prepared = made(case)
    single, many = (
        compute_relevances(model, task, prepared, rules=rules, batch_size=size) for size in (1, 8)
    )
    size = np.abs(single.outputs).mean()
    assert np.abs(single.outputs - many.outputs).max() < 1e-4 * size
    assert np.abs(single.signed - many.signed).max() < 1e-3 * size
    assert single.layers.keys() == many.layers.keys()


def test_the_output_is_the_largest_logit_at_the_drawn_position() -> None:
    """Marian's constant bias left out."""
    model, task, prepared = made("translation/marian")
    model.model.final_logits_bias = torch.randn(1, 99, generator=torch.Generator().manual_seed(0))
    result = compute_relevances(model, task, prepared)
    other = compute_relevances(model, task, prepared, seed=1)
    for number in range(len(prepared.sequences)):
        with torch.no_grad():
            logits = model(batch_of(model, prepared, [number])).logits[0]
        rows = [row for row, label in enumerate(prepared.labels[number]) if label != IGNORED]
        tops = logits[rows].argmax(dim=-1)
        wanted = (logits[rows, tops] - model.model.final_logits_bias[0, tops]).numpy()
        assert np.abs(wanted - result.outputs[number]).min() < 1e-3
        assert np.abs(wanted - other.outputs[number]).min() < 1e-3
    assert not np.allclose(result.outputs, other.outputs)


def test_a_text_is_held_against_the_other_of_its_pair() -> None:
    model, task, prepared = made("stsb/bert")
    vectors = answers(model, task, prepared)
    result = compute_relevances(model, task, prepared).outputs
    for first, other in prepared.parts:
        assert result[first] == pytest.approx(float(vectors[first] @ vectors[other]), abs=1e-5)
        assert result[other] == pytest.approx(result[first], abs=1e-5)


def test_shares_are_of_a_layer_and_signed_ones_of_the_output() -> None:
    heads = tuple(Head("encoder", layer, head) for layer in range(2) for head in range(2))
    signed = np.array([[3.0, -1.0, 0.0, 0.0], [0.0, 2.0, 1.0, 1.0]])
    result = Relevances(
        heads,
        np.array([4.0, -12.0]),
        signed,
        {("encoder", 0, "enters"): np.array([2.0, -9.0])},
        [(0,), (1,)],
    )
    made = result.importances()
    assert np.allclose(made["relevance"], [[0.75, 0.25, 0, 0], [0, 1, 0.5, 0.5]])
    assert np.allclose(made["relevance-signed"], signed / [[8.0], [-8.0]])
    (row,) = result.layer_rows()
    assert row["value"] == pytest.approx(11 / 16)
    spread = np.array([2 / 8 - 11 / 16 * 0.5, 9 / 8 - 11 / 16 * 1.5]).std(ddof=1)
    assert row["high"] - row["value"] == pytest.approx(1.96 * spread / 2**0.5)
    rows = {(row.statistic, row.layer, row.head): row.value for row in result.rows()}
    assert rows["relevance", 0, 0] == pytest.approx(0.375)
    assert rows["relevance-signed", 0, 1] == pytest.approx((-1 / 8 - 2 / 8) / 2)


def test_one_item_of_two_sequences_has_the_mean_of_both() -> None:
    model, task, prepared = made("stsb/bert")
    result = compute_relevances(model, task, prepared)
    assert np.allclose(result.importances()["relevance"][2], result.shares()[[4, 7]].mean(axis=0))


# Planted


@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
def test_the_head_that_carries_the_label_has_the_highest_relevance(
    tmp_path: Path, rules: Rules
) -> None:
    study = importance(
        classifier(),
        task="sst2",
        data=examples(tmp_path, 60),
        by="relevance",
        relevance_rules=rules,
    )
    for statistic in ("relevance", "relevance-signed"):
        rows = study.heads[study.heads["statistic"] == statistic]
        result = {f"{row.layer}.{row.head}": row.value for row in rows.itertuples()}
        carrier = result.pop(CARRIER)
        assert carrier > 5 * max(
            abs(value) for name, value in result.items() if name[0] == CARRIER[0]
        ), statistic
    assert carrier > 0.8  # of what it says, signed
    assert study.record["importance"]["rules"] == rules


@pytest.mark.parametrize("rules", ["voita", "attnlrp"])
def test_a_head_that_nobody_hears_has_no_relevance(rules: Rules) -> None:
    model = tiny("bert", head=AutoModelForSequenceClassification, num_labels=3)
    with torch.no_grad():
        model.model.bert.encoder.layer[0].attention.output.dense.weight[:, 8:16] = 0
    task, prepared = classes_of("bert")
    result = compute_relevances(model, task, prepared, rules=rules)
    silent = result.heads.index(Head("encoder", 0, 1))
    assert not result.signed[:, silent].any()
    assert not result.importances()["relevance"][:, silent].any()
    assert (np.abs(result.signed).sum(axis=0) > 0).sum() == len(result.heads) - 1


def test_of_duplicate_heads_each_has_half(tmp_path: Path) -> None:
    task = get_task("sst2")
    items = task.items(examples(tmp_path, 20))
    actual = []
    for model in (classifier(noise=0.0), classifier(noise=0.0, duplicate="1.0")):
        actual.append(compute_relevances(model, task, task.prepare(model, items)))
    first, other = (actual[0].heads.index(Head("encoder", 1, head)) for head in (2, 0))
    whole = actual[0].signed[:, first]
    assert np.abs(whole).min() > 1e-3
    assert np.allclose(actual[1].signed[:, first], whole / 2, rtol=1e-5)
    assert np.allclose(actual[1].signed[:, other], whole / 2, rtol=1e-5)


# Bad input


def test_rules_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        HeadscopeError, match='`relevance_rules` must be attnlrp or voita, got "lrp"'
    ) as error:
        importance(
            classifier(),
            task="sst2",
            data=examples(tmp_path, 10),
            by="relevance",
            relevance_rules="lrp",
        )  # type: ignore[arg-type]
    assert "attnlrp" in str(error.value)


def test_a_task_that_says_nothing_in_particular_is_refused() -> None:
    with pytest.raises(HeadscopeError, match="a single predicted number per sequence, got means"):
        compute_relevances(shared("bert"), Means(), means_of("bert"))
