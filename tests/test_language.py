"""Are code and docs written in conventional English? The marks of a private dialect, each easy to search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headscope
from sentences import paragraphs, sentences, words

PACKAGE = Path(next(iter(headscope.__path__)))
TESTS = Path(__file__).parent
ROOT = TESTS.parent
EMPTY_NAMES = "one found told place known given asked said here there canary door worn"
PAGES = [
    "README.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
]
LONGEST_SENTENCE, LONGEST_PARAGRAPH = 40, 120  # words
# STYLE: words that readers do not search for. "There is no X" is fine, "X is no Y" is not.
DIALECT_OF_PAGES = (
    r"\b([Cc]anary|[Ff]oretold|[Tt]wins?|[Mm]end(s|ed|ing)?|[Ww]orn|[Bb]eside|[Tt]old)\b"
    r"|\b([Ss]o (many|much) of|shared? out|by the clock|cut at|[Ii]ntact|[Rr]aced?|[Dd]oors?)\b"
    r"|(?<!here )\b(is|are|was|were) no (?!longer|more|less|fewer|larger|better|worse)"
)
DIALECT = r"\b(canary|foretold|twin|mend(s|ed|ing)?|worn|[Ss]o (many|much) of)\b"

DIALECT_OF_TESTS = r"_(told|foretold|mend(s|ed|ing)?|twins?|rooms?|doors?|canary|worn|said)(_|$)"


def modules(folder: Path = PACKAGE) -> Iterator[tuple[str, str, ast.Module]]:
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text("utf-8")
        yield file.relative_to(folder).as_posix(), text, ast.parse(text)


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


@pytest.mark.parametrize(
    ("folder", "names"),
    [(PACKAGE, EMPTY_NAMES), (TESTS, f"{EMPTY_NAMES} twin room")],
    ids=["package", "tests"],
)
def test_names_say_what_a_value_is(folder: Path, names: str):
    empty = set(names.split())
    bad = [
        f"{file}:{line} {name}"
        for file, _, module in modules(folder)
        for line, name in bound_names(module)
        if name.strip("_") in empty
    ]
    assert bad == []


def test_names_of_tests_are_plain_english():
    bad = [
        f"{file}:{line} {name}"
        for file, _, module in modules(TESTS)
        for line, name in bound_names(module)
        if name.startswith("test_") and re.search(DIALECT_OF_TESTS, name)
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


@pytest.mark.parametrize("name", PAGES)
def test_pages_have_short_sentences_and_paragraphs(name: str):
    prose = list(paragraphs((ROOT / name).read_text("utf-8")))
    long_sentences = [
        f"{name}:{paragraph.line} {words(sentence)} words: {sentence}"
        for paragraph in prose
        for sentence in sentences(paragraph.text)
        if words(sentence) > LONGEST_SENTENCE
    ]
    long_paragraphs = [
        f"{name}:{paragraph.line} {words(paragraph.text)} words: {paragraph.text[:60]}…"
        for paragraph in prose
        if words(paragraph.text) > LONGEST_PARAGRAPH
    ]
    assert (long_sentences, long_paragraphs) == ([], [])


@pytest.mark.parametrize("name", PAGES)
def test_pages_use_the_words_of_the_field(name: str):
    assert [
        f"{name}:{paragraph.line} …{paragraph.text[max(0, match.start() - 30) : match.end() + 20]}…"
        for paragraph in paragraphs((ROOT / name).read_text("utf-8"))
        for match in re.finditer(DIALECT_OF_PAGES, paragraph.text)
    ] == []


def test_prose_is_found_in_paragraphs_items_and_tables_and_not_in_code():
    long = "Word" + " word" * 41 + "."
    code, end = f"```python\n{long}\n```", "And [a](link.md) `b c`\nmore."
    page = f"# {long}\n\n{code}\n\nShort. {long}\n{end}\n\n- {long}\n\n| a | {long} |\n"
    actual = [
        (paragraph.line, [words(sentence) for sentence in sentences(paragraph.text)])
        for paragraph in paragraphs(page)
    ]
    assert actual == [(7, [1, 42, 4]), (11, [42]), (13, [1]), (13, [42])]
