"""NumPy docstrings of the public names, with examples that run."""

from __future__ import annotations

import doctest
import inspect
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headscope
from headscope.study.result import Result

METHODS = {
    headscope.AttentionModel: (
        "copy", "edit_permanently", "edited", "look", "save", "self_check", "watched",
    ),
    headscope.Study: ("merge",),
}  # fmt: skip
# Public names without an example, by the reason
FIELDS = (
    "its fields are documented by their help texts; examples are with the function that takes it"
)
RETURNED = "is returned by a function whose docstring has the example"
WITHOUT_EXAMPLE = {
    **{name: FIELDS for name in headscope.__all__ if name.endswith("Config")},
    **dict.fromkeys(("ModelSizes", "Reading", "Run", "TaskData", "TextData", "Thresholds"), FIELDS),
    **{
        name: RETURNED
        for name in headscope.__all__
        if inspect.isclass(value := getattr(headscope, name)) and issubclass(value, Result)
        if name not in ("Study", "TokenMap")
    },
}
PUBLIC = {name: getattr(headscope, name) for name in headscope.__all__ if name != "__version__"} | {
    f"{kind.__name__}.{name}": getattr(kind, name)
    for kind, names in METHODS.items()
    for name in names
}


def sections(value: Any) -> set[str]:
    lines = (inspect.getdoc(value) or "").splitlines()
    return {title for title, rule in pairwise(lines) if rule == "-" * len(title)}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_summary_and_an_example(name: str) -> None:
    summary, *rest = (inspect.getdoc(PUBLIC[name]) or "").splitlines()
    assert summary.endswith((".", "`"))
    assert not any(rest[:1])
    has_example = "Examples" in sections(PUBLIC[name]) and bool(examples_of(name))
    assert has_example != (name in WITHOUT_EXAMPLE), "or the list is out of date"


@pytest.mark.parametrize("name", [n for n in PUBLIC if inspect.isfunction(PUBLIC[n])])
def test_a_public_function_documents_parameters_and_result(name: str) -> None:
    signature = inspect.signature(PUBLIC[name])
    expected = {"Parameters"} if set(signature.parameters) - {"self"} else set()
    is_context = hasattr(PUBLIC[name], "__wrapped__") and name.startswith("AttentionModel")
    expected |= set() if is_context else {"Returns"}
    assert expected <= sections(PUBLIC[name])


def examples_of(name: str) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(PUBLIC[name], name, globs={"headscope": headscope})
    return [test for test in tests if test.examples]


def run_examples(name: str) -> None:
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    lines: list[str] = []
    with warnings.catch_warnings():
        for test in examples_of(name):
            runner.run(test, out=lines.append)
    assert not runner.failures, "".join(lines)


def needs_model(name: str) -> bool:
    """Whether an example that runs uses a real model, by name or from an earlier line."""
    run = [
        example.source
        for test in examples_of(name)
        for example in test.examples
        if not example.options.get(doctest.SKIP)
    ]
    return any('"minilm"' in source for source in run)


@pytest.mark.parametrize("name", [name for name in PUBLIC if not needs_model(name)])
def test_examples_without_a_model_run(name: str) -> None:
    run_examples(name)


@pytest.mark.real
@pytest.mark.parametrize("name", [name for name in PUBLIC if needs_model(name)])
def test_examples_with_minilm_run(
    name: str, zoo_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo_model("minilm")
    monkeypatch.chdir(tmp_path)
    run_examples(name)
