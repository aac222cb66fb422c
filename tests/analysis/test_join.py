"""Studies as one: what is the same is kept once, what differs beside it, models apart; bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import headscope
from headscope.analysis.join import Joined, join
from headscope.study.study import Study
from headscope.study.study_dir import write_tables
from headscope.tables import Row, to_frame

SHA = "ab" * 32


def study(
    values: dict[str, list[float]],
    tables: dict[str, pd.DataFrame] | None = None,
    sha256: str = SHA,
    **record: Any,
) -> Study:
    """One layer, a head for each value, an interval of a tenth around it."""
    rows = [
        Row("encoder", 0, head, name, value, value - 0.05, value + 0.05, 40)
        for name, of_heads in values.items()
        for head, value in enumerate(of_heads)
    ]
    model = {"name": "tiny", "sha256": sha256, "layers": {"encoder": 1}, "heads": {"encoder": 3}}
    return Study(to_frame(rows), {}, {"schema": 1, "model": model, **record}, tables or {})


def written(folder: Path, item: Study) -> Path:
    folder.mkdir(parents=True)
    write_tables(item, folder)
    return folder


def values_of(item: Study, statistic: str) -> list[float]:
    return list(item.heads[item.heads["statistic"] == statistic]["value"])


def front(metric: float) -> pd.DataFrame:
    row = {
        "removed": 1,
        "left": 2,
        "repair": "",
        "draw": 0,
        "is_chosen": True,
        "is_front": True,
        "heads": "0.1",
    }
    row |= {
        "metric": metric,
        "metric_low": metric - 0.1,
        "metric_high": metric + 0.1,
        "metric_change": -0.1,
    }
    return pd.DataFrame([row])


def pruned(metric: float, search: str, task: str = "mnli") -> Study:
    record = {
        "task": task,
        "search": search,
        "metric": "accuracy",
        "reported_on": {"split": "dev:half-b"},
        "data": [],
    }
    return study({"cut": [0, 1, 0]}, {"front": front(metric)}, pruning=record)


def test_rows_of_one_model_stand_side_by_side() -> None:
    (chapter,) = join(
        [study({"entropy": [1, 2, 3]}), study({"ablation-loss": [0.1, 0.2, 0.3]})]
    ).chapters
    assert values_of(chapter.study, "entropy") == [1, 2, 3]
    assert values_of(chapter.study, "ablation-loss") == [0.1, 0.2, 0.3]
    assert (chapter.others, chapter.notes) == ((), ())


def test_the_same_rows_are_kept_once_and_a_head_more_is_added() -> None:
    (chapter,) = join([study({"entropy": [1, 2]}), study({"entropy": [1, 2 + 1e-9, 3]})]).chapters
    assert values_of(chapter.study, "entropy") == [1, 2, 3]
    assert chapter.notes == ()


def test_other_values_keep_both_and_the_second_has_its_study_behind(tmp_path: Path) -> None:
    first = written(tmp_path / "one", study({"entropy": [1, 2, 3]}))
    second = written(tmp_path / "two", study({"entropy": [1, 2, 4], "next": [0, 0, 1]}))
    (chapter,) = join([first, second]).chapters
    assert values_of(chapter.study, "entropy") == [1, 2, 3]
    assert values_of(chapter.study, "entropy (two)") == [1, 2, 4]
    assert values_of(chapter.study, "next") == [0, 0, 1]
    assert [note.partition(":")[0] for note in chapter.notes] == ["entropy"]


def test_a_table_of_the_same_name_that_differs_is_kept_with_its_own_record() -> None:
    same = pd.DataFrame({"form": ["a", None], "value": [1.0, 2.0]})
    other = pd.DataFrame({"form": ["a", None], "value": [1.0, 2.5]})
    first = study({"next": [0, 0, 1]}, {"mixing": same, "ranks": same}, lens="raw")
    second = study({"next": [0, 0, 1]}, {"mixing": same.copy(), "ranks": other}, lens="norm")
    (chapter,) = join([first, second]).chapters
    (left,) = chapter.others
    assert chapter.study.tables["ranks"] is same
    assert list(left.study.tables) == ["ranks"]
    assert (chapter.study.record["lens"], left.study.record["lens"]) == ("raw", "norm")


def test_searches_of_one_task_are_on_the_same_axes_and_those_of_another_are_not() -> None:
    studies = [pruned(0.8, "greedy"), pruned(0.7, "beam"), pruned(0.3, "beam", task="stsb")]
    (chapter,) = join(studies).chapters
    table = chapter.study.tables["fronts"]
    assert list(zip(table["search"], table["metric"], strict=True)) == [
        ("greedy", 0.8),
        ("beam", 0.7),
    ]
    assert [float(one.study.tables["front"]["metric"].iloc[0]) for one in chapter.others] == [
        0.7,
        0.3,
    ]


def test_models_are_chapters_of_their_own_and_are_compared() -> None:
    first, second = (
        study({"entropy": [1, 2, 3], "cut": [0, 1, 0]}),
        study({"entropy": [3, 1, 2]}, sha256="cd" * 32),
    )
    result = join([first, second])
    assert [chapter.name for chapter in result.chapters] == ["tiny (study 1)", "tiny (study 2)"]
    (comparison,) = result.comparisons
    assert list(comparison.layers["statistic"]) == ["entropy", "entropy"]


def test_models_without_attention_in_common_are_not_compared_and_that_is_reported() -> None:
    result = join([study({"cut": [0, 1, 0]}), study({"cut": [1, 1, 0]}, sha256="cd" * 32)])
    assert result.comparisons == []
    assert result.notes == [
        "The models are not compared: fewer than two of them have statistics of attention."
    ]


def test_the_same_weights_under_other_edits_are_another_model() -> None:
    edited = study({"entropy": [1, 2, 3]})
    edited.record["model"]["edits"] = ["Masked(star)"]
    assert len(join([study({"entropy": [1, 2, 3]}), edited]).chapters) == 2


def test_a_comparison_that_was_written_takes_the_place_of_a_new_one(tmp_path: Path) -> None:
    first, second = study({"entropy": [1, 2, 3]}), study({"entropy": [3, 1, 2]}, sha256="cd" * 32)
    headscope.compare([first, second]).write(tmp_path / "compared")
    (alone,) = join([tmp_path / "compared"]).comparisons
    assert alone.names == ["tiny (1)", "tiny (2)"]
    (beside,) = join([first, second, tmp_path / "compared"]).comparisons
    assert beside.names == alone.names
    assert [len(of.heads) for of in beside.studies] == [3, 3]


def test_a_comparison_alone_is_a_report(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        other = study({"entropy": [3, 1, number]}, sha256=name * 64)
        headscope.compare([study({"entropy": [1, 2, 3]}), other]).write(tmp_path / name)
    alone = join([tmp_path / "a"])
    page = alone.write(tmp_path / "alone").read_text("utf-8")
    assert "<h1>Attention heads of <bdi>tiny (1)</bdi> and <bdi>tiny (2)</bdi></h1>" in page
    assert 'id="c0-matches"' in page
    assert SHA in page.partition("About these runs</h2>")[2]
    both = join([tmp_path / "a", tmp_path / "b"]).write(tmp_path / "both.html")
    assert 'id="c1-matches"' in both.read_text("utf-8")


def test_heads_fixed_alone_name_their_substitutes_also_next_to_other_importances() -> None:
    plain = study({"ablation-loss": [0.5, 0.5, 0.5]}, importance={"task": "mnli", "mode": "zero"})
    patterns = {"0.0": "previous", "0.1": "next", "0.2": "uniform"}
    fixed = study(
        {"ablation-loss": [0.1, 0.2, 0.3]},
        importance={"task": "mnli", "mode": "fixed", "patterns": patterns},
    )
    (chapter,) = join([plain, fixed]).chapters
    table = chapter.study.tables["substitutes"]
    assert list(zip(table["pattern"], table["loss_change"], strict=True)) == [
        ("previous", 0.1),
        ("next", 0.2),
        ("uniform", 0.3),
    ]


def test_what_probes_found_is_a_study_without_rows(tmp_path: Path) -> None:
    folder = tmp_path / "probes"
    folder.mkdir()
    row = {"probe": "attention-only", "uas": 0.5, "low": 0.4, "high": 0.6}
    pd.DataFrame([row | {"parameters": 10, "count": 99}]).to_csv(folder / "probes.csv", index=False)
    (folder / "run.json").write_text(json.dumps(study({}).record), "utf-8")
    (chapter,) = join([written(tmp_path / "one", study({"entropy": [1, 2, 3]})), folder]).chapters
    assert list(chapter.study.tables["probes"]["uas"]) == [0.5]


def _nothing(path: Path) -> list[Any]:
    return []


def _twice(path: Path) -> list[Any]:
    return [written(path / "one", study({"next": [1, 2, 3]}))] * 2


def _missing(path: Path) -> list[Any]:
    return [path / "none"]


def _no_study(path: Path) -> list[Any]:
    (path / "none").mkdir()
    return [path / "none"]


def _torn(path: Path) -> list[Any]:
    folder = written(path / "one", study({"next": [1, 2, 3]}))
    (folder / "heads.parquet").write_bytes(b"PAR1 torn")
    return [folder]


def _contradicting(path: Path) -> list[Any]:
    other = study({"next": [1, 2, 3]})
    other.record["model"]["heads"] = {"encoder": 4}
    return [written(path / "one", study({"next": [1, 2, 3]})), written(path / "two", other)]


def _half_compared(path: Path) -> list[Any]:
    (path / "one").mkdir()
    (path / "one" / "run.json").write_text('{"schema": 1, "kind": "comparison"}', "utf-8")
    return [path / "one"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (_nothing, "STUDY: no study was given. Expected one or more directories of studies."),
        (_twice, "one: given twice. Expected every study once."),
        (_missing, "none: there is no such directory. Expected a study that a command wrote."),
        (
            _no_study,
            "run.json: not a study (No such file or directory). Expected a directory written by",
        ),
        (_torn, "one/heads.parquet: cannot be read ("),
        (
            _contradicting,
            "two: contradicts one: heads {'encoder': 4} instead of {'encoder': 3}, for the same",
        ),
        (_half_compared, "one: not a whole comparison. Expected what headscope compare wrote."),
    ],
)
def test_bad_input_is_one_line(made: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(headscope.HeadscopeError) as error:
        join(made(tmp_path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_page_that_is_there_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    joined: Joined = headscope.join([study({"entropy": [1, 2, 3]})])
    page = joined.write(tmp_path / "index.html")
    before = page.read_text("utf-8")
    with pytest.raises(headscope.HeadscopeError, match="a page is already there"):
        joined.write(page)
    assert joined.write(page, overwrite=True).read_text("utf-8") == before
    assert [file.name for file in tmp_path.iterdir()] == ["index.html"]


def test_a_study_is_called_by_its_own_directory_and_that_of_a_cut_model_by_the_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "study", study({"entropy": [1, 2, 3]}))
    written(tmp_path / "small" / "study", study({"cut": [0, 1, 0]}))
    (tmp_path / "small" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    (chapter,) = join(["study", "small"]).chapters
    assert [member.name for member in chapter.members] == ["study", "small"]
    (chapter,) = join(["study", "small/study"]).chapters
    assert [member.name for member in chapter.members] == ["study", "small"]


def test_a_cut_by_named_heads_has_no_study_and_that_is_reported(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "cut.json").write_text("{}")
    with pytest.raises(headscope.HeadscopeError) as caught:
        join([tmp_path / "small"])
    assert "a cut model without a study: its heads were named (`heads=SET` or `plan`)" in str(
        caught.value
    )
    assert f"headscope analyze {tmp_path / 'small'} --corpus FILE --out study" in str(caught.value)
    assert "headscope prune MODEL --heads NUMBER --task TASK --data FILE --out DIR" in str(
        caught.value
    )
