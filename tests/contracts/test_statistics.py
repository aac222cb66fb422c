"""Every statistic on every family: does it say what the formula says, however the data are cut?"""

from __future__ import annotations

import copy
import gc
import math
import pickle
import random
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.families import families
from headscope.model.surgery import prune, units
from headscope.model.tokens import Batch
from headscope.statistics import Statistic, glossary, registry, select_statistics, stream
from headscope.statistics.fixed_patterns import FixedPatterns
from headscope.statistics.pattern_classes import PatternClasses
from headscope.tables import Row
from reference import surface
from reference.surface import Seen
from sampling import representative
from tiny import (
    CASES,
    CLS,
    COMMA,
    CONFIGS,
    DECODERS,
    ENCODER_DECODERS,
    MOVED_BY_LEFT_PADDING,
    SEP,
    STOP,
    UNKNOWN,
    WITHOUT_CLASSIFICATION,
    Example,
    batch_for,
    examples,
    family_of_case,
    in_double,
    library_attentions,
    real_sides,
    shared,
    tiny,
)

FEW = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
Table = dict[tuple[Head, str], Row]


# Helpers: what the fast code says, what the slow twin says


ARGMAX = {"argmax-share", "argmax-offset", "positional-share"}
SURFACE = {*surface.PER_SEQUENCE, *ARGMAX}
# Statistics whose reference is in a test file of their own.
TESTED_ELSEWHERE = {
    **dict.fromkeys(
        ["rarest", "two-rarest", "rarest-rows", "two-rarest-rows"], "planted/test_rare_words.py"
    ),
    "antecedent": "planted/test_antecedents.py",
    "twin-distance": "statistics/test_head_distance.py",
    **dict.fromkeys(
        ["row-total", "raw-correlation", "raw-cosine"], "statistics/test_lens_tables.py"
    ),
    "rank": "planted/test_planted_lenses.py",
    **dict.fromkeys(PatternClasses.definitions, "statistics/test_pattern_classes.py"),
    **dict.fromkeys(FixedPatterns.definitions, "statistics/test_fixed_patterns.py"),
}


def statistics_of(model: AttentionModel, batches: Iterable[Batch]) -> list[Statistic]:
    """All statistics after one pass."""
    statistics = select_statistics()
    for _ in stream(model, batches, statistics):
        pass
    return statistics


def table_of(statistics: Iterable[Statistic]) -> Table:
    rows = [row for statistic in statistics for row in statistic.table()]
    table = {(Head(row.stack, row.layer, row.head), row.statistic): row for row in rows}
    assert len(table) == len(rows), "a head has two rows for one statistic"
    return table


def maps_of(statistics: Iterable[Statistic]) -> dict[str, np.ndarray]:
    return {name: array for statistic in statistics for name, array in statistic.maps().items()}


def seen_by_the_library(model: AttentionModel, batches: Iterable[Batch]) -> dict[Head, list[Seen]]:
    """Every head's rows for every sequence, padding removed by hand."""
    result: dict[Head, list[Seen]] = {}
    family = model.model.config.model_type
    for batch in batches:
        inputs = dict(batch.inputs)
        for site, weights in library_attentions(model, inputs).items():
            real_queries, real_keys = real_sides(inputs, family, site.stack)
            query_ids, key_ids = _ids(inputs, family, site.stack)
            for i, of_heads in enumerate(weights.double()):
                cells = of_heads[:, real_queries[i]][:, :, real_keys[i]].tolist()
                query, key = (
                    surface.kinds(
                        None if ids is None else ids[i][real[i]].tolist(),
                        model.tokenizer,
                        int(real[i].sum()),
                    )
                    for ids, real in ((query_ids, real_queries), (key_ids, real_keys))
                )
                for head, rows in enumerate(cells):
                    result.setdefault(Head(site.stack, site.layer, head), []).append(
                        Seen(rows, query, key, site.stack in surface.WITHIN_ONE_TEXT)
                    )
    return result


def _ids(inputs: dict, family: str, stack: str) -> tuple:
    source, target = inputs.get("input_ids"), inputs.get("decoder_input_ids")
    if family in ENCODER_DECODERS and stack != "encoder":
        return target, target if stack == "decoder" else source
    return source, source


@cache
def both(case: str, side: str) -> tuple[list[Statistic], dict[Head, list[Seen]]]:
    """The fast answer and what the slow one is made of, for one padded batch and one of one sequence."""
    model = shared(family_of_case(case))
    some = examples(case)
    batches = [batch_for(model, some[:-1], side), batch_for(model, some[-1:], side)]
    return statistics_of(model, batches), seen_by_the_library(model, batches)


def assert_agrees(table: Table, library: dict[Head, list[Seen]], names: Iterable[str]) -> None:
    """The rows of these names are those of the reference: values to 1e-5, counts and argmax offsets exactly."""
    names = set(names)
    expected: dict[tuple[Head, str], surface.Answer] = {}
    for head, sequences in library.items():
        for name, answer in surface.answers(head.stack, sequences).items():
            expected[head, name] = answer
        offsets = surface.argmax_offsets(sequences) if head.stack in surface.WITHIN_ONE_TEXT else []
        if not offsets:
            continue
        row = table.get((head, "argmax-offset")) or table.get((head, "argmax-share"))
        assert row is not None or not names & ARGMAX, f"{head} has no argmax rows"
        predicted = (
            int(table[head, "argmax-offset"].value)
            if (head, "argmax-offset") in table
            else offsets[0]
        )
        assert predicted in offsets, f"{head}: the mode is at {offsets}, not {predicted}"
        share = surface.argmax_share(sequences, predicted)
        assert share is not None
        expected[head, "argmax-share"] = share
        positional = surface.positional_share(sequences, predicted)
        assert positional is not None
        expected[head, "positional-share"] = positional
        expected[head, "argmax-offset"] = surface.Answer(
            float(predicted), math.nan, math.nan, share.count
        )
    expected = {key: answer for key, answer in expected.items() if key[1] in names}
    assert {key for key in table if key[1] in names} == set(expected)
    for (head, name), answer in expected.items():
        row = table[head, name]
        assert row.count == answer.count, f"{name} of {head}"
        np.testing.assert_allclose(
            [row.value, row.low, row.high],
            [answer.value, answer.low, answer.high],
            rtol=1e-5,
            atol=1e-5,
            err_msg=f"{name} of {head}",
        )


def assert_same(
    left: Sequence[Statistic],
    right: Sequence[Statistic],
    tolerance: float = 1e-6,
    maps: bool = True,
) -> None:
    """Two passes gave the same tables and maps."""
    first, other = table_of(left), table_of(right)
    assert first.keys() == other.keys()
    for (head, name), row in first.items():
        counterpart = other[head, name]
        assert row.count == counterpart.count
        np.testing.assert_allclose(
            [row.value, row.low, row.high],
            [counterpart.value, counterpart.low, counterpart.high],
            rtol=tolerance,
            atol=tolerance,
            err_msg=f"{name} of {head}",
        )
    if maps:
        these, those = maps_of(left), maps_of(right)
        assert these.keys() == those.keys()
        for name, array in these.items():
            np.testing.assert_allclose(
                array, those[name], rtol=tolerance, atol=tolerance, err_msg=name
            )


# Coverage


def test_every_registered_family_has_a_tiny_model() -> None:
    assert set(CONFIGS) == set(families())


def test_every_registered_statistic_has_a_reference() -> None:
    """Here, or in a file of its own that compares it with a twin of its own."""
    named = {
        name
        for name, file in TESTED_ELSEWHERE.items()
        if (Path(__file__).parents[1] / file).is_file()
    }
    assert set(glossary()) == SURFACE | named


@pytest.mark.parametrize("case", CASES)
def test_tiny_models_attend_far_from_uniformly(case: str) -> None:
    library = both(case, "right")[1]
    for head, sequences in library.items():
        longest = max(sequences, key=lambda seen: len(seen.key))
        assert surface.confidence(longest) > 1.5 / len(longest.key), head
    means = [
        surface.answers(head.stack, sequences)["entropy"].value
        for head, sequences in library.items()
    ]
    assert len({round(mean, 4) for mean in means}) == len(means), "no two heads are alike"


# The reference


@pytest.mark.product
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "kind",
    [kind for kind in registry() if SURFACE & set(kind.definitions)],
    ids=lambda kind: "+".join(sorted(SURFACE & set(kind.definitions))),  # for -k NAME
)
@pytest.mark.parametrize("case", CASES)
def test_a_statistic_agrees_with_the_sum_written_out_by_hand(
    case: str, kind: type[Statistic], side: str
) -> None:
    statistics, library = both(case, side)
    mine = [statistic for statistic in statistics if type(statistic) is kind]
    assert mine
    assert_agrees(table_of(mine), library, SURFACE & set(kind.definitions))


@pytest.mark.product
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("case", CASES)
def test_maps_agree_with_the_sums_written_out_by_hand(case: str, side: str) -> None:
    statistics, library = both(case, side)
    assert_maps_agree(maps_of(statistics), library)


def assert_maps_agree(maps: dict[str, np.ndarray], library: dict[Head, list[Seen]]) -> None:
    stacks = {head.stack for head in library}
    expected = {f"map/{stack}" for stack in stacks} | {
        f"offset/{stack}" for stack in stacks & set(surface.WITHIN_ONE_TEXT)
    }
    assert {name for name in maps if name.startswith(("map/", "offset/"))} == expected
    for head, sequences in library.items():
        weights = maps[f"map/{head.stack}"][head.layer, head.head]
        np.testing.assert_allclose(
            weights, surface.position_map(sequences), rtol=1e-5, atol=1e-5, err_msg=str(head)
        )
        if head.stack in surface.WITHIN_ONE_TEXT:
            offsets = maps[f"offset/{head.stack}"][head.layer, head.head]
            np.testing.assert_allclose(
                offsets, surface.offset_map(sequences), rtol=1e-5, atol=1e-5, err_msg=str(head)
            )


@pytest.mark.parametrize("case", ["bert", "gpt2", "modernbert", "mpnet", "t5"])
def test_long_sequences_agree_and_maps_end_at_their_cap(case: str) -> None:
    model = (
        tiny(case, num_hidden_layers=1, num_layers=1, n_layer=1)
        if case != "t5"
        else tiny(case, num_layers=1)
    )
    some = examples(case, lengths=((140, 30), (140, 50), (140, 30), (6, None), (129, None)))
    batches = [batch_for(model, some)]
    statistics, library = statistics_of(model, batches), seen_by_the_library(model, batches)
    assert_agrees(table_of(statistics), library, SURFACE)
    maps = maps_of(statistics)
    assert all(
        max(array.shape[2:]) == surface.MAP_POSITIONS
        for name, array in maps.items()
        if name.startswith("map/")
    )
    for head in [head for head in library if head.head == 0]:
        weights = maps[f"map/{head.stack}"][head.layer, head.head]
        np.testing.assert_allclose(
            weights, surface.position_map(library[head]), rtol=1e-5, atol=1e-5
        )


# However the data are cut


@pytest.mark.parametrize("case", representative(CASES))
@given(data=st.data())
@FEW
def test_split_and_merge_equals_the_whole(case: str, data: st.DataObject) -> None:
    model = shared(family_of_case(case))
    some = examples(case)
    batches = [batch_for(model, some[i : i + 2]) for i in range(0, len(some), 2)]
    part = [data.draw(st.sampled_from([0, 1, 2])) for _ in batches]  # a part may be empty
    parts = [
        statistics_of(model, [batch for batch, p in zip(batches, part, strict=True) if p == n])
        for n in range(3)
    ]
    merged = [a.merge(b).merge(c) for a, b, c in zip(*parts, strict=True)]
    assert_same(merged, statistics_of(model, batches))


@pytest.mark.parametrize("case", representative(CASES))
@given(data=st.data())
@FEW
def test_order_and_batch_size_do_not_matter(case: str, data: st.DataObject) -> None:
    model = double(family_of_case(case))
    some = examples(case)
    order = data.draw(st.permutations(some))
    size = data.draw(st.integers(1, len(some)))
    cut = [batch_for(model, order[i : i + size]) for i in range(0, len(order), size)]
    assert_same(
        statistics_of(model, cut),
        statistics_of(model, [batch_for(model, some)]),
        tolerance=rounding(model),
    )


@pytest.mark.parametrize(
    "case", [case for case in CASES if case not in (*MOVED_BY_LEFT_PADDING, "vit")]
)
def test_padding_side_does_not_matter(case: str) -> None:
    model = double(family_of_case(case))
    some = examples(case)
    right, left = (
        statistics_of(model, [batch_for(model, some, side)]) for side in ("right", "left")
    )
    assert_same(right, left, tolerance=rounding(model))


def rounding(model: AttentionModel) -> float:
    """1e-6 where the model itself is that exact: in float32 its own outputs move by more with the padding."""
    return 1e-6 if model.model.dtype == torch.float64 else 1e-5


@cache
def double(family: str) -> AttentionModel:
    return in_double(shared(family))


@pytest.mark.parametrize("case", representative(CASES))
def test_a_statistic_may_be_pickled_midway(case: str) -> None:
    model = shared(family_of_case(case))
    some = examples(case)
    batches = [batch_for(model, some[:3]), batch_for(model, some[3:])]
    halfway = pickle.loads(pickle.dumps(statistics_of(model, batches[:1])))
    for _ in stream(model, batches[1:], halfway):
        pass
    assert_same(halfway, statistics_of(model, batches))


@pytest.mark.parametrize("case", representative(CASES))
def test_merging_leaves_the_other_one_as_it_was(case: str) -> None:
    model = shared(family_of_case(case))
    batch = batch_for(model, examples(case))
    first, other = statistics_of(model, [batch]), statistics_of(model, [batch])
    before = copy.deepcopy(other)
    merged = [mine.merge(theirs) for mine, theirs in zip(first, other, strict=True)]
    assert_same(other, before, tolerance=0.0)
    twice = table_of(merged)
    once = table_of(before)
    assert all(row.count == 2 * once[key].count for key, row in twice.items())


@pytest.mark.parametrize("case", CASES)
def test_statistics_change_neither_the_inputs_nor_the_attention(case: str) -> None:
    model = shared(family_of_case(case))
    batch = batch_for(model, examples(case))
    inputs = {name: tensor.clone() for name, tensor in batch.inputs.items()}
    statistics, weights, calls = select_statistics(), [], []

    def before(attention: Attention) -> None:
        weights.append(
            (
                attention.weights.clone(),
                attention.query.special.clone(),
                attention.key.content.clone(),
            )
        )

    def ask(attention: Attention) -> None:
        for statistic in statistics:
            statistic.update(attention)

    def after(attention: Attention) -> None:
        then = weights.pop()
        now = (attention.weights, attention.query.special, attention.key.content)
        assert all(torch.equal(one, other) for one, other in zip(then, now, strict=True))
        calls.append(attention.site)

    with torch.inference_mode(), model.watched(before, ask, after):
        model(batch)
    assert set(calls) >= {site for site in model.sites if site.stack != "query"}
    assert all(torch.equal(tensor, inputs[name]) for name, tensor in batch.inputs.items())


@pytest.mark.slow
def test_what_is_kept_does_not_grow_with_the_number_of_batches() -> None:
    model = tiny("bert", num_hidden_layers=1)
    batch = batch_for(model, examples("bert", lengths=((7, 3),)))
    statistics = select_statistics()
    tensors, sizes = [], []
    for n, _ in enumerate(stream(model, [batch] * 512, statistics), start=1):
        if (
            n % 256 == 0
        ):  # sums of a few sequences wait for each other: up to 64 chunks, 256 sequences
            gc.collect()
            tensors.append(sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects()))
            sizes.append(len(pickle.dumps(statistics)))
    assert tensors[1] <= tensors[0]  # other tests' rubbish may go meanwhile
    assert sizes[0] == pytest.approx(sizes[1], abs=64)  # only the digits of the counts


# Odd sequences


def odd(case: str, *rows: Sequence[int]) -> list[Example]:
    """Examples with exactly these ids on the source side, and on the target side behind the start token."""
    family = family_of_case(case)
    start = CONFIGS[family].get("decoder_start_token_id")
    target = None if family not in ENCODER_DECODERS else start
    predict = (0,) if case == "xlnet/two-streams" else None
    return [
        Example(tuple(row), None if target is None else (target, *row), predict) for row in rows
    ]


TEXT_CASES = [case for case in CASES if case != "vit"]


def assert_no_nan(table: Table) -> None:
    for (head, name), row in table.items():
        assert math.isfinite(row.value), f"{name} of {head}"
        empty = row.count == 1 or name == "argmax-offset"
        assert math.isnan(row.low) == math.isnan(row.high) == empty, f"{name} of {head}"


@pytest.mark.product
@pytest.mark.parametrize("case", TEXT_CASES)
@pytest.mark.parametrize("ids", [(9,), (SEP,)], ids=["a word", "a separator"])
def test_a_one_token_sequence_has_a_defined_outcome(case: str, ids: tuple[int, ...]) -> None:
    model = shared(family_of_case(case))
    batches = [batch_for(model, odd(case, ids))]
    table = table_of(statistics_of(model, batches))
    assert_no_nan(table)
    assert_agrees(table, seen_by_the_library(model, batches), SURFACE)
    stack = "decoder" if case in DECODERS else "encoder"
    assert table[Head(stack, 0, 0), "self"].value == pytest.approx(1.0)
    assert table[Head(stack, 0, 0), "distance"].value == 0.0
    assert ((Head(stack, 0, 0), "argmax-share") in table) == (ids == (9,))


@pytest.mark.parametrize("case", TEXT_CASES)
def test_a_sequence_of_special_tokens_only_has_no_content_rows(case: str) -> None:
    model = shared(family_of_case(case))
    bare = (CLS, SEP) if family_of_case(case) not in WITHOUT_CLASSIFICATION else (UNKNOWN, SEP)
    alone = [batch_for(model, odd(case, bare, bare))]
    table = table_of(statistics_of(model, alone))
    assert_no_nan(table)
    assert_agrees(table, seen_by_the_library(model, alone), SURFACE)
    assert not {"confidence-content", *ARGMAX} & {name for _, name in table}
    assert all(row.value == 0.0 for (_, name), row in table.items() if name == "punctuation")
    assert all(
        row.value == pytest.approx(1.0) for (_, name), row in table.items() if name == "special"
    )
    mixed = [batch_for(model, odd(case, bare, (*bare, 9, 10), bare, (9, *bare, 11)))]
    table = table_of(statistics_of(model, mixed))
    assert_no_nan(table)
    assert_agrees(table, seen_by_the_library(model, mixed), SURFACE)
    assert {
        row.count
        for (head, name), row in table.items()
        if name == "confidence-content" and head.stack != "query"
    } == {2}


@pytest.mark.parametrize("case", TEXT_CASES)
def test_equal_lengths_with_separators_at_different_places_share_a_batch(case: str) -> None:
    model = shared(family_of_case(case))
    rows = [(CLS, 9, SEP, 10, STOP, SEP), (CLS, 11, 12, SEP, COMMA, SEP), (SEP, 13, 14, 15, 16, 17)]
    batches = [batch_for(model, odd(case, *rows))]
    same_places: list[bool] = []
    with (
        torch.inference_mode(),
        model.watched(
            lambda a: same_places.append(bool((a.key.special == a.key.special[:1]).all()))
        ),
    ):
        model(batches[0])
    assert not all(same_places), "this test is about a chunk whose separators differ"
    assert_agrees(
        table_of(statistics_of(model, batches)), seen_by_the_library(model, batches), SURFACE
    )


@pytest.mark.parametrize("case", ["bert", "gpt2", "llama", "bart", "distilbert", "vit"])
def test_exact_ties_share_their_credit(case: str) -> None:
    model = tiny(case)
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if any(part in name for part in (".query.", "q_proj", "q_lin")):
                parameter.zero_()
            elif "c_attn" in name:
                parameter[..., : model.model.config.n_embd] = 0
    batches = [batch_for(model, examples(case))]
    statistics, library = statistics_of(model, batches), seen_by_the_library(model, batches)
    assert_agrees(table_of(statistics), library, SURFACE)
    stack = "decoder" if case in DECODERS else "encoder"
    for seen in library[Head(stack, 1, 1)]:
        assert all(len({weight for weight in row if weight > 0}) == 1 for row in seen.rows), (
            "every row is a tie"
        )
    if case == "bert":
        lone = [batch_for(model, [Example((CLS, 9, 10, SEP))])]
        row = table_of(statistics_of(model, lone))[Head("encoder", 0, 0), "argmax-share"]
        assert row.value == pytest.approx(
            0.5
        )  # two rows, each half on itself and half on its neighbour


@pytest.mark.parametrize("case", representative(CASES))
def test_absent_classes_have_no_rows(case: str) -> None:
    family = family_of_case(case)
    model = shared(family)
    if family == "vit":
        names = {
            name for _, name in table_of(statistics_of(model, [batch_for(model, examples(case))]))
        }
        assert not names & {"cls", "sep", "punctuation", "special", "cls-entropy"}
        return
    plain = table_of(statistics_of(model, [batch_for(model, odd(case, (9, 10, 11), (12, 13, 14)))]))
    key_side = {
        name for head, name in plain if head.stack in ("encoder", "cross") or family in DECODERS
    }
    assert not key_side & {"cls", "sep", "special"}
    assert {row.value for (head, name), row in plain.items() if name == "punctuation"} == {0.0}
    assert "cls-entropy" not in {name for _, name in plain}
    full = table_of(statistics_of(model, [batch_for(model, examples(case))]))
    present = {name for _, name in full}
    assert {"sep", "punctuation", "special"} <= present
    assert ({"cls", "cls-entropy"} <= present) == (family not in WITHOUT_CLASSIFICATION)


@pytest.mark.parametrize("case", [*ENCODER_DECODERS, "xlnet/two-streams"])
def test_two_different_texts_have_no_positions_to_compare(case: str) -> None:
    table = table_of(both(case, "right")[0])
    apart = "query" if case == "xlnet/two-streams" else "cross"
    names = {name for head, name in table if head.stack == apart}
    assert "entropy" in names
    assert not names & set(surface.COMPARE_POSITIONS)


def test_an_encoder_alone_is_measured_alone() -> None:
    model = shared("bart")
    some = examples("bart")
    whole = batch_for(model, some)
    inputs = {
        name: tensor for name, tensor in whole.inputs.items() if not name.startswith("decoder")
    }
    table = table_of(statistics_of(model, [Batch(inputs, whole.layout, whole.indices)]))
    assert {head.stack for head, _ in table} == {"encoder"}
    full = {
        key: row
        for key, row in table_of(both("bart", "right")[0]).items()
        if key[0].stack == "encoder"
    }
    assert table.keys() == full.keys()


def test_only_the_names_asked_for_are_in_the_table() -> None:
    model = shared("bert")
    for name in [
        name
        for kind in registry()
        if kind.needs is None and kind.of_raw
        for name in kind.definitions
    ]:
        statistics = select_statistics([name])
        for _ in stream(model, [batch_for(model, examples("bert"))], statistics):
            pass
        result = {name for _, name in table_of(statistics)}
        assert result == ({name} if not name.startswith("block-") else set()), (
            "no blocks: the texts have one segment"
        )


def test_random_cuts_of_a_larger_corpus_give_one_answer() -> None:
    model = in_double(tiny("roberta", seed=3))
    chance = random.Random(0)
    some = examples("roberta", lengths=[(chance.randint(3, 14), 1) for _ in range(60)])
    whole = statistics_of(model, [batch_for(model, some)])
    chance.shuffle(some)
    halves = [statistics_of(model, [batch_for(model, half)]) for half in (some[:37], some[37:])]
    assert_same(
        [one.merge(other) for one, other in zip(*halves, strict=True)],
        whole,
        tolerance=1e-9,
        maps=False,
    )
    assert table_of(whole)[Head("encoder", 0, 0), "self"].count == 60
    assert Site("encoder", 0) in model.sites


# Cut models


@pytest.mark.parametrize("case", representative(CASES))
def test_heads_of_a_cut_model_are_measured_under_their_own_numbers(case: str) -> None:
    """A head of the last layer that is cut changes what no other head attends to: their rows and maps stay."""
    family = family_of_case(case)
    if family == "albert":
        pytest.skip("its layers share their heads: cutting one changes all layers")
    model = shared(family)
    batches = [batch_for(model, examples(case))]
    last = [
        site
        for site in model.sites
        if site.layer == max(s.layer for s in model.sites if s.stack == site.stack)
    ]
    gone = set(next(unit for unit in units(model) if last[-1] in {head.site for head in unit}))
    cut = prune(model, gone)
    before, after = statistics_of(model, batches), statistics_of(cut, batches)
    first, other = table_of(before), table_of(after)
    names = SURFACE  # distances and patterns of samples depend on which heads there are
    kept = {key: row for key, row in first.items() if key[0] not in gone and key[1] in names}
    result = {key: row for key, row in other.items() if key[1] in names}
    assert kept.keys() == result.keys()
    for key, row in kept.items():
        np.testing.assert_allclose(
            result[key].value, row.value, rtol=1e-4, atol=1e-4, err_msg=str(key)
        )
    for name, array in maps_of(after).items():
        if name.startswith(("map/", "offset/")):
            whole = maps_of(before)[name]
            stack = name.partition("/")[2]
            assert array.shape[0] == whole.shape[0]
            for head in (head for head in cut.heads if head.stack == stack):
                mine, theirs = (first[head.layer, head.head] for first in (array, whole))
                np.testing.assert_allclose(
                    mine, theirs, rtol=1e-4, atol=1e-4, err_msg=f"{name} of {head}"
                )
