"""The corpora that come with headscope, by name."""

from __future__ import annotations

from pathlib import Path

from headscope.data.text_lines import STDIN
from headscope.errors import HeadscopeError, choices

FOLDER = Path(__file__).parent / "corpora"
BUNDLED = {"wikipedia-pairs": FOLDER / "wikipedia-pairs.jsonl"}


def named(path: str | Path) -> str | Path:
    """The file of a bundled corpus if this is its name (unless a file here has it); else what was given."""
    if Path(path).exists() or str(path) == STDIN:
        return path
    if str(path) not in BUNDLED and Path(path).name == str(path):
        raise HeadscopeError(
            "there is no such file here",
            where=path,
            expected=f"a file, or a corpus that comes with headscope: {choices(str(path), BUNDLED)}",
        )
    return BUNDLED.get(str(path), path)
