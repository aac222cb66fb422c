"""The script that repeats the tests: what it counts, and when its count starts again."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "repeat_tests", ROOT / "scripts" / "repeat_tests.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def row(tree: str, failed: str = "0") -> dict[str, str]:
    return {"tree": tree, "failed": failed}


def test_pytests_report_is_counted(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(
        "<testsuites><testsuite><testcase classname='a' name='one'/>"
        "<testcase classname='a' name='two[x y]'><failure message='no'/></testcase>"
        "<testcase classname='b' name='three'><error/></testcase>"
        "<testcase classname='b' name='four'><skipped/></testcase>"
        "</testsuite></testsuites>"
    )
    counts = script.read_report(tmp_path / "report.xml")
    assert counts == {
        "passed": "1",
        "failed": "2",
        "skipped": "1",
        "failures": "a::two[x y] b::three",
    }


def test_a_changed_tree_or_a_failure_starts_the_count_again(script: ModuleType) -> None:
    assert len(script.current_runs([row("a"), row("b"), row("b")])) == 2
    assert len(script.current_runs([row("b"), row("b", "1"), row("b")])) == 1
    assert script.current_runs([row("b"), row("b", "1")]) == []
    assert script.current_runs([]) == []


def test_uncommitted_changes_are_refused_but_not_those_of_the_table(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.uncommitted(" M docs/results/test-runs.csv\n?? new.py\n") == ["new.py"]
    monkeypatch.setattr(script, "git", lambda *words: " M src/headscope/heads.py\n")
    monkeypatch.setattr(script, "run_once", lambda *args: pytest.fail("it ran"))
    assert script.main(["--runs", "1"]) == 2
    assert (
        capsys.readouterr().err
        == "uncommitted changes (src/headscope/heads.py). Commit or stash them first.\n"
    )


def test_rows_are_appended_under_one_header(script: ModuleType, tmp_path: Path) -> None:
    whole = dict.fromkeys(script.COLUMNS, "1")
    for _ in range(2):
        script.append(tmp_path / "runs.csv", whole)
    assert script.read(tmp_path / "runs.csv") == [whole, whole]


def test_busy_loops_end_with_the_run(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[script.subprocess.Popen[bytes]] = []
    real = script.subprocess.Popen
    monkeypatch.setattr(
        script.subprocess, "Popen", lambda *args: started.append(real(*args)) or started[-1]
    )
    with script.busy_loops(2):
        assert [loop.poll() for loop in started] == [None, None]
    assert all(loop.poll() is not None for loop in started)
