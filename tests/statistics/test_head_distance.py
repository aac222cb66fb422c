"""Distances between heads: the textbook's number on every family, planted twins found, batches cut anyhow."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch, Marks, Tokens
from headscope.statistics import stream
from headscope.statistics.head_distance import HeadDistance, SampledRows
from reference import js
from tiny import (
    CASES,
    DECODERS,
    ENCODER_DECODERS,
    batch_for,
    examples,
    family_of_case,
    in_double,
    library_attentions,
    real_sides,
    shared,
    tiny,
)

CLS, SEP = 101, 102
MARKS = Marks(special=frozenset({CLS, SEP}))


def distance_for(
    model: AttentionModel, batches: Sequence[Batch], **options: object
) -> HeadDistance:
    statistic = HeadDistance(**options)  # type: ignore[arg-type]
    for _ in stream(model, batches, [statistic]):
        pass
    return statistic


# The reference


def seen(model: AttentionModel, batch: Batch) -> dict[Head, list[Tensor]]:
    """[query, key] of every head and sequence, from the library, padding removed by hand."""
    inputs = dict(batch.inputs)
    result: dict[Head, list[Tensor]] = {}
    for site, weights in library_attentions(model, inputs).items():
        queries, keys = real_sides(inputs, model.model.config.model_type, site.stack)
        for i, of_heads in enumerate(weights.double()):
            for head, map_ in enumerate(of_heads):
                rows = map_[queries[i]][:, keys[i]]
                result.setdefault(Head(site.stack, site.layer, head), []).append(rows)
    return result


def special_of(model: AttentionModel, batch: Batch, stack: str, side: int) -> list[list[bool]]:
    """Whether each query (side 0) or key (side 1) is special, read from the ids by hand."""
    inputs = dict(batch.inputs)
    family = model.model.config.model_type
    real = real_sides(inputs, family, stack)[side]
    if "input_ids" not in inputs:
        return [[False] * int(row.sum()) for row in real]
    of_target = family in ENCODER_DECODERS and (
        stack == "decoder" or (stack == "cross" and side == 0)
    )
    ids = inputs["decoder_input_ids" if of_target else "input_ids"]
    special = set(model.tokenizer.all_special_ids)
    return [
        [int(token) in special for token in row[kept]] for row, kept in zip(ids, real, strict=True)
    ]


@pytest.mark.parametrize("case", CASES)
def test_all_rows_of_all_pairs_agree_with_the_textbook(case: str) -> None:
    model = shared(family_of_case(case))
    lengths = ((9, 4), (9, 6), (5, None), (12, 3), (1, None), (11, 3))
    batch = batch_for(model, examples(case, lengths=lengths))
    maps = distance_for(model, [batch], rows=None).maps()
    library = seen(model, batch)
    stacks = {head.stack for head in library}
    assert set(maps) == {f"{name}/{stack}" for stack in stacks for name in ("js", "js-content")}
    for stack in stacks:
        heads = [
            [item.tolist() for item in maps_]
            for head, maps_ in sorted(library.items())
            if head.stack == stack
        ]
        chosen = [js.rows_with_enough_keys(stack, len(rows)) for rows in heads[0]]
        special = [special_of(model, batch, stack, side) for side in (0, 1)]
        expected, content = np.zeros((2, len(heads), len(heads)))
        for i, item in enumerate(heads):
            for j, other in enumerate(heads):
                if i != j:
                    expected[i, j] = _number(js.mean_divergence(item, other, chosen))
                    content[i, j] = _number(
                        js.mean_content_divergence(item, other, chosen, *special)
                    )
        np.testing.assert_allclose(maps[f"js/{stack}"], expected, atol=1e-5, err_msg=stack)
        np.testing.assert_allclose(maps[f"js-content/{stack}"], content, atol=1e-4, err_msg=stack)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def test_the_sampled_rows_are_what_is_averaged() -> None:
    model = shared("bert")
    batch = batch_for(model, examples("bert"))
    chosen: list[list[int]] = []

    def note(attention: Attention) -> None:
        if attention.site.layer == 0:
            chosen.extend(SampledRows(2, 5)(attention.query, attention.site.stack).tolist())

    with torch.inference_mode(), model.watched(note):
        model(batch)
    assert {len(rows) for rows in chosen} == {1, 2}  # a sequence of one token has no second row
    result = distance_for(model, [batch], rows=2, seed=5).maps()["js/encoder"]
    library = [[one.tolist() for one in maps_] for _, maps_ in sorted(seen(model, batch).items())]
    assert result[1, 6] == pytest.approx(
        js.mean_divergence(library[1], library[6], chosen), abs=1e-6
    )


# Planted truth: maps written by hand


def attention_of(site: Site, weights: Tensor, ids: Tensor, start: int = 0) -> Attention:
    tokens = Tokens(torch.ones_like(ids, dtype=torch.bool), ids, marks=MARKS)
    return Attention(site, weights, tokens, tokens, rows=slice(start, start + len(ids)))


def pointing(length: int, offset: int) -> Tensor:
    return torch.eye(length).roll(offset, dims=1)


def distances(layers: Sequence[Sequence[Tensor]], ids: Tensor, **options: object) -> HeadDistance:
    """What is found over one sequence in which the heads of each layer have these maps [query, key]."""
    statistic = HeadDistance(**options)  # type: ignore[arg-type]
    for layer, maps in enumerate(layers):
        statistic.update(attention_of(Site("encoder", layer), torch.stack(list(maps))[None], ids))
    return statistic


WORDS = torch.arange(10, 20)[None]


def test_duplicates_are_found_across_layers_and_disjoint_heads_are_ln_2_apart() -> None:
    previous, following, uniform = pointing(10, -1), pointing(10, 1), torch.full((10, 10), 0.1)
    statistic = distances([[previous, uniform], [following, previous]], WORDS)
    matrix = statistic.maps()["js/encoder"]
    assert matrix.dtype == np.float64
    assert matrix[0, 3] == pytest.approx(0.0, abs=1e-7)
    assert matrix[0, 2] == pytest.approx(math.log(2), abs=1e-7)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(np.diag(matrix), 0.0)
    one_against_all = math.log(2) + 0.5 * (
        math.log(0.1) - 1.1 * math.log(1.1) - 0.9 * math.log(0.1)
    )
    assert matrix[0, 1] == pytest.approx(one_against_all, abs=1e-6)
    rows = {(row.layer, row.head): row for row in statistic.table()}
    assert rows[0, 0].value == rows[1, 1].value == pytest.approx(0.0, abs=1e-7)
    assert rows[1, 0].value == pytest.approx(one_against_all, abs=1e-6)
    assert {row.statistic for row in rows.values()} == {"twin-distance"}
    assert {row.count for row in rows.values()} == {1}


def test_random_heads_have_no_duplicate() -> None:
    noise = torch.Generator().manual_seed(0)
    maps = torch.softmax(4 * torch.randn(3, 4, 10, 10, generator=noise), dim=-1)
    statistic = distances([list(layer) for layer in maps], WORDS, rows=None)
    assert min(row.value for row in statistic.table()) > 0.2


def test_heads_that_share_a_sink_differ_in_what_is_left() -> None:
    ids = torch.tensor([[CLS, *range(10, 18), SEP]])
    sink = torch.zeros(10, 10)
    sink[:, 0] = 1.0
    maps = [0.9 * sink + 0.1 * pointing(10, offset) for offset in (-1, 1, 1)]
    statistic = distances([maps[:2], maps[2:]], ids, rows=None)
    with_sink, content = (statistic.maps()[f"{name}/encoder"] for name in ("js", "js-content"))
    assert with_sink[0, 1] < 0.08
    # Rows 1 and 8 have a special token on one side, so one of the heads has nothing left there.
    assert content[0, 1] == pytest.approx(math.log(2), abs=1e-6)
    assert content[1, 2] == pytest.approx(0.0, abs=1e-6)


def test_a_pair_without_a_row_to_compare_is_not_a_number() -> None:
    sink = torch.zeros(10, 10)
    sink[:, 0] = 1.0
    ids = torch.tensor([[CLS, *range(10, 19)]])
    content = distances([[sink, pointing(10, 1), pointing(10, 1)]], ids).maps()[
        "js-content/encoder"
    ]
    assert np.isnan(content[0, 1])
    assert content[1, 2] == pytest.approx(0.0, abs=1e-6)


def test_one_head_has_no_duplicate() -> None:
    statistic = distances([[pointing(10, 1)]], WORDS)
    assert statistic.table() == []
    np.testing.assert_array_equal(statistic.maps()["js/encoder"], [[0.0]])


def test_rows_of_a_decoder_with_few_keys_are_left_out() -> None:
    ids = torch.arange(9)[None]
    uniform = torch.tril(torch.ones(9, 9))
    weights = torch.stack([uniform / uniform.sum(dim=1, keepdim=True), torch.eye(9)])[None]
    attention = attention_of(Site("decoder", 0), weights, ids)
    assert SampledRows(None, 0)(attention.query, attention.site.stack).tolist() == [[7, 8]]
    short = attention_of(Site("decoder", 0), weights[..., :5, :5], ids[:, :5])
    statistic = HeadDistance()
    statistic.update(short)
    assert statistic.table() == []
    statistic.update(attention)
    assert {row.count for row in statistic.table()} == {1}  # the short sequence had no row to give


# Cut anyhow


def matrices(statistic: HeadDistance) -> list[NDArray[np.float64]]:
    return [array for _, array in sorted(statistic.maps().items())]


@pytest.mark.parametrize("case", ["bert", "bart", "gpt2", "vit", "xlnet/two-streams"])
def test_which_rows_are_sampled_depends_on_the_text_alone(case: str) -> None:
    model = in_double(shared(family_of_case(case)))
    lengths = [(length, None) for length in (14, 9, 14, 11, 9, 20)]
    some = examples(case, seed=3, lengths=lengths)
    whole = distance_for(model, [batch_for(model, some)])
    cut = distance_for(
        model, [batch_for(model, [some[i] for i in part]) for part in ((5, 2), (0,), (4, 1, 3))]
    )
    tolerance = 1e-5 if case.startswith("xlnet") else 1e-12
    for first, other in zip(matrices(whole), matrices(cut), strict=True):
        np.testing.assert_allclose(first, other, atol=tolerance)
    if case in ("bert", *DECODERS):
        other_rows = distance_for(model, [batch_for(model, some)], seed=1)
        assert np.abs(matrices(whole)[0] - matrices(other_rows)[0]).max() > 1e-4


def test_a_chunk_is_known_as_the_next_batch_in_a_model_of_one_layer() -> None:
    model = in_double(tiny("bert", num_hidden_layers=1))
    batches = [batch_for(model, examples("bert", seed=seed)) for seed in range(3)]
    whole = distance_for(model, batches)
    apart = [distance_for(model, [batch]) for batch in batches]
    merged = apart[0].merge(pickle.loads(pickle.dumps(apart[1]))).merge(apart[2])
    for first, other in zip(matrices(whole), matrices(merged), strict=True):
        np.testing.assert_allclose(first, other, atol=1e-12)
    assert len(pickle.dumps(whole)) == pytest.approx(len(pickle.dumps(apart[2])), abs=64)


def test_layers_may_be_cut_into_other_chunks() -> None:
    """A layer with fewer heads takes more sequences at a time."""
    noise = torch.Generator().manual_seed(0)
    wide, narrow = (
        torch.softmax(torch.randn(3, heads, 10, 10, generator=noise), dim=-1) for heads in (3, 1)
    )
    ids = torch.arange(30).reshape(3, 10)
    together, apart = HeadDistance(), HeadDistance()
    for statistic, cuts in ((together, [slice(0, 3)]), (apart, [slice(0, 1), slice(1, 3)])):
        for cut in cuts:
            statistic.update(attention_of(Site("encoder", 0), wide[cut], ids[cut], cut.start))
        statistic.update(attention_of(Site("encoder", 1), narrow, ids))
    np.testing.assert_allclose(
        together.maps()["js/encoder"], apart.maps()["js/encoder"], atol=1e-12
    )
    assert together.table()[0].count == 3


def test_nothing_is_kept_of_batches_that_are_done() -> None:
    model = tiny("bert")
    statistic = distance_for(model, [batch_for(model, examples("bert"))] * 5)
    assert sum(len(pieces) for pieces in statistic._pending["encoder"].layers.values()) <= 2 * len(
        examples("bert")
    )


def test_heads_of_another_model_are_refused() -> None:
    statistic = distances([[pointing(10, 1), pointing(10, 2)]], WORDS)
    other = distances([[pointing(10, 1)], [pointing(10, 2)]], WORDS)
    with pytest.raises(HeadscopeError) as refusal:
        statistic.merge(other)
    assert str(refusal.value) == (
        "encoder had 2 heads in 1 layers before, and now 2 in 2. Expected whole forward passes of one model."
    )


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(HeadscopeError) as refusal:
        HeadDistance(rows=0)
    assert str(refusal.value) == "rows: must be at least 1, or None for all, got 0."


def test_names_not_asked_for_have_no_rows() -> None:
    assert distances([[pointing(10, 1), pointing(10, 2)]], WORDS, names=()).table() == []
