"""headscope prune from files to a smaller model: searched for, repaired, recovered, killed and taken up, refused."""

from __future__ import annotations

import importlib
import json
import random
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification, pipeline
from typer.testing import CliRunner, Result

import headscope
from children import finished, killed
from headscope.commands import app, main
from headscope.commands._flags import to_flags
from headscope.config.names import SCORES
from headscope.config.prune import PruneConfig
from headscope.config.requirements import SEARCH_BY
from headscope.errors import HeadscopeError, choices
from headscope.heads import HeadSet
from headscope.model import latency as speed
from headscope.pruning.pareto_front import Report
from headscope.pruning.target import estimate
from headscope.report.sections import figures_of, findings_of, parts_of
from headscope.study.study import Study
from headscope.tasks import inference
from sampling import slow
from worded import glue, saved, sentiments, table

STEPWISE = ("--search", "iterative", "--recover", "1", "--recover-steps")
TASK = ("--task", "sst2", "--data", "dev.tsv")
SEARCH = (
    "prune",
    "bert",
    "--task",
    "sst2",
    "--data",
    "dev.tsv",
    "--remove",
    "3",
    "--batch-size",
    "8",
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(80))
    return tmp_path


def command(*words: str) -> Result:
    result = CliRunner().invoke(app, words)
    return result


def done(*words: str) -> Result:
    result = command(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def evaluated(model: str, data: str, *words: str) -> dict[str, Any]:
    output = done(
        "evaluate",
        model,
        "--task",
        "sst2",
        "--data",
        data,
        "--split",
        "dev:half-b",
        "--json",
        *words,
    )
    result: dict[str, Any] = json.loads(output.stdout)
    return result


def manifest(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "cut.json").read_text("utf-8"))
    return result


@pytest.mark.parametrize("how", ["beam", "greedy", *map(slow, ["iterative", "rank", "random"])])
def test_a_search_ends_in_a_model_whose_number_can_be_found_again(
    directory: Path, how: str
) -> None:
    done(*SEARCH, "--search", how, "--out", "small")
    record = manifest(directory / "small")
    assert len(headscope.load("small").heads) == len(headscope.load("bert").heads) - 3
    report = json.loads(
        done(
            "evaluate",
            "small",
            "--task",
            "sst2",
            "--data",
            "dev.tsv",
            "--split",
            "dev:half-b",
            "--batch-size",
            "8",
            "--json",
        ).stdout
    )
    assert report["metrics"] == {
        name: after for name, (_, after) in record["chosen"]["metrics"].items()
    }
    study = Study(directory / "small" / "study")
    assert study.heads.query("statistic == 'cut'")["value"].sum() == 3
    assert {0, 3} <= set(study.tables["front"]["removed"])
    assert (directory / "small" / "study" / "index.html").read_text("utf-8").count(
        "What can be pruned"
    ) >= 1
    card, gain = (
        (directory / "small" / "README.md").read_text("utf-8"),
        record["chosen"]["speed"][1],
    )
    assert "# bert without 3 of" in card
    assert (
        f"{1 / gain['ratio']:.2f} times as fast [{1 / gain['high']:.2f}, {1 / gain['low']:.2f}]"
        in card
    )


SPED = ("--remove", "2", "--search", "rank")


@pytest.mark.parametrize("more", [(), ("--repair", "refit")])
def test_one_run_shows_one_speed_in_one_form_everywhere(
    directory: Path, more: tuple[str, ...]
) -> None:
    outcome = done("prune", "bert", *TASK, *SPED, *more, "--out", "small").output
    study = Study(directory / "small" / "study")
    (row,) = study.tables["front"].query("is_chosen").to_dict("records")
    gain = manifest(directory / "small")["chosen"]["speed"][1]
    assert (gain["ratio"], gain["low"], gain["high"]) == pytest.approx(
        (row["time"], row["time_low"], row["time_high"]), rel=1e-9
    )
    form = f"{1 / row['time']:.2f} times as fast [{1 / row['time_high']:.2f}, {1 / row['time_low']:.2f}]"
    assert form in outcome
    assert form in (directory / "small" / "README.md").read_text("utf-8")
    assert [
        form in str(finding) for finding in findings_of(study) if "heads pruned" in finding.sentence
    ] == [True]
    (part,) = (part for part in parts_of(study) if part.name == "front")
    cells = [
        cells[part.columns.index("times as fast")].text
        for cells in part.rows
        if "(pruned)" in cells[0].text
    ]
    assert cells == [form.replace(" times as fast", "")]
    bars = next(one for one in figures_of(study) if one.name == "front").draw(study).axes[1].lines
    assert any(1 / row["time"] == pytest.approx(y) for line in bars for y in line.get_ydata())


def test_a_set_is_recommended_only_if_its_interval_stays_above_the_allowed_loss(
    directory: Path,
) -> None:
    """40 examples of an untrained model: one answer more or less is 2.5 points, so nothing within 1 % can be shown."""
    outcome = done(*SEARCH, "--search", "rank", "--out", "small").output
    record = manifest(directory / "small")["chosen"]
    count = record["reported_on"]["examples"]
    assert record["advice"] in outcome
    assert record["advice"].startswith("no set is recommended: ")
    words = f"{count} examples are too few to tell whether that is within the allowed loss of "
    assert words in outcome
    verdict = record["verdict"].removesuffix(".").partition(": ")[2]
    assert record["advice"].endswith(f": {verdict}"), "the same question has the same answer"
    (cut,) = (line for line in outcome.splitlines() if line.startswith("cutting "))
    reason = "to reach the target (remove 3), though not shown to stay within the allowed loss"
    assert cut == f"cutting 3 heads {reason}: {manifest(directory / 'small')['removed']}"
    assert words in record["verdict"]
    card = (directory / "small" / "README.md").read_text("utf-8")
    assert record["verdict"] in card
    assert "no evidence" not in outcome + card


def test_named_heads_are_cut_without_a_task(directory: Path) -> None:
    done("prune", "bert", "--heads", "0.1,1.*", "--out", "small")
    assert [str(head) for head in headscope.load("small").heads] == ["encoder.0.0"]
    assert not (directory / "small" / "study").exists()


def test_a_plan_is_carried_out_on_its_own_model_alone(directory: Path) -> None:
    done("prune", "bert", "--heads", "0.1", "--out", "small")
    done("prune", "bert", "--plan", "small/plan.json", "--form", "plain", "--out", "plain")
    vanilla = BertForSequenceClassification.from_pretrained(directory / "plain")
    assert vanilla.config.num_labels == 2
    saved(directory / "other", BertForSequenceClassification, seed=1, num_labels=2)
    refused = command("prune", "other", "--plan", "small/plan.json", "--out", "wrong")
    assert isinstance(refused.exception, HeadscopeError)
    assert "small/plan.json: made for another model (sha256 " in str(refused.exception)
    assert not (directory / "wrong").exists()


def test_a_plan_without_the_repair_of_its_model_is_noted(directory: Path) -> None:
    glue(directory / "glue")
    task = ("--task", "sst2", "--data", "glue")
    done("prune", "bert", "--heads", "0.1", *task, "--repair", "fold", "--out", "small")
    noted = done("prune", "bert", "--plan", "small/plan.json", "--form", "plain", "--out", "plain")
    assert "the model next to this plan was also changed by fold" in noted.output
    assert 'headscope.load("small").save(OUT, form=FORM)' in noted.output
    done("prune", "bert", "--heads", "0.1", "--out", "unrepaired")
    silent = done("prune", "bert", "--plan", "unrepaired/plan.json", "--out", "again")
    assert "the model next to this plan" not in silent.output


def test_repairs_and_recovery_are_reported_stage_by_stage(directory: Path) -> None:
    glue(directory / "glue")
    words = (
        "--task",
        "sst2",
        "--data",
        "glue",
        "--heads",
        "0.1",
        "--repair",
        "fold,refit",
        "--recover",
        "1",
        "--distil",
    )
    done("prune", "bert", *words, "--out", "small")
    record = manifest(directory / "small")["chosen"]
    assert list(record["stages"]) == ["cut", "fold", "refit", "recovered"]
    report = json.loads(
        done(
            "evaluate",
            "small",
            "--task",
            "sst2",
            "--data",
            "glue",
            "--split",
            "dev:half-b",
            "--json",
        ).stdout
    )
    assert report["metrics"] == record["stages"]["recovered"]["metrics"]
    assert sorted(path.name for path in (directory / "small").iterdir() if path.is_dir()) == []


def test_repairs_are_tried_at_every_reported_size(directory: Path) -> None:
    done(
        *SEARCH,
        "--search",
        "rank",
        "--sizes",
        "1,2",
        "--try-repairs",
        "fold,fold+refit",
        "--out",
        "small",
    )
    front = Study(directory / "small" / "study").tables["front"].fillna({"repair": ""})
    assert list(zip(front["removed"], front["repair"], strict=True)) == [
        (0, ""),
        *((size, repair) for size in (1, 2, 3) for repair in ("", "fold", "fold+refit")),
    ]
    folded = front.query("removed == 3 and repair == 'fold'")["metric"].item()
    done(
        "prune",
        "bert",
        "--plan",
        "small/plan.json",
        *TASK,
        "--repair",
        "fold",
        "--batch-size",
        "8",
        "--out",
        "folded",
    )
    assert evaluated("folded", "dev.tsv", "--batch-size", "8")["metrics"]["accuracy"][
        "value"
    ] == pytest.approx(folded)


def test_training_between_the_steps_of_iterative(directory: Path) -> None:
    glue(directory / "glue")
    words = (
        "--task",
        "sst2",
        "--data",
        "glue",
        "--remove",
        "2",
        "--search",
        "iterative",
        "--step",
        "0.25",
    )
    done("prune", "bert", *words, "--recover", "1", "--recover-steps", "--out", "small")
    assert len(headscope.load("small").heads) == 2
    record = manifest(directory / "small")["chosen"]
    assert evaluated("small", "glue")["metrics"] == record["stages"]["in steps"]["metrics"]
    assert [path.name for path in (directory / "small").iterdir() if path.is_dir()] == ["study"]
    assert "After every step trained for 1 epoch." in (directory / "small" / "README.md").read_text(
        "utf-8"
    )


@pytest.mark.slow
def test_steps_with_training_are_reported_like_any_search(directory: Path) -> None:
    """The row of the first step is what a run that ends there saves; the last row is what this one saves."""
    glue(directory / "glue")
    words = (
        "--task",
        "sst2",
        "--data",
        "glue",
        "--search",
        "iterative",
        "--step",
        "0.25",
        "--recover",
        "1",
    )
    for heads, out in (("1", "one"), ("2", "two")):
        done("prune", "bert", *words, "--remove", heads, "--recover-steps", "--out", out)
    done("prune", "bert", *words, "--remove", "2", "--out", "after")
    steps, plain = (Study(directory / out / "study") for out in ("two", "after"))
    front = steps.tables["front"]
    assert list(front.columns) == list(plain.tables["front"].columns)
    assert front["removed"].tolist() == steps.tables["search"]["removed"].tolist() == [0, 1, 2]
    assert front["is_chosen"].tolist() == [False, False, True]
    assert front["parameters"].is_monotonic_decreasing
    for row, out in ((1, "one"), (2, "two")):
        saved_as = manifest(directory / out)["chosen"]["metrics"]
        assert front.loc[row, "metric"] == pytest.approx(saved_as["accuracy"][1]["value"], abs=1e-9)
        assert front.loc[row, "loss"] == pytest.approx(saved_as["loss"][1]["value"], rel=1e-9)
        heads = str(HeadSet(front.loc[row, "heads"], among=headscope.load("bert").heads))
        assert heads == manifest(directory / out)["removed"]
    chosen, others = (
        json.loads((directory / out / "plan.json").read_text("utf-8"))["chosen"]
        for out in ("two", "after")
    )
    assert set(chosen) == set(others) | {"in_steps"}
    assert chosen["in_steps"] == {"recover": 1, "distil": False, "learning_rate": 5e-5}
    assert [chosen[side]["split"] for side in ("selected_on", "reported_on")] == [
        "dev:half-a",
        "dev:half-b",
    ]
    assert chosen["evaluations"] == 3 + 2 * 3, (
        "three models, and two backward passes that count as three each"
    )
    assert steps.heads.query("value == 1")["head"].count() == 2
    assert "with training after each step" in (
        directory / "two" / "study" / "index.html"
    ).read_text("utf-8")


def test_a_plan_made_in_steps_says_what_a_model_that_was_only_cut_has_not_had(
    directory: Path,
) -> None:
    glue(directory / "glue")
    words = (
        "--task",
        "sst2",
        "--data",
        "glue",
        "--search",
        "iterative",
        "--step",
        "0.25",
        "--recover",
        "1",
    )
    done("prune", "bert", *words, "--remove", "1", "--recover-steps", "--out", "one")
    done("prune", "bert", "--plan", "one/plan.json", "--out", "again")
    assert "which this model has not had." in manifest(directory / "again")["chosen"]["how"]
    refused = command(
        "prune", "bert", "--plan", "one/plan.json", "--task", "sst2", "--data", "glue",
        "--report-on", "dev:half-a", "--out", "x",
    )  # fmt: skip
    assert "are selected on and reported on" in str(refused.exception)


def test_a_cut_model_can_be_trained_scored_and_cut_again(directory: Path) -> None:
    glue(directory / "glue")
    done("prune", "bert", "--heads", "0.1", "--out", "small")
    done(
        "finetune", "small", "--task", "sst2", "--data", "glue", "--epochs", "1", "--out", "trained"
    )
    trained = headscope.load("trained")
    assert trained.cut is not None
    assert "encoder.0.1" not in {str(head) for head in trained.heads}
    study = headscope.importance(
        trained, task="sst2", data="dev.tsv", by="ablation,gradient,confidence,norm"
    )
    loss = study.heads.query("statistic == 'ablation-loss'")
    assert [(layer, head) for layer, head in loss[["layer", "head"]].to_numpy()] == [
        (head.layer, head.head) for head in trained.heads
    ]
    with torch.inference_mode():
        headscope.prune(trained, "1.0").model.save("twice")
    assert str(headscope.model.surgery.removed_heads(headscope.load("twice"))) == "0.1,1.0"


def test_a_pipeline_takes_a_cut_model(directory: Path) -> None:
    done("prune", "bert", "--heads", "0.1", "--out", "small")
    small = headscope.load("small")
    result = pipeline("text-classification", model=small.model, tokenizer=small.tokenizer)(
        sentiments(1)[0][0]
    )
    assert result[0]["label"] in small.model.config.id2label.values()


def test_a_share_of_all_heads(directory: Path) -> None:
    done("prune", "bert", *TASK, "--sparsity", "0.5", "--search", "rank", "--out", "half")
    assert len(headscope.load("half").heads) == 2


def test_a_search_for_speed_ends_where_the_layers_promise_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With layers that were measured to take 1, 0.75 and 0.5 of the time at all, half and none of their heads."""
    requested: list[int] = []

    def layers(*_: object, batch_size: int, **__: object) -> speed.LayerTimes:
        requested.append(batch_size)
        return speed.LayerTimes((1.0, 0.5, 0.0), (1.0, 0.75, 0.5))

    monkeypatch.setattr(speed, "measure_layers", layers)
    done("prune", "bert", *TASK, "--speedup", "1.3", "--search", "rank", "--out", "fast")
    assert requested == [speed.TIMED[0]]  # the size that the cut model is timed with
    assert len(headscope.load("fast").heads) == 2
    record = manifest(directory / "fast")["chosen"]
    assert record["target"]["speedup"] == 1.3
    refused = command(
        "prune", "bert", *TASK, "--speedup", "2.1", "--search", "rank", "--out", "faster"
    )
    message = "--speedup: 2.1 times is more than head pruning can give here. Expected at most 2.00"
    assert str(refused.exception).startswith(message)


def test_a_plan_is_not_reported_on_the_half_it_was_chosen_on(directory: Path) -> None:
    done(*SEARCH, "--search", "rank", "--out", "small")
    words = ("--plan", "small/plan.json", *TASK, "--report-on", "dev:half-a", "--out", "again")
    refused = command("prune", "bert", *words)
    assert "are selected on and reported on" in str(refused.exception)
    assert not (directory / "again").exists()


def test_a_dry_run_writes_nothing(directory: Path) -> None:
    before = sorted(directory.iterdir())
    done(*SEARCH, "--search", "rank", "--dry-run")
    assert sorted(directory.iterdir()) == before


@pytest.mark.parametrize(("more", "repaired"), [((), 0), (("--repair", "fold"), 1)])
def test_each_model_is_evaluated_once_on_the_report_split(
    directory: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], repaired: int
) -> None:
    """The search has done it already: what is cut is not evaluated again, only what is repaired."""
    counted = []

    def counting(*args: Any, **named: Any) -> Any:
        counted.append(1)
        return inference.evaluate(*args, **named)

    for module in ("headscope.pruning.pareto_front", "headscope.pruning.prune"):
        monkeypatch.setattr(importlib.import_module(module), "evaluate", counting)
    done(*SEARCH, "--search", "rank", *more, "--out", "small")
    rows = Study(directory / "small" / "study").tables["front"]
    assert len(counted) == len(rows) + repaired
    (row,) = rows.query("is_chosen").to_dict("records")
    stage = manifest(directory / "small")["chosen"]["stages"]["cut"]["change"]
    assert (stage["value"], stage["low"], stage["high"]) == pytest.approx(
        (row["metric_change"], row["change_low"], row["change_high"]), rel=1e-9
    )


def test_a_dry_run_says_what_the_run_would_do(directory: Path) -> None:
    words = (*SEARCH, "--search", "rank")
    output = done(*words, "--dry-run").stdout.splitlines()
    record = json.loads(done(*words, "--dry-run", "--json").stdout)
    done(*words, "--out", "small")
    chosen, (before, after) = (
        manifest(directory / "small")["chosen"],
        manifest(directory / "small")["chosen"]["speed"],
    )
    assert output[0] == record["heads"] == manifest(directory / "small")["removed"]
    sizes = (
        f"{before['parameters'] / 1e6:.2f} to {after['parameters'] / 1e6:.2f} million parameters"
    )
    assert (
        output[1]
        == f"size: 3 of 4 heads would be removed, {sizes}, {before['megabytes']:.1f} to {after['megabytes']:.1f} MB"
    )
    assert output[2] == "target: remove 3, by the search rank for sst2"
    accuracy = chosen["metrics"]["accuracy"][1]["value"]
    assert output[3:5] == [
        f"chosen on: dev:half-a, {chosen['selected_on']['examples']} examples",
        f"reported on: dev:half-b, {chosen['reported_on']['examples']} examples: accuracy {accuracy:.4f}, change "
        f"{chosen['stages']['cut']['change']['value']:+.4f} [{chosen['stages']['cut']['change']['low']:+.4f}, "
        f"{chosen['stages']['cut']['change']['high']:+.4f}]",
    ]
    assert output[5] == chosen["advice"]
    assert (
        output[6]
        == "would be measured: --task sst2 --data dev.tsv --split dev:half-b --batch-size 8"
    )
    assert [size["parameters"] for size in record["sizes"]] == [
        before["parameters"],
        after["parameters"],
    ]
    names = {path.name + ("/" if path.is_dir() else "") for path in (directory / "small").iterdir()}
    assert set(record["files"]) == names - {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_a_dry_run_of_named_heads_tells_the_size_of_its_form(directory: Path) -> None:
    plain = done("prune", "bert", "--heads", "0.1", "--form", "plain", "--dry-run").stdout
    parameters = sum(p.numel() for p in headscope.load("bert").model.parameters())
    assert plain.startswith(
        f"0.1\nsize: 1 of 4 heads would be zeros; the form plain keeps its {parameters / 1e6:.2f} m"
    )
    assert "study/" not in plain


@pytest.mark.parametrize("kills", [slow(2), slow(6)])
def test_kills_change_no_plan(directory: Path, kills: int) -> None:
    """Timings apart, which are measured: the model and every set that was tried are the same."""
    places = [directory / "whole", directory / "killed"]
    for position in places:
        saved(position / "bert", BertForSequenceClassification, num_labels=2)
        table(position / "dev.tsv", ("sentence", "label"), sentiments(160))
    words = (*SEARCH, "--out", "small")
    finished(places[0], *words)
    chance = random.Random(0)
    journal = places[1] / "small.partial" / "journal.jsonl"
    for turn in range(kills):
        resume = ["--resume"] if turn else []
        assert killed(places[1], *words, *resume, after=chance.randint(2, 5))
    assert journal.exists()
    finished(places[1], *words, "--resume")
    for name in ("model.safetensors", "study/search.csv", "study/heads.csv"):
        assert (places[0] / "small" / name).read_bytes() == (
            places[1] / "small" / name
        ).read_bytes(), name


REFUSED = [
    (("--heads", "7.0"), '--heads: "7.0" is not in this model.'),
    (("--heads", "0.1,0.1"), 'heads "0.1,0.1": encoder.0.1 is given twice.'),
    (("--heads", "*.*"), "--heads: these are all heads of the model."),
    (("--heads", "0.1", "--plan", "plan.json"), "prune takes one target, got --heads and --plan"),
    (("--remove", "3"), "a search for heads requires --task and --data"),
    ((), "prune requires --heads, --plan, or --task and --data to search for heads with."),
    (
        ("--remove", "3", "--sparsity", "0.5", "--task", "sst2", "--data", "dev.tsv"),
        "prune takes one target, got --remove and --sparsity",
    ),
    (("--heads", "0.1", "--repair", "fold"), "--repair requires --task and --data"),
    (("--heads", "0.1", "--repair", "glue"), '--repair: "glue" is not a repair.'),
    (
        ("--heads", "0.1", "--form", "huge"),
        '--form must be onnx, plain or small, got "huge"',
    ),
    (("--plan", "none.json"), "none.json: cannot be read:"),
    (("--plan", "dev.tsv"), "dev.tsv: not a plan ("),
    (("--remove", "99", "--task", "sst2", "--data", "dev.tsv"), "--remove: cannot remove 99 of "),
    (
        ("--speedup", "50", "--task", "sst2", "--data", "dev.tsv"),
        "--speedup: 50 times is more than head pruning can give here.",
    ),
    (
        ("--remove", "3", "--task", "sst2", "--data", "dev.tsv", "--select-on", "dev:third"),
        '--split: "third" is not a half of dev.',
    ),
    (
        ("--remove", "3", *TASK, "--select-on", "dev"),
        "--report-on: 36 examples are selected on and reported on, for example dev.tsv:",
    ),
    (("--heads", "0.1", *TASK, "--recover", "1"), "dev.tsv: there is no train file."),
    (
        ("--remove", "3", *TASK, "--by", "entropy"),
        f"--by requires {to_flags(SEARCH_BY)}. It has no effect otherwise.",
    ),
    (
        ("--remove", "3", *TASK, "--search", "greedy", "--beam-width", "9"),
        "--beam-width requires --search beam. It has no effect otherwise.",
    ),
    (("--remove", "3", *TASK, "--by", "nonsense"), f"--by must be {choices('', SCORES)}"),
    (
        ("--remove", "3", *TASK, "--min-heads-per-layer", "-2"),
        "--min-heads-per-layer must be at least 0, got -2",
    ),
    (("--remove", "3", *TASK, "--report-limit", "-1"), "--report-limit must be at least 1, got -1"),
    (
        ("--remove", "3", *TASK, "--recover-steps"),
        "--recover-steps requires --search iterative and --recover",
    ),
    (
        ("--keep-metric", "0.9", "--task", "sst2", "--data", "glue", *STEPWISE),
        "--recover-steps requires --remove N or --sparsity",
    ),
    (
        ("--remove", "3", "--task", "sst2", "--data", "glue", *STEPWISE, "--try-repairs", "fold"),
        "--try-repairs cannot be combined with --recover-steps",
    ),
    (("--heads", "0.1", "--task", "sst2"), "prune requires --data"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_done_is_reported_in_a_line_and_nothing_is_written(
    directory: Path, words: tuple[str, ...], message: str
) -> None:
    glue(directory / "glue")
    before = sorted(directory.iterdir())
    result = command("prune", "bert", *words, "--out", "out")
    assert isinstance(result.exception, HeadscopeError), (result.output, result.exception)
    assert str(result.exception).startswith(message), result.exception
    assert sorted(directory.iterdir()) == before


def test_an_output_that_exists_is_not_touched(directory: Path) -> None:
    done("prune", "bert", "--heads", "0.1", "--out", "small")
    result = command("prune", "bert", "--heads", "0.0", "--out", "small")
    assert isinstance(result.exception, HeadscopeError)
    assert str(result.exception).startswith(
        "small: a pruned model is already there. Add --overwrite"
    )
    done("prune", "bert", "--heads", "1.1", "--out", "small", "--overwrite")
    assert manifest(directory / "small")["removed"] == "1.1"
    assert sum(line.startswith("headscope prune") for line in PruneConfig.examples) >= 3


def test_an_output_that_cannot_be_is_refused_before_the_model_is_loaded(directory: Path) -> None:
    (directory / "mine").mkdir()
    (directory / "mine" / "notes.txt").write_text("mine")
    (directory / "stopped.partial").mkdir()
    (directory / "stopped.partial" / "journal.jsonl").write_text("")
    for out, message in (
        ("mine", "mine: the directory is neither a pruned model nor empty."),
        ("dev.tsv", "dev.tsv: this is a file."),
        (
            "stopped",
            f"{directory}/stopped.partial: a run that was stopped is there (journal.jsonl).",
        ),
    ):
        refused = command("prune", "no-such-model", "--heads", "0.1", "--out", out)
        assert str(refused.exception).startswith(message)
    assert sorted(path.name for path in directory.iterdir()) == [
        "bert",
        "dev.tsv",
        "mine",
        "stopped.partial",
    ]


@pytest.mark.parametrize("form", ["small", "plain"])
def test_a_tokenizer_is_saved_as_it_was_loaded_whatever_it_was_used_for(
    directory: Path, form: str
) -> None:
    fast = headscope.load("bert").tokenizer
    fast.backend_tokenizer.enable_padding(length=16, pad_token="[PAD]")
    fast.backend_tokenizer.enable_truncation(16)
    fast.save_pretrained("bert")
    headscope.prune(headscope.load("bert"), "0.1").model.save("fresh", form=form)
    used = headscope.load("bert")
    used.tokenizer(
        ["the cat sat", "a dog"], padding=True, truncation=True, max_length=4, return_tensors="pt"
    )
    headscope.prune(used, "0.1").model.save("used", form=form)
    assert used.tokenizer.backend_tokenizer.truncation["max_length"] == 4, "what the user set stays"
    done("prune", "bert", "--heads", "0.1", *TASK, "--form", form, "--out", "judged")
    wanted = json.loads((directory / "bert" / "tokenizer.json").read_text("utf-8"))
    assert wanted["padding"]["strategy"] == {"Fixed": 16}
    for out in ("fresh", "used", "judged"):
        assert json.loads((directory / out / "tokenizer.json").read_text("utf-8")) == wanted, out


def test_repairs_and_losses_are_shown_on_the_card_and_the_page(directory: Path) -> None:
    done(*SEARCH, "--search", "rank", "--repair", "fold", "--out", "small")
    record = manifest(directory / "small")["chosen"]
    page = (directory / "small" / "study" / "index.html").read_text("utf-8")
    saved_as = record["stages"]["fold"]["metrics"]["accuracy"]["value"]
    assert f"The saved model, after repair (fold), has accuracy {saved_as:.4f}." in page
    assert "Which attention heads <bdi>bert</bdi> can do without" in page
    assert f"Pruned heads: {manifest(directory / 'small')['removed']}." in page
    assert 'id="figure-heat-cut"' not in page, "the explorer draws that map already"
    assert (directory / "small" / "study" / "figures" / "heat-cut.svg").exists()


def test_what_was_trained_is_not_lost_when_writing_fails(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue(directory / "glue")
    words = (
        "--task",
        "sst2",
        "--data",
        "glue",
        "--remove",
        "2",
        "--search",
        "iterative",
        "--step",
        "0.25",
    )
    for more, kept in (
        (("--recover", "1"), "recovered"),
        (("--recover", "1", "--recover-steps"), "step-1"),
    ):
        with monkeypatch.context() as broken:
            broken.setattr("headscope.pruning.model_result.write_model", lambda *_, **__: 1 / 0)
            assert isinstance(
                command("prune", "bert", *words, *more, "--out", "small").exception,
                ZeroDivisionError,
            )
        assert list((directory / "small.partial").glob(f"{kept}*"))
        with monkeypatch.context() as untaught:
            untaught.setattr("headscope.pruning.recovery.finetune", lambda *_, **__: 1 / 0)
            done("prune", "bert", *words, *more, "--out", "small", "--resume")
        assert len(headscope.load("small").heads) == 2
        assert not [
            path
            for path in (directory / "small").iterdir()
            if path.is_dir() and path.name != "study"
        ]
        shutil.rmtree(directory / "small")


NOT_TOGETHER = [
    (("--heads", "0.1", "--min-heads-per-layer", "1"), "--min-heads-per-layer requires a search"),
    (("--heads", "0.1", "--candidates", "0.*"), "--candidates requires a search"),
    (("--heads", "0.1", "--search", "rank"), "--search requires a search"),
    (("--heads", "0.1", "--distil"), "--distil requires --recover N, as in --recover 1."),
    (("--heads", "0.1", "--recover", "-1", *TASK), "--recover must be at least 0, got -1"),
    (
        (
            "--heads",
            "0.1",
            "--dtype",
            "float64",
            "--recover",
            "1",
            "--task",
            "sst2",
            "--data",
            "glue",
        ),
        "--dtype: training is",
    ),
    (
        ("--remove", "1", "--try-repairs", "refit+fold", *TASK),
        '--try-repairs must be some of fold, refit and fold+refit, got "refit+fold"',
    ),
    (
        (
            "--heads",
            "0.1",
            "--recover",
            "1",
            "--report-on",
            "train",
            "--task",
            "sst2",
            "--data",
            "glue",
        ),
        "--report-on: ",
    ),
]


@pytest.mark.parametrize(("words", "message"), NOT_TOGETHER)
def test_what_does_not_go_together_is_refused(
    words: tuple[str, ...], message: str, directory: Path
) -> None:
    glue(directory / "glue")
    refused = command("prune", "bert", *words, "--out", "small")
    assert isinstance(refused.exception, HeadscopeError), refused.output
    assert str(refused.exception).startswith(message)
    assert not list(directory.glob("small*"))


def test_an_edited_plan_is_refused(directory: Path) -> None:
    done("prune", "bert", "--heads", "0.1", "--out", "small")
    plan = (directory / "small" / "plan.json").read_text("utf-8")
    (directory / "plan.json").write_text(plan.replace('"0.1"', '"1.1"'), "utf-8")
    refused = command("prune", "bert", "--plan", "plan.json", "--out", "other")
    assert str(refused.exception).startswith("plan.json: was edited: its checksum differs.")


def test_a_cut_model_that_is_cut_again_records_its_history(directory: Path) -> None:
    done(*SEARCH, "--search", "rank", "--remove", "1", "--repair", "fold", "--out", "small")
    first = manifest(directory / "small")["removed"]
    left = str(headscope.load("small").heads[0]).removeprefix("encoder.")
    done("prune", "small", "--heads", left, "--out", "smaller")
    (before,) = manifest(directory / "smaller")["chosen"]["history"]
    assert before.startswith(f"Without {first}. By the search `rank`")
    assert before.endswith("Repaired without training: fold.")
    assert before in (directory / "smaller" / "README.md").read_text("utf-8")
    refused = command("prune", "smaller", "--heads", first, "--out", "x")
    assert "is already gone" in str(refused.exception)


def test_a_graph_is_no_model_to_load(directory: Path) -> None:
    (directory / "graph").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (directory / "graph" / name).write_bytes((directory / "bert" / name).read_bytes())
    (directory / "graph" / "model.onnx").write_bytes(b"x")
    with pytest.raises(HeadscopeError, match="this is a graph for onnxruntime"):
        headscope.load("graph")


def test_speed_says_what_it_measured(directory: Path) -> None:
    done("prune", "bert", "--heads", "0.1,1.*", "--out", "small")
    sizes = ("--batch-size", "2", "--length", "8", "--repeats", "2")
    report = json.loads(done("speed", "small", "--against", "bert", *sizes, "--json").stdout)
    assert [one["name"] for one in report["models"]] == ["bert", "small"]
    assert report["models"][1]["parameters"] < report["models"][0]["parameters"]
    assert 0 < report["models"][1]["working"] <= report["models"][0]["working"] < 1
    assert "the bound" in done("speed", "bert", *sizes).stdout


# What is said on the way


def in_order(lines: list[str], wanted: Sequence[str]) -> bool:
    """Whether a line with each of these beginnings comes after one with the beginning before."""
    rest = iter(lines)
    return all(any(line.startswith(start) for line in rest) for start in wanted)


def test_every_phase_of_a_search_is_announced(directory: Path) -> None:
    lines = done(*SEARCH, "--search", "greedy", "--out", "small").stderr.splitlines()
    chosen = manifest(directory / "small")["chosen"]
    examples = chosen["selected_on"]["examples"]
    before = chosen["metrics"]["accuracy"][0]["value"]
    reported = chosen["judged_on"].split(", ")[-1].split(" ")[0]
    assert lines[0] == "loading bert …"
    assert in_order(
        lines,
        [
            f"evaluating the unpruned model on {examples} examples",
            "unpruned model: accuracy ",
            "search: greedy",
            "1 removed: ",
            "reporting ",
            "cutting 3 heads",
            f"unpruned model: accuracy {before:.3f} on {reported} examples",
            "cut: accuracy ",
            "writing the model",
            "drawing figures",
            "saving ",
            "writing the page",
        ],
    ), lines
    page = done("report", "small", "--out", "page.html").stderr.splitlines()
    assert page == ["reading small …", "drawing figures", "writing the page"]


def test_a_search_that_is_stopped_says_what_is_kept(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Report, "front", stop)
    monkeypatch.setattr(sys, "argv", ["headscope", *SEARCH, "--search", "rank", "--out", "small"])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        main()
    signal.signal(signal.SIGTERM, before)
    assert end.value.code == 130
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "finished work is kept in small.partial; the same command with --resume continues",
        "headscope: stopped",
    ]
    monkeypatch.undo()
    monkeypatch.chdir(directory)
    assert done(*SEARCH, "--search", "rank", "--out", "small", "--resume").exit_code == 0


@pytest.mark.parametrize(
    ("seconds", "steps", "examples", "line"),
    [
        (1.0, 60, 750, ""),
        (60.0, 60, 750, "about 60 min at most for 60 steps; `limit=256` makes it 20"),
        (60.0, 60, 300, "about 60 min at most for 60 steps"),
        (12.0, 20, 10_000, "about 4 min at most for 20 steps; `limit=256` makes it 1"),
    ],
)
def test_a_long_search_is_estimated_from_its_first_step(
    seconds: float, steps: int, examples: int, line: str
) -> None:
    assert estimate(seconds, steps, examples) == line
