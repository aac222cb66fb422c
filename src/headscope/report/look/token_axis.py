"""The tokens along an axis of maps in readable form, without characters that control how they are displayed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch, Tokens

WORD_START = ("▁", "Ġ")
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji are not legible without them
_BYTE_PIECES = re.compile(r"(?:<0x[0-9A-Fa-f]{2}>)+")


@dataclass(frozen=True)
class TokenAxis:
    """The tokens along one axis of a map.

    tokens   as the tokenizer prints them
    special  which of them the tokenizer added
    words    which word each belongs to, never the same number for two words; None for special tokens
    """

    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    words: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.special) == len(self.words) > 0:
            sizes = f"{len(self.tokens)} tokens, {len(self.special)} flags, {len(self.words)} words"
            raise ValueError(f"{sizes}: expected equally many, and at least one")

    def units(self) -> tuple[int, ...]:
        """For each token the number of its unit at word level, counted from 0 in reading order.

        A unit is a word; a token without a word is a unit of its own, and so is punctuation before or after a word
        that has tokens of its own ("▁mat" "," are one word to a tokenizer that splits at blanks).
        """
        numbers: dict[tuple[str, int], int] = {}
        apart = self._apart
        units = (
            ("token", apart.get(i, i)) if word is None or i in apart else ("word", word)
            for i, word in enumerate(self.words)
        )
        return tuple(numbers.setdefault(unit, len(numbers)) for unit in units)

    @cached_property
    def _apart(self) -> dict[int, int]:
        """Tokens of punctuation at either end of a word that has letters too, and the token whose unit they join.

        A mark of a word's start that is a token of its own joins the sign after it.
        """
        of_word: dict[int, list[int]] = {}
        for i, word in enumerate(self.words):
            if word is not None:
                of_word.setdefault(word, []).append(i)
        apart: dict[int, int] = {}
        for tokens in of_word.values():
            core = [i for i in tokens if not self._signs[i] and _bare(self.tokens[i])]
            ends = [i for i in tokens if core and self._signs[i] and not core[0] < i < core[-1]]
            apart |= {i: i for i in ends}
            if tokens[0] + 1 in ends and not _bare(self.tokens[tokens[0]]):
                apart[tokens[0]] = tokens[0] + 1
        return apart

    @cached_property
    def _signs(self) -> tuple[bool, ...]:
        """For each token whether it is nothing but punctuation, apart from its marks of a word's start."""
        in_bytes = _is_byte_level(self.tokens)
        return tuple(
            not (special or _continues(token))
            and _is_punctuation(_bare(_readable(token, in_bytes)))
            for token, special in zip(self.tokens, self.special, strict=True)
        )

    def unit_special(self) -> tuple[bool, ...]:
        """For each unit whether it is a special token."""
        return tuple(dict(zip(self.units(), self.special, strict=True)).values())

    def token_labels(self) -> tuple[str, ...]:
        """Each token in readable form; a piece that continues a word without saying so gets a leading "·"."""
        in_bytes = _is_byte_level(self.tokens)
        continues = (False, *(unit == after for unit, after in pairwise(self.units())))
        labels = []
        for token, special, inside in zip(self.tokens, self.special, continues, strict=True):
            text = token if special else _readable(token, in_bytes)
            mark = "·" if inside and not token.startswith(("##", *WORD_START)) else ""
            labels.append(mark + escape_controls(text))
        return tuple(labels)

    def word_labels(self) -> tuple[str, ...]:
        """Each unit's text, its pieces joined without their marks."""
        in_bytes = _is_byte_level(self.tokens)
        units = self.units()
        pieces: list[list[str]] = [[] for _ in range(max(units) + 1)]
        for token, special, unit in zip(self.tokens, self.special, units, strict=True):
            pieces[unit].append(token if special else token.removeprefix("##"))
        return tuple(
            escape_controls("".join(parts) if special else _readable("".join(parts), in_bytes))
            for parts, special in zip(pieces, self.unit_special(), strict=True)
        )

    def unit_punctuation(self) -> tuple[bool, ...]:
        """For each unit whether it is nothing but punctuation."""
        return tuple(
            not special and _is_punctuation(word)
            for word, special in zip(self.word_labels(), self.unit_special(), strict=True)
        )

    def payload(self) -> dict[str, object]:
        """The axis as the page reads it."""
        units, signs = self.units(), self.unit_punctuation()
        return {
            "tokens": self.token_labels(),
            "printed": tuple(escape_controls(token) for token in self.tokens),
            "special": [int(special) for special in self.special],
            "punctuation": [
                int(sign or signs[unit]) for sign, unit in zip(self._signs, units, strict=True)
            ],
            "unit": units,
            "words": self.word_labels(),
            "word_special": [int(special) for special in self.unit_special()],
            "word_punctuation": [int(sign) for sign in signs],
            "rtl": _is_right_to_left(self),
        }


def axes_payload(query: TokenAxis, key: TokenAxis) -> dict[str, object]:
    """Both axes of a stack as the page reads them."""
    payload = query.payload()
    return {"query": payload, "key": payload if key == query else key.payload()}


def axis_of(model: AttentionModel, tokens: Tokens) -> TokenAxis:
    """The tokens of the first sequence of a batch."""
    assert tokens.ids is not None
    assert tokens.words is not None
    assert model.tokenizer is not None
    names: Iterable[str] = model.tokenizer.convert_ids_to_tokens(tokens.ids[0].tolist())
    words = (word if word >= 0 else None for word in tokens.words[0].tolist())
    return TokenAxis(tuple(names), tuple(tokens.special[0].tolist()), tuple(words))


def axes_of(model: AttentionModel, batch: Batch, stack: str) -> tuple[TokenAxis, TokenAxis]:
    """The query and key tokens of a stack."""
    sides = batch.layout.sides(stack)
    assert sides is not None
    return axis_of(model, sides[0]), axis_of(model, sides[1])


def _bare(token: str) -> str:
    """A token without its marks of a word's start."""
    return token.lstrip("▁Ġ ")


def _continues(token: str) -> bool:
    """Whether it is marked as continuing a word, as in BERT's vocabularies, which split off punctuation themselves."""
    return token.startswith("##") and len(token) > 2


def _is_punctuation(text: str) -> bool:
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


@cache
def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: each byte as one printable character. Printable ones stand for themselves."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(b): b for b in itself} | {chr(256 + i): b for i, b in enumerate(others)}


def _is_byte_level(tokens: Sequence[str]) -> bool:
    """Whether these tokens are written in GPT-2's byte alphabet."""
    return any(token.startswith(("Ġ", "Ċ")) for token in tokens) and not any(
        token.startswith(("##", "▁")) for token in tokens
    )


def _readable(token: str, in_bytes: bool) -> str:
    """The text of a token (or of the joined pieces of a word), without marks of a word's start.

    A piece that is only part of a character stays as printed.
    """
    text = token
    if in_bytes:
        table = _byte_of_character()
        if all(character in table for character in token):
            with suppress(UnicodeDecodeError):
                text = bytes(table[character] for character in token).decode("utf-8")
    else:
        text = _BYTE_PIECES.sub(_decode_bytes, token).replace("▁", " ")
    return text.removeprefix(" ") or text


def _decode_bytes(match: re.Match[str]) -> str:
    """SentencePiece's <0xE4><0xBD><0xA0> as the character it spells."""
    try:
        return bytes.fromhex(match[0].replace("<0x", "").replace(">", "")).decode("utf-8")
    except UnicodeDecodeError:
        return match[0]


def escape_controls(text: str) -> str:
    """Text without control characters, bidi marks and lone blanks: visible signs replace them."""
    if not text:
        return "∅"
    if text.isspace():
        return "".join({"\n": "↵", "\r": "↵", "\t": "⇥"}.get(character, "␣") for character in text)
    shown = "".join(map(_escape, text))
    return "◌" + shown if unicodedata.combining(text[0]) else shown


def _escape(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\n\r\u2028\u2029":
        return "↵"
    if character == "\t":
        return "⇥"
    if category == "Cs":
        return "\ufffd"
    if category == "Cc" or (category == "Cf" and character not in _JOINERS):
        return f"⟨{ord(character):04X}⟩"
    return character


def _is_right_to_left(side: TokenAxis) -> bool:
    """By the first letter with a direction of its own that is not in a special token."""
    labels = zip(side.word_labels(), side.unit_special(), strict=True)
    text = "".join(label for label, special in labels if not special)
    strong = (unicodedata.bidirectional(character) for character in text)
    return next((kind in ("R", "AL") for kind in strong if kind in ("L", "R", "AL")), False)
