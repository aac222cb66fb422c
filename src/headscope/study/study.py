"""A study: all results about the heads of one model, in memory or in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.hooks import hook
from headscope.study.lens_agreement import lens_agreement
from headscope.study.result import Result
from headscope.study.schema.check_values import check_maps, check_values
from headscope.study.schema.read_file import read_npz, read_parquet
from headscope.study.schema.record import RunRecord, join_records, read_run_record
from headscope.study.schema.tables import HEADS, TABLES, check_heads, check_same_heads, read_tables

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# If a corpus and the texts of a task were measured, the values of the corpus are kept: it has more texts.
SURFACE = {"confidence", "entropy"}


class Study(Result):
    """Tables, aggregate maps and the run record of one model: `Study("study")` reads a directory.

    Attributes
    ----------
    heads
        One row for each head and statistic: stack, layer, head, statistic, value, low, high, count.
    maps
        "map/STACK": mean attention [layer, head, query, key] over absolute positions, NaN where no sequence was long
        enough. "offset/STACK": mean mass [layer, head, offset], offsets -R … R.
    record
        What is written as run.json.
    tables
        The other tables by name: "relations", "clusters" … as in NAME.csv.

    Raises
    ------
    HeadscopeError
        If a directory is not a study, or one of its tables is damaged.

    Examples
    --------
    >>> study = headscope.analyze("minilm", ["The cat sat.", "A dog ran."], statistics="entropy")
    >>> study
    Study('minilm', 72 rows, 1 statistic)
    >>> study.write("study")  # doctest: +SKIP
    >>> headscope.Study("study").heads  # doctest: +SKIP
    """

    def __init__(
        self,
        source: str | Path | pd.DataFrame,
        maps: dict[str, NDArray[Any]] | None = None,
        record: RunRecord | None = None,
        tables: dict[str, pd.DataFrame] | None = None,
    ) -> None:
        if isinstance(source, str | Path):
            source, maps, record, tables = _read(Path(source))
        self.heads: pd.DataFrame = source
        self.maps = maps or {}
        self.tables: dict[str, pd.DataFrame] = tables or {}
        self.record: RunRecord = record or {}

    def merge(self, more: Study) -> Study:
        """This study with the results of another command on the same model.

        Parameters
        ----------
        more
            The other study. Its results replace those of the same name.

        Returns
        -------
        Study

        Examples
        --------
        >>> texts = ["The cat sat.", "A dog ran."]
        >>> first = headscope.analyze("minilm", texts, statistics="entropy")
        >>> second = headscope.analyze("minilm", texts, statistics="previous")
        >>> sorted(first.merge(second).heads["statistic"].unique())
        ['entropy', 'previous']
        """
        import pandas as pd

        new = more.heads[~more.heads["statistic"].isin(SURFACE & set(self.heads["statistic"]))]
        old = self.heads[~self.heads["statistic"].isin(set(new["statistic"]))]
        heads = pd.concat([old, new], ignore_index=True) if len(old) else new
        record = join_records(self.record, more.record)
        merged = Study(heads, {**self.maps, **more.maps}, record, {**self.tables, **more.tables})
        if rows := lens_agreement(merged):
            merged.tables["lenses"] = TABLES["lenses"].frame(rows)
        return merged

    def __repr__(self) -> str:
        model = self.record.get("model", {}).get("name")
        count = self.heads["statistic"].nunique()
        return f"Study({model!r}, {len(self.heads)} rows, {count} statistic{'' if count == 1 else 's'})"

    def _repr_html_(self) -> str:
        """The display in a notebook."""
        html: str = hook("study_html")(self)
        return html


def _read(
    folder: Path,
) -> tuple[pd.DataFrame, dict[str, NDArray[Any]], RunRecord, dict[str, pd.DataFrame]]:
    record = read_run_record(folder / "run.json")
    path = folder / "heads.parquet"
    heads = read_parquet(path)
    HEADS.validate(heads, path)
    check_heads(heads, record["model"], path)
    check_same_heads(heads, folder / "heads.csv", path)
    check_values(heads, HEADS.name, path)
    maps = read_npz(folder / "maps.npz")
    check_maps(maps, record["model"], heads, folder / "maps.npz")
    return heads, maps, record, read_tables(folder, record["model"])
