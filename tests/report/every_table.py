"""A study with every table that any command writes, one or two rows each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from studies import RECORD, made_up
from test_head_cards import full
from test_importance_figures import agreed, left_alone

from headscope.study.study import Study

PLACE = {"stack": "encoder", "layer": 0, "head": 1}
LAYER = {"stack": "encoder", "layer": 0}
MEASURED = {"value": 0.4, "low": 0.3, "high": 0.5, "count": 40}
PAIRED = {
    "metric": 0.8,
    "metric_low": 0.7,
    "metric_high": 0.9,
    "metric_change": -0.1,
    "change_low": -0.2,
}
PAIRED |= {
    "change_high": -0.05,
    "loss": 0.5,
    "loss_change": 0.1,
    "loss_low": 0.05,
    "loss_high": 0.2,
    "p": 0.01,
}
SIZED = PAIRED | {
    "parameters": 1000,
    "time": 0.9,
    "time_low": 0.8,
    "time_high": 1.0,
    "selection_loss": 0.4,
}
SIZED |= {"selection_metric": 0.85, "is_chosen": True}
CUT = SIZED | {"removed": 1, "left": 7, "repair": "", "draw": 0, "heads": "0.1", "is_front": True}
MASK = PAIRED | {"mode": "trained", "mask": "star", "sparsity": 0.9, "seed": 0, "seeds": 1}
GRADIENTS = ("attention", "uniform", "gradient-ratio", "weighted-ratio", "centred-ratio")


def rows() -> dict[str, list[dict[str, Any]]]:
    """Of the tables that no other test of the report makes."""
    tested = {
        "test": "paired t",
        "p": 0.01,
        "p_adjusted": 0.02,
        "is_significant": True,
        "settled_at": 32,
    }
    changes = {"statistic": "ablation-loss", "value": 0.2, "low": 0.1, "high": 0.3, "count": 40}
    step = PLACE | {"statistic": "entropy", "step": 0} | MEASURED
    role = {"role": "broad", "baseline": np.nan, "threshold": 0.3, "is_sure": True, "rule": "broad"}
    probe = {"uas": 0.5, "low": 0.4, "high": 0.6, "parameters": 10, "count": 99}
    return {
        "significance": [PLACE | changes | tested],
        "ablations": [PLACE | {"example": 0, "loss": 0.1}],
        "all_but_one": [left_alone("encoder.0", 1, 0.01)],
        "agreement": [agreed("gradient", 0.6)],
        "ceilings": [{"stack": "encoder", "ceiling": 0.9, "heads": 8, "count": 40}],
        "ranks": [PLACE | {"importance": "gradient", "rank": 3.0}],
        "relevance_layers": [LAYER | {"part": "heads"} | MEASURED],
        "front": [CUT | {"removed": 0, "left": 8, "is_chosen": False, "heads": ""}, CUT],
        "search": [
            {"order": 0, "removed": 1, "loss": 0.5, "metric": 0.8, "examples": 64, "heads": "0.1"}
        ],
        "fronts": [CUT | {"search": name} for name in ("greedy", "beam")],
        "survivors": [
            {
                "search": "greedy",
                "draw": 0,
                "removed": 1,
                "left": 7,
                "role": "broad",
                "with_role": 2,
                "kept": 2,
            }
            | {"expected": 1.75, "p": 0.6}
        ],
        "fixing": [
            SIZED | {"kind": "least", "named": "1 head", "fixed": 1, "learned": 7, "heads": "0.1"}
        ],
        "gates": [PLACE | {"aim": "keep-4", "step": at, "gate": 0.9} for at in (0, 10)],
        "gate_roles": [PLACE | {"role": "broad"}],
        "learned_masks": [PAIRED | {"aim": "sparse", "seed": 0, "sparsity": 0.9}],
        "positions": [{"aim": "sparse", "positions": "diagonal", "seeds": 1} | MEASURED],
        "mask_runs": [MASK],
        "mask_table": [MASK],
        "film": [step, step | {"step": 10, "value": 0.6}],
        "film_roles": [PLACE | MEASURED | role | {"step": at} for at in (0, 10)],
        "probes": [
            probe | {"probe": name}
            for name in ("attention-only", "random-attention", "right-branching")
        ],
        "probe_weights": [PLACE | {"dependent": 0.5, "governor": -0.5}],
        "lens_heads": [
            PLACE
            | {
                "statistic": "entropy",
                "lens": "norm",
                "raw": 0.1,
                "raw_low": 0.05,
                "raw_high": 0.15,
            }
            | {"through": 0.9, "through_low": 0.8, "through_high": 1.0}
            | {"raw_rank": 0.1, "rank": 0.9, "apart": 0.8}
        ],
        "lens_examples": [
            PLACE
            | {
                "statistic": "entropy",
                "lens": "norm",
                "words": '["a", "b"]',
                "query": 0,
                "raw_key": 0,
                "raw_weight": 0.9,
            }
            | {
                "raw_key_through": 0.1,
                "lens_key": 1,
                "lens_weight": 0.8,
                "lens_key_raw": 0.1,
                "apart": 0.8,
            }
        ],
        "lenses": [
            {
                "stack": "encoder",
                "statistic": "entropy",
                "lens": lens,
                "correlation": 0.5,
                "low": 0.2,
                "high": 0.7,
            }
            | {"ceiling": 0.9, "heads": 8}
            for lens in ("raw", "norm")
        ],
        "gradients": [
            LAYER | {"class": "sep", "measure": measure} | MEASURED for measure in GRADIENTS
        ],
        "effective_lengths": [LAYER | {"up_to": length} | MEASURED for length in (32, 64)],
        "mixing": [LAYER | {"form": "weight"} | MEASURED],
        "contributions": [LAYER | {"part": "heads"} | MEASURED],
        "substitutes": [
            PLACE | {"pattern": "next", "task": "mnli", "loss_change": 0.1, "low": 0.0, "high": 0.2}
        ],
        "sinks": [
            PLACE
            | {
                "token": "the",
                "token_id": 5,
                "token_share": 0.4,
                "position": 0,
                "position_share": 1.0,
            }
            | {"first_share": 1.0, "count": 40}
        ],
        "uniform": [LAYER | {"statistic": "cls", "value": 0.01, "count": 40}],
        "pattern_agreement": [{"rule": "vertical", "network": "vertical", "maps": 8}],
        "coreference_heads": [
            PLACE | {"accuracy": 0.5, "low": 0.4, "high": 0.6, "baseline": 0.3, "count": 9}
        ],
    }


def every_table(word: str = "nsubj") -> Study:
    study = full(word=word)
    study.heads = pd.concat(
        [study.heads, made_up(statistics=["cls", "cls@norm", "cut"]).heads], ignore_index=True
    )
    study.tables |= {name: pd.DataFrame(some) for name, some in rows().items()}
    study.maps |= made_up(statistics=["cls"]).maps | {"mask/sparse": np.eye(4)}
    summary = {
        "task": word,
        "metric": "accuracy",
        "search": "beam",
        "reported_on": {"split": "dev:half-b"},
    }
    parts = ("pruning", "fixing", "learned_masks", "mask_table", "importance", "fronts")
    study.record = RECORD | {part: summary | {"examples": 40} for part in parts}
    return study
