"""headscope masks learn: from a task to a mask file that every --mask takes; killed and resumed; bad input."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from transformers import BertForMaskedLM, BertForSequenceClassification
from typer.testing import CliRunner

import headscope
from headscope import Study, TaskData, learn_mask
from headscope.commands import app
from headscope.errors import HeadscopeError
from headscope.learning.learned_mask import LearnedMask
from headscope.learning.splits import MAX_SELECTION, read_splits
from headscope.masks.position_kinds import KINDS, count_pairs_by_kind, mean_by_kind
from headscope.tasks import get_task
from poison import poisoned
from sampling import slow
from worded import glue, saved, sentiments

FAST = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3}
FROZEN = {"epochs": 2, "batch_size": 8, "freeze_weights": True}
WORDS = (
    "masks",
    "learn",
    "bert",
    "--task",
    "sst2",
    "--data",
    "glue",
    "--epochs",
    "2",
    "--batch-size",
    "8",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    saved(tmp_path / "bert", BertForSequenceClassification, num_labels=2)
    glue(tmp_path / "glue")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, list(words))


def test_a_mask_is_learned_written_and_taken_by_evaluate(folder: Path) -> None:
    done = command(*WORDS, "--sparsity", "0.5", "--per", "head", "--out", "masks")
    assert done.exit_code == 0, done.output
    study = Study("masks")
    row = study.tables["learned_masks"].iloc[0]
    assert row["sparsity"] == pytest.approx(0.5, abs=0.02)
    path = "masks/sparsity-0.5-seed-0"
    masked = headscope.load(path, model_class="AutoModelForSequenceClassification")
    masked.edit_permanently(headscope.Masked(f"{path}/mask.npz"))
    result = headscope.evaluate(masked, task="sst2", data="glue", split="dev:half-b")
    assert result["metrics"]["loss"]["value"] == pytest.approx(row["loss"], rel=1e-6)
    without = headscope.evaluate(path, task="sst2", data="glue", split="dev:half-b")
    assert without["metrics"]["loss"]["value"] != pytest.approx(row["loss"], rel=1e-4)
    assert (study.heads["statistic"] == "mask-open-sparsity-0.5-seed-0").sum() == 4
    assert "Which positions need to attend to which" in (folder / "masks" / "index.html").read_text(
        "utf-8"
    )
    assert not list((folder / "masks").rglob("state.pt"))


@pytest.mark.parametrize(
    "more", [("--per", "head"), ("--structured",), ("--structured", "--without-diagonal")]
)
def test_how_open_a_mask_is_has_one_meaning(folder: Path, more: tuple[str, ...]) -> None:
    """Every pair of positions of every text that is learned from, one by one: the same in all three tables."""
    done = command(*WORDS, "--sparsity", "0.6", "--freeze-weights", *more, "--out", "masks")
    assert done.exit_code == 0, done.output
    study, model = Study("masks"), headscope.load("bert")
    rows = (folder / "glue" / "train.tsv").read_text("utf-8").splitlines()[1:]
    texts = [model.tokenizer(row.split("\t")[0])["input_ids"] for row in rows]
    mask = headscope.masks.read_mask("masks/sparsity-0.6-seed-0/mask.npz")
    shares = {}
    for head in model.heads:
        allowed = [mask.at(len(ids), head.site) for ids in texts]
        own = [one[head.head if len(one) > 1 else 0] for one in allowed]
        shares[head.layer, head.head] = sum(int(one.sum()) for one in own) / sum(
            one.numel() for one in own
        )
    table = study.heads.query("statistic == 'mask-open-sparsity-0.6-seed-0'")
    assert table["count"].tolist() == [len(texts)] * 4
    for row in table.itertuples():
        assert row.value == pytest.approx(shares[row.layer, row.head], abs=1e-6)
    opened = sum(shares.values()) / len(shares)
    assert study.tables["learned_masks"]["sparsity"].iloc[0] == pytest.approx(1 - opened, abs=1e-6)
    kinds = count_pairs_by_kind(texts, frozenset({2, 3}), max(map(len, texts))).sum(axis=(1, 2))
    values = study.tables["positions"].set_index("positions")["value"]
    counted = [(values[kind], count) for kind, count in zip(KINDS, kinds, strict=True) if count]
    assert sum(value * count for value, count in counted) / kinds.sum() == pytest.approx(
        opened, abs=1e-6
    )
    assert study.record["learned_masks"]["reached"] <= max(map(len, texts))


def test_the_hint_can_be_pasted(folder: Path) -> None:
    (folder / "glue").rename("my glue")
    words = (
        *WORDS[:6],
        "my glue",
        *WORDS[7:],
        "--max-length",
        "12",
        "--sparsity",
        "0.5",
        "--freeze-weights",
        "--out",
        "masks",
    )
    done = command(*words)
    assert done.exit_code == 0, done.output
    [hint] = [line for line in done.stderr.splitlines() if line.startswith("use it: headscope ")]
    assert "--data 'my glue' --split dev:half-b --max-length 12" in hint
    pasted = command(*shlex.split(hint)[3:], "--json")
    assert pasted.exit_code == 0, pasted.output
    row = Study("masks").tables["learned_masks"].iloc[0]
    assert json.loads(pasted.stdout)["metrics"]["loss"]["value"] == pytest.approx(
        row["loss"], rel=1e-5
    )


def test_the_steps_of_every_aim_are_reported_with_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.progress.time.monotonic", iter(range(0, 10**6, 20)).__next__)
    done = command(*WORDS, "--sparsity", "0.5,0.8", "--freeze-weights", "--out", "masks")
    assert done.exit_code == 0, done.output
    for aim in ("sparsity-0.5-seed-0", "sparsity-0.8-seed-0"):
        assert f"bert on sst2, {aim}, steps: 2 of " in done.stderr


def test_help_says_what_is_limited() -> None:
    for name in ("gate", "masks learn"):
        message = " ".join(command(*name.split(), "--help").output.replace("│", " ").split())
        assert "Maximum number of training examples" in message
        assert f"at most {MAX_SELECTION} of" in message


def test_soft_masks_over_seeds_have_intervals_and_no_file(folder: Path) -> None:
    study = learn_mask(
        "bert",
        task="sst2",
        data="glue",
        out="masks",
        soft=True,
        seeds=(0, 1, 2),
        **FROZEN,
    )
    table = study.tables["positions"]
    assert table["positions"].tolist() == list(KINDS)
    assert (table["seeds"] == 3).all()
    assert ((table["low"] < table["value"]) & (table["value"] < table["high"])).all()
    held = [
        np.load(folder / "masks" / f"soft-seed-{seed}" / "map.npy").astype(float)[0]
        for seed in (0, 1, 2)
    ]
    assert study.maps["mask/soft"] == pytest.approx(np.mean(held, axis=0), abs=1e-3)
    assert not list((folder / "masks").rglob("mask.npz"))


def test_positions_are_sorted_into_kinds() -> None:
    """[CLS] a b [SEP], and the same without b: counted by hand."""
    kinds = count_pairs_by_kind([[2, 9, 8, 3], [2, 9, 3]], frozenset({2, 3}), 4)
    assert kinds[0].diagonal().tolist() == [2, 2, 2, 1]
    assert kinds[1][0].tolist() == [0, 2, 2, 1]
    assert kinds[1][1].tolist() == [2, 0, 1, 1]
    assert kinds[2][1].tolist() == [0, 0, 1, 0]
    assert kinds[3].sum() == 0
    assert kinds.sum() == 16 + 9
    values = np.arange(16.0).reshape(4, 4)
    means = mean_by_kind(values, kinds)
    assert means[2] == pytest.approx((values[1, 2] + values[2, 1]) / 2)
    assert np.isnan(means[3])


def test_open_ends_are_open_in_the_map_and_the_table(folder: Path) -> None:
    """[CLS] a b [SEP] and [CLS] a [SEP] under a structured mask: what touches an end of its text counts as open."""
    texts, special = [[2, 9, 8, 3], [2, 9, 3]], frozenset({2, 3})
    kinds, opened = (
        count_pairs_by_kind(texts, special, 4),
        count_pairs_by_kind(texts, special, 4, at_ends=True),
    )
    assert opened[0].diagonal().tolist() == [2, 0, 1, 1]
    values = np.full((4, 4), 0.25)
    # The diagonal: of 4 + 3 cells, 2 + 1 are inside their texts; special ones are all at an end; neighbours are not.
    assert mean_by_kind(values, kinds, opened)[:3] == pytest.approx([(4 + 3 * 0.25) / 7, 1.0, 0.25])
    study = learn_mask(
        "bert",
        task="sst2",
        data="glue",
        out="masks",
        soft=True,
        structured=True,
        without_diagonal=True,
        **FROZEN,
    )
    table = study.tables["positions"].set_index("positions")["value"]
    assert table["special"] == 1.0
    assert table["diagonal"] == 0.0
    assert 0 < table["neighbours"] < 1
    held = study.maps["mask/soft"]
    assert held[0, 1:].min() == held[1:-1, -1].min() == 1.0
    assert held[2, 4] < 1


def test_a_penalty_that_closes_everything_is_reported(folder: Path) -> None:
    for name, penalty, message in (("high", "10000", True), ("low", "0", False)):
        words = ("--epochs", "10", "--penalty", penalty, "--freeze-weights", "--structured")
        done = command(*WORDS, *words, "--out", name)
        assert done.exit_code == 0, done.output
        assert ("closes everything; only what is always open is left" in done.output) == message
        assert bool(Study(name).record["learned_masks"]["closed"]) == message


@pytest.mark.parametrize("aim", [("--sparsity", "0.5"), ("--penalty", "1"), ("--soft",)])
@pytest.mark.parametrize("rate", ["0.01", slow("0.9")])
def test_a_training_that_is_too_short_is_reported(
    folder: Path, aim: tuple[str, ...], rate: str
) -> None:
    done = command(*WORDS, *aim, "--freeze-weights", "--mask-rate", rate, "--out", "masks")
    assert done.exit_code == 0, done.output
    note = f"{'-'.join(aim).removeprefix('--')}-seed-0: the mask had hardly moved in 12 steps"
    assert (f"note: {note}" in done.stderr) == (rate == "0.01")
    assert len(Study("masks").record["learned_masks"]["notes"]) == (rate == "0.01")
    assert (note in (folder / "masks" / "index.html").read_text("utf-8")) == (rate == "0.01")


def test_only_texts_that_are_learned_from_have_a_price(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = (folder / "glue" / "dev.tsv").read_text("utf-8") + " ".join(["good"] * 20) + "\t1\n"
    (folder / "glue" / "dev.tsv").write_text(longer, "utf-8")
    made: list[LearnedMask] = []
    plain = LearnedMask.__init__

    def init(self: LearnedMask, *args: object, **kwargs: object) -> None:
        plain(self, *args, **kwargs)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(LearnedMask, "__init__", init)
    learn_mask(
        "bert",
        task="sst2",
        data="glue",
        out="masks",
        sparsity=0.5,
        epochs=1,
        batch_size=8,
    )
    assert made[0].length == 22
    longest = max(
        len(line.split("\t")[0].split())
        for line in (folder / "glue" / "train.tsv").read_text().splitlines()
    )
    priced = made[0].entry[made[0].free[made[0].entry] > 0]
    assert int(priced.max()) == (longest + 2) * (longest + 3) // 2 - 1
    assert float(made[0].free.sum()) == pytest.approx(1.0)


def test_a_loss_that_is_nan_goes_on_with_a_smaller_rate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learned(rate: float, **options: object) -> Study:
        options |= FAST | {"learning_rate": rate}
        return learn_mask("bert", task="sst2", data="glue", out="masks", sparsity=0.4, **options)

    with monkeypatch.context() as patch:
        poisoned(patch, at=8)
        with pytest.raises(
            HeadscopeError, match="The state of step 6 is kept: go on from it with `resume=True`"
        ):
            learned(1e-3)
    with pytest.raises(HeadscopeError, match=r"Expected a smaller one"):
        learned(1e-3, resume=True)
    study = learned(1e-4, resume=True)
    [note] = study.record["learned_masks"]["diverged"]["sparsity-0.4-seed-0"]
    assert note["resumed_from"] == 6


def test_a_corpus_is_held_out_in_the_blocks_of_pretrain(folder: Path) -> None:
    texts = [text for text, _ in sentiments(430)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    data = TaskData("masked", "texts.txt", select_on="dev:half-a", report_on="dev:half-b")
    _, train, select, report = read_splits(get_task("masked"), data)
    blocks = [texts[:20], texts[200:220], texts[400:420]]
    assert [item.texts[0] for item in select] == [text for block in blocks for text in block[:10]]
    assert [item.texts[0] for item in report] == [text for block in blocks for text in block[10:]]
    assert len(train) == 430 - 60


def test_masked_tokens_of_a_corpus_without_splits(folder: Path) -> None:
    saved(folder / "mlm", BertForMaskedLM)
    texts = [text for text, _ in sentiments(80)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    words = (
        "masks",
        "learn",
        "mlm",
        "--objective",
        "mlm",
        "--corpus",
        "texts.txt",
        "--epochs",
        "1",
        "--batch-size",
        "8",
    )
    done = command(
        *words, "--penalty", "0.1", "--structured", "--without-diagonal", "--out", "masks"
    )
    assert done.exit_code == 0, done.output
    study = Study("masks")
    assert study.record["learned_masks"]["task"] == "masked"
    table = study.tables["positions"].set_index("positions")
    assert table.loc["diagonal", "value"] == 0.0


def test_a_killed_run_goes_on_to_the_same_bytes(folder: Path) -> None:
    seeds = (0, 1)
    learn_mask("bert", task="sst2", data="glue", out="whole", sparsity=0.4, seeds=seeds, **FAST)

    class Killed(Exception):
        pass

    steps = [0]

    def kill(done: int, total: int, part: str = "") -> None:
        steps[0] += 1
        if steps[0] == 21:
            raise Killed

    with pytest.raises(Killed):
        learn_mask(
            "bert",
            task="sst2",
            data="glue",
            out="other",
            sparsity=0.4,
            seeds=seeds,
            **FAST,
            progress=kill,
        )
    learn_mask(
        "bert",
        task="sst2",
        data="glue",
        out="other",
        sparsity=0.4,
        seeds=seeds,
        **FAST,
        resume=True,
    )
    for name in ("mask.npz", "map.npy", "model.safetensors"):
        for seed in seeds:
            target = f"sparsity-0.4-seed-{seed}"
            assert (folder / "whole" / target / name).read_bytes() == (
                folder / "other" / target / name
            ).read_bytes()
    assert (folder / "whole" / "learned_masks.csv").read_bytes() == (
        folder / "other" / "learned_masks.csv"
    ).read_bytes()


SOURCE = "masks learn requires either --task and --data, or --objective and --corpus."
REFUSED = [
    ((), "masks learn requires --penalty, --sparsity or --soft."),
    (
        ("--sparsity", "0.5", "--penalty", "1"),
        "masks learn requires either --penalty or --sparsity, got both.",
    ),
    (("--sparsity", "0.5,0.5"), "--sparsity must not repeat a value, got 0.5 twice."),
    (("--sparsity", "0.5", "--seeds", "1,1"), "--seeds must not repeat a value, got 1 twice."),
    (("--sparsity", "much"), "--sparsity must be numbers such as 0.5,0.9, got 'much'."),
    (("--sparsity", "2"), "--sparsity must be between 0 and 1, got 2."),
    (("--penalty", "-1"), "--penalty must be at least 0, got -1."),
    (("--sparsity", "0.5", "--soft"), "--sparsity must be left out with --soft."),
    (("--sparsity", "0.5", "--form", "hard"), "--form must be "),
    (("--sparsity", "0.5", "--per", "token"), "--per must be "),
    (("--sparsity", "0.99", "--structured"), "--sparsity must be at most "),
    (("--sparsity", "0.5", "--settle", "2"), "--settle must be above 0 and at most 1, got 2."),
    (("--sparsity", "0.5", "--mask-rate", "0"), "--mask-rate must be above 0, got 0."),
    (("--sparsity", "0.5", "--data", "glue/dev.tsv"), "glue/dev.tsv: there is no train file."),
    (("--sparsity", "0.5", "--objective", "mlm"), SOURCE),
    (("--sparsity", "0.5", "--objective", "mlm", "--corpus", "glue/dev.tsv"), SOURCE),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_learned_is_refused_in_a_line(
    words: tuple[str, ...], message: str, folder: Path
) -> None:
    done = command(*WORDS, *words, "--out", "masks")
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(message)
    assert not list(folder.glob("masks*"))


def test_an_unknown_objective_is_refused(folder: Path) -> None:
    words = ("--objective", "nsp", "--corpus", "glue/dev.tsv", "--soft", "--out", "masks")
    done = command("masks", "learn", "bert", *words)
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception) == '--objective must be mlm, got "nsp".'


def test_python_takes_an_objective_and_a_corpus_and_a_loaded_model(folder: Path) -> None:
    saved(folder / "mlm", BertForMaskedLM)
    texts = [text for text, _ in sentiments(80)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    model = headscope.load("mlm", model_class="AutoModelForMaskedLM")
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    how = {"penalty": 0.1, "structured": True, "epochs": 1, "batch_size": 8}
    live = learn_mask(model, objective="mlm", corpus="texts.txt", **how)
    assert not list(folder.glob("*penalty*"))
    assert all(model.model.state_dict()[name].equal(value) for name, value in before.items())
    named = learn_mask("mlm", TaskData("masked", "texts.txt"), **how)
    pd.testing.assert_frame_equal(live.tables["learned_masks"], named.tables["learned_masks"])
    with pytest.raises(HeadscopeError, match=r"requires that .*task.* left out"):
        learn_mask(model, TaskData("sst2", "glue"), objective="mlm", corpus="texts.txt", **how)


def spoilt(**changes: object) -> dict[str, np.ndarray]:
    import json

    about = {"schema": 1, "groups": ["all"], "per": "model", "diagonal": True}
    allowed = changes.pop("allowed", np.eye(4, dtype=bool)[None])
    return {"allowed": np.asarray(allowed), "about": np.array(json.dumps({**about, **changes}))}


HOLE = np.eye(4, dtype=bool)[None].copy()
HOLE[0, 2, 2] = False
FILES = [
    (spoilt(schema=2), "its schema must be 1, got 2"),
    (spoilt(per="token"), "per and diagonal must state the kind of mask"),
    (spoilt(groups="all"), "groups must be names of layers or heads, got 'all'"),
    (
        spoilt(allowed=np.eye(4)[None]),
        "values must be true or false by position, got float64 [1, 4, 4]",
    ),
    (spoilt(allowed=np.ones((1, 4, 3), dtype=bool)), "masks must be square, got bool [1, 4, 3]"),
    (spoilt(allowed=np.ones((2, 4, 4), dtype=bool)), "there must be a mask for each of the groups"),
    (spoilt(allowed=HOLE), "every position must have a key, got none for position 2 of all"),
    (spoilt(diagonal=False), "every position must have a key, got none for position 0 of all"),
]


@pytest.mark.parametrize(("held", "message"), FILES)
def test_a_mask_file_that_is_wrong_is_refused_in_a_line(
    held: dict[str, np.ndarray], message: str, folder: Path
) -> None:
    np.savez(folder / "mask.npz", **held)
    done = command("evaluate", "bert", "--task", "sst2", "--data", "glue", "--mask", "mask.npz")
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith(f"mask.npz: {message}")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"not a zip file at all"])
def test_a_torn_mask_file_is_refused_in_a_line(content: bytes, folder: Path) -> None:
    (folder / "mask.npz").write_bytes(content)
    done = command("evaluate", "bert", "--task", "sst2", "--data", "glue", "--mask", "mask.npz")
    assert isinstance(done.exception, HeadscopeError), done.output
    assert str(done.exception).startswith("mask.npz: not a mask")
