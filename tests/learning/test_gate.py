"""headscope gate: from a task to plans, with a page; killed and resumed; bad input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from transformers import BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import Study, gate
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.learning.gates import Gates
from headscope.report.sections.gates import GatesOverTime
from poison import poisoned
from sampling import slow
from worded import glue, saved, sentiments

FAST = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3}
FROZEN = {"epochs": 2, "batch_size": 8, "freeze_weights": True}
WORDS = ("gate", "bert", "--task", "sst2", "--data", "glue", "--epochs", "2", "--batch-size", "8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    glue(tmp_path / "glue")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(words))


def test_gates_become_a_plan_of_the_trained_model(folder: Path) -> None:
    done = command(*WORDS, "--keep", "2,1", "--out", "gated")
    assert done.exit_code == 0, done.output
    study = Study("gated")
    front = study.tables["front"]
    assert front["left"].tolist() == [4, 2, 1]
    kept = study.heads.query("statistic == 'gate-keep-2'")
    assert sorted(kept["value"]) == [0, 0, 1, 1]
    over_time = study.tables["gates"].query("aim == 'keep-2'")
    assert over_time["step"].is_monotonic_increasing
    last = over_time[over_time["step"] == over_time["step"].max()]
    assert last["gate"].tolist() == kept["value"].tolist()
    assert (folder / "gated" / "figures" / "gates-keep-2.svg").exists()
    assert "Which heads close when" in (folder / "gated" / "index.html").read_text("utf-8")
    cut = command("prune", "gated/keep-2", "--plan", "gated/keep-2/plan.json", "--out", "small")
    assert cut.exit_code == 0, cut.output
    assert len(headscope.load("small").heads) == 2
    result = headscope.evaluate("small", task="sst2", data="glue", split="dev:half-b")
    assert result["metrics"]["loss"]["value"] == pytest.approx(front.loc[1, "loss"], rel=1e-9)


@pytest.mark.slow
def test_the_figure_names_what_the_heads_that_stay_do(folder: Path) -> None:
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text, _ in sentiments(12)), "utf-8")
    assert command("analyze", "bert", "--corpus", "texts.txt", "--out", "study").exit_code == 0
    table = pd.read_csv("study/roles.csv")
    heads = [(layer, head) for layer in range(2) for head in range(2)]
    roles = pd.concat([table.iloc[:1]] * len(heads), ignore_index=True)
    roles[["layer", "head"]] = heads
    roles["role"] = [f"role {layer}{head}" for layer, head in heads]
    roles.to_csv("study/roles.csv", index=False)
    done = command(*WORDS, "--keep", "1", "--freeze-weights", "--roles", "study", "--out", "gated")
    assert done.exit_code == 0, done.output
    study = Study("gated")
    [kept] = study.heads.query("value == 1")[["layer", "head"]].itertuples(index=False)
    drawing = next(iter(GatesOverTime.for_study(study)))
    [axes] = drawing.draw(study).axes
    assert [text.get_text() for text in axes.texts] == [f" role {kept.layer}{kept.head}"]
    other = command(*WORDS, "--keep", "1", "--roles", "glue", "--out", "other")
    assert isinstance(other.exception, HeadscopeError)
    assert not list(folder.glob("other*"))


def test_frozen_weights_leave_a_plan_of_the_model_itself(folder: Path) -> None:
    gate(
        "bert",
        task="sst2",
        data="glue",
        out="gated",
        keep=3,
        **FROZEN,
    )
    assert [path.name for path in (folder / "gated" / "keep-3").iterdir()] == ["plan.json"]
    plan = json.loads((folder / "gated" / "keep-3" / "plan.json").read_text("utf-8"))
    assert plan["count"] == 1
    assert (
        command("prune", "bert", "--plan", "gated/keep-3/plan.json", "--out", "small").exit_code
        == 0
    )


@pytest.mark.parametrize("aim", [("--keep", "2"), ("--penalty", "0.05")])
@pytest.mark.parametrize("rate", ["0.01", slow("0.6")])
def test_a_training_that_is_too_short_is_reported(
    folder: Path, aim: tuple[str, str], rate: str
) -> None:
    done = command(*WORDS, *aim, "--freeze-weights", "--gate-rate", rate, "--out", "gated")
    assert done.exit_code == 0, done.output
    name = "-".join(aim).removeprefix("--")
    note = f"{name}: gates had hardly moved in 12 steps: train on more examples or epochs, or raise `gate_rate`"
    outputs = [note] if rate == "0.01" else []
    assert [line for line in done.stderr.splitlines() if line.startswith("note: ")] == [
        f"note: {one}".replace("`gate_rate`", "--gate-rate") for one in outputs
    ]
    assert Study("gated").record["gates"]["notes"] == outputs
    assert (note in (folder / "gated" / "index.html").read_text("utf-8")) == bool(outputs)


def test_where_all_heads_stay_there_is_nothing_to_cut(folder: Path) -> None:
    done = command(*WORDS, "--penalty", "0", "--freeze-weights", "--out", "gated")
    assert done.exit_code == 0, done.output
    assert "nothing to prune: all 4 heads are kept" in done.stderr
    assert "cut it" not in done.stderr
    cut = command("prune", "bert", "--plan", "gated/penalty-0/plan.json", "--out", "small")
    assert str(cut.exception) == "gated/penalty-0/plan.json: it removes nothing: all 4 heads stay."
    assert not list(folder.glob("small*"))


def test_a_killed_run_goes_on_to_the_same_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate("bert", task="sst2", data="glue", out="whole", keep=(3, 1), **FAST)

    class Killed(Exception):
        pass

    steps = [0]

    def kill(done: int, total: int, part: str = "") -> None:
        steps[0] += 1
        if steps[0] == 21:  # in the second epoch of the second aim
            raise Killed

    with pytest.raises(Killed):
        gate("bert", task="sst2", data="glue", out="other", keep=(3, 1), **FAST, progress=kill)
    assert (folder / "other.partial" / "keep-1" / "state.pt").exists()
    with pytest.raises(HeadscopeError, match="`epochs` must be as in the run to resume"):
        gate(
            "bert",
            task="sst2",
            data="glue",
            out="other",
            keep=(3, 1),
            resume=True,
            **(FAST | {"epochs": 3}),
        )
    gate("bert", task="sst2", data="glue", out="other", keep=(3, 1), **FAST, resume=True)
    plans = [
        json.loads((folder / out / "keep-1" / "plan.json").read_text("utf-8"))
        for out in ("whole", "other")
    ]
    assert [plan["model"].pop("name") for plan in plans] == ["whole/keep-1", "other/keep-1"]
    assert [plan.pop("sum") for plan in plans]
    assert plans[0] == plans[1]
    for name in ("keep-3/model.safetensors", "keep-1/model.safetensors", "gates.csv", "heads.csv"):
        assert (folder / "whole" / name).read_bytes() == (folder / "other" / name).read_bytes(), (
            name
        )
    clock = ["time", "time_low", "time_high", "is_front"]
    fronts = [
        pd.read_csv(folder / out / "front.csv").drop(columns=clock) for out in ("whole", "other")
    ]
    pd.testing.assert_frame_equal(*fronts)


def test_a_reported_epoch_is_not_trained_again(folder: Path) -> None:
    class Killed(Exception):
        pass

    def kill(line: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        gate(
            "bert",
            task="sst2",
            data="glue",
            out="gated",
            keep=3,
            **FAST,
            log=kill,
        )
    steps: list[int] = []
    gate(
        "bert",
        task="sst2",
        data="glue",
        out="gated",
        keep=3,
        **FAST,
        resume=True,
        progress=lambda done, total, part="": steps.append(done) if "steps" in part else None,
    )
    assert steps[0] == steps[-1] // 2 + 1


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_one_head_is_kept_even_where_all_gates_close_on_the_way(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The target can be met with every gate closed but for its noise."""
    plain = Gates.__init__
    monkeypatch.setattr(
        Gates, "__init__", lambda self, *args, **kwargs: plain(self, *args, **kwargs, start=-4.0)
    )
    done = command(*WORDS, "--keep", "1", "--seed", str(seed), "--freeze-weights", "--out", "gated")
    assert done.exit_code == 0, done.output
    study = Study("gated")
    assert study.tables["front"]["left"].tolist() == [4, 1]
    assert study.tables["gates"].groupby("step")["gate"].sum().min() == 0, "closed on the way"
    assert [epoch["heads"] for epoch in study.record["gates"]["epochs"]["keep-1"]] == [1, 1]
    plan = json.loads((folder / "gated" / "keep-1" / "plan.json").read_text("utf-8"))
    whole = headscope.load("bert", model_class="AutoModelForSequenceClassification")
    cut = headscope.prune(whole, plan["heads"]).model
    alone = headscope.evaluate(cut, task="sst2", data="glue", split="dev:half-a")
    last = study.record["gates"]["epochs"]["keep-1"][-1]
    assert last["dev_loss"] == pytest.approx(alone["metrics"]["loss"]["value"], rel=1e-5), (
        "judged as it will be cut"
    )


def test_a_penalty_that_closes_everything_is_stopped_and_reported_and_its_best_epoch_kept(
    folder: Path,
) -> None:
    done = command(*WORDS, "--epochs", "20", "--penalty", "1000", "--out", "gated")
    assert isinstance(done.exception, HeadscopeError)
    message = str(done.exception)
    assert message.startswith("--penalty 1000: all heads are closed at step ")
    assert re.search(
        r"Epoch \d+, with [1-4] heads, is kept in gated\.partial\. Take a smaller penalty", message
    ), message
    assert not (folder / "gated").exists()
    path = folder / "gated.partial" / "penalty-1000"
    record = json.loads((path / "result.json").read_text("utf-8"))
    plan = json.loads((path / "plan.json").read_text("utf-8"))
    assert 4 - plan["count"] == record["collapsed"]["left"] > 0
    with_heads = [epoch for epoch in record["history"]["epochs"] if epoch["heads"]]
    best = max(with_heads, key=lambda epoch: (epoch["value"], -epoch["dev_loss"]))
    assert record["collapsed"]["kept_epoch"] == best["epoch"]
    cut = command("prune", str(path), "--plan", str(path / "plan.json"), "--out", "small")
    if plan["count"]:
        assert cut.exit_code == 0, cut.output


def test_a_penalty_that_closes_everything_at_once_leaves_nothing(folder: Path) -> None:
    words = (
        "--epochs",
        "1",
        "--batch-size",
        "2",
        "--gate-rate",
        "2",
        "--penalty",
        "1000",
        "--freeze-weights",
    )
    done = command(*WORDS, *words, "--out", "gated")
    assert isinstance(done.exception, HeadscopeError)
    assert str(done.exception).startswith("--penalty 1000: all heads are closed at step ")
    assert not list(folder.glob("gated*"))


def test_gates_that_end_below_a_half_are_closed_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Gates.__init__
    monkeypatch.setattr(
        Gates, "__init__", lambda self, *args, **kwargs: plain(self, *args, **kwargs, start=-1.0)
    )
    done = command(
        *WORDS, "--penalty", "0", "--gate-rate", "1e-6", "--freeze-weights", "--out", "gated"
    )
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith("--penalty 0: all heads are closed at step 12 of 12.")


def test_a_sweep_goes_on_after_a_penalty_that_is_too_high(folder: Path) -> None:
    done = command(
        *WORDS, "--epochs", "10", "--penalty", "1000,0.0001", "--freeze-weights", "--out", "gated"
    )
    assert done.exit_code == 0, done.output
    study = Study("gated")
    assert study.tables["front"]["aim"].fillna("").tolist() == ["", "penalty-0.0001"]
    assert set(study.heads["statistic"]) == {"gate-penalty-0.0001"}
    note = study.record["gates"]["collapsed"]
    assert list(note) == ["penalty-1000"]
    assert note["penalty-1000"]["what"].startswith("all heads are closed at step ")
    closing = study.tables["gates"].query("aim == 'penalty-1000'")
    assert closing["gate"].iloc[-1] == 0
    assert "--plan gated/penalty-0.0001/plan.json" in done.output


def test_a_loss_that_is_nan_goes_on_with_a_smaller_rate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(rate: float, **options: object) -> Study:
        options |= FAST | {"learning_rate": rate}
        return gate("bert", task="sst2", data="glue", out="gated", keep=(3, 1), **options)

    for at, output in (
        (2, "Try a smaller"),
        (14, "What is done is kept: go on with `resume=True`"),
        (20, "The state of"),
    ):
        with monkeypatch.context() as patch:
            poisoned(patch, at=at)
            with pytest.raises(HeadscopeError, match="is nan at step") as error:
                trained(1e-3)
        assert output in str(error.value)
        if at == 2:
            assert not list(folder.glob("gated*")), "nothing was done"
            continue
        with pytest.raises(
            HeadscopeError,
            match=r"`learning_rate`: the loss is nan at step .* Expected a smaller one",
        ):
            trained(1e-3, resume=True)
        study = trained(1e-4, resume=True)
        assert study.record["gates"]["learning_rates"] == {"keep-3": 1e-3, "keep-1": 1e-4}
        assert ("keep-1" in study.record["gates"]["diverged"]) == (at == 20)
        shutil.rmtree(folder / "gated")


def test_a_run_with_other_columns_labels_or_code_is_another_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "dev"):
        rows = (folder / "glue" / f"{name}.tsv").read_text("utf-8").splitlines()
        turned = [
            f"{row}\t{'other' if not i else row.split(chr(9))[0][::-1]}"
            for i, row in enumerate(rows)
        ]
        (folder / "glue" / f"{name}.tsv").write_text("\n".join(turned) + "\n", "utf-8")

    def stop(done: int, total: int, part: str = "") -> None:
        if done == 7:
            raise KeyboardInterrupt

    def trained(**options: object) -> None:
        gate("bert", task="sst2", data="glue", out="gated", keep=1, **(FAST | options))

    with pytest.raises(KeyboardInterrupt):
        trained(progress=stop)
    with pytest.raises(HeadscopeError, match="`columns` must be as in the run to resume"):
        trained(resume=True, columns={"sentence": "other"})
    with pytest.raises(HeadscopeError, match="`labels` must be as in the run to resume"):
        trained(resume=True, labels={"0": "1", "1": "0"})
    monkeypatch.setattr("headscope.learning.learning_runs.hash_code", lambda *rooms: "another")
    with pytest.raises(HeadscopeError, match="`code` must be as in the run to resume"):
        trained(resume=True)


def test_gates_on_a_model_from_scratch(folder: Path) -> None:
    size = ("--from-scratch", "--layers", "1", "--heads-per-layer", "4", "--hidden", "16")
    done = command(*WORDS, *size, "--keep", "2", "--out", "gated")
    assert done.exit_code == 0, done.output
    study = Study("gated")
    assert study.tables["front"]["left"].tolist() == [4, 2]
    sizes = {
        "from_scratch": True,
        "layers": 1,
        "heads_per_layer": 4,
        "hidden": 16,
        "intermediate": None,
    }
    assert study.record["config"].items() >= sizes.items()
    cut = command("prune", "gated/keep-2", "--plan", "gated/keep-2/plan.json", "--out", "small")
    assert cut.exit_code == 0, cut.output
    again = command(*WORDS, *size, "--keep", "2", "--out", "again")
    assert again.exit_code == 0, again.output
    weights = [
        (folder / out / "keep-2" / "model.safetensors").read_bytes() for out in ("gated", "again")
    ]
    assert weights[0] == weights[1], "new weights follow from the seed"


REFUSED = [
    (("--out", "gated"), "gate requires either --keep or --penalty, got neither."),
    (("--keep", "2", "--penalty", "0.1", "--out", "gated"), "gate requires either --keep or"),
    (("--keep", "9", "--out", "gated"), "--keep must be 1 to 4, got 9."),
    (("--keep", "2", "--layers", "1", "--out", "gated"), "--layers requires --from-scratch."),
    (
        ("--keep", "2", "--from-scratch", "--freeze-weights", "--out", "gated"),
        "--freeze-weights requires trained weights",
    ),
    (("--keep", "2,2", "--out", "gated"), "--keep must not repeat a value, got 2 twice."),
    (("--penalty", "1,1", "--out", "gated"), "--penalty must not repeat a value, got 1.0 twice."),
    (("--penalty", "-1", "--out", "gated"), "--penalty must be at least 0, got -1."),
    (("--penalty", "much", "--out", "gated"), "--penalty must be numbers such as 0.001,0.01"),
    (
        ("--penalty", "cross=1", "--out", "gated"),
        "--penalty must name stacks of the model (encoder), got cross.",
    ),
    (
        ("--keep", "2", "--settle", "0", "--out", "gated"),
        "--settle must be above 0 and at most 1, got 0.",
    ),
    (("--keep", "2", "--gate-rate", "0", "--out", "gated"), "--gate-rate must be above 0, got 0."),
    (("--keep", "2", "--report-on", "dev:half-a", "--out", "gated"), "--report-on: "),
    (
        ("--keep", "2", "--data", "glue/dev.tsv", "--out", "gated"),
        "glue/dev.tsv: there is no train file.",
    ),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_learned_is_refused_in_a_line(
    words: tuple[str, ...], message: str, folder: Path
) -> None:
    done = command(*WORDS, *words)
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(message)
    assert not list(folder.glob("gated*"))


def test_a_loaded_model_is_trained_as_its_files_are_and_is_left_unchanged(folder: Path) -> None:
    model = headscope.load("bert", model_class="AutoModelForSequenceClassification")
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    task = headscope.TaskData("sst2", "glue")
    live = gate(model, task, headscope.GateConfig(keep=(2,), **FAST))
    assert sorted(path.name for path in folder.iterdir()) == ["bert", "glue"], "nothing is written"
    after = model.model.state_dict()
    assert all(after[name].equal(value) for name, value in before.items())
    assert all(weight.requires_grad for weight in model.model.parameters())
    named = gate("bert", task, keep=2, run=headscope.Run(out=folder / "gated"), **FAST)
    clock = ["time", "time_low", "time_high", "is_front"]
    fronts = [study.tables["front"].drop(columns=clock) for study in (live, named)]
    pd.testing.assert_frame_equal(*fronts)
    pd.testing.assert_frame_equal(live.heads, named.heads)
    assert "Which heads close when" in (folder / "gated" / "index.html").read_text("utf-8")
    assert Study("gated").record["config"]["keep"] == [2]


def test_what_a_loaded_model_cannot_do_is_refused(folder: Path) -> None:
    model = headscope.load("bert", model_class="AutoModelForSequenceClassification")
    task = headscope.TaskData("sst2", "glue")
    with pytest.raises(HeadscopeError, match="`from_scratch=True` requires the name or path"):
        gate(model, task, keep=2, from_scratch=True)
    with pytest.raises(HeadscopeError, match="`device` has no effect on a model that is loaded"):
        gate(model, task, keep=2, device="cpu")
    with pytest.raises(HeadscopeError, match="`resume` requires `out=DIR`"):
        gate(model, task, keep=2, resume=True)
    with pytest.raises(HeadscopeError, match="gate requires a model without edits"):
        gate(model.edit_permanently("0.1"), task, keep=2)
