"""The corpora that come with headscope, by name."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "corpora"
BUNDLED = {"wikipedia-pairs": FOLDER / "wikipedia-pairs.jsonl"}


def named(path: str | Path) -> str | Path:
    """The file of a bundled corpus if this is its name (unless a file here has it); else what was given."""
    return BUNDLED[str(path)] if str(path) in BUNDLED and not Path(path).exists() else path
