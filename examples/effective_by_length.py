"""How does effective attention differ from raw attention as texts become longer? (Brunner et al. 2020, Fig. 1)

Truncates windows of a corpus to several lengths. At each length it measures, with the lenses of effective attention,
the correlation with the raw weights, the sum of rows, and the attention to the first special token ([CLS]; all special
tokens if a model has no such token). Prints means over all heads; intervals are Student's, over windows.

    python examples/effective_by_length.py minilm --out effective.svg
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

import headscope
from headscope.data.bundled import corpus_path

LENGTHS = (16, 24, 32, 34, 40, 48, 64, 96, 128, 200, 256, 384, 512)
LENSES = ("effective", "effective-simplex")
STATISTICS = ("raw-correlation", "row-total", "cls", "special")
COLUMNS = {
    "raw-correlation@effective": "correlation",
    "raw-correlation@effective-simplex": "correlation, sums kept",
    "row-total@effective": "row sum",
    "first": "first token, raw",
    "first@effective": "first token, effective",
    "first@effective-simplex": "first token, sums kept",
}


def texts_of(path: str) -> list[str]:
    """The texts of a file: its lines, or both texts of each pair in a jsonl file. path: also `wikipedia-pairs`."""
    lines = [
        line for line in Path(corpus_path(path)).read_text("utf-8").splitlines() if line.strip()
    ]
    rows = [json.loads(line) if line.startswith("{") else {"a": line} for line in lines]
    return [" ".join(str(row[field]) for field in ("a", "b") if field in row) for row in rows]


def windows_of(texts: list[str], words: int, count: int) -> list[str]:
    """`count` consecutive windows of `words` words. A word has at least one token, so `words` tokens are reached."""
    every = (word for text in texts for word in text.split())
    windows = [list(islice(every, words)) for _ in range(count)]
    if len(windows[-1]) < words:
        raise SystemExit(
            f"the corpus is too short for {count} windows of {words} words: use fewer or shorter windows"
        )
    return [" ".join(window) for window in windows]


def means_of(study: headscope.Study) -> dict[str, float]:
    """Mean of each statistic over all heads; `first` is the statistic cls, or special if the model has no [CLS]."""
    means = study.heads.groupby("statistic")["value"].mean().to_dict()
    for lens in ("", *(f"@{name}" for name in LENSES)):
        cls, special = (means.get(f"{name}{lens}", np.nan) for name in ("cls", "special"))
        means[f"first{lens}"] = special if np.isnan(cls) else cls
    return means


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of a mean over windows; NaN for a single window."""
    if len(values) < 2:
        return np.nan, np.nan
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def by_length(
    model: headscope.AttentionModel, windows: list[str], lengths: tuple[int, ...]
) -> pd.DataFrame:
    """A row for each length. Each window is analysed separately, so that intervals over windows can be computed."""
    rows = []
    for length in lengths:
        studies = [
            headscope.analyze(
                model, texts=[window], max_length=length, lens=LENSES, statistics=STATISTICS
            )
            for window in windows
        ]
        tokens = {study.record["data"]["tokens"] for study in studies}
        if tokens != {length}:
            raise SystemExit(
                f"windows of {length} tokens have {sorted(tokens)}: the model's limit is below {length}"
            )
        means = pd.DataFrame([means_of(study) for study in studies])
        row = {"tokens": length, **{column: means[name].mean() for name, column in COLUMNS.items()}}
        low, high = interval(means["raw-correlation@effective"].to_numpy())
        rows.append(row | {"low": low, "high": high})
    table = pd.DataFrame(rows).set_index("tokens")
    return table[["correlation", "low", "high", *list(COLUMNS.values())[1:]]]


def width_of(study: headscope.Study) -> dict[str, int]:
    """Width of the heads of each stack, from the study's record."""
    return dict(study.record["lenses"]["effective"]["width"])


def draw(table: pd.DataFrame, widths: dict[str, int], out: Path) -> None:
    """Draw the correlation by length with intervals, and a line at the width of the heads."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    ax.vlines(table.index, table["low"], table["high"], alpha=0.5)
    ax.plot(table.index, table["correlation"], "o-", label="effective")
    ax.plot(table.index, table["correlation, sums kept"], "o-", label="effective, sums kept")
    for width in sorted(set(widths.values())):
        ax.axvline(width, color="grey", linestyle="--", linewidth=1)
        ax.text(width, 1.07, f"heads are {width} wide", ha="center", fontsize=8)
    ax.set(
        xscale="log",
        ylim=(0, 1.05),
        xlabel="tokens (log scale)",
        ylabel="correlation with raw attention",
    )
    ax.set_xticks(table.index, [str(length) for length in table.index], rotation=60)
    ax.set_xticks([], minor=True)
    ax.legend(frameon=False)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="minilm")
    parser.add_argument(
        "--corpus",
        default="wikipedia-pairs",
        help="a file with a text on each line, or with pairs (jsonl)",
    )
    parser.add_argument(
        "--lengths", default=",".join(map(str, LENGTHS)), help="in tokens, including special tokens"
    )
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument(
        "--out", type=Path, help="an SVG file; the table is written next to it as CSV"
    )
    arguments = parser.parse_args()
    lengths = tuple(int(length) for length in arguments.lengths.split(","))
    model = headscope.load(arguments.model)
    windows = windows_of(texts_of(arguments.corpus), max(lengths), arguments.windows)
    table = by_length(model, windows, lengths)
    print(table.to_string(float_format="{:.3f}".format))
    if arguments.out is not None:
        table.to_csv(arguments.out.with_suffix(".csv"))
        study = headscope.analyze(
            model, texts=windows[:1], max_length=min(lengths), lens=LENSES, statistics=STATISTICS
        )
        draw(table, width_of(study), arguments.out)


if __name__ == "__main__":
    main()
