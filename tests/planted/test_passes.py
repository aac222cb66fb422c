"""What is given decides what is asked: a treebank alone, a control, frequencies counted from the texts."""

from __future__ import annotations

import random

from test_roles import PLANTED, sentences, shuffled

import headscope
from planted import planted


def test_sentences_alone_are_the_corpus_too_and_a_limit_concerns_the_corpus_only() -> None:
    alone = headscope.analyze(planted(roles=PLANTED), sentences=sentences(30))
    assert alone.record["data"]["used"] == 30
    assert {"entropy", "previous", "twin-distance"} <= set(alone.heads["statistic"])
    both = headscope.analyze(
        planted(roles=PLANTED), sentences=sentences(30), texts=["the cat", "the dog"], limit=1
    )
    assert (both.record["data"]["used"], both.record["treebank"]["used"]) == (1, 30)
    assert set(both.heads.query("statistic == 'entropy'")["count"]) == {1}


def test_the_control_is_the_best_head_of_a_copy_with_random_weights() -> None:
    texts = sentences(60)
    study = headscope.analyze(
        planted(roles=PLANTED), sentences=texts, control=True, statistics=["entropy"]
    )
    rows = study.tables["relations"].set_index("direction")
    assert rows.loc["dependent", "accuracy"] == 1.0
    assert 0.0 <= rows.loc["dependent", "control"] < 1.0
    without = headscope.analyze(planted(roles=PLANTED), sentences=texts, statistics=["entropy"])
    assert without.tables["relations"]["control"].isna().all()


def test_frequencies_may_be_counted_from_the_texts_themselves() -> None:
    draw = random.Random(3)
    texts = [" ".join(shuffled(draw, "sat")) for _ in range(20)]
    study = headscope.analyze(
        planted(roles=PLANTED), texts=texts, frequency="corpus", statistics=["entropy"]
    )
    assert "frequency" in study.record["durations"]  # a pass of its own, over the texts as words
    assert "rare_words" not in study.tables  # none of seven words is outside the 500 most frequent
