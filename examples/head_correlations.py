"""How well does the ranking of heads by each importance agree with exact ablation, and with confidence?

For each importance: Spearman's correlation, over the heads of a stack, with the change of loss when a head is ablated;
its 95 % bootstrap interval over heads; the mean over layers of the correlation within a layer; and the correlation with
confidence. The first study must have exact ablation. Further studies of the same model add relevance by other rules.

    python examples/head_correlations.py voita attnlrp --stack encoder
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

import headscope

EXACT = "ablation-loss"
IMPORTANCES = ("confidence", "gradient", "gradient-second", "gradient-absolute")
RELEVANCES = ("relevance", "relevance-signed")
DRAWS = 2000


def heads_of(study: headscope.Study, stack: str) -> pd.DataFrame:
    """A row for each head (layer, head), a column for each statistic."""
    rows = study.heads[study.heads["stack"] == stack]
    return rows.pivot_table(index=["layer", "head"], columns="statistic", values="value")


def combine_importances(studies: list[headscope.Study], stack: str) -> pd.DataFrame:
    """The importances of all studies as columns. Names of relevance include the rules of their study."""
    columns = {}
    for study in studies:
        heads = heads_of(study, stack)
        rules = study.record.get("importance", {}).get("rules", "")
        columns |= {f"{name}, {rules}": heads[name] for name in RELEVANCES if name in heads}
        columns |= {
            name: heads[name]
            for name in (EXACT, *IMPORTANCES)
            if name in heads and name not in columns
        }
    return pd.DataFrame(columns).dropna()


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def interval(x: np.ndarray, y: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of Spearman's correlation."""
    draws = np.random.default_rng(seed).integers(0, len(x), size=(DRAWS, len(x)))
    low, high = np.nanquantile([spearman(x[draw], y[draw]) for draw in draws], [0.025, 0.975])
    return float(low), float(high)


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each importance."""
    exact = table[EXACT].to_numpy()
    rows = {}
    for name in (name for name in table if name != EXACT):
        values = table[name].to_numpy()
        low, high = interval(values, exact)
        within = [
            spearman(layer[name].to_numpy(), layer[EXACT].to_numpy())
            for _, layer in table.groupby("layer")
        ]
        rows[name] = {
            "change of loss": spearman(values, exact),
            "low": low,
            "high": high,
            "within a layer": float(np.mean(within)),
            "confidence": spearman(values, table["confidence"].to_numpy())
            if "confidence" in table
            else np.nan,
        }
    return pd.DataFrame(rows).T


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("--stack", default="encoder")
    arguments = parser.parse_args()
    table = combine_importances(
        [headscope.Study(path) for path in arguments.studies], arguments.stack
    )
    if EXACT not in table:
        parser.error(
            f"{arguments.studies[0]} has no {EXACT}: run headscope importance --by ablation into it"
        )
    print(correlations(table).to_string(float_format="{:.2f}".format))
    relevant = [name for name in table if name.startswith("relevance, ")]
    if len(relevant) == 2:
        print(
            f"{' and '.join(relevant)}: {spearman(*(table[name].to_numpy() for name in relevant)):.2f}"
        )


if __name__ == "__main__":
    main()
