"""Data sets by id, as the `datasets` library reads them from a directory; its network is not ours to test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.data.records import find_split, read_records
from headscope.data.squad import read_squad
from headscope.errors import HeadscopeError
from headscope.tasks import get_task

datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "theirs")


@pytest.fixture
def glue(tmp_path: Path) -> str:
    """Two splits with labels as numbers that have names, as on the hub."""
    folder = tmp_path / "glue"
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["entailment", "neutral", "contradiction"]),
            "from": {"book": datasets.Value("string")},
        }
    )
    for split, count in (("train", 5), ("validation", 3)):
        rows = [
            {"premise": f"p{i}", "hypothesis": f"h{i}", "label": i % 3, "from": {"book": "b"}}
            for i in range(count)
        ]
        (folder / "data").mkdir(parents=True, exist_ok=True)
        made = datasets.Dataset.from_list(rows, features=features)
        made.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return f"datasets:{folder}"


def test_a_split_becomes_a_table_with_named_labels(glue: str) -> None:
    path = find_split(glue, "dev")
    result = list(read_records(path))
    assert [record.cells["label"] for record in result] == [
        "entailment",
        "neutral",
        "contradiction",
    ]
    assert result[0].cells == {
        "premise": "p0",
        "hypothesis": "h0",
        "label": "entailment",
        "from.book": "b",
    }
    assert result[2].where == f"{path}:3"
    assert len(list(read_records(find_split(glue, "train")))) == 5


def test_a_task_reads_it_as_any_file(glue: str) -> None:
    items = get_task("mnli").items(glue, "dev")
    assert [(item.texts, item.target) for item in items][1] == (("p1", "h1"), "neutral")


def test_it_is_written_once(glue: str) -> None:
    path = find_split(glue, "dev")
    path.write_text(json.dumps({"premise": "mine"}) + "\n", "utf-8")
    assert find_split(glue, "dev") == path
    assert next(read_records(path)).cells == {"premise": "mine"}
    assert list(path.parent.iterdir()) == [path]


def test_questions_of_a_table_are_those_of_a_squad_file(tmp_path: Path) -> None:
    requested = {
        "id": "q",
        "question": "Who?",
        "context": "It was Ada.",
        "answers": {"text": ["Ada"], "answer_start": [7]},
    }
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad" / "validation.jsonl").write_text(json.dumps(requested) + "\n", "utf-8")
    flat = find_split(f"datasets:{tmp_path / 'squad'}", "dev")
    for path in (flat, tmp_path / "squad" / "validation.jsonl"):
        (single,) = read_squad(path)
        assert (single.id, single.text, single.context, single.answers) == (
            "q",
            "Who?",
            "It was Ada.",
            (("Ada", 7),),
        )
        assert single.where == f"{path}:1"


def test_mistakes_are_reported(glue: str, tmp_path: Path) -> None:
    with pytest.raises(
        HeadscopeError, match=r"no split for test in it\. Expected train or validation"
    ):
        find_split(glue, "test")
    with pytest.raises(HeadscopeError, match=r'`data="datasets:"`: no data set is named'):
        find_split("datasets:", "dev")
    with pytest.raises(HeadscopeError, match=r"cannot be loaded .*Expected the id of a data set"):
        find_split(f"datasets:{tmp_path / 'nothing'}", "dev")
