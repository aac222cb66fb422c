"""Examples of heads on which a lens and raw attention disagree: the rows that are furthest apart, and no others."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, BertModel

import headscope
from headscope.analysis.lens_examples import EACH, lens_examples
from headscope.data.examples import Example
from headscope.report.sections import parts_of
from worded import translator, worded

TEXTS = [
    "the old cat sat on the mat .",
    "a dog ran , who saw the red house ?",
    "is the house cold ?",
    "the mean dog is bad .",
    "a cat saw a cat .",
    "the kind old dog , the warm mat .",
]


def by_hand(
    model: Any, text: str, lens: str, layer: int, head: int
) -> tuple[bool, float, int, int, int]:
    """Whether the two point to different tokens in the furthest row, how far it is apart, and the tokens in question:
    one that looks, by raw weight, by the lens. A row where they differ comes before any other."""
    best = (False, -1.0, 0, 0, 0)

    def look(attention: Any) -> None:
        nonlocal best
        if attention.site.layer != layer:
            return
        raw, seen = attention.raw.weights[0, head].tolist(), attention.weights[0, head].tolist()
        for query in range(1, len(raw) - 1):  # the first and the last token are special
            total = sum(abs(value) for value in seen[query])
            row = [value / total for value in seen[query]]
            apart = sum(abs(one - other) for one, other in zip(raw[query], row, strict=True)) / 2
            sizes = [abs(value) for value in row]
            keys = raw[query].index(max(raw[query])), sizes.index(max(sizes))
            if (keys[0] != keys[1], apart) > best[:2]:
                best = (keys[0] != keys[1], apart, query, *keys)

    with torch.inference_mode(), model.watched(look, lens=lens):
        for batch in headscope.encode(model, [text]):
            model(batch)
    return best


@pytest.mark.parametrize("lens", ["norm", "effective"])
def test_examples_are_the_rows_that_are_furthest_apart(lens: str) -> None:
    model = worded(BertModel, num_attention_heads=4)  # four numbers a head: every text is longer
    furthest = [{"stack": "encoder", "layer": 1, "head": head, "lens": lens} for head in (2, 0)]
    result = lens_examples(
        model, furthest, [Example(text, None, "") for text in TEXTS], batch_size=2
    )
    assert [row["head"] for row in result] == [2] * EACH + [0] * EACH
    for head in (2, 0):
        mine = [row for row in result if row["head"] == head]
        wanted = sorted((by_hand(model, text, lens, 1, head), text) for text in TEXTS)[::-1][:EACH]
        for row, ((_, apart, query, raw_key, lens_key), text) in zip(mine, wanted, strict=True):
            assert row["apart"] == pytest.approx(apart, abs=1e-5)
            assert json.loads(row["words"]) == ["[CLS]", *text.split(), "[SEP]"]
            assert (row["query"], row["raw_key"], row["lens_key"]) == (query, raw_key, lens_key)
            assert row["raw_weight"] >= row["lens_key_raw"]
            assert abs(row["lens_weight"]) >= abs(row["raw_key_through"])


def test_a_study_through_lenses_has_examples_and_shows_them() -> None:
    model = worded(BertForMaskedLM, num_attention_heads=4)
    study = headscope.analyze(model, texts=TEXTS, lens="norm,effective,gradient")
    heads = (
        study.tables["lens_heads"][["stack", "layer", "head", "lens"]]
        .to_records(index=False)
        .tolist()
    )
    table = study.tables["lens_examples"]
    assert (
        table[["stack", "layer", "head", "lens"]].drop_duplicates().to_records(index=False).tolist()
        == heads
    )
    assert table["apart"].between(0, 1).all()
    assert study.record["lenses"]["effective"]["sequences"] == 2 * len(
        TEXTS
    )  # the second pass is not counted
    (part,) = (one for one in parts_of(study) if one.name == "lens-examples")
    assert len(part.rows) == len(table)
    for row, example in zip(part.rows, table.to_dict("records"), strict=True):
        marks = {mark: i for i, (_, of) in enumerate(row[2].marked) for mark in of.split()}
        assert marks["query"] == example["query"]
        assert {"key": example["raw_key"], "through": example["lens_key"]}.items() >= (
            marks.items() - {("query", marks["query"])}
        )
        assert ("through" in marks) is not row[4].text.startswith("spread evenly")
    assert set(table["keys"]) <= {len(text.split()) + 2 for text in TEXTS}
    assert np.isfinite([row[5].key for row in part.rows]).all()


def test_two_texts_stand_one_behind_the_other() -> None:
    model = translator()
    furthest = [{"stack": "cross", "layer": 0, "head": 1, "lens": "norm"}]
    (row,) = lens_examples(model, furthest, [Example("the old cat sat .", "a dog ran .", "")])
    words = json.loads(row["words"])
    between = words.index("‖")
    assert row["query"] < between < min(row["raw_key"], row["lens_key"])
