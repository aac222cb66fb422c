"""The compiled pass against whole maps: every quantity of every family, in every shape that a batch can have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from headscope.heads import Site
from headscope.masks import Masked, read_mask
from headscope.model import fold, seam
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.families import families
from headscope.model.row_sums import RowSums, Wanted, segments_of
from headscope.model.tokens import Batch
from headscope.statistics import Statistic, select_statistics, stream
from headscope.statistics.fixed_patterns import middle_rows
from headscope.statistics.head_distance import SampledRows
from sampling import representative
from tiny import CASES, at_real_tokens, batch_for, examples, family_of_case, outputs, shared

pytestmark = pytest.mark.skipif(not fold.has_numba(), reason="numba is not installed")

SAMPLED = SampledRows(2, 0)
VISIBILITY = (
    *("key_counts", "row_counts", "own", "uniform_columns", "uniform_nearest", "uniform_own"),
)


@contextmanager
def settings_of_fold(**values: Any) -> Iterator[None]:
    """Other values of constants of `model.fold`, or of `has_numba` for the seam."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(seam if name == "has_numba" else fold, name, value)
        yield


def observed(model: AttentionModel, batch: Batch, *, folded: bool) -> dict[Site, list[Any]]:
    """What an observer of sums gets from every site."""
    calls: dict[Site, list[Any]] = {}

    def observe(attention: Any) -> None:
        assert isinstance(attention, RowSums if folded else Attention)
        calls.setdefault(attention.site, []).append(read(attention))

    wanted = Wanted(
        frozenset({"segment_mass", "alike_mass", "position_sums"}),
        (middle_rows, SAMPLED),
        tuple(range(len(batch))),
        tuple(range(len(batch))),
    )
    with (
        settings_of_fold(has_numba=lambda: folded),
        model.watched(observe, wanted=wanted),
        torch.inference_mode(),
    ):
        model(batch)
    return calls


def read(attention: Any) -> list[dict[str, Tensor]]:
    """The quantities of each sequence, cut to its own length."""
    queries, keys = attention.lengths.long().tolist(), attention.key_lengths.long().tolist()
    pairs = segments_of(attention.key, torch.float32).is_pair.tolist()
    sequences = []
    for i, (n, m) in enumerate(zip(queries, keys, strict=True)):
        middle = attention.key.length - 1
        offsets = slice(middle - m + 1, middle + m)
        values = {
            "row_max": attention.row_max[i, :, :n],
            "row_entropy": attention.row_entropy[i, :, :n],
            "content_row_max": attention.content_row_max[i, :, :n].clamp_min(-0.5),
            "quarter_mass": attention.quarter_mass[i, :, :, :m],
            "column_mass": attention.column_mass[i, :, :m],
            "class_mass": attention.class_mass[i],
            "middle rows": attention.rows_of(middle_rows)[i, ..., :m],
            "picture": attention.picture_of(i),
            "row_argmax": attention.row_argmax[i, :, :n],
            "content_row_argmax": attention.content_row_argmax[i, :, :n],
        }
        if isinstance(attention, Attention):
            values["weights"] = attention.weights[i]
        for name in VISIBILITY:
            part = getattr(attention.visibility, name)
            part = part[min(i, len(part) - 1)]
            # Heads that agree may share an axis of size 1
            part = part.expand(attention.row_max.shape[1], *part.shape[1:])
            length = {"key_counts": n, "uniform_nearest": 3}.get(name, m)
            values[name] = part[:, :length]
        if attention.within_one_text:
            positions = SAMPLED(attention.query, attention.site.stack)[i] >= 0
            values |= {
                "offset_mass": attention.offset_mass[i, :, offsets],
                "content_argmax_offsets": attention.content_argmax_offsets[i, :, offsets],
                "diagonal": attention.diagonal[i, :, :n],
                "near_content_mass": attention.near_content_mass[i],
                "sampled rows": attention.rows_of(SAMPLED)[i, :, positions, :m],
            }
            if pairs[i]:
                values["segment_mass"] = attention.segment_mass[i, :, :, :n]
                values["alike_mass"] = attention.alike_mass[i]
        else:
            for name in ("own", "uniform_nearest", "uniform_own"):
                del values[name]
        sequences.append({name: value.double().clone() for name, value in values.items()})
    return sequences


def assert_alike(model: AttentionModel, batch: Batch) -> int:
    """The number of sites whose sums were compared."""
    by_map = observed(model, batch, folded=False)
    by_sums = observed(model, batch, folded=True)
    assert by_map.keys() == by_sums.keys()
    for site, (sequences,) in by_sums.items():
        expected = [sequence for chunk in by_map[site] for sequence in chunk]
        assert len(expected) == len(sequences)
        for sequence, reference in zip(sequences, expected, strict=True):
            weights = reference.pop("weights")
            assert sequence.keys() == reference.keys()
            for name, value in sequence.items():
                if name.endswith("argmax"):  # of almost equal weights either may be first
                    has_key = sequence[name.replace("argmax", "max")] > 0
                    value, reference[name] = (
                        weights.gather(-1, keys.long()[..., None])[..., 0][has_key]
                        for keys in (value, reference[name])
                    )
                # Sums of up to 200 rows in float32 on the side of the maps
                torch.testing.assert_close(
                    value,
                    reference[name],
                    rtol=2e-6,
                    atol=2e-6,
                    msg=lambda text, where=(site, name): f"{where}: {text}",
                )
    return len(by_sums)


FOLDED = [case for case in CASES if families()[family_of_case(case)].tap is None]


@pytest.mark.parametrize("case", representative(CASES))
def test_families_of_the_attention_interface_take_the_compiled_pass(case: str) -> None:
    model = shared(family_of_case(case))
    seen: list[type] = []
    with (
        model.watched(lambda attention: seen.append(type(attention)), wanted=Wanted()),
        torch.inference_mode(),
    ):
        model(batch_for(model, examples(case)))
    assert set(seen) == {RowSums if case in FOLDED else Attention}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("case", FOLDED)
def test_sums_are_those_of_the_maps(case: str, side: str) -> None:
    model = shared(case)
    assert assert_alike(model, batch_for(model, examples(case), side)) >= 2


@pytest.mark.parametrize("case", FOLDED)
def test_observing_does_not_change_the_output(case: str) -> None:
    model = shared(case)
    batch = batch_for(model, examples(case))
    with torch.inference_mode():
        plain = outputs(model, batch.inputs)
        with model.watched(lambda attention: None, wanted=Wanted()):
            watched = outputs(model, batch.inputs)
    watched, plain = (at_real_tokens(x, batch.inputs) for x in (watched, plain))
    torch.testing.assert_close(watched, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", ["bert", "llama", "marian"])
def test_strips_groups_and_threads_change_nothing(case: str, threads: int) -> None:
    model = shared(case)
    batch = batch_for(model, examples(case))
    with settings_of_fold(STRIP_CELLS=200, GROUP_CELLS=1, thread_count=lambda: threads):
        assert_alike(model, batch)
        # One sequence at a time, so that rows come in strips
        for example in examples(case)[:2]:
            assert_alike(model, batch_for(model, [example]))


@pytest.mark.parametrize("case", ["bert", "gpt2", "bart"])
def test_one_token_and_all_padding_but_one(case: str) -> None:
    model = shared(case)
    assert_alike(model, batch_for(model, examples(case, lengths=[(1, None)])))
    assert_alike(model, batch_for(model, examples(case, lengths=[(1, None), (60, 9)])))


@pytest.mark.parametrize("mask", ["window:width=1", "star"])
def test_masks_of_edits_are_seen(mask: str) -> None:
    model = shared("bert")
    with model.edited(Masked(read_mask(mask))):
        assert_alike(model, batch_for(model, examples("bert")))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.booleans())
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_any_lengths(lengths: list[int], is_decoder: bool) -> None:
    case = "llama" if is_decoder else "bert"
    model = shared(case)
    assert_alike(model, batch_for(model, examples(case, lengths=[(n, None) for n in lengths])))


@pytest.mark.parametrize("case", FOLDED)
def test_every_default_statistic_is_the_same(case: str) -> None:
    model = shared(case)
    batches = [batch_for(model, examples(case)[i : i + 3]) for i in (0, 3)]

    def measure(folded: bool) -> list[Statistic]:
        statistics = select_statistics()
        with settings_of_fold(has_numba=lambda: folded):
            for _ in stream(model, batches, statistics):
                pass
        return statistics

    by_map, by_sums = measure(False), measure(True)
    for reference, statistic in zip(by_map, by_sums, strict=True):
        rows, expected = statistic.table(), reference.table()
        assert [(row.head, row.statistic, row.count) for row in rows] == [
            (row.head, row.statistic, row.count) for row in expected
        ]
        for row, other in zip(rows, expected, strict=True):
            assert row.value == pytest.approx(other.value, rel=2e-6, abs=2e-6, nan_ok=True), row
        assert statistic.maps().keys() == reference.maps().keys()
        assert statistic.tables().keys() == reference.tables().keys()


def test_maps_are_given_where_sums_are_not_enough() -> None:
    """Another observer that needs whole maps, float64, or edited weights: maps for everybody."""
    model = shared("bert")
    batch = batch_for(model, examples("bert"))
    seen: list[type] = []

    def observe(attention: Any) -> None:
        seen.append(type(attention))

    with torch.inference_mode():
        with model.watched(lambda attention: None), model.watched(observe, wanted=Wanted()):
            model(batch)
        assert set(seen) == {Attention}
        seen.clear()
        with model.edited("0.1"), model.watched(observe, wanted=Wanted()):
            model(batch)
    assert seen
