"""What does every head attend to in this one input?

The answer is one HTML file: thumbnails of all heads, one head enlarged with its tokens. It needs no network,
and no token can become markup: tokens travel as escaped JSON and reach the page as text or ink.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from headscope.atomic_dir import check_page
from headscope.errors import HeadscopeError
from headscope.report.look.lens_view import LensView, StackMaps
from headscope.report.look.page_path import check_page_path, page_path
from headscope.report.look.token_axis import axes_payload, escape_controls
from headscope.study.local_paths import local_name
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK_LIMIT_BYTES = 5_000_000
FILE_LIMIT_BYTES = 25_000_000
_BUILT = Path(__file__).parents[1] / "static"  # from web/


@dataclass(frozen=True)
class Look(Result):
    """One input seen by all heads, through one lens or several: a page to save, or to look at in a notebook."""

    model: str
    text: tuple[str, ...]
    lenses: tuple[LensView, ...]
    off: str = ""  # heads that were ablated, as they are written: 0.2,1.*
    edits: tuple[str, ...] = ()  # other changes of attention that were open

    def __repr__(self) -> str:
        shown = ", ".join(repr(text if len(text) <= 40 else f"{text[:39]}…") for text in self.text)
        tokens, lenses = (
            len(self.stacks[0].key.tokens),
            ", ".join(lens.name for lens in self.lenses),
        )
        changed = "".join(
            f", {what}" for what in ((f"off {self.off}",) if self.off else ()) + self.edits
        )
        return f"Look({self.model!r}, {shown}, {tokens} tokens, lens {lenses}{changed})"

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`tokens`: a row for each token along an axis of the maps of a stack."""
        import pandas as pd

        rows = [
            {"stack": maps.stack, "axis": axis, "position": position, "token": token}
            for maps in self.stacks
            for axis in ("query", "key")
            for position, token in enumerate(getattr(maps, axis).tokens)
        ]
        return {"tokens": pd.DataFrame(rows)}

    @property
    def record(self) -> dict[str, Any]:
        """Model, text, lenses, and how attention was changed."""
        lenses = [lens.name for lens in self.lenses]
        changes = {"off": self.off, "edits": list(self.edits)}
        return {"model": self.model, "text": list(self.text), "lens": lenses, **changes}

    @property
    def stacks(self) -> tuple[StackMaps, ...]:
        """The maps through the first lens."""
        return self.lenses[0].stacks

    def page(self) -> str:
        """The whole HTML document; it needs nothing beside it."""
        style, script = _asset("saved.css"), _asset("saved.js")
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_BUILT),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
        )
        return environment.get_template("saved.html").render(
            model=escape_controls(local_name(self.model)),
            text=[escape_controls(text) for text in self.text],
            edits=escape_controls(edits) if (edits := self._edits()) else "",
            off=self.off,
            style=Markup(style),
            script=Markup(script),
            style_hash=_csp_hash(style),
            script_hash=_csp_hash(script),
            data=Markup(_json_for_html(self._payload())),
        )

    def _edits(self) -> str:
        """One sentence about what was changed, or nothing."""
        heads = f"Heads that are off (ablated): {self.off.replace(',', ', ')}." if self.off else ""
        others = f"Attention was changed by {', '.join(self.edits)}." if self.edits else ""
        return f"{heads} {others}".strip()

    def _payload(self) -> dict[str, object]:
        """What the page is made of: what the explorer's server tells of a model, and its answers through each lens."""
        text, *rest = (escape_controls(text) for text in self.text)
        sides = {
            one.stack: axes_payload(one.query, one.key)
            for lens in self.lenses
            for one in lens.stacks
        }
        of_heads = [lens for lens in self.lenses if lens.forms is None]
        there = {one.stack: one.there for lens in reversed(of_heads) for one in lens.stacks}
        return {
            "model": {
                "id": "a",
                "name": escape_controls(local_name(self.model)),
                "stacks": [
                    {
                        "name": stack,
                        "layers": [
                            {"layer": i, "heads": h} for i, h in enumerate(there.get(stack, []))
                        ],
                    }
                    for stack in sides
                ],
                "lenses": {
                    "heads": [lens.name for lens in of_heads],
                    "tokens": [lens.name for lens in self.lenses if lens.forms is not None],
                },
                "example": {
                    "text": text,
                    "second": rest[0] if rest else None,
                    "lens": self.lenses[0].name,
                },
                "off": self.off,
            },
            "sides": sides,
            "answers": [lens.payload() for lens in self.lenses],
        }

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page, which must not exist yet unless `overwrite`; `save` replaces it."""
        check_page(page_path(out), overwrite=overwrite)
        return self.save(out)

    def save(self, path: str | Path, *, limit_bytes: int | None = FILE_LIMIT_BYTES) -> Path:
        """Write the page, whole or not at all; a page above `limit_bytes` is refused (None: any size)."""
        path = page_path(path)
        content = self.page().encode("utf-8")
        if limit_bytes is not None and len(content) > limit_bytes:
            longest = max(max(one.weights.shape[2:]) for lens in self.lenses for one in lens.stacks)
            lenses = f" through {len(self.lenses)} lenses" if len(self.lenses) > 1 else ""
            raise HeadscopeError(
                f"the page would have {len(content) / 1e6:.0f} MB, for {longest} tokens{lenses}",
                where=path,
                expected=f"at most {limit_bytes / 1e6:.0f} MB, which a browser and a mail can carry",
                fix="Look at a shorter text: half the tokens make a quarter of the page"
                + ("; or through fewer lenses" if lenses else ""),
            )
        _write_whole(path, content)
        return path

    def _repr_html_(self) -> str:
        page = self.page()
        size = len(page.encode("utf-8"))
        if size >= NOTEBOOK_LIMIT_BYTES:
            name = html.escape(escape_controls(local_name(self.model)))
            return (
                f"<p>The attention maps of {name} take {size / 1e6:.1f} MB, "
                "too much for a notebook. Write it to a file and open that: "
                "<code>.save(&quot;look.html&quot;)</code></p>"
            )
        # without allow-same-origin: the page can neither read the notebook nor act in its name
        return (
            f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts allow-downloads" '
            'title="attention maps" width="100%" height="700" style="border:0"></iframe>'
        )


def _asset(name: str) -> str:
    return (_BUILT / name).read_text("utf-8")


def _csp_hash(text: str) -> str:
    """The name by which the content security policy allows exactly this inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode(
        "ascii"
    )


def _json_for_html(data: object) -> str:
    """JSON that cannot end the element it stands in; pure ASCII, so U+2028 and its like are escaped too."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _write_whole(path: Path, content: bytes) -> None:
    """Write beside the goal, then rename: a reader sees the old file or the new one, never half."""
    check_page_path(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(path)
    except OSError as error:
        raise HeadscopeError(
            f"the page cannot be written: {error.strerror or error}",
            where=path,
            expected=f"a folder one may write to, with {len(content) / 1e6:.1f} MB free",
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
