"""Figures laid out in inches: a heading, and below it axes, panels in rows and columns, and a colour bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headscope.report.drawing.style import draw_bar, figure_with_heading, heading_height, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headscope.report.scale import Scale

LEAST_WIDTH = 4.2  # inches in which a heading can be read


@dataclass(frozen=True)
class Sheet:
    """A figure with its heading. All lengths are in inches.

    top  from the upper edge to where axes begin
    """

    figure: Figure
    width: float
    height: float
    top: float

    def add_axes(self, left: float, down: float, wide: float, tall: float, **options: Any) -> Axes:
        """Axes whose upper left corner is `left` from the left edge and `down` below the heading."""
        bottom = self.height - self.top - down - tall
        bounds = (left / self.width, bottom / self.height, wide / self.width, tall / self.height)
        return self.figure.add_axes(bounds, **options)

    def add_bar(self, left: float, tall: float, scale: Scale, label: str) -> Axes:
        """A colour bar to the right of the axes, from the heading down."""
        bottom = 1 - (self.top + tall) / self.height
        bounds = (left / self.width, bottom, 0.11 / self.width, tall / self.height)
        return draw_bar(self.figure, bounds, scale, label)

    def point(self, left: float, down: float) -> tuple[float, float]:
        """The anchor of a legend: `left` from the left edge, `down` below the heading (above it: negative)."""
        return left / self.width, 1 - (self.top + down) / self.height


@contextmanager
def open_sheet(
    title: str, subtitle: str, width: float, body: float, above: float
) -> Iterator[Sheet]:
    """A sheet to draw on, in the figures' own style.

    body   inches below the heading, with labels and legends at the lower edge
    above  inches between the heading and the axes
    """
    with style():
        top = heading_height(width, subtitle) + above
        height = top + body
        yield Sheet(figure_with_heading(width, height, title, subtitle), width, height, top)


@dataclass(frozen=True)
class Panels:
    """Sizes of equal panels in rows and columns, in inches."""

    wide: float
    tall: float
    left: float
    right: float
    bottom: float
    above: float
    gap_x: float = 0.0
    gap_y: float = 0.0

    @contextmanager
    def open(
        self, title: str, subtitle: str, rows: int, columns: int, least_width: float = LEAST_WIDTH
    ) -> Iterator[PanelSheet]:
        """A sheet of rows and columns of panels."""
        across = columns * self.wide + (columns - 1) * self.gap_x
        width = max(self.left + across + self.right, least_width)
        body = rows * self.tall + (rows - 1) * self.gap_y + self.bottom
        with open_sheet(title, subtitle, width, body, self.above) as sheet:
            yield PanelSheet(sheet.figure, sheet.width, sheet.height, sheet.top, self)


@dataclass(frozen=True)
class PanelSheet(Sheet):
    """A sheet of equal panels."""

    panels: Panels

    def add_panel(self, row: int, column: int, **options: Any) -> Axes:
        sizes = self.panels
        x, y = sizes.left + column * (sizes.wide + sizes.gap_x), row * (sizes.tall + sizes.gap_y)
        return self.add_axes(x, y, sizes.wide, sizes.tall, **options)
