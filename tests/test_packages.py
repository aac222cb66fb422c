"""Does every room import only rooms above it? (STYLE.md 3)"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import headscope

PACKAGE = Path(next(iter(headscope.__path__)))
ROOMS = [
    "errors",
    "heads",
    "tables",
    "atomic_dir",
    "progress",
    "hooks",
    "config",
    "model",
    "data",
    "statistics",
    "tasks",
    "study",
]
ROOMS += [
    "masks",
    "ablation",
    "training",
    "pruning",
    "analysis",
    "learning",
    "report",
    "api",
    "explorer",
    "commands",
]


def subpackages_imported_by(source: str, parts: tuple[str, ...]) -> set[str]:
    """The rooms a file reaches for: at its top, inside its functions, relative or not."""
    package = ("headscope", *parts)
    result = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else ()
            stem = [*base, *(node.module or "").split(".")]
            names = [[part for part in [*stem, alias.name] if part] for alias in node.names]
        else:
            continue
        result |= {name[1] for name in names if name[0] == "headscope" and len(name) > 1}
    return result & set(ROOMS)


def test_a_subpackage_imports_only_those_above_it() -> None:
    wrong, looked_at = [], set()
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).parts
        subpackage = parts[0].removesuffix(".py")
        if subpackage in ROOMS:
            looked_at.add(subpackage)
            below = ROOMS[ROOMS.index(subpackage) + 1 :]
            reached = subpackages_imported_by(file.read_text("utf-8"), parts)
            wrong += [
                f"{file}: {subpackage} reaches down into {it}"
                for it in sorted(reached)
                if it in below
            ]
    assert {"errors", "heads", "tables", "model", "statistics"} <= looked_at
    assert not wrong, "\n".join(wrong)


def test_the_diagram_of_the_packages_shows_what_they_import() -> None:
    """Each arrow is an import, and each import follows from the arrows."""
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
    diagram = text.partition("```mermaid")[2].partition("```")[0]
    arrows = set(re.findall(r"(\w+) --> (\w+)", diagram))
    core = set(ROOMS[: ROOMS.index("config")])
    imports = set()
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).parts
        subpackage = parts[0].removesuffix(".py")
        for other in (
            subpackages_imported_by(file.read_text("utf-8"), parts) if subpackage in ROOMS else ()
        ):
            pair = tuple("core" if name in core else name for name in (other, subpackage))
            imports |= {pair} if pair[0] != pair[1] else set()
    assert arrows <= imports
    reachable = set(arrows)
    while further := {(a, d) for a, b in reachable for c, d in arrows if b == c} - reachable:
        reachable |= further
    assert imports <= reachable


def test_every_module_of_the_package_is_in_a_subpackage() -> None:
    existing = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or path.is_dir()
    }
    assert {name for name in existing if not name.startswith("__")} <= set(ROOMS)


def test_no_subpackage_hides_a_public_name() -> None:
    """Whoever imports headscope.NAME, the package, makes it an attribute, and the function is gone."""
    existing = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    assert not existing & set(headscope.__all__)


def test_the_rule_sees_every_way_of_importing() -> None:
    inside = ("model", "seam.py")
    assert subpackages_imported_by("import headscope.study.study", inside) == {"study"}
    assert subpackages_imported_by("def f():\n    from headscope import report", inside) == {
        "report"
    }
    assert subpackages_imported_by("from ..data import batches", inside) == {"data"}
    assert subpackages_imported_by("from . import tokens\nfrom .edits import Gate", inside) == {
        "model"
    }
    assert subpackages_imported_by("import torch\nfrom pathlib import Path", inside) == set()
