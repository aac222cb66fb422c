"""Importance from files to a study: added to another, refused, killed and taken up again."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr
from transformers import BertForSequenceClassification
from typer.testing import CliRunner, Result

import headscope
from children import bytes_of, finished, killed
from headscope.ablation import sweep
from headscope.ablation.estimates import definitions
from headscope.ablation.importance import importance as ablation_importance
from headscope.api.importance import importance
from headscope.commands import app
from headscope.config.importance import ImportanceConfig
from headscope.config.names import ESTIMATES, VARIANTS, statistics_of_texts
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError
from headscope.report import write as writer
from headscope.study import run_record
from headscope.study.journal import NAME, Journal
from headscope.study.study import Study
from sampling import slow
from worded import saved, sentiments, table, translator, worded

WORDS = ("importance", "bert", "--task", "sst2", "--data", "dev.tsv", "--batch-size", "4")


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(40))
    (tmp_path / "corpus.txt").write_text("\n".join(text for text, _ in sentiments(8)), "utf-8")
    return tmp_path


def command(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without figures, which take longer than all the rest."""
    monkeypatch.setattr(
        writer, "write_report", lambda study, folder, **_: (folder / "index.html").write_text("")
    )


# In the terminal


def test_the_terminal_says_what_was_found_and_whether_it_suffices(
    work_folder: Path, unpublished: None
) -> None:
    result = command(*WORDS, "--limit", "12", "--out", "study")
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert "ablating 4 heads, one at a time, on 12 examples (mode zero)" in lines
    between = r"\[[+-]\d\.\d{4}, [+-]\d\.\d{4}\]"
    records = [line for line in lines if "largest change of the loss" in line]
    assert len(records) == 2
    assert all(
        re.search(rf"largest change of the loss [+-]\d\.\d{{4}} {between}, by encoder\.", line)
        for line in records
    )
    study = Study("study")
    rows = study.tables["significance"].query("statistic == 'ablation-loss'")
    many = int(rows["is_significant"].sum())
    intact = study.record["importance"]["intact"]["accuracy"]["value"]
    first = lines.index(f"12 examples, accuracy {intact:.4f} with all heads")
    assert lines[first + 1] == (
        f"{many} of 4 heads change the loss significantly when ablated alone (p (Holm) below 0.05)"
    )
    assert (
        lines[first + 2]
        == "note: 12 examples are few: only large changes can be significant. Take 30 or more"
    )


def test_progress_counts_the_heads_that_are_ablated(work_folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    importance("bert", task="sst2", data="dev.tsv", limit=8, progress=lambda *it: seen.append(it))
    assert seen[-1] == (4, 4)


# Killed


@pytest.mark.parametrize("kills", [slow(3), slow(20)])
def test_kills_change_no_byte(work_folder: Path, kills: int) -> None:
    """An uninterrupted run in one directory, one that is killed in another: the same words, the same study."""
    places = [work_folder / "whole", work_folder / "killed"]
    for position in places:
        saved(position / "bert", BertForSequenceClassification, num_labels=2)
        table(position / "dev.tsv", ("sentence", "label"), sentiments(160))
    words = (*WORDS, "--by", "ablation,random", "--kind", "head,site", "--out", "study", "--resume")
    finished(places[0], *words)
    journal = places[1] / "study.partial" / NAME
    total = 1 + 3 * 40  # what run it is; the intact model and two sites, in blocks of four examples
    chance = random.Random(0)
    sizes = [0]
    for _ in range(kills):
        assert killed(places[1], *words, after=chance.randint(1, 9))
        sizes.append(lines(journal))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > kills // 2, "most kills came in the middle of the sweep"
    assert sizes[-1] < total
    assert not (places[1] / "study").exists()
    finished(places[1], *words)
    assert_same_study(places[0] / "study", places[1] / "study")
    assert not journal.parent.exists()


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def assert_same_study(first: Path, other: Path) -> None:
    files = [bytes_of(folder) for folder in (first, other)]
    assert set(files[0]) == set(files[1])
    records = [json.loads(match.pop("run.json")) for match in files]
    for record in records:
        del record["command"], record["durations"]
    assert records[0] == records[1]
    for match in files:  # the page tells how long it took
        match["index.html"] = re.sub(rb"\b\d+\.\d s\b", b"", match["index.html"])
    for name, content in files[0].items():
        assert content == files[1][name], name


def test_a_race_that_was_stopped_ends_with_the_same_study(
    work_folder: Path, unpublished: None, monkeypatch: Any
) -> None:
    table(work_folder / "dev.tsv", ("sentence", "label"), sentiments(200))
    words = (*WORDS, "--sequential-test", "0.05")
    assert command(*words, "--out", "whole").exit_code == 0
    real, calls = Journal.add, []

    def stop(self: Journal, unit: dict[str, Any]) -> None:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(unit)
        real(self, unit)

    monkeypatch.setattr(Journal, "add", stop)
    assert command(*words, "--out", "made").exit_code == 130
    monkeypatch.setattr(Journal, "add", real)
    assert lines(Path("made.partial") / NAME) == 3
    assert command(*words, "--out", "made", "--resume").exit_code == 0
    assert_same_study(work_folder / "made", work_folder / "whole")
    assert set(Study("made").tables["significance"]["test"]) >= {"sequential"}


def test_units_of_other_examples_are_refused(
    work_folder: Path, unpublished: None, monkeypatch: Any
) -> None:
    """As they would be where another number of threads moved a race's gradients by a rounding."""
    real = Journal.add

    def backwards(self: Journal, unit: dict[str, Any]) -> None:
        if self.units:
            raise KeyboardInterrupt
        real(self, unit | {"items": unit["items"][::-1]})

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", backwards)
        assert command(*WORDS, "--out", "study").exit_code == 130
    result = command(*WORDS, "--out", "study", "--resume")
    assert isinstance(result.exception, HeadscopeError)
    assert "`sample` must be as in the run to resume" in str(result.exception)


def test_what_is_in_the_journal_is_not_run_again(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    folder = work_folder / "partial"
    folder.mkdir()

    def run(resume: bool) -> Study:
        data, how = TaskData("sst2", "dev.tsv"), Run(resume=resume)
        return ablation_importance(
            model, ImportanceConfig(), data, Reading(), how, directory=folder
        )

    whole = run(False)
    monkeypatch.setattr(sweep.Sweep, "_answers", lambda *_: pytest.fail("a unit was run again"))
    again = run(True)
    pd.testing.assert_frame_equal(whole.heads, again.heads, check_exact=True)


def test_a_run_that_is_stopped_while_it_draws_keeps_its_journal(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(study: object, folder: Path, **options: object) -> None:
        (folder / "half.svg").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "write_report", stop)
    assert command(*WORDS, "--out", "study").exit_code == 130
    assert lines(Path("study.partial") / NAME) == 4
    monkeypatch.setattr(writer, "write_report", lambda study, folder, **_: None)
    monkeypatch.setattr(
        sweep.Sweep, "_replayed_answers", lambda *_: pytest.fail("a unit was run again")
    )
    monkeypatch.setattr(sweep.Sweep, "_find_difference", lambda *_: None)
    assert command(*WORDS, "--out", "study", "--resume").exit_code == 0
    assert not Path("study/half.svg").exists()
    assert not Path("study", NAME).exists()


# Refused


def begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped at its second unit."""

    def stop(self: Journal, unit: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", stop)
        assert command(*WORDS, "--out", "study").exit_code == 130
    assert lines(Path("study.partial") / NAME) == 1


def refused(*words: str) -> str:
    """What a resumed run is refused by; what there was is left as it is."""
    before = bytes_of(Path("study.partial"))
    result = command(*words, "--out", "study", "--resume")
    assert isinstance(result.exception, HeadscopeError), result.output
    assert bytes_of(Path("study.partial")) == before
    message = str(result.exception)
    start, end = (
        f"study.partial/{NAME}:1: ",
        ". Give the same options again, or --overwrite instead of --resume to begin anew.",
    )
    assert start in message
    assert message.endswith(end)
    return message.partition(start)[2].removesuffix(end)


def test_another_option_is_refused_by_name(
    work_folder: Path, unpublished: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    for options, named in (
        (("--batch-size", "8"), "--batch-size must be as in the run to resume (4), got 8"),
        (("--seed", "1"), "--seed must be as in the run to resume (0), got 1"),
        (("--mode", "mean"), "--mode must be as in the run to resume (zero), got mean"),
        (("--max-length", "16"), "--max-length must be as in the run to resume (null), got 16"),
        (
            ("--sequential-test", "0.1"),
            "--sequential-test must be as in the run to resume (null), got 0.1",
        ),
        (("--dtype", "float64"), "--dtype must be as in the run to resume (float32), got float64"),
        (("--labels", "2=1"), '--labels must be as in the run to resume (null), got {"2": "1"}'),
        (
            ("--columns", "label=label"),
            '--columns must be as in the run to resume (null), got {"label": "label"}',
        ),
        (("--limit", "30"), "--limit must be as in the run to resume (null), got 30"),
        (
            ("--kind", "head,site"),
            '--kind must be as in the run to resume (["head"]), got ["head", "site"]',
        ),
    ):
        assert refused(*WORDS, *options) == named


def test_another_model_data_code_and_version_are_refused_by_name(
    work_folder: Path, unpublished: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(run_record, "hash_code", lambda *rooms: "another")
        assert refused(*WORDS).startswith("`code` must be as in the run")
    with monkeypatch.context() as patch:
        patch.setattr(run_record, "versions", lambda: {"headscope": "0.0.0", "python": "3"})
        assert refused(*WORDS).startswith("`headscope` must be as in the run")
    rows = sentiments(40)
    table(work_folder / "dev.tsv", ("sentence", "label"), rows[::-1])
    assert refused(*WORDS).startswith("--data must be as in the run")
    table(work_folder / "dev.tsv", ("sentence", "label"), rows)
    saved(work_folder / "other", BertForSequenceClassification, seed=1, num_labels=2)
    assert refused("importance", "other", *WORDS[2:]).startswith("`model` must be as in the run")
    assert command(*WORDS, "--out", "study", "--resume").exit_code == 0


# Added


def test_importance_adds_to_the_study_of_the_same_model(
    work_folder: Path, unpublished: None
) -> None:
    assert command("analyze", "bert", "--corpus", "corpus.txt", "--out", "study").exit_code == 0
    before = Study("study")
    assert command(*WORDS, "--out", "study").exit_code == 0
    after = Study("study")
    assert set(after.heads["statistic"]) == set(before.heads["statistic"]) | {
        "ablation-loss",
        "ablation-metric",
    }
    kept = after.heads[after.heads["statistic"].isin(set(before.heads["statistic"]))].reset_index(
        drop=True
    )
    pd.testing.assert_frame_equal(kept, before.heads)
    assert after.record["data"] == before.record["data"]
    assert after.record["importance"]["task"] == "sst2"
    assert set(after.maps) == set(before.maps)
    assert "significance" in after.tables


def test_a_second_time_needs_to_be_asked_for(work_folder: Path, unpublished: None) -> None:
    assert command(*WORDS, "--out", "study").exit_code == 0
    before = bytes_of(work_folder / "study")
    result = command(*WORDS, "--limit", "30", "--out", "study")
    assert str(result.exception) == (
        "study: the study already has results for importance. "
        "Add --overwrite to replace it, or choose another --out."
    )
    assert bytes_of(work_folder / "study") == before
    assert command(*WORDS, "--limit", "30", "--out", "study", "--overwrite").exit_code == 0
    assert Study("study").record["importance"]["examples"] == 30


def test_the_study_of_another_model_is_refused_and_left_as_it_is(
    work_folder: Path, unpublished: None
) -> None:
    saved(work_folder / "other", BertForSequenceClassification, seed=1, num_labels=2)
    assert command("analyze", "other", "--corpus", "corpus.txt", "--out", "study").exit_code == 0
    before = bytes_of(work_folder / "study")
    result = command(*WORDS, "--out", "study")
    assert "study: the model must be that of the study (sha256 " in str(result.exception)
    assert str(result.exception).endswith("). Choose another --out.")
    assert bytes_of(work_folder / "study") == before
    assert not (work_folder / "study.partial").exists()


# From Python


def test_the_race_is_run_on_labels_whatever_the_gradients_are_of(work_folder: Path) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    table(work_folder / "dev.tsv", ("sentence", "label"), sentiments(120))
    options: dict[str, Any] = {"task": "sst2", "data": "dev.tsv", "by": "ablation,gradient"}
    free = importance(model, **options, self_labels=True)
    raced = importance(model, **options, self_labels=True, sequential_test=0.05)
    taught = importance(model, **options, sequential_test=0.05)

    def of(study: Study, name: str) -> np.ndarray:
        rows = study.heads[study.heads["statistic"].str.startswith(name)]
        return rows["value"].to_numpy()

    assert np.array_equal(of(raced, "gradient"), of(free, "gradient"))
    assert not np.array_equal(of(raced, "gradient"), of(taught, "gradient"))
    assert np.array_equal(of(raced, "ablation"), of(taught, "ablation"), equal_nan=True)


def test_without_labels_what_the_model_says_stands_in_for_what_is_right(work_folder: Path) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    rows = sentiments(24)
    table(work_folder / "bare.tsv", ("sentence",), [row[:1] for row in rows])
    batch = next(headscope.encode(model, [row[0] for row in rows], batch_size=len(rows)))
    with torch.inference_mode():
        predicted = model(batch).logits.argmax(dim=-1)
    own = {batch.indices[i]: str(int(predicted[i])) for i in range(len(rows))}
    table(
        work_folder / "said.tsv",
        ("sentence", "label"),
        [(row[0], own[i]) for i, row in enumerate(rows)],
    )
    bare = importance(model, task="sst2", data="bare.tsv", by="gradient,ablation", self_labels=True)
    summary = importance(model, task="sst2", data="said.tsv", by="gradient,ablation")
    assert np.allclose(bare.heads["value"], summary.heads["value"], equal_nan=True)
    assert bare.record["importance"]["labels_by"] == "the model itself"
    assert "labels_by" not in summary.record["importance"]
    with pytest.raises(HeadscopeError, match=r"no column label among .*--self-labels"):
        importance(model, task="sst2", data="bare.tsv", by="gradient")


def test_rules_are_refused_where_nothing_goes_by_them(work_folder: Path) -> None:
    with pytest.raises(
        HeadscopeError, match=r'^`relevance_rules` requires `by="relevance"` \(or all\)'
    ):
        importance("bert", task="sst2", data="dev.tsv", by="gradient", relevance_rules="attnlrp")


def test_all_importances_of_all_heads_are_in_the_study(work_folder: Path) -> None:
    model = worded(BertForSequenceClassification, num_labels=2)
    study = importance(model, task="sst2", data="dev.tsv", by="all", kind="head,only,site,layer")
    counts = study.heads.groupby("statistic").size()
    expected = {"ablation-loss", "ablation-metric", *definitions()}
    expected |= set(ESTIMATES) & set(statistics_of_texts())  # statistics of attention
    assert expected >= {name for names in VARIANTS.values() for name in names}
    assert set(counts.index) == expected
    assert (counts == 4).all()
    assert set(study.tables) == {
        *(
            "significance",
            "ablations",
            "all_but_one",
            "agreement",
            "ceilings",
            "ranks",
            "relevance_layers",
        )
    }
    assert study.record["importance"]["way"] == "rows"
    assert set(study.tables["ablations"]["kind"]) == {"only", "site", "layer"}
    # One of two heads is left: all but the other. A layer of an encoder is its one site.
    others = study.tables["ablations"].set_index(["kind", "named"])["loss_value"]
    heads = study.heads.query("statistic == 'ablation-loss'").set_index(["layer", "head"])["value"]
    assert others["only", "encoder.1.0"] == pytest.approx(heads[1, 1], abs=1e-6)
    assert others["site", "encoder.1"] == pytest.approx(others["layer", "encoder.1"], abs=1e-6)


def test_fixed_patterns_agree_with_the_gradient_on_the_heads_that_have_one(
    work_folder: Path,
) -> None:
    """Cross-attention has no fixed pattern: its heads have gradients, but no exact ablation to compare with."""
    for name in ("a.en", "a.fr"):
        (work_folder / name).write_text("\n".join(text for text, _ in sentiments(8)), "utf-8")
    options: dict[str, Any] = {"task": "translation", "data": "a.en,a.fr"}
    study = importance(translator(), **options, by="ablation,gradient", mode="fixed")
    stacks = study.heads.groupby("statistic")["stack"].unique()
    assert set(stacks["ablation-loss"]) == {"encoder", "decoder"}
    assert set(stacks["gradient"]) == {"encoder", "decoder", "cross"}
    assert set(study.tables["ranks"]["stack"]) == {"encoder", "decoder"}
    gradient, exact = (
        study.heads.query(f"statistic == '{name}' and stack != 'cross'")["value"]
        for name in ("gradient", "ablation-loss")
    )
    table = study.tables["agreement"].set_index("importance")
    expected = spearmanr(gradient, exact).statistic
    assert table.loc["gradient", "correlation"] == pytest.approx(expected)


def test_heads_that_are_named_are_run_alone_and_as_among_all(work_folder: Path) -> None:
    common = {"task": "sst2", "data": "dev.tsv", "batch_size": 8}
    whole, some = importance("bert", **common), importance("bert", heads="0.1,1.*", **common)
    rows = some.heads.query("statistic == 'ablation-loss'")
    assert [(row.layer, row.head) for row in rows.itertuples()] == [(0, 1), (1, 0), (1, 1)]
    merged = rows.merge(whole.heads, on=["stack", "layer", "head", "statistic"])
    assert np.allclose(merged["value_x"], merged["value_y"], atol=1e-7)
    tests = [
        study.tables["significance"].query("statistic == 'ablation-loss'")
        for study in (whole, some)
    ]
    first, all_heads = (table.query("layer == 0 and head == 1") for table in reversed(tests))
    assert first["p"].item() == pytest.approx(all_heads["p"].item())
    assert (
        first["p_adjusted"].item() <= all_heads["p_adjusted"].item()
    )  # over three heads, not over four


def test_a_comma_in_the_path_of_the_data_is_only_a_letter(work_folder: Path) -> None:
    (work_folder / "a,b").mkdir()
    data = table(work_folder / "a,b" / "dev.tsv", ("sentence", "label"), sentiments(12))
    study = importance(worded(BertForSequenceClassification, num_labels=2), task="sst2", data=data)
    assert [file["path"] for file in study.record["importance"]["data"]] == [str(data)]
