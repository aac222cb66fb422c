"""Figures as bytes: SVG and PNG files, and SVG that can be embedded in a page."""

from __future__ import annotations

import base64
import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.errors import HeadscopeError, reason
from headscope.report.drawing.palette import INK, MISSING, MUTED, PAPER, RULE, SERIES
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.sections import figures_of
from headscope.report.text import csv_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.study.study import Study

DPI = 150
OnFigure = Callable[[int, int], None]  # figures done, figures in total
OnStep = Callable[[str], None]
_ON_FIGURE: ContextVar[OnFigure] = ContextVar("on_figure", default=lambda done, total: None)
_ON_STEP: ContextVar[OnStep] = ContextVar("on_step", default=lambda line: None)
_IS_DRAWING: ContextVar[bool] = ContextVar("is_drawing", default=True)
SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"
# Elements of SVG that may stand in a page
DRAWN = ("g", "path", "text", "tspan", "use", "rect", "image")
ALLOWED = {"svg", "defs", "clipPath", "linearGradient", "stop", *DRAWN}
# Colours of figures that become CSS variables in a page, so that thin lines are also visible on a dark page
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    MISSING: "--missing",
    PAPER: "--card",
    SERIES[0]: "--series",
}
PIXELS_PER_POINT = 1.5  # larger than in print, because a screen is read from further away
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_FONT = re.compile(r"font: ([\d.]+px|bold [\d.]+px|700 [\d.]+px) [^;]*")


@dataclass(frozen=True)
class RenderedFigure:
    """A drawn figure with its name, title and caption. It is rendered as SVG or PNG on first use."""

    name: str
    title: str
    caption: str
    figure: Figure
    is_raster: bool
    source: DataSource | None = None  # the table or map of the page that has the figure's numbers
    data: pd.DataFrame | None = (
        None  # the figure's numbers, if no table or map of the page has them
    )
    _fragments: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def svg(self) -> str:
        return svg_of(self.figure)

    @cached_property
    def png(self) -> bytes:
        return png_of(self.figure)

    @property
    def file(self) -> tuple[str, bytes]:
        """Name and content of its file: SVG, or PNG if vectors would be heavy."""
        if self.is_raster:
            return f"{self.name}.png", self.png
        return f"{self.name}.svg", self.svg.encode("utf-8")

    def inline(self, prefix: str = "") -> str:
        """The SVG as a fragment of HTML: unique ids, page colours, nothing but shapes and text."""
        if prefix not in self._fragments:
            self._fragments[prefix] = inline_svg(self.svg, f"{prefix}{self.name}")
        return self._fragments[prefix]

    def csv_uri(self) -> str:
        """Its numbers as a link that needs no script; empty if the page has them already."""
        if self.data is None:
            return ""
        return _data_uri("text/csv", csv_text(self.data, digits=6).encode("utf-8"))

    def data_uri(self) -> str:
        """The PNG with 256 colours, a third of the bytes; only a colour bar shows the difference."""
        from PIL import Image

        small = io.BytesIO()
        with Image.open(io.BytesIO(self.png)) as image:
            flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            flat.save(small, format="PNG", compress_level=6)
        return png_uri(small.getvalue())


@contextmanager
def progress_callbacks(on_figure: OnFigure, on_step: OnStep) -> Iterator[None]:
    """While open, `on_figure` is called after each drawn figure and `on_step` before each other step."""
    tokens = _ON_FIGURE.set(on_figure), _ON_STEP.set(on_step)
    try:
        yield
    finally:
        _ON_FIGURE.reset(tokens[0])
        _ON_STEP.reset(tokens[1])


def announce(step: str) -> None:
    """Report the next step to the callback."""
    _ON_STEP.get()(step)


@contextmanager
def without_figures() -> Iterator[None]:
    """Draw no figures while open: pages have tables and findings only."""
    token = _IS_DRAWING.set(False)
    try:
        yield
    finally:
        _IS_DRAWING.reset(token)


def is_drawing() -> bool:
    """Whether figures are drawn."""
    return _IS_DRAWING.get()


def render_figures(study: Study, prefixes: tuple[str, ...] = ("",)) -> list[RenderedFigure]:
    """Draw every figure that applies to a study and whose name begins with one of these prefixes."""
    if not is_drawing():
        return []
    figures = [figure for figure in figures_of(study) if figure.name.startswith(prefixes)]
    rendered = []
    for number, figure in enumerate(figures, start=1):
        rendered.append(render_figure(figure, study))
        _ON_FIGURE.get()(number, len(figures))
    return rendered


def render_figure(figure: StudyFigure, study: Study) -> RenderedFigure:
    drawn = figure.draw(study)
    words = figure.name, figure.title, figure.caption
    rendered = RenderedFigure(*words, drawn, figure.is_raster, figure.source(study))
    _ = rendered.file  # render the file now, so that its time is part of the reported progress
    return rendered


@contextmanager
def _saving() -> Iterator[None]:
    """The figures' own style, with SVG that depends on the content only, and text that stays text."""
    import matplotlib as mpl

    from headscope.report.drawing.style import style

    with (
        style(),
        mpl.rc_context({"svg.hashsalt": "headscope", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        # A glyph that is missing in matplotlib's font is probably in the fonts of the reader's browser.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def svg_of(figure: Figure) -> str:
    """The figure as SVG, without a date."""
    target = io.StringIO()
    with _saving():
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def png_of(figure: Figure, dpi: int = DPI) -> bytes:
    """The figure as PNG without transparency, compressed well: half the bytes that matplotlib writes."""
    from PIL import Image

    target, small = io.BytesIO(), io.BytesIO()
    options: dict[str, Any] = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 0}}
    with _saving():
        figure.savefig(target, format="png", dpi=dpi, **options)
    with Image.open(target) as image:
        image.convert("RGB").save(small, format="PNG", optimize=True, dpi=(dpi, dpi))
    return small.getvalue()


def save_figure(figure: Figure, out: Path) -> Path:
    """Write a picture as svg or png, according to its name."""
    check_picture(out)
    try:
        out.write_bytes(svg_of(figure).encode() if out.suffix == ".svg" else png_of(figure))
    except OSError as cause:
        raise HeadscopeError(f"cannot be written: {reason(cause)}", where=out) from cause
    return out


def check_picture(out: Path) -> None:
    """Refuse a name under which no picture can be written, before it is drawn."""
    if out.suffix not in (".svg", ".png"):
        what = f'the name of a picture must end in .svg or .png, got "{out.suffix}"'
        raise HeadscopeError(what, where=out)
    if not out.parent.is_dir() or out.is_dir():
        what = "it is a directory" if out.is_dir() else f"there is no directory {out.parent}"
        raise HeadscopeError(f"cannot be written: {what}", where=out)


def png_uri(png: bytes) -> str:
    return _data_uri("image/png", png)


def _data_uri(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def inline_svg(svg: str, name: str) -> str:
    """An SVG file of ours as a fragment of HTML.

    Ids are prefixed with the figure's name, so that two figures on a page do not share clip paths. The style sheet
    that matplotlib writes would apply to the entire page and is dropped. Shared colours become page colours.
    """
    root = ElementTree.fromstring(svg)
    _strip(root)
    referenced = set(re.findall(r"url\(#([^)]+)\)|xlink:href=\"#([^\"]+)\"", svg))
    names = {first or second for first, second in referenced}
    for element in root.iter():
        element.tag = element.tag.removeprefix(SVG)
        identity = element.attrib.pop("id", None)
        if identity in names:
            element.set("id", f"{name}-{identity}")
        if XLINK in element.attrib:
            target = element.attrib.pop(XLINK)
            element.set("href", f"#{name}-{target[1:]}" if target.startswith("#") else target)
        for key, value in element.attrib.items():
            if key in ("d", "transform", "x", "y"):
                element.set(key, _shorten_numbers(value))
            elif key in ("style", "clip-path"):
                element.set(key, _page_style(value, name))
        if element.tag not in ("text", "tspan") and not (element.text or "").strip():
            element.text = None
        element.tail = None if not (element.tail or "").strip() else element.tail
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    points = float(root.get("viewBox", "0 0 0 0").split()[2])
    root.set(
        "style", f"width: {points * PIXELS_PER_POINT:.0f}px"
    )  # study.css limits it to the width of the page
    root.set("aria-hidden", "true")  # its title and caption are in the figure element around it
    return ElementTree.tostring(root, encoding="unicode")


def _shorten_numbers(value: str) -> str:
    """Coordinates with two decimals and without superfluous blanks."""
    short = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", value)
    return re.sub(r" ?([MLQCz]) ?", r"\1", " ".join(short.split()))


def _page_style(value: str, name: str) -> str:
    """The value of a style attribute with the ids, colours and fonts of the page."""
    value = value.replace("url(#", f"url(#{name}-")
    for colour, variable in VARIABLES.items():
        value = value.replace(colour, f"var({variable})")
    return _FONT.sub(r"font: \1 var(--sans)", value)


def _strip(parent: ElementTree.Element) -> None:
    """Remove what is not a shape or text: metadata, style sheets, scripts, foreign elements."""
    for child in list(parent):
        tag = child.tag if isinstance(child.tag, str) else ""
        if tag.startswith(SVG) and tag.removeprefix(SVG) in ALLOWED:
            _strip(child)
        else:
            parent.remove(child)
