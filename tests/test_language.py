"""Is the code written in conventional English? The marks of a private dialect, each easy to search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headscope

PACKAGE = Path(next(iter(headscope.__path__)))
EMPTY_NAMES = "one found told place known given asked said here there"
DIALECT = r"\b(canary|foretold|twin|mend(s|ed|ing)?|worn|[Ss]o (many|much) of)\b"


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text("utf-8")
        yield file.relative_to(PACKAGE).as_posix(), text, ast.parse(text)


def bound_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Variables, arguments and functions with their lines; variables of comprehensions are left out."""
    comprehensions = {
        id(target)
        for node in ast.walk(module)
        if isinstance(node, ast.comprehension)
        for target in ast.walk(node.target)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if id(node) not in comprehensions:
                yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def test_names_say_what_a_value_is():
    empty = set(EMPTY_NAMES.split())
    bad = [
        f"{file}:{line} {name}"
        for file, _, module in modules()
        for line, name in bound_names(module)
        if name.strip("_") in empty
    ]
    assert bad == []


def docstrings(module: ast.Module) -> Iterator[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(module):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def test_docstrings_are_sentences_in_the_words_of_the_field():
    bad = [
        f"{file}: {text.splitlines()[0]}"
        for file, _, module in modules()
        for text in docstrings(module)
        if text.startswith("Of ") or re.search(DIALECT, re.sub(r"[`'\"][^`'\"]*[`'\"]", "", text))
    ]
    assert bad == []


def test_help_of_options_begins_with_a_noun_or_a_verb():
    bad = [
        f"{file}:{node.lineno} {text}"
        for file, _, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "option"
        for text in [ast.literal_eval(a) for a in node.args[1:2] if isinstance(a, ast.Constant)]
        if re.match(r"(Of|What|So many|So much|Where)\b", text)
    ]
    assert bad == []
