"""What all results have in common: they write themselves with the one writer of the report package."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.hooks import hook

if TYPE_CHECKING:
    import pandas as pd

ROWS = 20  # of a table in a notebook


class Result:
    """Base class of everything that public functions return: tables and a run record, shown and written.

    tables  data frames by name
    record  what is written as run.json
    """

    if TYPE_CHECKING:  # attributes of some results, properties of others

        @property
        def tables(self) -> dict[str, pd.DataFrame]: ...

        @property
        def record(self) -> Mapping[str, object]: ...

    def write(self, out: str | Path, *, overwrite: bool = False) -> Path:
        """Write tables, run record, figures and page, complete or not at all: see `headscope.write`.

        Parameters
        ----------
        out
            The directory, or the page of joined studies or of a look.
        overwrite
            Replace what is there.

        Returns
        -------
        Path
            `out`, of a page with its ending

        Raises
        ------
        HeadscopeError
            If `out` exists already.
        """
        path: Path = hook("write")(self, out, overwrite=overwrite)
        return path

    def _repr_html_(self) -> str:
        """The display in a notebook: the first rows of each table."""
        tables = "".join(
            f"<h4>{html.escape(name)}</h4>{table.head(ROWS).to_html(index=False)}"
            for name, table in self.tables.items()
        )
        return f"<p>{html.escape(repr(self))}</p>{tables}"
