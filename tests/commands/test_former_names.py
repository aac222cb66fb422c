"""Former names of commands, options and splits; panels, groups, examples and wording of the help; wrong values."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import BertForMaskedLM
from typer.main import get_command
from typer.testing import CliRunner

import headscope
from headscope.commands import app, main
from headscope.commands._configs import CONFIGS, main_config
from headscope.commands._flags import flags
from headscope.config.compare_masks import CompareMasksConfig
from headscope.config.former_names import COMMANDS, FUNCTIONS, OPTIONS
from headscope.config.option import options_of
from headscope.config.prune import PruneConfig
from headscope.data.records import find_split
from headscope.errors import HeadscopeError
from headscope.study.schema.record import rename_values
from worded import saved, sentiments

GROUPS = {"Look", "Measure", "Prune", "Learn", "Models"}
WITH_FORMER_OPTION = {  # a command that has the present option
    "among": "prune",
    "at_least": "prune",
    "fields": "analyze",
    "frozen": "gate",
    "heads": "gate",
    "labels_free": "importance",
    "long": "analyze",
    "pool": "analyze",
    "race": "importance",
    "rules": "importance",
    "teacher": "prune",
    "width": "prune",
}
PRINTS_RESULTS = {
    "ablate-edges", "analyze", "compare", "doctor", "evaluate", "finetune", "fixed-patterns", "gate", "head",
    "importance", "masks compare", "masks learn", "masks list", "masks show", "models list", "models show", "pretrain",
    "probe", "prune", "speed",
}  # fmt: skip


def stderr_of(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a command that is refused with status 2 prints."""
    monkeypatch.setattr(sys, "argv", ["headscope", *words])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    return capsys.readouterr().err


def all_commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, subcommand in getattr(command, "commands", {}).items():
            yield f"{path} {name}".strip(), subcommand
            yield from walk(subcommand, f"{path} {name}".strip())

    yield from walk(get_command(app), "")


@pytest.mark.parametrize("former", COMMANDS)
def test_a_former_command_names_the_present_one(
    former: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = stderr_of([former, "anything", "--out", "x"], monkeypatch, capsys)
    assert message.startswith(f"headscope: headscope {former} is now headscope {COMMANDS[former]}.")
    assert COMMANDS[former].partition(" --")[0] in dict(all_commands())


@pytest.mark.parametrize("former", OPTIONS)
@pytest.mark.parametrize("form", ["{} 1", "{}=1"])
def test_a_former_option_names_the_present_one(
    former: str, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{former.replace('_', '-')}"
    words = [WITH_FORMER_OPTION[former], "minilm", *form.format(flag).split()]
    message = stderr_of(words, monkeypatch, capsys)
    assert message.startswith(f"headscope: {flag} is now called {flags()[OPTIONS[former]]}.")


def test_former_names_of_python_name_the_present_ones() -> None:
    for former, present in FUNCTIONS.items():
        with pytest.raises(AttributeError, match="is now called") as error:
            getattr(headscope, former)
        assert present in str(error.value)
    with pytest.raises(TypeError, match="'race'; it is now called 'sequential_test'"):
        headscope.importance("minilm", task="sst2", data="dev.tsv", race=0.05)


def test_heads_names_heads_and_remove_counts_them() -> None:
    assert PruneConfig(heads="3.2,4.*").heads == "3.2,4.*"
    assert PruneConfig(remove=3).target["remove"] == 3
    for number in (20, "20"):
        with pytest.raises(HeadscopeError, match=r"`heads` must name heads.*`remove=20`"):
            PruneConfig(heads=number)  # type: ignore[arg-type]
    assert PruneConfig().target["keep_metric"] == 0.99
    assert PruneConfig(sparsity=0.5).keep_metric is None


@pytest.mark.parametrize(("former", "present"), [("even", "half-a"), ("odd", "half-b")])
def test_former_halves_are_read_in_records_and_refused_in_options(
    former: str, present: str, tmp_path: Path
) -> None:
    record = {"pruning": {"reported_on": {"split": f"dev:{former}"}, "note": f"on dev:{former}"}}
    assert rename_values(record)["pruning"]["reported_on"] == {"split": f"dev:{present}"}
    assert rename_values(record)["pruning"]["note"] == f"on dev:{former}"  # a sentence stays
    with pytest.raises(HeadscopeError, match=f"dev:{former} is now called dev:{present}"):
        find_split(tmp_path, f"dev:{former}")


def test_a_former_target_is_read() -> None:
    target = {"heads": 3, "sparsity": None, "keep_metric": None, "speedup": None}
    assert rename_values({"target": target})["target"] == {
        "remove": 3,
        "sparsity": None,
        "keep_metric": None,
        "speedup": None,
    }
    assert rename_values({"heads": {"encoder": 12}}) == {"heads": {"encoder": 12}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "evaluate minilm --task stsb --data dev.tsv --limit ten",
            '--limit must be a whole number, got "ten".',
        ),
        ("prune minilm --sparsity half --out x", '--sparsity must be a number, got "half".'),
        (
            "analyze minilm --corpus a.txt",
            "headscope analyze requires --out. For example: headscope analyze minilm --corpus",
        ),
        (
            "analyze minilm --out study",
            "analyze requires texts. Expected --corpus FILE, --treebank FILE or --coreference FILE. For example: ",
        ),
        (
            "prune minilm --out small",
            "prune requires --heads, --plan, or --task and --data to search for heads with.",
        ),
        (
            "prune minilm --heads 20 --out small",
            "--heads must name heads, such as 3.2,4.*, got 20. To search for 20 heads to remove: --remove 20.",
        ),
        (
            "evaluate minilm --task stsb --data dev.tsv --split dve",
            '--split: "dve" is not a split. Expected dev, dev:half-a, dev:half-b, test or train; did you mean "dev"?',
        ),
    ],
)
def test_a_wrong_call_is_answered_in_our_words(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = stderr_of(words.split(), monkeypatch, capsys)
    assert text.splitlines()[-1].startswith(f"headscope: {message}")


def test_every_command_has_a_group_and_two_examples() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert command.rich_help_panel in GROUPS, name
    for name, command in all_commands():
        if name != "demo":
            assert command.epilog.count("headscope ") >= 2, name


def test_help_texts_begin_with_a_verb_or_noun() -> None:
    for name, command in all_commands():
        texts = [command.help, *(getattr(option, "help", None) for option in command.params)]
        for text in filter(None, texts):
            if name != "demo":
                assert text.split()[0] not in ("What", "Of", "Which", "So", "How"), (name, text)


def test_the_help_of_prune_shows_few_options_first() -> None:
    shared = [
        options_of(config)[name] for config, names in PruneConfig.uses.items() for name in names
    ]
    first = [o for o in (*shared, *options_of(PruneConfig).values()) if not o.panel]
    assert 8 <= len(first) <= 15


def test_commands_that_print_results_print_json() -> None:
    with_json = {
        name
        for name, command in all_commands()
        if any("--json" in getattr(option, "opts", ()) for option in command.params)
    }
    assert with_json >= PRINTS_RESULTS


def test_every_command_that_draws_figures_can_leave_them_out() -> None:
    drawn = {
        "analyze",
        "importance",
        "ablate-edges",
        "compare",
        "report",
        "prune",
        "gate",
        "fixed-patterns",
    }
    for command in (*drawn, "masks learn", "masks compare"):
        config = main_config(command)
        assert config is not None
        assert any("no_figures" in names for names in config.uses.values()), command
    assert drawn <= set(CONFIGS)


def test_a_study_without_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(Path("bert"), BertForMaskedLM)
    Path("texts.txt").write_text("".join(f"{text}\n" for text, _ in sentiments(12)), "utf-8")
    words = ["analyze", "bert", "--corpus", "texts.txt", "--statistics", "entropy,previous"]
    for name, more in (("with", []), ("without", ["--no-figures"])):
        done = CliRunner().invoke(app, [*words, *more, "--out", name])
        assert done.exit_code == 0, done.output
    assert not Path("without/figures").exists()
    assert list(Path("with/figures").glob("*.svg"))
    assert Path("without/heads.csv").read_bytes() == Path("with/heads.csv").read_bytes()
    page = Path("without/index.html").read_text("utf-8")
    assert len(page) < len(Path("with/index.html").read_text("utf-8"))
    assert "<figure" not in page
    assert "entropy" in page
    joined = [*("report", "with", "--no-figures", "--out", "page.html")]
    assert CliRunner().invoke(app, joined).exit_code == 0
    assert "<figure" not in Path("page.html").read_text("utf-8")


def test_lists_are_printed_as_json() -> None:
    masks = json.loads(CliRunner().invoke(app, ["masks", "list", "--json"]).stdout)
    assert masks["dense"]["forbidden"] == 0
    assert masks == json.loads(CliRunner().invoke(app, ["masks", "--json"]).stdout)
    models = json.loads(CliRunner().invoke(app, ["models", "list", "--json"]).stdout)
    assert "minilm" in models


@pytest.mark.parametrize(
    ("value", "masks"),
    [
        ("star,window:width=8", ("star", "window:width=8")),
        (
            "longformer:width=3,globals=first/last,star",
            ("longformer:width=3,globals=first/last", "star"),
        ),
        (["star", "dense,diagonal"], ("star", "dense", "diagonal")),
        ("bigbird:width=1,globals=first,random=4", ("bigbird:width=1,globals=first,random=4",)),
    ],
)
def test_masks_are_separated_by_commas(value: Any, masks: tuple[str, ...]) -> None:
    assert CompareMasksConfig(mask=value).masks == masks


def test_a_removed_option_names_what_to_do_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "study", "--roles", "other", "--out", "page.html"]
    message = stderr_of(words, monkeypatch, capsys)
    assert "Give the study with roles as a further STUDY" in message
