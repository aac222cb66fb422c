"""The corpora and treebanks that come with headscope, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headscope.data.text_lines import STDIN
from headscope.errors import HeadscopeError, choices

FOLDER = Path(__file__).parent / "corpora"
BUNDLED = {"wikipedia-pairs": FOLDER / "wikipedia-pairs.jsonl"}
TREEBANKS = {"ewt-sample": FOLDER / "ewt-sample.conllu.gz"}  # written by scripts/sample_treebank.py


def corpus_path(path: str | Path) -> str | Path:
    """The path of a corpus: a bundled one by name, unless such a file exists here; else the path as given."""
    return bundled_path(path, BUNDLED, "corpus")


def treebank_path(path: str | Path) -> str | Path:
    """The path of a treebank: a bundled one by name, unless such a file exists here; else the path as given."""
    return bundled_path(path, TREEBANKS, "treebank")


def source_path(path: str | Path) -> str | Path:
    """The path of any input: a bundled corpus or treebank by name, unless such a file exists here; else as given."""
    return bundled_path(path, BUNDLED | TREEBANKS, "corpus or treebank")


def bundled_path(path: str | Path, bundled: Mapping[str, Path], kind: str) -> str | Path:
    """The bundled file of this name, unless such a file exists here; paths and stdin as given."""
    name = str(path)
    if Path(path).exists() or name == STDIN or Path(path).name != name:
        return path
    if name not in bundled:
        expected = f"a file, or a {kind} that comes with headscope: {choices(name, bundled)}"
        raise HeadscopeError("there is no such file here", where=path, expected=expected)
    return bundled[name]
