"""Select the sentences of the bundled treebank `ewt-sample` from UD English EWT, and write them.

    python scripts/sample_treebank.py en_ewt-ud-dev.conllu.gz src/headscope/data/corpora/ewt-sample.conllu.gz

Sentences of 8 to 40 words are sorted by the SHA-1 hash of their sent_id, and the first 200 are taken. The selection
therefore does not depend on the words, and every prefix of the file is a random sample. Sentences are copied unchanged.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
from pathlib import Path

SENTENCES = 200
SHORTEST, LONGEST = (
    8,
    40,
)  # words; shorter sentences are headings, longer ones are hard to read as examples
_SENT_ID = re.compile(r"^# sent_id = (.+)$", re.MULTILINE)
_WORD = re.compile(r"^[0-9]+\t", re.MULTILINE)  # neither a range (1-2) nor an empty node (8.1)


def sample(treebank: str, count: int = SENTENCES) -> str:
    """The selected sentences of a treebank, as CoNLL-U text."""
    blocks = [block.strip("\n") for block in treebank.split("\n\n") if block.strip()]
    suitable = [b for b in blocks if SHORTEST <= len(_WORD.findall(b)) <= LONGEST]
    return "".join(f"{block}\n\n" for block in sorted(suitable, key=_hash)[:count])


def _hash(block: str) -> str:
    match = _SENT_ID.search(block)
    assert match is not None, f"a sentence without sent_id: {block[:60]}"
    return hashlib.sha1(match[1].encode()).hexdigest()


def read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("treebank", type=Path, help="en_ewt-ud-dev.conllu, also gzipped")
    parser.add_argument("out", type=Path, help="the file to write")
    options = parser.parse_args()
    # mtime=0: without a time stamp, equal sentences give equal files
    packed = gzip.compress(sample(read(options.treebank)).encode("utf-8"), mtime=0)
    options.out.write_bytes(packed)


if __name__ == "__main__":
    main()
