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
    """The path of a bundled corpus if `path` is its name and no such file exists here; otherwise `path`."""
    return bundled_path(path, BUNDLED, "corpus")


def treebank_path(path: str | Path) -> str | Path:
    """The path of a bundled treebank if `path` is its name and no such file exists here; otherwise `path`."""
    return bundled_path(path, TREEBANKS, "treebank")


def source_path(path: str | Path) -> str | Path:
    """The path of a bundled corpus or treebank if `path` is its name and no such file exists here; otherwise `path`."""
    return bundled_path(path, BUNDLED | TREEBANKS, "corpus or treebank")


def bundled_path(path: str | Path, bundled: Mapping[str, Path], kind: str) -> str | Path:
    """The bundled file of this name. Existing files, paths with a directory and stdin are returned as they are."""
    name = str(path)
    if Path(path).exists() or name == STDIN or Path(path).name != name:
        return path
    if name not in bundled:
        expected = f"a file, or a {kind} that comes with headscope: {choices(name, bundled)}"
        raise HeadscopeError("there is no such file here", where=path, expected=expected)
    return bundled[name]
