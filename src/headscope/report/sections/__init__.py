"""Every figure of a study, one a file: a file that defines `drawings(study)` is found and drawn.

To add a figure, add a file here whose name does not begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.report.drawing.data_source import Source
    from headscope.study.study import Study


class Drawing(Protocol):
    """One figure of a study.

    name       the file name without its ending: lower case letters, digits and hyphens
    title      what is shown
    caption    one sentence: how to read it
    is_raster  true where vectors would be heavy and the page should carry a PNG
    source     where its numbers are: the page hands them out as a csv file
    """

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def is_raster(self) -> bool: ...
    def applies(self, study: Study) -> bool: ...
    def source(self, study: Study) -> Source: ...
    def draw(self, study: Study) -> Figure: ...


Maker = Callable[["Study"], Iterable[Drawing]]


def makers() -> dict[str, Maker]:
    """The `drawings` function of every figure file by file name, by the files' ORDER (50 unless given)."""
    names = sorted(
        module.name for module in iter_modules(__path__) if not module.name.startswith("_")
    )
    files = {name: import_module(f"{__name__}.{name}") for name in names}
    ordered = sorted(files, key=lambda name: (getattr(files[name], "ORDER", 50), name))
    return {name: cast("Maker", files[name].drawings) for name in ordered}


def figures_of(study: Study) -> list[Drawing]:
    """The figures that apply to a study, in the order in which they are shown."""
    found = [drawing for make in makers().values() for drawing in make(study)]
    return [drawing for drawing in found if drawing.applies(study)]
