"""Messages of the library name options as Python does; the command line shows them as flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headscope
from headscope.commands._configs import CONFIGS, fields_used, main_config
from headscope.commands._flags import errors_in_flags, flags, to_flags
from headscope.config.command_line import command_line, command_line_of
from headscope.config.evaluate import EvaluateConfig
from headscope.config.pretrain import PretrainConfig
from headscope.config.serve import ServeConfig
from headscope.config.shared import Reading, Run, TaskData
from headscope.config.texts import TextData
from headscope.errors import HeadscopeError

SOURCE = Path(headscope.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z]")
FIELD = re.compile(r"`([a-z_]+)(?:=[^`]+)?`")
# Flags of pip, and variables of CSS.
OTHER_FLAGS = ("model/zoo/wheels.py", "report/rendered_figures.py")
# Words in backticks that are not options: methods and attributes.
NOT_OPTIONS = {"attention_mask", "model", "from_pretrained", "inspected", "stream"}


def library_strings() -> Iterator[tuple[str, str]]:
    """Every string of the library but docstrings, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("commands/", "config/")):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        statements = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_string and id(node) not in statements:
                yield f"{name}:{node.lineno}", node.value


def test_no_string_of_the_library_holds_a_flag() -> None:
    wrong = [
        f"{where}: {text}"
        for where, text in library_strings()
        if FLAG.search(text) and not where.startswith(OTHER_FLAGS)
    ]
    assert wrong == []


def test_every_option_that_a_message_names_is_one_of_a_command() -> None:
    wrong = [
        f"{where}: {text}"
        for where, text in library_strings()
        for name in FIELD.findall(text)
        if name not in flags() and name not in NOT_OPTIONS
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`batch_size`: 0 is too few.", "--batch-size: 0 is too few."),
        ("`recover=N`, as in `recover=1`", "--recover N, as in --recover 1"),
        ("Add `resume=True` to go on", "Add --resume to go on"),
        ('`mask="star"`', "--mask star"),
        ('`heads="3.2,4.*"`', "--heads 3.2,4.*"),
        ('`search="rank"` or iterative', "--search rank or iterative"),
        ("`as_json=True`", "--json"),
        ('`kind="head"` or pair', "--kind head or pair"),
        ("`thresholds`: rare is 2", "--threshold: rare is 2"),
        ("`column`", "--column"),
        ("(`models=[A, B]` `corpus=FILE`)", "(--models A B --corpus FILE)"),
        ("`sizes=[1, 2]`", "--sizes 1,2"),
        ('`columns={"source": "NAME", "target": "NAME"}`', "--columns source=NAME,target=NAME"),
        ('`revision` "main"', '--revision "main"'),
        ("`headscope.load` and `texts` stay", "`headscope.load` and `texts` stay"),
        ("a ` alone", "a ` alone"),
    ],
)
def test_options_are_shown_as_flags(text: str, shown: str) -> None:
    assert to_flags(text) == shown


def test_an_error_leaves_the_command_line_with_flags() -> None:
    with pytest.raises(HeadscopeError) as error, errors_in_flags():
        raise HeadscopeError(
            "`by` is wrong", where="`by`", expected='`by="norm"`', fix="Leave `by` out"
        )
    assert str(error.value) == "--by: --by is wrong. Expected --by norm. Leave --by out."
    with pytest.raises(HeadscopeError, match=r"^`by`: wrong\.$") as other, errors_in_flags():
        raise HeadscopeError("wrong", where=Path("`by`"))
    assert other.value.where == Path("`by`")


def test_a_command_line_is_quoted_and_leaves_out_what_is_not_given() -> None:
    line = command_line("prune", "my model", plan="plan.json", dry_run=True, resume=False, out=None)
    assert line == "headscope prune 'my model' --plan plan.json --dry-run"
    assert command_line("masks compare", "m", seeds=[0, 1], mask="star") == (
        "headscope masks compare m --seeds 0,1 --mask star"
    )
    assert command_line("speed", "m", batch_size=8) == "headscope speed m --batch-size 8"


def test_a_command_line_is_made_of_the_options_that_differ_from_their_defaults() -> None:
    data = TaskData("sst2", "my data", split="dev:half-b", columns={"sentence": "text"})
    configs = EvaluateConfig(batch_size=8), data, Reading(mask="star"), Run(device="cpu")
    assert command_line_of(*configs, arguments=("small",)) == (
        "headscope evaluate small --task sst2 --data 'my data' --split dev:half-b --columns sentence=text --mask star "
        "--device cpu --batch-size 8"
    )
    texts = TextData(corpus=["a.txt", "b.txt"], max_length=128)  # 128 is the default of pretrain
    assert command_line_of(PretrainConfig(architecture="mpnet"), texts) == (
        "headscope pretrain --corpus a.txt --corpus b.txt --config mpnet"
    )
    serve = ServeConfig(study=["study"], browser=False)
    assert command_line_of(serve, arguments=("minilm",)) == (
        "headscope serve minilm --study study --no-browser"
    )


def test_command_lines_that_texts_show_have_options_of_their_commands() -> None:
    calls = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command_line"):
                continue
            name = ast.literal_eval(node.args[0])
            wrong = {word.arg for word in node.keywords} - options_of_command(name)
            calls.append((f"{file.name}:{node.lineno} {name}", wrong))
    assert len(calls) > 8
    assert [call for call in calls if call[1]] == []


def options_of_command(name: str) -> set[str]:
    """The options of a command, by their names in Python."""
    main = main_config(name)
    assert main is not None, name
    return {field for config in CONFIGS[name].values() for field in fields_used(config, main)}


def test_no_script_of_a_page_builds_a_command_line() -> None:
    scripts = Path(__file__).parents[2] / "web" / "src"
    texts = {file.name: file.read_text("utf-8") for file in scripts.rglob("*.js")}
    assert "switches.js" in texts
    assert [name for name, text in texts.items() if "`headscope " in text] == []
