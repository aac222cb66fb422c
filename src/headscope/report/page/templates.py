"""Templates of pages, and what they need: JSON for scripts and hashes for the content security policy.

Every text is escaped by the templates; a missing name is an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parents[1] / "templates"
STATIC = Path(__file__).parents[1] / "static"  # built from web/


def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([TEMPLATES, STATIC]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def csp_hash(text: str) -> str:
    """The source expression by which a content security policy allows exactly this inline text."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def to_json(value: object) -> str:
    """JSON for a script element: in ASCII, and nothing in it can end the element or begin a comment."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
