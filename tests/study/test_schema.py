"""Declared tables keep their dtypes on disk, and a study that was edited by hand gets a clear error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headscope.analysis.join import join
from headscope.config.edit_record import EditRecord
from headscope.errors import HeadscopeError
from headscope.study.schema.table import Column, Table, parse_columns
from headscope.study.schema.tables import COMPARISON_TABLES, HEADS, TABLES, read_table
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import COLUMNS, to_frame

OLD = Path(__file__).parent / "data" / "study-0.1"
TABLE = Table(
    "mixed",
    "Mixed",
    "A table with every kind of column.",
    parse_columns(
        "word: text, layer: whole, place: whole?, value: number, is_sure is_known: flag", {}
    ),
)
ROWS = [
    {"word": "NA", "layer": 0, "place": 3, "value": 0.5, "is_sure": True, "is_known": True},
    {"word": "", "layer": 1, "place": None, "value": np.nan, "is_sure": False, "is_known": None},
]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A copy of the stored study, to be edited."""
    return Path(shutil.copytree(OLD, tmp_path / "study"))


def replace_in(path: Path, old: str, new: str) -> None:
    content = path.read_text("utf-8")
    assert old in content
    path.write_text(content.replace(old, new, 1), "utf-8")


def test_a_table_is_the_same_in_memory_and_read_again(tmp_path: Path) -> None:
    made = TABLE.frame(ROWS)
    made.to_csv(tmp_path / "mixed.csv", index=False)
    read = TABLE.read(tmp_path / "mixed.csv")
    pd.testing.assert_frame_equal(made, read)
    TABLE.validate(read, "mixed.csv")
    assert read["word"].tolist() == ["NA", ""]
    assert read["layer"].dtype == "int64"
    assert read["place"].dtype == "Int64"
    assert read["is_sure"].dtype == bool
    assert read["is_known"].tolist() == [True, None]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    made = TABLE.frame([])
    made.to_csv(tmp_path / "mixed.csv", index=False)
    assert list(TABLE.read(tmp_path / "mixed.csv").columns) == list(made.columns) == TABLE.names


def test_whole_numbers_may_be_written_as_decimals(tmp_path: Path) -> None:
    (tmp_path / "mixed.csv").write_text("word,layer,place,value,is_sure,is_known\na,1.0,2.0,3,,\n")
    read = TABLE.read(tmp_path / "mixed.csv")
    assert read["layer"].tolist() == [1]
    assert read["place"].tolist() == [2]


@pytest.mark.parametrize("table", [*TABLES.values(), *COMPARISON_TABLES.values()])
def test_every_table_has_a_title_and_a_sentence(table: Table) -> None:
    assert table.title[0].isupper()
    assert not table.title.endswith(".")
    assert table.sentence[0].isupper()
    assert table.sentence.endswith(".")
    assert all(isinstance(column, Column) for column in table.columns.values())


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "roles.csv",
            "encoder,0,0,",
            "encoder,zero,0,",
            'roles.csv:2: column "layer" must hold a whole number, got "zero".',
        ),
        (
            "roles.csv",
            "encoder,0,0,",
            "encoder,0.5,0,",
            'roles.csv:2: column "layer" must hold a whole number, got "0.5".',
        ),
        (
            "roles.csv",
            "is_sure",
            "is_shure",
            'roles.csv: column "is_sure" is missing, got stack, layer, head, role, value,',
        ),
        (
            "roles.csv",
            "encoder,0,0,",
            "encoder,0,99,",
            'roles.csv:2: head "encoder.0.99" is not in the model. '
            "Expected a head of encoder: 2 layers of 2 heads, counted from 0.",
        ),
        (
            "roles.csv",
            "encoder,0,0,",
            "decoder,0,0,",
            'roles.csv:2: head "decoder.0.0" is not in the model.',
        ),
        (
            "significance.csv",
            "False",
            "maybe",
            'column "is_significant" must hold True, False or nothing, got "maybe".',
        ),
        (
            "ceilings.csv",
            "encoder,",
            "encoder,high",
            'ceilings.csv:2: column "ceiling" must hold a number or nothing, got "high',
        ),
    ],
)
def test_a_study_edited_by_hand_gets_one_line(
    study: Path, file: str, old: str, new: str, message: str
) -> None:
    replace_in(study / file, old, new)
    with pytest.raises(HeadscopeError) as caught:
        Study(study)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(study / file))


def test_a_misspelt_column_is_suggested(study: Path) -> None:
    replace_in(study / "roles.csv", "is_sure", "is_shure")
    with pytest.raises(HeadscopeError, match=r'Did you mean "is_sure" by "is_shure"\?'):
        Study(study)


def test_heads_are_checked_too(study: Path) -> None:
    heads = pd.read_parquet(study / "heads.parquet")
    heads.assign(layer=heads["layer"].astype(str)).to_parquet(study / "heads.parquet")
    with pytest.raises(HeadscopeError, match=r'heads\.parquet: column "layer" must hold a whole'):
        Study(study)
    heads.assign(layer=heads["layer"] + 7).to_parquet(study / "heads.parquet")
    with pytest.raises(HeadscopeError, match=r'row 0: head "encoder\.7\.0" is not in the model'):
        Study(study)


def test_a_table_that_is_not_declared_loads_as_it_is(study: Path) -> None:
    (study / "mine.csv").write_text("stack,layer,head,colour\nanywhere,90,90,green\n")
    table = Study(study).tables["mine"]
    assert table.to_dict("records") == [
        {"stack": "anywhere", "layer": 90, "head": 90, "colour": "green"}
    ]
    assert "mine" not in TABLES


def test_a_column_that_is_not_declared_is_kept(study: Path) -> None:
    content = (study / "ceilings.csv").read_text("utf-8").splitlines()
    content = [f"{line},{extra}" for line, extra in zip(content, ["mine", "7"], strict=True)]
    (study / "ceilings.csv").write_text("\n".join(content), "utf-8")
    assert read_table(study / "ceilings.csv")["mine"].tolist() == [7]


def test_the_table_of_heads_is_the_one_that_statistics_make() -> None:
    assert tuple(HEADS.names) == COLUMNS
    HEADS.validate(to_frame([]), "heads")


# Studies of version 0.1


def test_a_study_of_version_0_1_loads() -> None:
    study = Study(OLD)
    assert set(study.tables) == {
        "ceilings",
        "lenses",
        "relation_heads",
        "relations",
        "roles",
        "significance",
        "sinks",
    }
    for name, table in study.tables.items():
        TABLES[name].validate(table, name)
    relations = study.tables["relations"]
    assert relations["layer"].dtype == "Int64"
    assert relations["layer"].isna().any()
    assert study.tables["significance"]["settled_at"].dtype == "Int64"
    assert {"entropy@norm", "ablation-loss"} <= set(study.heads["statistic"])


def test_edits_of_version_0_1_are_read_as_data() -> None:
    stored = json.loads((OLD / "run.json").read_text("utf-8"))["model"]["edits"]
    assert stored == ["Masked('star', open_special=True)", "Ablate(encoder.0.1)"]
    assert Study(OLD).record["model"]["edits"] == [
        {"kind": "Masked", "mask": "star", "open_special": True},
        {"kind": "Ablate", "heads": ["encoder.0.1"]},
    ]


@pytest.mark.parametrize(
    "stored",
    [
        "Masked('window:width=3')",
        "Masked('star', open_special=True)",
        "Ablate(encoder.3.2, encoder.4.0)",
        "MyEdit(strength=0.5)",
        "nothing of ours",
        "Masked(",
    ],
)
def test_an_edit_of_version_0_1_is_printed_as_it_was(stored: str) -> None:
    record = EditRecord.read(stored)
    assert str(record) == stored
    assert EditRecord.read(record.as_json()) == record


def test_old_and_new_studies_of_one_model_are_joined(tmp_path: Path) -> None:
    write_tables(Study(OLD), tmp_path)
    assert '"kind": "Masked"' in (tmp_path / "run.json").read_text("utf-8")
    (chapter,) = join([OLD, tmp_path]).chapters
    assert len(chapter.members) == 2
    assert not chapter.others
