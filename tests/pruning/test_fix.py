"""headscope fixed-patterns and finetune --fix, from files to models with fixed heads: measured, resumed, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import BertForSequenceClassification
from typer.testing import CliRunner, Result

import headscope
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.model.fix_heads import read_patterns
from headscope.pruning import fix as fixing
from headscope.study.study import Study
from worded import glue, saved, sentiments, table

TASK = ("--task", "sst2", "--data", "dev.tsv")
FIX = ("fixed-patterns", "bert", *TASK, "--batch-size", "8", "--sizes", "1,2")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made(tmp_path)
    return tmp_path


def made(folder: Path) -> None:
    saved(folder / "bert", BertForSequenceClassification, num_labels=2)
    table(folder / "dev.tsv", ("sentence", "label"), sentiments(60))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """One run of the command, to look at."""
    folder = tmp_path_factory.mktemp("ran")
    made(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, done(*FIX, "--out", "fixed")


@pytest.fixture
def fixed_folder(ran: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ran[0])
    return ran[0]


def fixed(out: str, **options: Any) -> dict[str, Any]:
    """The same from Python."""
    defaults = {"task": "sst2", "data": "dev.tsv", "batch_size": 8, "sizes": (1, 2)}
    return headscope.fixed_patterns("bert", out=out, **(defaults | options)).record


def command(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def done(*words: str) -> Result:
    result = command(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def metrics_by_hand(patterns: dict[Any, str]) -> dict[str, Any]:
    """The whole model under the edit, on the split that is reported on."""
    model = headscope.load("bert", model_class="AutoModelForSequenceClassification")
    if patterns:
        model.edit_permanently(headscope.Fixed(patterns))
    result: dict[str, Any] = headscope.evaluate(
        model, task="sst2", data="dev.tsv", split="dev:half-b"
    )["metrics"]
    return result


def test_what_is_reported_is_the_edited_model_on_the_other_half(fixed_folder: Path) -> None:
    study, model = Study(fixed_folder / "fixed" / "study"), headscope.load("fixed")
    patterns = read_patterns("fixed/patterns.txt", model.heads)
    assert model.fixed == dict(sorted(patterns.items()))
    assert len(patterns) == len(model.heads) == 4
    rows = study.tables["fixing"]
    assert rows["named"].tolist() == [
        "0 heads",
        "1 heads",
        "2 heads",
        "4 heads",
        "encoder.0",
        "encoder.1",
    ]
    assert rows.loc[rows["is_chosen"], "named"].tolist() == ["4 heads"]
    intact = metrics_by_hand({})
    for row in rows.to_dict("records"):
        named = read_patterns("fixed/patterns.txt", model.heads)
        heads = headscope.HeadSet(row["heads"], among=model.heads) if row["heads"] else ()
        result = metrics_by_hand({head: named[head] for head in heads})
        assert row["loss"] == pytest.approx(result["loss"]["value"], abs=1e-6), row["named"]
        assert row["metric"] == pytest.approx(result["accuracy"]["value"])
        assert row["loss_change"] == pytest.approx(
            result["loss"]["value"] - intact["loss"]["value"], abs=1e-6
        )
    alone = study.heads.query("statistic == 'ablation-loss'").set_index(["layer", "head"])["value"]
    for head, name in patterns.items():
        result = metrics_by_hand({head: name})["loss"]["value"] - intact["loss"]["value"]
        assert alone[head.layer, head.head] == pytest.approx(result, abs=1e-6), head


def test_its_number_is_found_again_and_shown_on_the_page(
    fixed_folder: Path, ran: tuple[Path, Result]
) -> None:
    directory, message = ran
    record = json.loads((directory / "fixed" / "cut.json").read_text("utf-8"))["chosen"]
    check = "--split", "dev:half-b", "--batch-size", "8", "--json"
    again = json.loads(done("evaluate", "fixed", *TASK, *check).stdout)
    assert again["metrics"] == {name: after for name, (_, after) in record["metrics"].items()}
    before, after = record["speed"]
    assert before["parameters"] - after["parameters"] == 2 * 2 * (
        16 * 16 + 16
    )  # queries and keys of two layers
    rows = headscope.Study(directory / "fixed" / "study").tables["fixing"].query("kind == 'least'")
    good = rows[rows["selection_metric"] >= 0.99 * rows["selection_metric"].iloc[0]]
    row = good.sort_values("fixed").iloc[-1]
    assert record["within"] == row["fixed"]
    assert (
        f"{row['fixed']} of 4 heads can be fixed within 1 % of the metric on dev:half-a; on dev:half-b that changes "
        f"it by {row['metric_change']:+.4f}" in " ".join(message.output.split())
    )
    page = (directory / "fixed" / "study" / "index.html").read_text("utf-8")
    assert "Heads with fixed patterns" in page
    assert "Metric and speed by number of fixed heads" in page
    assert "with 4 of 4 attention heads fixed" in (directory / "fixed" / "README.md").read_text(
        "utf-8"
    )
    assert sorted(one.name for one in (directory / "fixed").iterdir() if one.is_dir()) == ["study"]


def test_patterns_and_order_come_from_the_other_examples(fixed_folder: Path) -> None:
    """Other examples to report on change neither."""
    single = json.loads((fixed_folder / "fixed" / "cut.json").read_text("utf-8"))["chosen"]
    other = fixed("few", report_limit=9)
    assert single["order"] == other["order"]
    assert single["patterns"] == other["patterns"]
    assert single["judged_on"] != other["judged_on"]


def test_named_patterns_and_a_share_of_the_metric(directory: Path) -> None:
    fixed("named", patterns="0.0=previous,1.*=end", keep_metric=0.01)
    result = {str(head): name for head, name in headscope.load("named").fixed.items()}
    assert result == {"encoder.0.0": "previous", "encoder.1.0": "end", "encoder.1.1": "end"}
    with pytest.raises(
        HeadscopeError, match=r"`keep_metric`: no number of fixed heads keeps 1\.9 of the metric"
    ):
        fixed("none", heads="0.*", keep_metric=1.9)
    assert not (directory / "none").exists()


def test_a_run_that_was_stopped_goes_on_to_the_same_numbers(
    fixed_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, calls = fixing.evaluate, []

    def dies(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return evaluate(*args, **options)

    monkeypatch.setattr(fixing, "evaluate", dies)
    with pytest.raises(KeyboardInterrupt):
        fixed("stopped")
    assert (fixed_folder / "stopped.partial").is_dir()
    assert not (fixed_folder / "stopped").exists()
    fixed("stopped", resume=True)
    assert len(calls) == 6 + 8  # six sets on two splits, less the two sets that were done
    first, other = (
        pd.read_csv(fixed_folder / name / "study" / "fixing.csv").drop(
            columns=["time", "time_low", "time_high", "is_front"]
        )
        for name in ("fixed", "stopped")
    )
    pd.testing.assert_frame_equal(first, other)
    weights = [
        (fixed_folder / name / "model.safetensors").read_bytes() for name in ("fixed", "stopped")
    ]
    assert weights[0] == weights[1]


def test_a_model_is_trained_with_fixed_heads_and_cut_further(directory: Path) -> None:
    glue(directory / "glue")
    options = "--task", "sst2", "--data", "glue", "--epochs", "1", "--batch-size", "8"
    done("finetune", "bert", *options, "--fix", "*.0=raganato,1.1=left", "--out", "tuned")
    tuned, whole = headscope.load("tuned"), headscope.load("bert")
    assert {str(head): name for head, name in tuned.fixed.items()} == {
        "encoder.0.0": "current",
        "encoder.1.0": "current",
        "encoder.1.1": "left",
    }
    state, before = tuned.model.state_dict(), whole.model.state_dict()
    name = "bert.encoder.layer.0.attention.self.query.weight"
    assert state[name].shape == (8, 16)
    assert not torch.allclose(state[name], before[name][8:])  # the head that is left has learned
    done("evaluate", "tuned", "--task", "sst2", "--data", "glue")
    done(
        "prune", "tuned", "--heads", "0.0,1.1", "--task", "sst2", "--data", "glue", "--out", "less"
    )
    assert {str(head): name for head, name in headscope.load("less").fixed.items()} == {
        "encoder.1.0": "current"
    }
    done("finetune", "less", *options, "--out", "again")
    assert headscope.load("again").fixed == headscope.load("less").fixed
    done("importance", "again", "--task", "sst2", "--data", "glue", "--out", "study")
    assert json.loads((directory / "study" / "run.json").read_text("utf-8"))["model"]["fixed"] == {
        "encoder.1.0": "current"
    }


WRONG = {
    ("--patterns", "0.0=spiral"): '--patterns: "spiral" is not a fixed pattern. Expected',
    ("--patterns", "0.7=left"): '"0.7" is not in this model',
    ("--patterns", "0.0=left", "--heads", "0.0"): "--heads requires that --patterns is left out",
    ("--heads", "5.0"): '"5.0" is not in this model',
    (
        "--keep-metric",
        "0",
    ): "--keep-metric must be the share of the unpruned metric to keep, got 0",
    ("--report-on", "dev"): "--report-on",
    ("--sizes", "1,500"): "--sizes: 500 heads cannot be fixed. Expected at most 4.",
    ("--sizes", "many"): '--sizes must be one or more whole numbers such as 3,10,20, got "many"',
}


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_is_refused_before_anything_is_written(
    directory: Path, words: tuple[str, ...]
) -> None:
    outcome = command("fixed-patterns", "bert", *TASK, *words, "--out", "fixed")
    assert isinstance(outcome.exception, HeadscopeError), outcome.output
    assert WRONG[words] in str(outcome.exception)
    assert "\n" not in str(outcome.exception)
    assert not list(directory.glob("fixed*"))


def test_a_fixed_model_is_not_written_in_another_form(directory: Path) -> None:
    fixed("fixed", patterns="0.0=previous", sizes=(1,))
    output = command("prune", "fixed", "--heads", "1.1", "--form", "plain", "--out", "plain")
    assert "--form plain: 1 heads follow fixed patterns" in str(output.exception)
    assert not list(directory.glob("plain*"))
    again = command("fixed-patterns", "fixed", *TASK, "--patterns", "0.0=next", "--out", "again")
    assert "encoder.0.0 is fixed already: previous" in str(again.exception)


def test_what_is_within_reach_is_chosen_where_heads_were_chosen() -> None:
    """Three heads look well on the split that is reported on, but only one where it was chosen."""
    made = [(0, 0.8, 0.8), (1, 0.8, 0.6), (2, 0.7, 0.8), (3, 0.6, 0.9)]
    rows = [
        {"kind": "least", "fixed": n, "selection_metric": chosen, "metric": output}
        for n, chosen, output in made
    ]
    assert fixing._within(rows)["fixed"] == 1
