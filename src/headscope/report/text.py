"""Text from models, files and records, made safe for a page, a file name or an id."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def plain(text: object, limit: int = 200) -> str:
    """Text from a model, a file or a record as one printable line of at most `limit` characters.

    Control characters and lone surrogates break XML and UTF-8; direction overrides let a name rewrite the
    line around it. Each becomes a visible replacement character.
    """
    line = "".join(
        "\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c
        for c in str(text)
    )
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def slug(text: str) -> str:
    """A name that is safe as a file name and an id."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "unnamed"


def group_digits(value: object) -> str:
    """52000 as `52 000`, with a space that does not break."""
    return f"{value:,}".replace(",", "\u202f") if is_number(value) else plain(value, 60)


def with_noun(count: int, noun: str) -> str:
    """`1 head`, `72 heads`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def csv_text(table: pd.DataFrame, digits: int = 10) -> str:
    """A table as csv, numbers with so many significant digits."""
    return table.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n")
