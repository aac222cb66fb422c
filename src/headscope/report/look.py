"""What does every head attend to in this one input?

The answer is one HTML file: thumbnails of all heads, one head enlarged with its tokens. It needs no network,
and no token can become markup: tokens travel as escaped JSON and reach the page as text or ink.

A map is stored as one byte a cell: code = round(255 · √(weight / largest weight of its row)), beside each
row's largest weight as float32; then deflate and base64. Read back, a weight w in a row whose largest is m is
off by at most √(w·m)/255 + m/(4·255²): never more than 0.004, far less near 0. The browser unpacks a head
when it is drawn.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import secrets
import unicodedata
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from headscope.errors import HeadscopeError

NOTEBOOK_LIMIT_BYTES = 5_000_000
FILE_LIMIT_BYTES = 25_000_000
_TEMPLATES = Path(__file__).parent / "templates"
_WORD_START = ("▁", "Ġ")
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji are not legible without them
_BYTE_PIECES = re.compile(r"(?:<0x[0-9A-Fa-f]{2}>)+")


@dataclass(frozen=True)
class Side:
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
            raise ValueError(
                f"{len(self.tokens)} tokens, {len(self.special)} special flags, {len(self.words)} words: "
                "expected equally many, and at least one"
            )

    def units(self) -> tuple[int, ...]:
        """For each token the number of its unit at word level, counted from 0 in reading order.

        A unit is a word; a token without a word is a unit of its own.
        """
        numbers: dict[tuple[str, int], int] = {}
        places = (("token", at) if word is None else ("word", word) for at, word in enumerate(self.words))
        return tuple(numbers.setdefault(place, len(numbers)) for place in places)

    def unit_special(self) -> tuple[bool, ...]:
        """For each unit whether it is a special token."""
        return tuple(dict(zip(self.units(), self.special, strict=True)).values())

    def token_labels(self) -> tuple[str, ...]:
        """Each token in readable form; a piece that continues a word without saying so gets a leading "·"."""
        in_bytes = _is_byte_level(self.tokens)
        continues = (False, *(one == two is not None for one, two in pairwise(self.words)))
        labels = []
        for token, special, inside in zip(self.tokens, self.special, continues, strict=True):
            text = token if special else _readable(token, in_bytes)
            mark = "·" if inside and not token.startswith(("##", *_WORD_START)) else ""
            labels.append(mark + inert(text))
        return tuple(labels)

    def word_labels(self) -> tuple[str, ...]:
        """Each unit's text, its pieces joined and their marks taken off."""
        in_bytes = _is_byte_level(self.tokens)
        units = self.units()
        pieces: list[list[str]] = [[] for _ in range(max(units) + 1)]
        for token, special, unit in zip(self.tokens, self.special, units, strict=True):
            pieces[unit].append(token if special else token.removeprefix("##"))
        return tuple(
            inert("".join(parts) if special else _readable("".join(parts), in_bytes))
            for parts, special in zip(pieces, self.unit_special(), strict=True)
        )

    def payload(self) -> dict[str, object]:
        """What the page is told about this axis."""
        return {
            "tokens": self.token_labels(),
            "printed": tuple(inert(token) for token in self.tokens),
            "special": [int(special) for special in self.special],
            "unit": self.units(),
            "words": self.word_labels(),
            "word_special": [int(special) for special in self.unit_special()],
            "rtl": _is_right_to_left(self),
        }


@dataclass(frozen=True)
class StackMaps:
    """The maps of one stack of heads.

    weights  [layer, head, query, key], rows sum to 1; a head that is not there (it was cut) is NaN throughout
    """

    stack: str
    query: Side
    key: Side
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        expected = (len(self.query.tokens), len(self.key.tokens))
        if self.weights.ndim != 4 or self.weights.shape[2:] != expected:
            raise ValueError(f"weights {self.weights.shape}: expected [layer, head, {expected[0]}, {expected[1]}]")

    def payload(self) -> dict[str, object]:
        """What the page is told about this stack; `key` is None where both axes are the same tokens."""
        return {
            "stack": self.stack,
            "query": self.query.payload(),
            "key": None if self.key == self.query else self.key.payload(),
            "maps": [
                [self._packed(layer, head) for head in range(self.weights.shape[1])]
                for layer in range(self.weights.shape[0])
            ],
        }

    def _packed(self, layer: int, head: int) -> str | None:
        weights = self.weights[layer, head]
        if np.isnan(weights).all():
            return None
        # half-precision softmax rows overshoot 1 by a little; anything more is not attention
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.max() <= 1.01):
            raise HeadscopeError(
                f"{self.stack}.{layer}.{head} has weights that are not numbers from 0 to 1",
                expected="attention weights, each row summing to 1",
                mend="If the model runs in half precision, load it in float32",
            )
        return pack(weights)


@dataclass(frozen=True)
class Look:
    """One input seen by all heads: a page to save, or to look at in a notebook."""

    model: str
    text: tuple[str, ...]
    stacks: tuple[StackMaps, ...]

    def page(self) -> str:
        """The whole HTML document; it needs nothing beside it."""
        style, script = _asset("look.css"), _asset("look.js")
        data = {
            "model": inert(self.model),
            "text": [inert(text) for text in self.text],
            "stacks": [stack.payload() for stack in self.stacks],
        }
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
        )
        return environment.get_template("look.html").render(
            model=data["model"],
            text=data["text"],
            style=Markup(style),
            script=Markup(script),
            style_hash=_csp_hash(style),
            script_hash=_csp_hash(script),
            data=Markup(_json_for_html(data)),
        )

    def save(self, path: str | Path, *, limit_bytes: int | None = FILE_LIMIT_BYTES) -> Path:
        """Write the page, whole or not at all; a page above `limit_bytes` is refused (None: any size)."""
        path = Path(path)
        content = self.page().encode("utf-8")
        if limit_bytes is not None and len(content) > limit_bytes:
            longest = max(max(stack.weights.shape[2:]) for stack in self.stacks)
            raise HeadscopeError(
                f"the page would have {len(content) / 1e6:.0f} MB, for {longest} tokens",
                where=path,
                expected=f"at most {limit_bytes / 1e6:.0f} MB, which a browser and a mail can carry",
                mend="Look at a shorter text: half the tokens make a quarter of the page",
            )
        _write_whole(path, content)
        return path

    def _repr_html_(self) -> str:
        page = self.page()
        size = len(page.encode("utf-8"))
        if size >= NOTEBOOK_LIMIT_BYTES:
            return (
                f"<p>The attention maps of {html.escape(inert(self.model))} take {size / 1e6:.1f} MB, "
                "too much for a notebook. Write it to a file and open that: "
                "<code>.save(&quot;look.html&quot;)</code></p>"
            )
        # without allow-same-origin: the page can neither read the notebook nor act in its name
        return (
            f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts allow-downloads" '
            'title="attention maps" width="100%" height="700" style="border:0"></iframe>'
        )


def quantised(weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Maps [..., query, key] in one byte a cell: each row's largest weight [..., query], and the codes."""
    top = weights.max(axis=-1).astype("<f4")
    share = weights / np.where(top > 0, top, np.float32(1))[..., None]
    return top, np.rint(255 * np.sqrt(share)).astype(np.uint8)


def pack(weights: NDArray[np.float32]) -> str:
    """One head's map [query, key] as the page stores it: row maxima, then codes, deflated, in base64."""
    top, codes = quantised(weights)
    return base64.b64encode(zlib.compress(top.tobytes() + codes.tobytes(), 9)).decode("ascii")


def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _csp_hash(text: str) -> str:
    """The name by which the content security policy allows exactly this inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _json_for_html(data: object) -> str:
    """JSON that cannot end the element it stands in; pure ASCII, so U+2028 and its like are escaped too."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def check_place(path: Path) -> None:
    """Refuse a path that no page can have, before work is done for it. Folders that are missing will be made."""
    if path.is_dir():
        raise HeadscopeError("this is a folder", where=path, expected="the name of a file, such as look.html")
    there = next(folder for folder in path.parents if folder.exists())
    if not there.is_dir():
        raise HeadscopeError(f'"{there}" is a file, not a folder', where=path, mend="Choose another path")


def _write_whole(path: Path, content: bytes) -> None:
    """Write beside the goal, then rename: a reader sees the old file or the new one, never half."""
    check_place(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    made = [folder for folder in path.parents if not folder.exists()]  # the innermost first
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(path)
        made = []
    except OSError as error:
        raise HeadscopeError(
            f"the page cannot be written: {error.strerror or error}",
            where=path,
            expected=f"a folder one may write to, with {len(content) / 1e6:.1f} MB free",
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        for folder in made:
            with suppress(OSError):  # never made, or somebody else has begun to use it
                folder.rmdir()


# Tokens as people read them


@cache
def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: each byte as one printable character. Printable ones stand for themselves."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + at): byte for at, byte in enumerate(others)}


def _is_byte_level(tokens: Sequence[str]) -> bool:
    """Whether these tokens are written in GPT-2's byte alphabet."""
    return any(token.startswith(("Ġ", "Ċ")) for token in tokens) and not any(
        token.startswith(("##", "▁")) for token in tokens
    )


def _readable(token: str, in_bytes: bool) -> str:
    """The text a token (or the joined pieces of a word) stands for, marks of a word's start taken off.

    A piece that is only part of a character stays as printed.
    """
    text = token
    if in_bytes:
        table = _byte_of_character()
        if all(character in table for character in token):
            with suppress(UnicodeDecodeError):
                text = bytes(table[character] for character in token).decode("utf-8")
    else:
        text = _BYTE_PIECES.sub(_joined_bytes, token).replace("▁", " ")
    return text.removeprefix(" ") or text


def _joined_bytes(match: re.Match[str]) -> str:
    """SentencePiece's <0xE4><0xBD><0xA0> as the character it spells."""
    try:
        return bytes.fromhex(match[0].replace("<0x", "").replace(">", "")).decode("utf-8")
    except UnicodeDecodeError:
        return match[0]


def inert(text: str) -> str:
    """Text that shows what it holds and steers nothing: controls, bidi marks and blanks become signs."""
    if not text:
        return "∅"
    if text.isspace():
        return "".join({"\n": "↵", "\r": "↵", "\t": "⇥"}.get(character, "␣") for character in text)
    shown = "".join(_shown(character) for character in text)
    return "◌" + shown if unicodedata.combining(text[0]) else shown


def _shown(character: str) -> str:
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


def _is_right_to_left(side: Side) -> bool:
    """By the first letter with a direction of its own that is not in a special token."""
    labels = zip(side.word_labels(), side.unit_special(), strict=True)
    text = "".join(label for label, special in labels if not special)
    strong = (unicodedata.bidirectional(character) for character in text)
    return next((kind in ("R", "AL") for kind in strong if kind in ("L", "R", "AL")), False)
