"""Decide whether a vocabulary is of a natural language, or of atoms, amino acids, codons or other symbols.

In a text, "." and "," are punctuation. In SMILES "." separates molecules, and in protein vocabularies it is a gap. Only
the vocabulary decides whether headscope calls attention to these tokens attention to punctuation:

1. Special tokens (removed by the caller) and entries without a letter (digits, punctuation, single bytes) are left out.
2. Markers of word pieces (##, ▁, Ġ, </w>, @@) are removed; byte-level entries (GPT-2) are decoded to text.
3. An entry is a *word* if it is all letters and either has three or more of them, not all upper case, or is written
   in a script without upper case (Chinese, Japanese, Korean, Arabic, Hindi, Thai), where short entries are words too.
4. The vocabulary is natural language if at least 30 % of the entries are words and these use 12 letters or more.

Vocabularies of one-letter codes contain no words. Codons and other k-mers are upper case, or use only four letters. The
vocabulary of a model of characters or bytes contains no words either. It does not count as natural language, although
the model's texts may be.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

FEWEST_WORDS = 0.3  # share of entries
FEWEST_LETTERS = 12  # different letters in words
SHORTEST_WORD = 3  # letters
MARKERS = ("##", "▁", "Ġ", "Ċ")  # at the beginning of an entry
ENDINGS = ("</w>", "@@")
BYTE_LEVEL = "Ġ"  # a blank in byte-level vocabularies


def is_natural_language(tokens: Iterable[str]) -> bool:
    """Whether these entries of a vocabulary, without special tokens, are of a natural language."""
    entries = list(tokens)
    if any(token.startswith(BYTE_LEVEL) for token in entries):
        entries = list(_decode(entries))
    stems = [stem for stem in map(_stem, entries) if any(c.isalpha() for c in stem)]
    words = [stem for stem in stems if _is_word(stem)]
    letters = {c for word in words for c in word.lower()}
    return len(words) >= FEWEST_WORDS * len(stems) and len(letters) >= FEWEST_LETTERS


def _is_word(stem: str) -> bool:
    """Whether an entry without markers is a word (rule 3)."""
    # Letters, and marks such as Hindi vowels.
    if not all(unicodedata.category(c)[0] in "LM" for c in stem):
        return False
    has_case = any(c.lower() != c.upper() for c in stem)
    return not has_case or (len(stem) >= SHORTEST_WORD and any(c.islower() for c in stem))


def _stem(token: str) -> str:
    """An entry without markers of word pieces."""
    for marker in MARKERS:
        token = token.removeprefix(marker)
    for ending in ENDINGS:
        token = token.removesuffix(ending)
    return token.strip()


def _decode(tokens: Iterable[str]) -> Iterator[str]:
    """Byte-level entries as text; those that are only part of a character are left out."""
    byte_of = _byte_table()
    for token in tokens:
        try:
            yield bytes(byte_of[c] for c in token).decode("utf-8")
        except (KeyError, UnicodeDecodeError):
            continue


def _byte_table() -> dict[str, int]:
    """GPT-2's table: printable bytes represent themselves, the others are characters from U+0100 on."""
    ranges = (("!", "~"), ("¡", "¬"), ("®", "ÿ"))
    printable = [byte for first, last in ranges for byte in range(ord(first), ord(last) + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }
