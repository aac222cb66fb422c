"""A page as lines of text: one line for each block element or table row, without scripts, styles and drawings."""

from __future__ import annotations

import json
from html.parser import HTMLParser

INLINE = frozenset(
    [
        "a",
        "abbr",
        "b",
        "bdi",
        "br",
        "code",
        "em",
        "i",
        "kbd",
        "mark",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
    ]
)
VOID = frozenset(["br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"])
LEFT_OUT = frozenset(["script", "style", "svg"])


class _Lines(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self._label = ""
        self._text: list[str] = []
        self._depth = 0
        self._left_out: str | None = None
        self._data: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._left_out is not None:
            return
        attributes = dict(attrs)
        if tag in LEFT_OUT:
            self._left_out = tag
            self._data = [] if attributes.get("type") == "application/json" else None
        if _is_block(tag):
            self.end_line()
            self._label = " " * self._depth + _label(tag, attributes)
            self._depth += tag not in VOID
        elif tag in ("td", "th"):
            self._text.append(" | ")
        elif tag == "a" and (attributes.get("href") or "").startswith("#"):
            self._text.append(f"[{attributes['href']}]")

    def handle_endtag(self, tag: str) -> None:
        if self._left_out is not None:
            if tag != self._left_out:
                return
            self._left_out = None
            if self._data is not None:
                self._text.append(_shape(json.loads("".join(self._data))))
                self._data = None
        if _is_block(tag):
            self.end_line()
            self._depth -= tag not in VOID

    def handle_data(self, data: str) -> None:
        if self._data is not None:
            self._data.append(data)
        elif self._left_out is None:
            self._text.append(data)

    def end_line(self) -> None:
        text = " ".join("".join(self._text).split())
        if self._label or text:
            self.lines.append(f"{self._label or ' ' * self._depth + '…'} {text}".rstrip())
        self._label, self._text = "", []


def _is_block(tag: str) -> bool:
    return tag not in INLINE and tag not in ("html", "td", "th")


def _label(tag: str, attributes: dict[str, str | None]) -> str:
    name = f"#{attributes['id']}" if attributes.get("id") else ""
    classes = "".join(f".{one}" for one in (attributes.get("class") or "").split())
    words = "".join(
        f" {key}={attributes[key]!r}"
        for key in ("aria-label", "alt", "title")
        if attributes.get(key)
    )
    return f"<{tag}{name}{classes}{words}>"


def _shape(data: object) -> str:
    """The keys of embedded data: its numbers are those of the tables."""
    if isinstance(data, dict):
        return "data: " + ", ".join(sorted(map(str, data)))
    return f"data: {len(data) if isinstance(data, list) else 1} values"


def page_as_text(html: str) -> str:
    parser = _Lines()
    parser.feed(html)
    parser.close()
    parser.end_line()
    return "\n".join(parser.lines)
