"""Are planted patterns named as they were planted, the scores those of the formulas, and absent ones absent?"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.row_sums import picture
from headscope.model.tokens import Marks, Tokens
from headscope.statistics.pattern_classes import PatternClasses, PatternThresholds
from headscope.statistics.pattern_classifier import PATTERNS, WEIGHTS, classify, load_classifier
from headscope.tables import Row
from planted_maps import PlantedMap, planted_maps
from reference import patterns as slow
from reference.surface import Seen

SPECIAL, WORD = 1, 2
MARKS = Marks(special=frozenset([SPECIAL]))


def attention_of(
    weights: np.ndarray,
    special: np.ndarray,
    segments: np.ndarray | None,
    stack: str = "encoder",
    example: int = 0,
) -> Attention:
    """One sequence; weights [head, query, key]."""
    ids = torch.where(torch.from_numpy(special), SPECIAL, WORD)[None]
    second = None if segments is None else torch.from_numpy(segments)[None]
    tokens = Tokens(torch.ones_like(ids).bool(), ids, segments=second, marks=MARKS)
    attention = Attention(Site(stack, 0), torch.from_numpy(weights)[None], tokens, tokens)
    attention.examples = (example,)
    return attention


def of_planted(planted_map: PlantedMap, example: int = 0) -> Attention:
    stack = "decoder" if planted_map.is_causal else "encoder"
    return attention_of(
        planted_map.weights[None], planted_map.special, planted_map.segments, stack, example
    )


def rows_of(*attentions: Attention, **options: object) -> dict[tuple[int, str], Row]:
    statistic = PatternClasses(**options)  # type: ignore[arg-type]
    for attention in attentions:
        statistic.update(attention)
    return {(row.head, row.statistic): row for row in statistic.table()}


def pattern_of(attention: Attention, **options: object) -> str:
    rows = rows_of(attention, **options)
    (name,) = [name for name in PATTERNS if rows[0, f"pattern-{name}"].value == 1.0]
    return name


LENGTH = 24
SPECIALS = np.isin(np.arange(LENGTH), [0, 11, 23])
SEGMENTS = (np.arange(LENGTH) > 11).astype(np.int64)


def exact(name: str) -> np.ndarray:
    """A map that does one thing only."""
    places = np.arange(LENGTH)
    same = (SEGMENTS[:, None] == SEGMENTS) & ~SPECIALS
    weights = {
        "vertical": np.tile(SPECIALS, (LENGTH, 1)).astype(float),
        "previous": (places == np.maximum(places - 1, 0)[:, None]).astype(float),
        "self": np.eye(LENGTH),
        "next": (places == np.minimum(places + 1, LENGTH - 1)[:, None]).astype(float),
        "block": same.astype(float),
        "uniform": np.ones((LENGTH, LENGTH)),
        "words": np.tile(np.isin(places, [4, 17]), (LENGTH, 1)).astype(float),
        "stretches": (places == np.where(places < 12, 17, 5)[:, None]).astype(float),
        "far": (np.abs(places - places[:, None]) == 8).astype(float),
    }[name]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"vertical": 1.0}, "vertical"),
        ({"vertical": 0.7, "uniform": 0.3}, "vertical"),
        ({"previous": 1.0}, "diagonal"),
        ({"self": 1.0}, "diagonal"),
        ({"next": 0.7, "uniform": 0.3}, "diagonal"),
        ({"next": 0.5, "previous": 0.5}, "diagonal"),
        ({"vertical": 0.5, "previous": 0.5}, "vertical-diagonal"),
        ({"vertical": 0.35, "self": 0.35, "uniform": 0.3}, "vertical-diagonal"),
        ({"block": 1.0}, "block"),
        ({"block": 0.7, "vertical": 0.3}, "block"),
        ({"words": 0.4, "uniform": 0.6}, "vertical"),
        ({"words": 0.2, "next": 0.5, "uniform": 0.3}, "vertical-diagonal"),
        ({"stretches": 1.0}, "heterogeneous"),
        ({"uniform": 1.0}, "heterogeneous"),
        ({"far": 1.0}, "heterogeneous"),
        ({"block": 0.3, "uniform": 0.7}, "heterogeneous"),
    ],
)
def test_a_planted_map_has_the_pattern_that_was_planted(
    parts: dict[str, float], expected: str
) -> None:
    weights = sum(share * exact(name) for name, share in parts.items())
    assert pattern_of(attention_of(weights[None], SPECIALS, SEGMENTS)) == expected


def test_scores_of_exact_maps_are_known_in_closed_form() -> None:
    rows = rows_of(attention_of(np.stack([exact("uniform"), exact("block")]), SPECIALS, SEGMENTS))
    # Ten content tokens before the middle separator and eleven after it.
    assert rows[0, "vertical-score"].value == pytest.approx(3 / 24)
    assert rows[0, "diagonal-score"].value == pytest.approx(
        3 * 21 / 24 / 24
    )  # no content column is at the edge
    assert rows[0, "block-score"].value == pytest.approx(0.0, abs=1e-12)
    assert rows[1, "block-score"].value == pytest.approx(1 - (10 * 10 + 11 * 11) / 21**2)


def test_scores_and_patterns_agree_with_the_sums_written_out_by_hand() -> None:
    for item in planted_maps(100, seed=7):
        got = rows_of(of_planted(item), sample=0)
        kinds = [{"special"} if special else set() for special in item.special]
        seen = Seen(item.weights.tolist(), kinds, kinds)
        stack = "decoder" if item.is_causal else "encoder"
        expected = slow.answers(stack, [seen], [item.segments.tolist()])
        expected = {name: answer for name, answer in expected.items() if not name.startswith("js-")}
        assert {name for _, name in got} == set(expected)
        for name, answer in expected.items():
            assert got[0, name].value == pytest.approx(answer.value, abs=1e-9), name


def test_shares_of_the_patterns_make_1_and_have_intervals() -> None:
    pair = [
        attention_of(exact(name)[None], SPECIALS, SEGMENTS)
        for name in ("vertical", "block", "block", "uniform")
    ]
    rows = rows_of(*pair)
    shares = {name: rows[0, f"pattern-{name}"] for name in PATTERNS}
    assert sum(row.value for row in shares.values()) == pytest.approx(1.0)
    assert shares["block"].value == 0.5
    assert shares["block"].count == 4
    for row in shares.values():
        wilson = stats.binomtest(round(4 * row.value), 4).proportion_ci(0.95, "wilson")
        assert (row.low, row.high) == pytest.approx((wilson.low, wilson.high), abs=1e-4)
    assert shares["diagonal"].value == 0.0
    assert shares["diagonal"].high > 0.4, "four texts do not prove that there is no diagonal map"


def test_a_single_text_has_no_block_score_and_is_never_a_block() -> None:
    for segments in (None, np.zeros(LENGTH, dtype=np.int64)):
        rows = rows_of(attention_of(exact("block")[None], SPECIALS, segments))
        assert not {(0, "block-score"), (0, "block-beyond-offset")} & set(rows)
        assert rows[0, "pattern-block"].value == 0.0
        assert rows[0, "pattern-heterogeneous"].value == 1.0


def test_without_special_tokens_there_is_no_vertical_score() -> None:
    rows = rows_of(attention_of(exact("previous")[None], np.zeros(LENGTH, dtype=bool), None))
    assert (0, "vertical-score") not in rows
    assert rows[0, "pattern-diagonal"].value == 1.0


def test_in_a_causal_stack_uniform_attention_is_no_block() -> None:
    causal = np.tril(np.ones((LENGTH, LENGTH)))
    causal /= causal.sum(axis=1, keepdims=True)
    rows = rows_of(attention_of(causal[None], SPECIALS, SEGMENTS, "decoder"))
    assert rows[0, "block-score"].value == pytest.approx(0.0, abs=1e-12)
    inside = np.tril(exact("block") + 1e-9)
    inside /= inside.sum(axis=1, keepdims=True)
    assert (
        rows_of(attention_of(inside[None], SPECIALS, SEGMENTS, "decoder"))[0, "block-score"].value
        > 0.3
    )


def test_column_and_band_of_exact_maps_are_known_in_closed_form() -> None:
    maps = [exact(name) for name in ("vertical", "self", "next", "stretches", "uniform")]
    rows = rows_of(attention_of(np.stack(maps), SPECIALS, SEGMENTS))
    columns, bands = (
        [rows[head, name].value for head in range(len(maps))]
        for name in ("column-score", "band-score")
    )
    # No column is there in all quarters of the rows, but in the first map, where three have a third each.
    assert columns == pytest.approx([1 - 3 / 24, 0.0, 0.0, 0.0, 0.0], abs=1e-12)
    # The last row of "next" looks at itself: 23 cells of 1 on one diagonal, which uniform attention twice would fill.
    assert bands == pytest.approx([0.0, 1 - 2 / 24, 23 / 24 * (1 - 2 / 24), 0.0, 0.0], abs=1e-12)


def test_a_head_that_looks_at_what_is_near_is_no_block() -> None:
    distance = np.abs(np.arange(LENGTH) - np.arange(LENGTH)[:, None])
    near = np.where(distance < 6, 1.0, 0.05) * np.where(SPECIALS, 0.1, 1.0)
    near /= near.sum(axis=1, keepdims=True)
    attention = attention_of(np.stack([near, exact("block")]), SPECIALS, SEGMENTS)
    rows = rows_of(attention)
    assert abs(rows[0, "block-beyond-offset"].value) < 0.02
    assert rows[1, "block-beyond-offset"].value == pytest.approx(0.185, abs=1e-3), (
        "of a block between 24 tokens"
    )
    assert rows[0, "block-score"].value > 0.2
    assert rows[0, "pattern-heterogeneous"].value == rows[1, "pattern-block"].value == 1.0
    lenient = rows_of(attention, thresholds=PatternThresholds(excess=0.2, beyond=-1.0))
    assert lenient[0, "pattern-block"].value == 1.0


def test_rows_of_special_tokens_are_on_neither_side_of_block_beyond_offset() -> None:
    """Whatever [CLS] and the separators look at, content rows are compared with content rows."""
    near = np.exp(-np.abs(np.arange(LENGTH) - np.arange(LENGTH)[:, None]) / 4.0)
    near /= near.sum(axis=1, keepdims=True)
    far = near.copy()
    far[SPECIALS] = np.eye(LENGTH)[
        [22, 1, 1]
    ]  # the last word of the second text, the first of the first
    rows = rows_of(attention_of(np.stack([near, far]), SPECIALS, SEGMENTS))
    assert rows[0, "block-beyond-offset"].value == pytest.approx(
        rows[1, "block-beyond-offset"].value, abs=1e-12
    )
    assert rows[0, "diagonal-score"].value != rows[1, "diagonal-score"].value, (
        "which is over all rows"
    )


def test_what_looks_back_to_the_separator_before_it_is_no_block() -> None:
    """It stays in its segment, by columns that end where the segment does, and has a band."""
    back = 0.5 * exact("previous") + 0.5 * np.where(
        SEGMENTS[:, None] == 0, np.eye(LENGTH)[0], np.eye(LENGTH)[12]
    )
    rows = rows_of(attention_of(back[None], SPECIALS, SEGMENTS))
    assert rows[0, "block-score"].value > 0.3
    assert rows[0, "block-beyond-offset"].value > 0.1
    assert rows[0, "pattern-block"].value == 0.0


def test_thresholds_are_arguments() -> None:
    attention = attention_of(
        (0.7 * exact("vertical") + 0.3 * exact("uniform"))[None], SPECIALS, SEGMENTS
    )
    assert pattern_of(attention) == "vertical"
    assert pattern_of(attention, thresholds=PatternThresholds(columns=0.8)) == "heterogeneous"


def test_two_texts_are_not_compared() -> None:
    single = attention_of(exact("uniform")[None], SPECIALS, SEGMENTS)
    other = copy.copy(single)
    other.key = copy.copy(single.key)
    assert rows_of(other) == {}


# The second opinion


def test_the_network_and_the_rule_name_planted_maps_it_was_not_trained_on() -> None:
    by_network = by_rule = 0
    maps = list(planted_maps(300, seed=99))
    for item in maps:
        weights, special = torch.from_numpy(item.weights), torch.from_numpy(item.special)
        output = classify(picture(weights)[None], len(special), special)
        by_network += PATTERNS[int(output)] == item.label
        by_rule += pattern_of(of_planted(item), sample=0) == item.label
    assert by_network / len(maps) > 0.9
    assert by_rule / len(maps) > 0.85


def test_the_network_does_not_mind_rounding_or_the_batch() -> None:
    single = next(iter(planted_maps(1, seed=3)))
    weights, special = torch.from_numpy(single.weights), torch.from_numpy(single.special)
    alone = classify(picture(weights)[None], len(special), special)
    among = classify(picture(weights.float()).expand(5, -1, -1), len(special), special)
    assert (among == alone).all()


def test_the_network_is_small_and_leaves_the_random_numbers_alone() -> None:
    load_classifier.cache_clear()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    parameters = sum(parameter.numel() for parameter in load_classifier().parameters())
    assert torch.equal(torch.get_rng_state(), before)
    assert parameters < 250_000
    assert WEIGHTS.stat().st_size < 1_000_000


def test_agreement_counts_the_maps_of_the_first_examples_only() -> None:
    maps = np.stack([exact("vertical"), exact("previous")])
    statistic = PatternClasses(sample=2)
    for example in (0, 5, 1, 2):
        statistic.update(attention_of(maps, SPECIALS, SEGMENTS, example=example))
    table = statistic.tables()["pattern_agreement"]
    assert len(table) == 25
    assert sum(row["count"] for row in table) == 4
    assert {row["rule"] for row in table if row["count"]} == {"vertical", "diagonal"}
    other = pickle.loads(pickle.dumps(statistic))
    assert sum(row["count"] for row in statistic.merge(other).tables()["pattern_agreement"]) == 8
    assert sum(row["count"] for row in other.tables()["pattern_agreement"]) == 4


def test_nothing_sampled_gives_no_table() -> None:
    statistic = PatternClasses(sample=0)
    statistic.update(attention_of(exact("block")[None], SPECIALS, SEGMENTS))
    assert statistic.tables() == {}


# Planted maps


def test_planted_maps_are_rows_that_sum_to_1_and_the_same_every_time() -> None:
    first, again = list(planted_maps(25, seed=1)), list(planted_maps(25, seed=1))
    for single, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(single.weights, other.weights)
        np.testing.assert_allclose(single.weights.sum(axis=1), 1.0)
        assert 16 <= len(single.special) <= 128
        assert not single.is_causal or not np.triu(single.weights, 1).any()
    assert [single.label for single in first[:5]] == list(PATTERNS)
