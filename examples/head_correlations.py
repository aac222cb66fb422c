"""How well does each importance of a study's heads rank them as exact removal does, and as confidence does?

Spearman's correlation over the heads of a stack with the change of loss when a head is removed, its 95 % interval over
resamples of the heads, the mean over layers of the correlation within a layer, and the correlation with confidence.
The first study has exact removal; relevance by other rules comes from further studies of the same model.

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
    """A row a head (layer, head), a column a statistic."""
    rows = study.heads[study.heads["stack"] == stack]
    return rows.pivot_table(index=["layer", "head"], columns="statistic", values="value")


def gathered(studies: list[headscope.Study], stack: str) -> pd.DataFrame:
    """The importances of all studies side by side; those of relevance named after the rules of their study."""
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


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])


def interval(one: np.ndarray, other: np.ndarray, seed: int = 0) -> tuple[float, float]:
    draws = np.random.default_rng(seed).integers(0, len(one), size=(DRAWS, len(one)))
    low, high = np.nanquantile([spearman(one[draw], other[draw]) for draw in draws], [0.025, 0.975])
    return float(low), float(high)


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """A row an importance."""
    exact = table[EXACT].to_numpy()
    rows = {}
    for name in (name for name in table if name != EXACT):
        values = table[name].to_numpy()
        low, high = interval(values, exact)
        within = [
            spearman(of[name].to_numpy(), of[EXACT].to_numpy()) for _, of in table.groupby("layer")
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
    table = gathered([headscope.Study(path) for path in arguments.studies], arguments.stack)
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
