"""The docs name every command, option, statistic, column and family, and their snippets run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from headscope.commands import app
from headscope.config.names import SEARCHES
from headscope.model.families import families
from headscope.model.lenses import LENSES, ROWS, SIGN
from headscope.model.zoo import MODELS
from headscope.report.sections import sections
from headscope.statistics import glossary
from headscope.study.schema.record import RunRecord
from headscope.study.schema.reference import reference
from headscope.study.schema.tables import COMPARISON_TABLES, TABLES
from headscope.tables import COLUMNS
from sentences import sentences

ROOT = Path(__file__).parent.parent


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_every_statistic_has_its_row_in_the_docs_with_its_unit() -> None:
    rows = dict(
        re.findall(
            r"^\| `([\w-]+)` \| (\w+) \|", page("docs/reference/statistics.md"), re.MULTILINE
        )
    )
    assert rows == {name: definition.unit for name, definition in glossary().items()}


def test_every_lens_has_its_row_in_the_docs_with_the_properties_of_its_maps() -> None:
    pattern = r"^\| `([\w-]+)` \| .+ \| (yes|no) \| (yes|no) \|"
    rows = re.findall(pattern, page("docs/explanation/lenses.md"), re.MULTILINE)
    words = {True: "yes", False: "no"}
    assert sorted(rows) == sorted(
        (name, words[ROWS in lens.gives], words[SIGN in lens.gives])
        for name, lens in LENSES.items()
    )


def test_every_search_has_its_row_in_the_docs() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", page("docs/explanation/pruning.md"), re.MULTILINE)
    assert set(SEARCHES) <= set(rows)


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_of_heads_csv_is_documented(column: str) -> None:
    assert f"`{column}`" in page("docs/reference/tables.md")


def test_the_columns_of_every_table_are_those_of_the_schema() -> None:
    match = re.search(
        r"<!-- tables: .* -->\n(.*?)\n<!-- end of tables -->",
        page("docs/reference/tables.md"),
        re.DOTALL,
    )
    assert match is not None
    assert match[1] == reference(), (
        "insert the output of python -m headscope.study.schema.reference"
    )


@pytest.mark.parametrize("name", [*TABLES, *COMPARISON_TABLES])
def test_every_table_is_described(name: str) -> None:
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    texts = [
        re.sub(r"<!-- tables.*<!-- end of tables -->", "", text, flags=re.DOTALL) for text in pages
    ]
    assert any(f"{name}.csv" in text for text in texts)


def test_every_key_of_the_run_record_is_known_to_the_page() -> None:
    kinds = {fact.kind for section in sections().values() for fact in section.facts.values()}
    assert kinds <= set(RunRecord.__annotations__)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_zoo_is_documented(name: str) -> None:
    assert f"`{name}`" in page("docs/reference/models.md")


def test_the_families_page_lists_exactly_the_supported_model_types() -> None:
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|", page("docs/reference/families.md"), re.MULTILINE)[2:]
    assert sorted(re.findall(r"`([\w-]+)`", "".join(rows))) == sorted(families())


def test_every_command_in_the_docs_exists_with_its_options() -> None:
    group = typer.main.get_command(app)
    result = 0
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        shells = "".join(re.findall(r"```shell\n(.*?)```", path.read_text("utf-8"), re.DOTALL))
        for line in re.findall(r"^(headscope .+)$", shells, re.MULTILINE):
            words = shlex.split(line, comments=True)[1:]
            command = group.commands[words[0]]  # type: ignore[attr-defined]
            for word in words[1:]:  # masks compare: a command in a group of them
                command = getattr(command, "commands", {}).get(word, command)
            options = {
                name
                for parameter in command.params
                for name in (*parameter.opts, *parameter.secondary_opts)
            }
            assert {word for word in words if word.startswith("--")} <= options, (
                f"{path.name}: {line}"
            )
            result += 1
    assert result >= 5


def test_every_command_is_in_the_readme() -> None:
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"headscope {name}" in page("README.md") or f"make {name}" in page("README.md"), name


@pytest.mark.real
@pytest.mark.parametrize(
    "name", ["README.md", "docs/how-to/use-python.md", "docs/tutorials/check-a-number.md"]
)
def test_the_python_snippets_run(
    name: str, zoo_model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo_model("minilm")
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)
    assert snippets
    namespace: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, name, "exec"), namespace)


def test_links_between_the_docs_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


RESULTS = sorted(path.name for path in (ROOT / "docs" / "results").glob("*.md"))
WITHOUT_DATA = {"README.md", "data.md", "test-runs.md", "theorem.md"}
WRITTEN_HERE = {
    "plan.json",
    "modernbert.json",
    "heads.csv",
}  # made by a command or given on the page


@pytest.mark.parametrize("name", sorted(set(RESULTS) - {"README.md", "data.md"}))
def test_results_begin_with_what_was_asked_and_what_was_found(name: str) -> None:
    lines = page(f"docs/results/{name}").splitlines()
    summary = next(line for line in lines[1:] if line)
    result = list(sentences(summary))
    assert len(result) == 2
    assert result[0].startswith("We asked")
    assert re.search(r"\d", result[1]) is not None
    assert name in WITHOUT_DATA or "](data.md)" in page(f"docs/results/{name}")


@pytest.mark.parametrize("name", sorted(set(RESULTS) - WITHOUT_DATA))
def test_every_data_file_of_the_results_has_its_source_and_digest(name: str) -> None:
    listed = page("docs/results/data.md")
    commands = "".join(re.findall(r"```shell\n(.*?)```", page(f"docs/results/{name}"), re.DOTALL))
    pattern = r"[\w-]+(?:\.\w+)*\.(?:conllu?|tsv|txt|json|jsonl|en|fr)(?:\.gz)?(?![\w.])"
    files = set(re.findall(pattern, commands)) - WRITTEN_HERE
    assert {file for file in files if file not in listed} == set()
