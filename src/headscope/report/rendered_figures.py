"""Figures as bytes: SVG and PNG for files, and SVG that is safe and small enough to stand inside a page."""

from __future__ import annotations

import base64
import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import HeadscopeError, reason
from headscope.report.drawing.palette import INK, MISSING, MUTED, PAPER, RULE, SERIES
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.sections import figures_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

DPI = 150
_TELL: ContextVar[Callable[[int, int], None]] = ContextVar("tell", default=lambda done, total: None)
_SAY: ContextVar[Callable[[str], None]] = ContextVar("say", default=lambda line: None)
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"
ALLOWED = {
    "svg",
    "g",
    "defs",
    "path",
    "text",
    "tspan",
    "use",
    "clipPath",
    "rect",
    "image",
    "linearGradient",
    "stop",
}
PIXELS_PER_POINT = 1.5  # figures are drawn for paper; a screen is read from further away
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


@dataclass(frozen=True)
class RenderedFigure:
    """A drawn figure: its words, its files, and whether the page should carry the PNG."""

    name: str
    title: str
    caption: str
    svg: str
    figure: Figure
    is_raster: bool
    source: DataSource | None = None  # where the page finds its numbers
    data: pd.DataFrame | None = None  # its numbers, where the page has them nowhere else

    @cached_property
    def png(self) -> bytes:
        """Drawn when it is asked for: a page of vectors needs none."""
        return png_of(self.figure)

    def inline(self, prefix: str = "") -> str:
        """The SVG as a fragment of HTML: own ids, page colours, nothing but shapes and text."""
        return inline_svg(self.svg, f"{prefix}{self.name}")

    def csv_uri(self) -> str:
        """Its numbers as a link that needs no script; empty where the page has them already."""
        if self.data is None:
            return ""
        text = self.data.to_csv(index=False, float_format="%.6g", lineterminator="\n")
        return f"data:text/csv;base64,{base64.b64encode(text.encode('utf-8')).decode('ascii')}"

    def data_uri(self) -> str:
        return png_uri(_in_few_colours(self.png))


@contextmanager
def progress_callbacks(
    tell: Callable[[int, int], None], say: Callable[[str], None]
) -> Iterator[None]:
    """While this is open, `tell` gets the numbers of figures drawn and to draw, `say` the other steps of a report."""
    tokens = _TELL.set(tell), _SAY.set(say)
    try:
        yield
    finally:
        _TELL.reset(tokens[0])
        _SAY.reset(tokens[1])


def announce(step: str) -> None:
    """Say which step of a report comes next."""
    _SAY.get()(step)


def render_figures(study: Study, beginnings: tuple[str, ...] = ("",)) -> list[RenderedFigure]:
    """Draw every figure that applies to a study and whose name has one of these beginnings."""
    figures = [figure for figure in figures_of(study) if figure.name.startswith(beginnings)]
    rendered = []
    for number, figure in enumerate(figures, start=1):
        rendered.append(render_figure(figure, study))
        _TELL.get()(number, len(figures))
    return rendered


def render_figure(figure: StudyFigure, study: Study) -> RenderedFigure:
    drawn = figure.draw(study)
    words = figure.name, figure.title, figure.caption
    return RenderedFigure(*words, svg_of(drawn), drawn, figure.is_raster, figure.source(study))


def svg_of(figure: Figure) -> str:
    """SVG without a date and with ids that depend on the content only; text stays text."""
    import matplotlib as mpl

    from headscope.report.drawing.style import style

    target = io.StringIO()
    with (
        style(),
        mpl.rc_context({"svg.hashsalt": "headscope", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font"
        )  # the reader's fonts will have it
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def png_of(figure: Figure, dpi: int = DPI) -> bytes:
    """PNG without transparency, packed well: half the bytes that matplotlib writes."""
    from PIL import Image

    from headscope.report.drawing.style import style

    target, small = io.BytesIO(), io.BytesIO()
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        unpacked = {"compress_level": 0}  # packed once, below
        figure.savefig(
            target, format="png", dpi=dpi, metadata={"Software": None}, pil_kwargs=unpacked
        )
    with Image.open(target) as image:
        image.convert("RGB").save(small, format="PNG", optimize=True, dpi=(dpi, dpi))
    return small.getvalue()


def save_figure(figure: Figure, out: Path) -> Path:
    """A picture by itself: svg or png, as its name says."""
    check_picture(out)
    try:
        out.write_bytes(svg_of(figure).encode() if out.suffix == ".svg" else png_of(figure))
    except OSError as cause:
        raise HeadscopeError(f"cannot be written: {reason(cause)}", where=out) from cause
    return out


def check_picture(out: Path) -> None:
    """Refuse a name that no picture can be written under, before there is one."""
    if out.suffix not in (".svg", ".png"):
        raise HeadscopeError(
            f'"{out.suffix}" is no picture', where=out, expected="a name that ends in .svg or .png"
        )
    if not out.parent.is_dir() or out.is_dir():
        what = "it is a directory" if out.is_dir() else f"there is no directory {out.parent}"
        raise HeadscopeError(f"cannot be written: {what}", where=out)


def _in_few_colours(png: bytes) -> bytes:
    """With 256 colours, for a page: a third of the bytes; only a colour bar shows the difference."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(small, format="PNG", compress_level=6)
    return small.getvalue()


def png_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def inline_svg(svg: str, name: str) -> str:
    """An SVG file of ours as a fragment of HTML.

    Ids get the figure's name in front, so that two figures on a page do not share clip paths; the style
    sheet that matplotlib writes would apply to the whole page and is dropped; the shared colours become
    page colours.
    """
    root = ElementTree.fromstring(svg)
    _strip(root)
    referenced = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(
        re.findall(r'xlink:href="#([^"]+)"', svg)
    )
    variables = {
        INK: "--ink",
        MUTED: "--muted",
        RULE: "--rule",
        MISSING: "--missing",
        PAPER: "--card",
    }
    variables[SERIES[0]] = "--series"  # thin lines in this blue would drown on a dark page
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        identity = element.attrib.pop("id", None)
        if identity in referenced:
            element.set("id", f"{name}-{identity}")
        if XLINK in element.attrib:
            target = element.attrib.pop(XLINK)
            element.set("href", f"#{name}-{target[1:]}" if target.startswith("#") else target)
        for key, value in element.attrib.items():
            if key in ("d", "transform", "x", "y"):
                value = " ".join(
                    _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", value).split()
                )
                value = re.sub(r" ?([MLQCz]) ?", r"\1", value)
            elif key in ("style", "clip-path"):
                value = value.replace("url(#", f"url(#{name}-")
                for colour, variable in variables.items():
                    value = value.replace(colour, f"var({variable})")
                value = re.sub(
                    r"font: ([\d.]+px|bold [\d.]+px|700 [\d.]+px) [^;]*",
                    r"font: \1 var(--sans)",
                    value,
                )
            element.set(key, value)
        if element.tag not in ("text", "tspan") and not (element.text or "").strip():
            element.text = None
        element.tail = None if not (element.tail or "").strip() else element.tail
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    points = float(root.get("viewBox", "0 0 0 0").split()[2])
    root.set(
        "style", f"width: {points * PIXELS_PER_POINT:.0f}px"
    )  # and at most the page: study.css
    root.set("aria-hidden", "true")  # the figure element around it has the words
    return ElementTree.tostring(root, encoding="unicode")


def _strip(parent: ElementTree.Element) -> None:
    """Take away what is not a shape or text: metadata, style sheets, scripts, foreign elements."""
    for child in list(parent):
        if (
            isinstance(child.tag, str)
            and child.tag.startswith(SVG)
            and child.tag.removeprefix(SVG) in ALLOWED
        ):
            _strip(child)
        else:
            parent.remove(child)
