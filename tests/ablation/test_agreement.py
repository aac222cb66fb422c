"""How importances are compared with exact removal: correlation, overlap, ceiling, ranks; how long shares are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headscope import Head
from headscope.ablation.agreement import (
    LEAST_CEILING,
    agreement,
    ceiling_of,
    ceilings,
    examples_for,
    rank_rows,
    reliability,
)
from headscope.ablation.estimates.norm import output_norms
from tiny import shared
from toys import Means, means_of

HEADS = tuple(Head("encoder", layer, head) for layer in range(5) for head in range(8))


def exact(noise: float, seed: int = 0) -> np.ndarray:
    """Changes [item, head] that grow from head to head, with noise."""
    return np.arange(40) / 40 + noise * np.random.default_rng(seed).normal(size=(200, 40))


def test_the_same_ranking_agrees_wholly_and_the_reverse_not_at_all() -> None:
    truth = exact(0.1)
    means = truth.mean(axis=0)
    same, reverse = agreement({"same": means, "reverse": -means}, truth)
    assert (same["correlation"], same["overlap"]) == (pytest.approx(1), 10)
    assert (reverse["correlation"], reverse["overlap"]) == (pytest.approx(-1), 0)
    assert same["by_chance"] == 10 * 10 / 40
    assert same["low"] <= same["correlation"] <= 1
    assert np.isnan(
        same["rank_spread"]
    )  # of one number a head nothing is known about other examples


def test_the_ceiling_falls_with_the_noise_and_chance_is_far_below_it() -> None:
    chance = np.random.default_rng(5).random(40)
    clear, noisy = (agreement({"random": chance}, exact(noise))[0] for noise in (0.1, 8.0))
    assert clear["ceiling"] > 0.99
    assert 0.2 < noisy["ceiling"] < 0.9
    assert abs(clear["correlation"]) < 0.5
    assert (
        reliability(np.random.default_rng(1).normal(size=(400, 40)), 0) < 0.4
    )  # nothing but noise


def test_every_stack_has_the_ceiling_of_its_own_heads() -> None:
    heads = [Head("encoder", 0, i) for i in range(40)] + [Head("cross", 0, i) for i in range(40)]
    record = ceilings(np.concatenate([exact(0.1), exact(8.0)], axis=1), heads)
    clear, noisy = (
        agreement({"any": np.arange(40.0)}, exact(noise))[0]["ceiling"] for noise in (0.1, 8.0)
    )
    assert {row["stack"]: row["ceiling"] for row in record} == pytest.approx(
        {"encoder": clear, "cross": noisy}
    )
    assert [(row["heads"], row["count"]) for row in record] == [(40, 200)] * 2


def test_where_halves_say_nothing_of_each_other_there_is_no_ceiling() -> None:
    against = np.stack(
        [np.arange(6.0), -np.arange(6.0)]
    )  # of two examples, each the other's reverse
    assert np.isnan(agreement({"any": np.arange(6.0)}, against)[0]["ceiling"])


def test_an_importance_of_examples_has_ranks_that_move_with_them() -> None:
    steady, shaky = (rank_rows({"it": exact(noise)}, HEADS, 200) for noise in (0.01, 5.0))
    assert [row["rank"] for row in steady] == [float(i) for i in range(1, 41)]
    widths = [np.mean([row["high"] - row["low"] for row in rows]) for rows in (steady, shaky)]
    assert widths[0] < 1 < 5 < widths[1]
    assert {"stack": "encoder", "layer": 4, "head": 7}.items() <= steady[-1].items()


def test_an_importance_that_is_no_mean_is_made_anew_from_every_resample() -> None:
    truth = exact(5.0)
    by_batch = lambda items: np.abs(truth[items].reshape(10, 20, 40).mean(axis=1)).mean(axis=0)  # noqa: E731
    rows = rank_rows({"mean": truth, "batch": by_batch, "fixed": np.arange(40.0)}, HEADS, 200)
    widths = {name: [row["high"] - row["low"] for row in rows if row["importance"] == name] for name in
              ("mean", "batch", "fixed")}  # fmt: skip
    assert min(np.mean(widths["mean"]), np.mean(widths["batch"])) > 3
    assert np.isnan(widths["fixed"]).all()
    (result,) = agreement({"batch": by_batch}, truth)
    assert result["rank_spread"] == pytest.approx(np.mean(widths["batch"]))


def test_a_norm_is_the_mean_length_of_what_a_head_adds() -> None:
    model, prepared = shared("bert"), means_of("bert")
    result = output_norms(model, Means(), prepared, model.heads, batch_size=3)
    assert result is not None
    assert result.shape == (len(prepared.items), len(model.heads))
    dense = model.model.encoder.layer[1].attention.output.dense
    lengths: list[float] = []
    for sequence in prepared.sequences:  # one by one: no padding anywhere
        seen: list[torch.Tensor] = []
        handle = dense.register_forward_pre_hook(
            lambda module, args, seen=seen: seen.append(args[0])
        )
        with torch.inference_mode():
            model.model(input_ids=torch.tensor([sequence.source.ids]))
        handle.remove()
        width = dense.weight.shape[1] // 4
        part = slice(2 * width, 3 * width)
        lengths.append(
            float((seen[0][0][:, part] @ dense.weight.detach()[:, part].T).norm(dim=-1).mean())
        )
    assert result[:, model.heads.index(Head("encoder", 1, 2))] == pytest.approx(
        np.array(lengths), rel=1e-5
    )


def test_the_number_of_examples_that_would_do_is_that_at_which_the_ceiling_is_reached() -> None:
    """Planted importances under noise: as many fresh examples as predicted have the ceiling that is asked for."""
    chance = np.random.default_rng(5)
    truth = chance.normal(size=2000)  # so many heads that the ceiling itself is known well

    def noisy(count: int) -> NDArray[np.float64]:
        return truth + 12 * chance.normal(size=(count, len(truth)))

    few = ceiling_of(noisy(100), 0)
    needed = examples_for(few, 100)
    assert needed is not None
    assert few < LEAST_CEILING
    assert ceiling_of(noisy(needed), 0) == pytest.approx(LEAST_CEILING, abs=0.03)
    assert examples_for(0.9, 100) is None, "there are enough"
    assert examples_for(float("nan"), 100) is None, "all noise: nobody knows"
