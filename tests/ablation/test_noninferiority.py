"""Is a set recommended only if its interval stays above the allowed loss? How many examples would do?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from headscope.ablation.noninferiority import (
    Margin,
    advice_of,
    examples_needed,
    largest_kept,
    verdict_of,
)

MARGIN = Margin.of(0.8496)
FEW = (
    -0.0192,
    -0.0386,
    0.0002,
)  # a drop that was once called "no evidence of a change", on 150 examples


def row(removed: int, change: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    record = {"removed": removed, "metric_change": change, "change_low": low, "change_high": high}
    return {**record, "repair": "", "is_chosen": False, **more}


def test_the_margin_is_one_percent_of_the_metric_or_what_keep_metric_leaves() -> None:
    assert Margin.of(0.85).allowed == pytest.approx(0.0085)
    assert Margin.of(0.85, 0.95).allowed == pytest.approx(0.0425)
    assert Margin.of(0.85, 1.02).allowed == 0
    assert Margin.of(math.nan).allowed == 0
    assert str(MARGIN) == "0.0085 (1 % of 0.8496)"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (FEW, "unclear"),
        ((0.0, -0.004, 0.004), "kept"),
        ((0.01, -0.0084, 0.03), "kept"),
        ((-0.03, -0.05, -0.01), "lost"),
        ((-0.001, -0.009, 0.007), "unclear"),
        ((0.0, math.nan, math.nan), "unclear"),
    ],
)
def test_only_an_interval_above_the_allowed_loss_is_kept(
    change: tuple[float, float, float], kind: str
) -> None:
    assert verdict_of(*change, MARGIN, 150).kind == kind


def test_too_few_examples_are_named_with_how_many_would_do() -> None:
    message = verdict_of(*FEW, MARGIN, 150).sentence
    text = "150 examples are too few to tell whether that is within the allowed loss of 0.0085 (1 % of 0.8496)"
    assert message == f"{text}; about 1,600 would do"
    assert "would do" not in verdict_of(*FEW, Margin.of(0.8496, 1.0), 150).sentence, (
        "nothing may be lost: no number"
    )
    assert verdict_of(-0.008, -0.009, -0.007, MARGIN, 5000).sentence.startswith(
        "too close to the allowed loss"
    )


def test_with_as_many_examples_as_it_says_the_interval_stays_above_four_times_in_five() -> None:
    """Planted: paired differences without a true change. Slow reference: the intervals of fresh samples."""
    chance = np.random.default_rng(0)
    differences = chance.normal(size=200)
    half = 1.96 * differences.std(ddof=1) / math.sqrt(len(differences))
    margin = Margin(1.0, 0.05)
    needed = examples_needed(-half, half, margin, len(differences))
    assert needed is not None
    assert needed > len(differences)
    samples = chance.normal(size=(1000, needed))
    lows = samples.mean(axis=1) - 1.96 * samples.std(axis=1, ddof=1) / math.sqrt(needed)
    assert float((lows >= -margin.allowed).mean()) == pytest.approx(0.8, abs=0.06)


def test_that_no_answer_changed_in_a_few_examples_shows_nothing() -> None:
    """Ten examples of which none changed: up to a quarter of all might."""
    assert verdict_of(0.0, 0.0, 0.0, MARGIN, 10).kind == "unclear"
    assert verdict_of(0.0, 0.0, 0.0, MARGIN, 10).sentence.endswith("about 360 would do")
    assert verdict_of(0.0, 0.0, 0.0, MARGIN, 400).kind == "kept"


def test_an_undefined_interval_is_not_called_too_few_examples() -> None:
    message = verdict_of(math.nan, math.nan, math.nan, MARGIN, 150).sentence
    assert message.startswith("without an interval")
    assert "too few" not in message


def test_a_set_without_an_interval_is_named_only_if_there_is_no_other() -> None:
    whole, none, few = row(0, 0.0, 0.0, 0.0), row(1, math.nan, math.nan, math.nan), row(3, *FEW)
    message = [
        advice_of([whole, *rows], MARGIN, 150, "dev:half-b") for rows in ([none, few], [few, none])
    ]
    assert message[0] == message[1]
    assert "removing 3 heads" in message[0]


def test_without_a_recommendation_the_set_that_is_cut_has_the_words_of_its_verdict() -> None:
    """One question, one number: about the set that is cut, though another has a narrower interval."""
    whole, few, narrow = (
        row(0, 0.0, 0.0, 0.0),
        row(8, *FEW, is_chosen=True),
        row(2, -0.003, -0.01, 0.004),
    )
    message = advice_of([whole, narrow, few], MARGIN, 150, "dev:half-b")
    assert message == (
        "no set is recommended: removing 8 heads changes the metric on dev:half-b by -0.0192 [-0.0386, +0.0002]: "
        f"{verdict_of(*FEW, MARGIN, 150).sentence}"
    )
    lost = row(8, -0.1, -0.12, -0.08, is_chosen=True)
    message = advice_of([whole, narrow, row(1, *FEW), lost], MARGIN, 150, "dev:half-b")
    assert "removing 2 heads" in message
    assert message.endswith(verdict_of(-0.003, -0.01, 0.004, MARGIN, 150).sentence)
    close = row(1, -0.008, -0.009, -0.007, is_chosen=True)
    message = advice_of([whole, close], MARGIN, 5000, "dev:half-b")
    assert "removing 1 head changes" in message
    assert message.endswith(
        "too close to the allowed loss of 0.0085 (1 % of 0.8496) to tell on 5000 examples"
    )


def test_the_largest_set_within_the_margin_is_recommended_and_none_where_none_is() -> None:
    whole, few = row(0, 0.0, 0.0, 0.0), row(8, *FEW, is_chosen=True)
    clear = row(4, -0.001, -0.005, 0.003)
    assert largest_kept([whole, few], MARGIN, 150) is None
    assert largest_kept([whole, clear, few], MARGIN, 150) == clear
    message = advice_of([whole, clear, few], MARGIN, 150, "dev:half-b")
    assert message.startswith(
        "recommended: removing 4 heads changes the metric on dev:half-b by -0.0010 [-0.0050, +0.0030]"
    )
    assert message.endswith("this set was picked on dev:half-b, so judge it on a third split")
    assert "third split" not in advice_of(
        [whole, clear | {"is_chosen": True}], MARGIN, 150, "dev:half-b"
    )
    assert "repaired by fold" in advice_of(
        [whole, clear | {"repair": "fold"}], MARGIN, 150, "dev:half-b"
    )
    lost = row(9, -0.1, -0.12, -0.08)
    assert advice_of([whole, lost], MARGIN, 150, "dev:half-b").startswith(
        "no set is recommended: each loses more than"
    )
