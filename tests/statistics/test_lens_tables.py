"""Gradients by class of token, mixing by layer, and what is compared with raw: against loops over cells."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from statistics import mean

import numpy as np
import pytest
from torch import Tensor

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses import LENSES, make_lens
from headscope.model.tokens import Batch
from headscope.statistics import Statistic, select_statistics, stream
from headscope.statistics.against_raw import AgainstRaw
from headscope.statistics.effective_lengths import EffectiveLengths
from headscope.statistics.gradient_classes import GradientClasses
from headscope.statistics.mixing import Mixing
from tiny import CLS, COMMA, SEP, STOP, batch_for, examples, tiny

LENGTHS = ((14, 4), (14, 6), (11, None), (19, 3))


def losses(model: AttentionModel, batch: Batch) -> Tensor:
    real = batch.inputs["attention_mask"]
    return (model(batch)[0].square().mean(dim=-1) * real).sum(dim=1) / real.sum(dim=1)


def through(
    family: str, lens: str, statistics: list[Statistic], size: int = 4
) -> list[tuple[Site, Attention]]:
    """Ask the statistics through a lens; every sequence's `Attention` by itself, copied."""
    model = tiny(family)
    made = examples(family, lengths=LENGTHS)
    batches = [batch_for(model, made[start : start + size]) for start in range(0, len(made), size)]
    kept = []

    class Keep(AgainstRaw):
        def update(self, attention: Attention) -> None:
            for i in range(len(attention.weights)):
                single = copy.copy(attention)
                single.weights = attention.weights[i].double().clone()
                single.raw = copy.copy(attention.raw)
                single.raw.weights = attention.raw.weights[i].double().clone()
                single.gradient = (
                    None if attention.gradient is None else attention.gradient[i].double().clone()
                )
                single.row_totals = attention.row_totals[i].double().clone()
                single.ids = attention.key.ids[i].tolist()
                kept.append((attention.site, single))

    for _ in stream(
        model, batches, [], through={make_lens(lens, model): [*statistics, Keep()]}, losses=losses
    ):
        pass
    return kept


def kind(token: int, position: int) -> str:
    if position == 0 and token not in (CLS, SEP):
        return "first"
    return {CLS: "cls", SEP: "sep", STOP: "punctuation", COMMA: "punctuation"}.get(token, "other")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_gradients_by_class_are_means_over_the_weights_that_are_there(family: str) -> None:
    statistic = GradientClasses()
    seen = through(family, "gradient", [statistic])
    of_texts = defaultdict(list)
    for site, item in seen:
        a, g, cells = item.raw.weights, item.gradient, defaultdict(list)
        for head in range(a.shape[0]):
            for i in range(
                0 if family == "bert" else 1, a.shape[1]
            ):  # the first row of a decoder has no choice
                average = sum(float(a[head, i, k] * g[head, i, k]) for k in range(a.shape[2]))
                for j in range(a.shape[2]):
                    if family == "bert" or j <= i:
                        weight, slope = float(a[head, i, j]), float(g[head, i, j])
                        cells[kind(item.ids[j], j)].append(
                            (abs(slope), abs(weight * slope), abs(slope - average), weight)
                        )
        rows = a.shape[0] * (a.shape[1] if family == "bert" else a.shape[1] - 1)
        for name, match in cells.items():
            columns = [mean(column) for column in zip(*match, strict=True)]
            for measure, value in zip(("gradient", "weighted", "centred"), columns, strict=False):
                of_texts[site.layer, name, measure].append(value)
                if name != "other":
                    others = mean(column for column in list(zip(*cells["other"], strict=True))[
                        ("gradient", "weighted", "centred").index(measure)])  # fmt: skip
                    of_texts[site.layer, name, f"{measure}-ratio"].append(value / others)
            of_texts[site.layer, name, "attention"].append(sum(cell[3] for cell in match) / rows)
    table = {(r["layer"], r["class"], r["measure"]): r for r in statistic.tables()["gradients"]}
    for key, values in of_texts.items():
        assert table[key]["value"] == pytest.approx(mean(values), rel=1e-3), key
        assert table[key]["count"] == len(values)
    assert {key for key in table if key[2] != "uniform"} == set(of_texts)


@pytest.mark.parametrize("lens", ["norm", "effective", "effective-simplex", "gradient"])
def test_what_is_compared_with_raw(lens: str) -> None:
    statistic = AgainstRaw()
    seen = through("bert", lens, [statistic])
    result: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    for site, item in seen:
        for head in range(4):
            raw, mine = item.raw.weights[head].numpy(), item.weights[head].numpy()
            result[site.layer, head, "raw-correlation"].append(
                float(np.corrcoef(raw.ravel(), mine.ravel())[0, 1])
            )
            rows = [
                float(r @ m / math.sqrt(r @ r) / math.sqrt(m @ m))
                for r, m in zip(raw, mine, strict=True)
            ]
            result[site.layer, head, "raw-cosine"].append(mean(rows))
            result[site.layer, head, "row-total"].append(float(item.row_totals[head].mean()))
    table = {(row.layer, row.head, row.statistic): row.value for row in statistic.table()}
    for key, values in result.items():
        assert table[key] == pytest.approx(mean(values), abs=2e-4), key
    assert any(name == "rank" for _, _, name in table) == lens.startswith("effective")


def test_correlations_with_raw_are_reported_by_length() -> None:
    statistic = EffectiveLengths()
    result: dict[tuple[int, int], list[float]] = defaultdict(list)
    for site, item in through("bert", "effective", [statistic]):
        pairs = zip(item.raw.weights.numpy(), item.weights.numpy(), strict=True)
        tokens = len(item.ids)
        of_heads = [float(np.corrcoef(raw.ravel(), mine.ravel())[0, 1]) for raw, mine in pairs]
        result[site.layer, min(n for n in (16, 24, 32) if tokens <= n)].append(mean(of_heads))
    table = {(row["layer"], row["up_to"]): row for row in statistic.tables()["effective_lengths"]}
    assert {key: row["value"] for key, row in table.items()} == pytest.approx(
        {key: mean(values) for key, values in result.items()}, abs=2e-4
    )
    assert {key: row["count"] for key, row in table.items()} == {
        key: len(values) for key, values in result.items()
    }
    assert {up_to for _, up_to in table} >= {16, 24}


@pytest.mark.parametrize(
    ("lens", "make"),
    [("norm", Mixing), ("gradient", GradientClasses), ("effective", EffectiveLengths)],
)
def test_tables_do_not_depend_on_how_the_data_are_cut(lens: str, make: type[Statistic]) -> None:
    whole, single, halves = make(), make(), [make(), make()]
    through("bert", lens, [whole])
    through("bert", lens, [single], size=1)
    through("bert", lens, [halves[0]])
    through("bert", lens, [halves[1]])
    merged = halves[0].merge(halves[1])
    for name, rows in whole.tables().items():
        for mine, alone, twice in zip(
            rows, single.tables()[name], merged.tables()[name], strict=True
        ):
            assert mine["value"] == pytest.approx(alone["value"], rel=1e-4, abs=1e-7)
            assert mine["value"] == pytest.approx(twice["value"], rel=1e-9)
            assert twice["count"] == 2 * mine["count"]


def test_a_statistic_is_absent_through_a_lens_whose_maps_it_makes_no_sense_of() -> None:
    names = {
        lens: {name for one in select_statistics(None, LENSES[lens]) for name in one.names}
        for lens in LENSES
    }
    assert {"entropy", "confidence", "sep", "distance"} <= names["norm"]
    assert "entropy" not in names["effective"] | names["effective-simplex"] | names["gradient"]
    assert "confidence" in names["effective-simplex"]
    assert "confidence" not in names["effective"] | names["gradient"]
    assert all(
        "sep" in of_lens and "raw-correlation" in of_lens
        for lens, of_lens in names.items()
        if lens != "raw"
    )
    assert "raw-correlation" not in {name for one in select_statistics() for name in one.names}
