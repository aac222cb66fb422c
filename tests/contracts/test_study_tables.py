"""Tables of a study are the same in memory and read again, for the commands that make the most of them.

The tables of all other commands are checked in tests/golden.
"""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
from transformers import BertForSequenceClassification

import headscope
from headscope.study.schema.tables import TABLES
from headscope.study.study_dir import write_tables
from worded import glue, sentence, worded

LENSES = {"mixing", "contributions", "gradients", "effective_lengths", "lenses", "lens_heads"}
OTHERS = {"roles", "examples", "clusters", "sinks", "uniform", "significance", "ceilings"}


def test_tables_keep_values_and_dtypes_when_they_are_read_again(tmp_path: Path) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    draw = random.Random(0)
    texts = [sentence(draw, least=6) for _ in range(40)]
    study = headscope.analyze(
        model,
        texts,
        lens="raw,norm,gradient,effective",
        thresholds={"broad": 0.1, "sink": 0.01, "token": 0.05},
    )
    study = study.merge(headscope.importance(model, task="sst2", data=glue(tmp_path / "data")))
    (tmp_path / "study").mkdir()
    write_tables(study, tmp_path / "study")
    read = headscope.Study(tmp_path / "study")
    assert set(study.tables) >= LENSES | OTHERS
    for name, table in study.tables.items():
        TABLES[name].validate(table, name)
        assert set(table.columns) <= set(TABLES[name].columns), name
        pd.testing.assert_frame_equal(read.tables[name], table, rtol=1e-8, obj=name)
    pd.testing.assert_frame_equal(read.heads, study.heads)
    assert read.record == study.record
