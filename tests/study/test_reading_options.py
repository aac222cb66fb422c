"""--pooling and --prompt: what commands print, record, refuse, and hand on to what they save."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForSequenceClassification, BertModel

import headscope
from embedding import TEXTS, embedding, random_decoder, vectors_of, write
from headscope import load
from headscope.ablation.importance import importance as ablation_importance
from headscope.analysis.label_free_losses import loss_of
from headscope.api.evaluate import evaluate
from headscope.commands import main
from headscope.config.importance import ImportanceConfig
from headscope.config.poolings import POOLINGS
from headscope.config.shared import Reading, TaskData
from headscope.config.shared import Run as RunConfig
from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.errors import HeadscopeError
from headscope.explorer.predictions import EncodedInput as Shown
from headscope.explorer.predictions import TextVectors, prediction_of
from headscope.model.scalar_output import scalar_output
from worded import glue, saved, sentence, sentiments, table, tokenizer

CHANCE = random.Random(5)
ROWS = [(sentence(CHANCE), sentence(CHANCE), round(CHANCE.uniform(0, 5), 1)) for _ in range(12)]


@dataclass
class Ran:
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command as it is typed, in this process."""

    def command(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["headscope", *map(str, words)])
        before = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            signal.signal(signal.SIGTERM, before)
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split in ("train", "dev"):
        table(folder / f"{split}.tsv", ("sentence1", "sentence2", "score"), ROWS)
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedding(tmp_path_factory.mktemp("model") / "first", "cls", length=20)


def test_models_show(first: Path, run: Run, tmp_path: Path) -> None:
    shown = run("models", "show", first)
    assert shown.status == 0
    lines = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert lines["pooling"] == "first (1_Pooling/config.json)"
    assert lines["then"] == "normalise to length 1"
    assert lines["length"] == "20 tokens"
    record = json.loads(run("models", "show", first, "--json").out)
    assert (record["reading"]["pooling"], record["reading"]["max_length"]) == ("first", 20)
    assert "not stated" in run("models", "show", saved(tmp_path / "bare", BertModel)).out


def test_evaluate_says_which_default_it_took_and_takes_another(
    data: Path, run: Run, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "bare", BertModel)
    words = ("evaluate", folder, "--task", "stsb", "--data", data, "--device", "cpu", "--json")
    default = run(*words)
    notes = [line for line in default.err.splitlines() if line.startswith("headscope: warning:")]
    assert len(notes) == 1
    assert "no file states the pooling" in notes[0]
    losses = {"default": json.loads(default.out)["metrics"]["loss"]["value"]}
    for pooling in ("mean", "first", "max"):
        answer = run(*words, "--pooling", pooling)
        assert "warning:" not in answer.err
        losses[pooling] = json.loads(answer.out)["metrics"]["loss"]["value"]
    assert losses["default"] == losses["mean"]
    assert len({round(loss, 4) for loss in losses.values()}) == 3


def test_evaluate_names_the_pooling_and_the_number_of_examples(
    data: Path, run: Run, first: Path, tmp_path: Path
) -> None:
    words = ("--task", "stsb", "--data", data, "--device", "cpu")
    record = run("evaluate", first, *words, "--limit", 8)
    lines = dict(line.split(maxsplit=1) for line in record.out.splitlines())
    assert (lines["examples"], lines["pooling"]) == ("8 of 12", "first (1_Pooling/config.json)")
    assert "note: only 8 examples: the intervals are too narrow. Take 30 or more" in record.err
    bare = saved(tmp_path / "bare", BertModel)
    lines = dict(line.split(maxsplit=1) for line in run("evaluate", bare, *words).out.splitlines())
    assert (lines["examples"], lines["pooling"]) == ("12", "mean (the default: no file states it)")
    lines = dict(
        line.split(maxsplit=1)
        for line in run("evaluate", bare, *words, "--pooling", "max").out.splitlines()
    )
    assert lines["pooling"] == "max (--pooling)"
    classes = saved(tmp_path / "classes", BertForSequenceClassification, num_labels=2)
    many = table(tmp_path / "many.tsv", ("sentence", "label"), sentiments(40))
    record = run("evaluate", classes, "--task", "sst2", "--data", many, "--device", "cpu")
    assert "pooling" not in record.out
    assert "too narrow" not in record.err


def test_a_wrong_pooling_is_refused_before_torch_is_imported() -> None:
    words = ["evaluate", "minilm", "--task", "stsb", "--data", "x", "--pooling", "no"]
    code = (
        f"import atexit, sys; sys.argv = {['headscope', *words]};"
        "atexit.register(lambda: print('torch' in sys.modules));"
        "from headscope.commands import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "False\n")
    assert "--pooling must be mean, first, last" in ended.stderr


def test_an_option_without_effect_is_refused(run: Run, tmp_path: Path, first: Path) -> None:
    folder = saved(tmp_path / "classes", BertForSequenceClassification, num_labels=2)
    words = ("--task", "sst2", "--data", glue(tmp_path / "glue"))
    for option in (("--pooling", "last"), ("--prompt", "the ")):
        answer = run("evaluate", folder, *words, *option)
        assert answer.status == 2
        assert (
            f"{option[0]} requires a task that compares vectors of texts: stsb or retrieval."
            in answer.err
        )
        answer = run("finetune", folder, *words, *option, "--out", tmp_path / "out")
        assert answer.status == 2
        assert (
            f"{option[0]} requires a task that compares vectors of texts: stsb or retrieval."
            in answer.err
        )
    answer = run("look", first, "the cat", "--out", tmp_path / "look.html", "--pooling", "mean")
    assert answer.status == 2
    assert "--pooling requires --lens with gradient or gradient-rollout." in answer.err


def test_a_decoder_is_refused_with_the_remedy(data: Path, run: Run, tmp_path: Path) -> None:
    random_decoder().save_pretrained(tmp_path / "decoder")
    tokenizer(ends=True).save_pretrained(tmp_path / "decoder")
    words = ("evaluate", tmp_path / "decoder", "--task", "stsb", "--data", data)
    answer = run(*words)
    assert (answer.status, answer.out) == (2, "")
    assert "Pass --pooling last" in answer.err
    assert run(*words, "--pooling", "last").status == 0


def test_importance_records_it_and_does_not_go_on_with_another(
    first: Path, data: Path, tmp_path: Path
) -> None:
    def importance(resume: bool, pooling: str | None = None) -> headscope.Study:
        model = load(first, pooling=pooling)
        configs = ImportanceConfig(), TaskData("stsb", data), Reading(), RunConfig(resume=resume)
        return ablation_importance(model, *configs, directory=tmp_path)

    record = importance(resume=False).record["model"]["reading"]
    assert (record["pooling"], record["modules"], record["max_length"]) == (
        "first",
        ["normalise to length 1"],
        20,
    )
    importance(resume=True)
    with pytest.raises(HeadscopeError, match="pooling"):
        importance(resume=True, pooling="max")


def ablation_by_hand(model: headscope.AttentionModel, head: str) -> float:
    def loss() -> float:
        pairs = [vectors_of(model, list(row[:2])) for row in ROWS]
        cosines = [
            torch.nn.functional.cosine_similarity(one, other, dim=0).item() for one, other in pairs
        ]
        return float(
            np.mean([(cosine - row[2] / 5) ** 2 for cosine, row in zip(cosines, ROWS, strict=True)])
        )

    intact = loss()
    with model.edited(headscope.Ablate(head)):
        return loss() - intact


@pytest.mark.parametrize("pooling", ["first", "last", "max"])
def test_exact_ablation_is_of_the_pooled_vector(pooling: str, first: Path, data: Path) -> None:
    model = load(first, pooling=pooling)
    study = headscope.importance(model, task="stsb", data=data, by="ablation")
    rows = study.heads[study.heads["statistic"] == "ablation-loss"]
    assert len(rows) == len(model.heads)
    for head in model.heads:
        matching = rows[(rows["layer"] == head.layer) & (rows["head"] == head.head)]
        assert float(matching["value"].iloc[0]) == pytest.approx(
            ablation_by_hand(model, str(head)), abs=1e-5
        )


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_explorer_pools_alike(pooling: str, first: Path) -> None:
    model = load(first, pooling=pooling, prompt="the old ")
    batch = collate(model, list(Encoder(model).encode([Example("a cat sat", "a dog ran")], 0)))
    shown = Shown("a cat sat", "a dog ran", batch)
    prediction = TextVectors(model)
    with torch.inference_mode():
        result = prediction.read(prediction.run(shown), shown)
    assert float((result - vectors_of(model, ["a cat sat", "a dog ran"])).abs().max()) < 1e-5


@pytest.mark.parametrize("pooling", ["first", "last", "max"])
def test_gradients_are_of_the_pooled_vector(pooling: str, first: Path) -> None:
    model = load(first, pooling=pooling)
    batch = collate(model, list(Encoder(model).encode([Example(TEXTS[0])], 0)))
    states = model(batch)[0].detach().requires_grad_()
    kept = model.model.forward
    model.model.forward = lambda **inputs: type(kept(**inputs))(last_hidden_state=states)  # type: ignore[method-assign]
    number, what = scalar_output(model, batch)
    (slope,) = torch.autograd.grad(number, states)
    assert float(number.detach()) == pytest.approx(1, abs=1e-5)
    assert pooling in ("max",) or pooling in what
    tokens = slope[0].abs().sum(dim=-1).nonzero()[:, 0].tolist()
    if pooling == "max":
        assert tokens == sorted(set(states[0].argmax(dim=0).tolist()))
    else:
        assert tokens == [0 if pooling == "first" else states.shape[1] - 1]


def test_the_lens_gradient_compares_the_pooled_vectors(first: Path) -> None:
    model = load(first)
    batch = collate(model, list(Encoder(model).encode([Example(TEXTS[0], TEXTS[1])], 0)))
    loss = loss_of(model, pairs=True)
    assert "first token" in loss.sentence
    states = model(batch)[0][0]
    segments = batch.layout.encoder.segments[0]  # type: ignore[union-attr, index]
    second = int((segments == 1).nonzero()[0])
    wanted = -torch.nn.functional.cosine_similarity(states[0], states[second], dim=0)
    assert loss.of(model, batch).item() == pytest.approx(wanted.item(), abs=1e-5)


def test_the_override_lives_on_in_what_is_trained(data: Path, run: Run, tmp_path: Path) -> None:
    folder = saved(tmp_path / "bare", BertModel)
    options = ("--pooling", "max", "--prompt", "the old ")
    words = ("--task", "stsb", "--data", data, "--device", "cpu", "--epochs", 1)
    assert run("finetune", folder, *words, *options, "--out", tmp_path / "out").status == 0
    reading = load(tmp_path / "out").reading
    assert (reading.pooling, reading.prompt_for(), reading.prompt_for("query")) == (
        "max",
        "the old ",
        "the old ",
    )
    record = json.loads((tmp_path / "out" / "training.json").read_text("utf-8"))
    assert record["model"]["reading"]["pooling"] == "max"


def test_a_recovered_model_is_read_as_its_source(
    first: Path, data: Path, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = (
        "--task",
        "stsb",
        "--data",
        data,
        "--device",
        "cpu",
        "--recover",
        1,
        "--report-on",
        "dev:half-b",
    )
    ran = run("prune", first, "--heads", "0.1", *words, "--form", "plain", "--out", out)
    assert ran.status == 0, ran.err
    assert load(out).reading.pooling == "first"
    assert (out / "sentence_bert_config.json").is_file()


def test_a_similarity_other_than_the_cosine_is_named(data: Path, tmp_path: Path) -> None:
    folder = embedding(tmp_path / "dot", normalize=False)
    write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot"})
    with pytest.warns(UserWarning, match="states the similarity dot; stsb uses the cosine"):
        evaluate(load(folder), task="stsb", data=data)


def test_a_prompt_longer_than_the_length_is_refused(data: Path, tmp_path: Path) -> None:
    folder = embedding(tmp_path / "model", length=6, include_prompt=False)
    with pytest.raises(
        HeadscopeError,
        match=r"the prompt must have fewer than . tokens, which leaves room for text, got 6",
    ):
        evaluate(load(folder, prompt="the old cat sat on "), task="stsb", data=data)


# Commands that train or judge: what they measure is the model as --pooling and --prompt read it

READ_SO = ("--pooling", "max", "--prompt", "the old ")
TRAINED = ("--epochs", 1, "--batch-size", 4)
SAVING: dict[
    str, tuple[tuple[object, ...], str]
] = {  # the options of a command, and where the model is that it saves
    "gate": (("--keep", 3, *TRAINED), "keep-3"),
    "masks learn": (("--sparsity", 0.3, *TRAINED), "sparsity-0.3-seed-0"),
    "fixed-patterns": (("--patterns", "0.1=first"), ""),
}


def spearman(
    folder: Path,
    data: Path,
    split: str,
    pooling: str | None = "max",
    prompt: str | None = "the old ",
) -> float:
    model = load(folder, device="cpu", pooling=pooling, prompt=prompt)
    return float(
        evaluate(model, task="stsb", data=data, split=split)["metrics"]["spearman"]["value"]
    )


def whole_metric(out: Path) -> float:
    """What a study has for the unchanged model on the split that is reported on."""
    study = headscope.Study(out / "study" if (out / "study").is_dir() else out)
    if "learned_masks" in study.record:
        return float(study.record["learned_masks"]["intact"]["metric"])
    if "mask_table" in study.tables:
        return float(
            study.tables["mask_table"]
            .query("mode == 'straight' and mask == 'dense'")["metric"]
            .iloc[0]
        )
    table = study.tables["front" if "front" in study.tables else "fixing"]
    return float(table.iloc[0]["metric"])


@pytest.mark.parametrize("command", SAVING)
def test_the_options_reach_what_is_measured_recorded_and_saved(
    command: str, data: Path, run: Run, tmp_path: Path
) -> None:
    folder, out = saved(tmp_path / "bare", BertModel), tmp_path / "out"
    options, model = SAVING[command]
    words = ("--task", "stsb", "--data", data, "--device", "cpu")
    ran = run(*command.split(), folder, *words, *options, *READ_SO, "--out", out)
    assert ran.status == 0, ran.err
    expected = spearman(folder, data, "dev:half-b")
    assert whole_metric(out) == pytest.approx(expected, abs=1e-6)
    assert expected != pytest.approx(spearman(folder, data, "dev:half-b", None, None), abs=1e-3)
    reading = load(out / model).reading
    assert (reading.pooling, reading.prompt_for()) == ("max", "the old ")


def test_masks_are_compared_with_the_pooling_asked_for(
    data: Path, run: Run, tmp_path: Path
) -> None:
    folder, out = saved(tmp_path / "bare", BertModel), tmp_path / "out"
    words = (
        "--task",
        "stsb",
        "--data",
        data,
        "--device",
        "cpu",
        "--mask",
        "window:width=1",
        "--out",
        out,
    )
    ran = run("masks", "compare", folder, *words, *READ_SO, "--start", folder, "--epochs", 1)
    assert ran.status == 0, ran.err
    assert whole_metric(out) == pytest.approx(spearman(folder, data, "dev"), abs=1e-6)
    reading = headscope.Study(out).record["model"]["reading"]
    assert (reading["pooling"], reading["prompt"]) == ("max", "the old ")


@pytest.mark.parametrize("command", ["gate", "masks learn", "fixed-patterns", "masks compare"])
def test_commands_refuse_the_options_where_nothing_is_pooled(
    command: str, run: Run, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "classes", BertForSequenceClassification, num_labels=2)
    options = {**{name: value for name, (value, _) in SAVING.items()}, "masks compare": ()}[command]
    words = ("--task", "sst2", "--data", glue(tmp_path / "glue"), "--device", "cpu", *options)
    for option in (("--pooling", "last"), ("--prompt", "the ")):
        ran = run(*command.split(), folder, *words, *option, "--out", tmp_path / "out")
        assert ran.status == 2
        assert f"{option[0]} requires a task that compares vectors of texts" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def served(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs `headscope serve` up to the model that would be served."""
    calls: list[Any] = []

    def stop(name: str, model: Any, *states: Any, **options: Any) -> Any:
        calls.append(model)
        raise HeadscopeError("stopped here")

    monkeypatch.setattr("headscope.explorer.serving.Session", stop)

    def command(*words: object) -> Any:
        calls.clear()
        ran = run("serve", *words, "--device", "cpu")
        assert ran.status == 2
        return calls[0] if calls else ran.err

    return command


def test_serve_shows_the_model_as_it_is_read(served: Callable[..., Any], tmp_path: Path) -> None:
    reading = served(saved(tmp_path / "bare", BertModel), *READ_SO).reading
    assert (reading.pooling, reading.prompt_for()) == ("max", "the old ")
    folder = saved(tmp_path / "classes", BertForSequenceClassification, num_labels=2)
    for option in (("--pooling", "last"), ("--prompt", "the ")):
        assert f"{option[0]}: has no effect on this model" in served(folder, *option)
    assert served(folder).reading.pooling is None


def test_the_explorer_refuses_what_tasks_refuse(tmp_path: Path, data: Path) -> None:
    """A reading that cannot be applied, and a decoder of which nothing states the pooling: the same sentence."""
    decoder = tmp_path / "decoder"
    random_decoder().save_pretrained(decoder)
    tokenizer(ends=True).save_pretrained(decoder)
    unknown = embedding(tmp_path / "unknown")
    modules = json.loads((unknown / "modules.json").read_text("utf-8"))
    write(
        unknown / "modules.json",
        [*modules, {"idx": 9, "name": "9", "path": "9_Odd", "type": "some.Odd"}],
    )
    for folder in (decoder, unknown):
        with pytest.raises(HeadscopeError) as by_task:
            evaluate(load(folder), task="stsb", data=data)
        with pytest.raises(HeadscopeError) as by_explorer:
            prediction_of(load(folder))
        assert str(by_task.value) == str(by_explorer.value)
        assert prediction_of(load(folder, pooling="last")).kind == "encoder"
