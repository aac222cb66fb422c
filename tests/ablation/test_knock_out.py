"""Knock-outs of heads, averaged over inputs, against single runs of single edits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.ablation.knock_out import FORMS, KnockOuts
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate
from headscope.model.knockout import KnockOut
from headscope.model.lenses import LENSES
from headscope.model.tokens import Batch
from headscope.model.value_zeroing import zero_values
from headscope.statistics import select_statistics
from tiny import batch_for, examples, in_double, shared, tiny

LENGTHS = ((9, 4), (7, 3), (12, 5))


def inputs(family: str, model: AttentionModel) -> list[Batch]:
    return [batch_for(model, [example]) for example in examples(family, seed=3, lengths=LENGTHS)]


def measured(
    model: AttentionModel, batches: list[Batch], to: str = "special", seed: int = 0
) -> dict[tuple[Head, str], float]:
    result = KnockOuts(model, to, select_statistics(["special", "self"], LENSES["raw"]), seed)
    for batch in batches:
        result.add(batch)
    return {
        (Head(row.stack, row.layer, row.head), row.statistic): row.value for row in result.rows()
    }


def mean_turn(model: AttentionModel, batch: Batch, edit: KnockOut) -> float:
    with torch.inference_mode():
        plain = model(batch)[0][0]
        with model.edited(edit):
            changed = model(batch)[0][0]
    return float(
        np.mean(
            [
                1 - torch.cosine_similarity(one, other, dim=0)
                for one, other in zip(plain, changed, strict=True)
            ]
        )
    )


@pytest.mark.parametrize("family", ["bert", "albert", "mpnet", "gpt2"])
def test_a_head_s_knock_out_is_that_of_the_edit(family: str) -> None:
    model = in_double(shared(family))
    batches = inputs(family, model)
    result = measured(model, batches)
    for head in model.heads:
        for form, renormalise in (("knock-out", True), ("knock-out-gone", False)):
            edit = KnockOut("special", heads=[head], renormalise=renormalise)
            wanted = np.mean([mean_turn(model, batch, edit) for batch in batches])
            assert result[head, form] == pytest.approx(wanted, abs=1e-6), f"{head} {form}"
        assert result[head, "knock-out-random"] > 0


def test_value_zeroing_s_rows_are_means_of_its_maps() -> None:
    model = shared("bert")
    batches = inputs("bert", model)
    result = measured(model, batches)
    for head in model.heads:
        turns, specials, selves = [], [], []
        for batch in batches:
            cells = zero_values(model, batch, by_head=True)["encoder"][head.site][head.head]
            special = batch.layout.encoder.special[0].tolist()  # type: ignore[union-attr]
            rows = [row / row.sum() for row in cells]
            turns.append(np.mean([row.sum() for row in cells]))
            specials.append(
                np.mean(
                    [sum(x for x, yes in zip(row, special, strict=True) if yes) for row in rows]
                )
            )
            selves.append(np.mean([row[at] for at, row in enumerate(rows)]))
        assert result[head, "value-zeroing"] == pytest.approx(np.mean(turns), rel=1e-6)
        assert result[head, "special@value-zeroing"] == pytest.approx(np.mean(specials), rel=1e-5)
        assert result[head, "self@value-zeroing"] == pytest.approx(np.mean(selves), rel=1e-5)


def test_a_head_that_says_nothing_is_missed_by_nobody() -> None:
    model = tiny("bert")
    batches = inputs("bert", model)
    with model.edited(Ablate("1.2")):
        result = measured(model, batches)
    silent, other = Head("encoder", 1, 2), Head("encoder", 1, 1)
    for form in ("value-zeroing", *FORMS):
        assert result[silent, form] == 0
        assert result[other, form] > 0


def test_tokens_for_comparison_follow_the_seed_and_are_as_many() -> None:
    model = shared("bert")
    batches = inputs("bert", model)
    first, again, other = (measured(model, batches, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert any(first[key] != other[key] for key in first if key[1].startswith("knock-out-random"))
    assert all(
        first[key] == other[key] for key in first if not key[1].startswith("knock-out-random")
    )
    counting = KnockOuts(model, "special", [])
    for batch in batches:
        cuts = counting._cuts(batch, "encoder", np.random.default_rng(0))
        special = batch.layout.encoder.special[0]  # type: ignore[union-attr]
        for cut in cuts:
            assert int(cut.keys.sum()) == int(special.sum())
            assert bool((cut.keys & special).any()) == (cut.form in FORMS[:2])


def test_without_such_tokens_there_are_no_rows() -> None:
    model = shared("gpt2")
    result = measured(model, inputs("gpt2", model)[:1], to="classification")
    assert {name for _, name in result} == {
        "value-zeroing",
        "special@value-zeroing",
        "self@value-zeroing",
    }


def test_an_encoder_decoder_has_rows_for_every_stack() -> None:
    model = shared("marian")
    result = measured(model, inputs("marian", model))
    assert {head for head, name in result if name == "knock-out"} == set(model.heads)
    assert {head for head, name in result if name == "value-zeroing"} == set(model.heads)
