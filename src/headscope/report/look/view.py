"""The page of one input: thumbnails of all heads, and one head enlarged with its tokens.

It is one HTML file that needs no network. No token can become markup: tokens travel as escaped JSON and are shown
as text or drawn.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from headscope.errors import HeadscopeError
from headscope.report.look.lens_view import LensView, StackMaps
from headscope.report.look.token_axis import axes_payload, escape_controls
from headscope.report.page.templates import STATIC, csp_hash, environment, to_json
from headscope.report.page_file import page_path, write_page
from headscope.study.local_paths import local_name
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd

NOTEBOOK_LIMIT_BYTES = 5_000_000
FILE_LIMIT_BYTES = 25_000_000
# Pixels of a notebook's frame: what is above the maps, and a row of maps.
FRAME_TOP, FRAME_ROW, FRAME_RANGE = 320, 68, (560, 1200)


@dataclass(frozen=True)
class Look(Result):
    """The maps of one input through one lens or several: a page to save, or to show in a notebook."""

    model: str
    text: tuple[str, ...]
    lenses: tuple[LensView, ...]
    off: str = ""  # heads that were ablated: 0.2,1.*
    edits: tuple[str, ...] = ()  # other changes of attention that were open

    def __repr__(self) -> str:
        shown = ", ".join(repr(text if len(text) <= 40 else f"{text[:39]}…") for text in self.text)
        tokens = len(self.stacks[0].key.tokens)
        lenses = ", ".join(lens.name for lens in self.lenses)
        changes = [f"off {self.off}"] if self.off else []
        changed = "".join(f", {change}" for change in (*changes, *self.edits))
        layers, heads = self.stacks[0].weights.shape[:2]
        shape = f", {layers} layers × {heads} heads" if self.lenses[0].forms is None else ""
        return f"Look({self.model!r}, {shown}, {tokens} tokens{shape}, lens {lenses}{changed})"

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
        """The whole HTML document, self-contained."""
        style, script = ((STATIC / name).read_text("utf-8") for name in ("saved.css", "saved.js"))
        # the template of web/ removes blanks by itself
        templates = environment().overlay(trim_blocks=False, lstrip_blocks=False)
        edits = self._edits()
        return templates.get_template("saved.html").render(
            model=escape_controls(local_name(self.model)),
            text=[escape_controls(text) for text in self.text],
            edits=escape_controls(edits) if edits else "",
            off=self.off,
            style=Markup(style),
            script=Markup(script),
            style_hash=csp_hash(style),
            script_hash=csp_hash(script),
            data=Markup(to_json(self._payload())),
        )

    def _frame_height(self) -> int:
        """Pixels that show all layers of the first stack; more than a screenful scrolls."""
        smallest, largest = FRAME_RANGE
        return max(smallest, min(largest, FRAME_TOP + FRAME_ROW * len(self.stacks[0].weights)))

    def _edits(self) -> str:
        """One sentence about the changes of attention, or nothing."""
        heads = f"Heads switched off (ablated): {self.off.replace(',', ', ')}." if self.off else ""
        others = f"Attention was changed by {', '.join(self.edits)}." if self.edits else ""
        return f"{heads} {others}".strip()

    def _payload(self) -> dict[str, object]:
        """The description of the model and the answers of each lens, as the explorer's server gives them."""
        text, *rest = (escape_controls(text) for text in self.text)
        maps = [of_stack for lens in self.lenses for of_stack in lens.stacks]
        sides = {of_stack.stack: axes_payload(of_stack.query, of_stack.key) for of_stack in maps}
        of_heads = [lens for lens in self.lenses if lens.forms is None]
        heads = {s.stack: s.present for lens in reversed(of_heads) for s in lens.stacks}
        stacks = [
            {
                "name": stack,
                "layers": [{"layer": i, "heads": h} for i, h in enumerate(heads.get(stack, []))],
            }
            for stack in sides
        ]
        names = {
            "heads": [lens.name for lens in of_heads],
            "tokens": [lens.name for lens in self.lenses if lens.forms is not None],
        }
        second = rest[0] if rest else None
        return {
            "model": {
                "id": "a",
                "name": escape_controls(local_name(self.model)),
                "stacks": stacks,
                "lenses": names,
                "example": {"text": text, "second": second, "lens": self.lenses[0].name},
                "off": self.off,
            },
            "sides": sides,
            "answers": [lens.payload() for lens in self.lenses],
        }

    def save(self, path: str | Path, *, limit_bytes: int | None = FILE_LIMIT_BYTES) -> Path:
        """Write the page, whole or not at all; a page above `limit_bytes` is refused (None: any size)."""
        path = page_path(path)
        content = self.page().encode("utf-8")
        if limit_bytes is not None and len(content) > limit_bytes:
            longest = max(max(s.weights.shape[2:]) for lens in self.lenses for s in lens.stacks)
            lenses, fewer = "", ""
            if len(self.lenses) > 1:
                lenses, fewer = f" through {len(self.lenses)} lenses", "; or through fewer lenses"
            raise HeadscopeError(
                f"the page would have {len(content) / 1e6:.0f} MB, for {longest} tokens{lenses}",
                where=path,
                expected=f"at most {limit_bytes / 1e6:.0f} MB, which a browser and a mail can carry",
                fix=f"Look at a shorter text: half the tokens make a quarter of the page{fewer}",
            )
        write_page(path, content)
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
            f'title="attention maps" width="100%" height="{self._frame_height()}" style="border:0"></iframe>'
        )
