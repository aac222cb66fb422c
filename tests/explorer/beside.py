"""A small model and a made-up study of it that holds everything the explorer tells of a study."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from studies import made_up, record_for
from transformers import BertForSequenceClassification

from headscope.model.attention_model import AttentionModel
from headscope.model.weights import weights_sha256
from headscope.study.study import Study
from worded import worded

EVIL = "</script><img src=x onerror=alert(2)>"
PLACES = [(layer, head) for layer in range(2) for head in range(4)]


def of(head: str) -> dict[str, Any]:
    layer, number = head.split(".")
    return {"stack": "encoder", "layer": int(layer), "head": int(number)}


def role(head: str, name: str, value: float = 0.7) -> dict[str, Any]:
    evidence = {
        "value": value,
        "low": value - 0.1,
        "high": value + 0.1,
        "baseline": 0.4,
        "threshold": 0.5,
    }
    return (
        of(head)
        | {"role": name}
        | evidence
        | {"is_sure": True, "rule": f"rule of {name}", "count": 600}
    )


def example(head: str, name: str, words: str, query: int, key: int) -> dict[str, Any]:
    record = {
        "role": name,
        "kind": "example",
        "direction": "dependent",
        "words": words,
        "query": query,
        "key": key,
    }
    shown = {"weight": 0.9, "expected": math.nan, "arcs": "[]", "text": "", "starts": "[]"}
    return of(head) | record | shown


def without(head: str, value: float, is_significant: bool, half: float = 0.1) -> dict[str, Any]:
    numbers = {
        "value": value,
        "low": value - half,
        "high": value + half,
        "test": "paired t",
        "p": 0.01,
        "p_adjusted": 0.02,
    }
    return (
        of(head)
        | {"statistic": "ablation-loss"}
        | numbers
        | {"is_significant": is_significant, "count": 100}
    )


def model() -> AttentionModel:
    return worded(BertForSequenceClassification, num_attention_heads=4)


def full(of_model: AttentionModel) -> Study:
    study = made_up(
        statistics=["previous", "entropy", "js-previous", "js-uniform", "ablation-loss"]
    )
    tables = {
        "roles": [
            role("1.3", "syntactic: nsubj"),
            role("1.3", "broad"),
            role("0.1", EVIL),
            role("0.0", "undetermined"),
        ],
        "clusters": [
            of(f"{layer}.{head}")
            | {
                "x": 0.0,
                "y": 0.0,
                "cluster": head % 2,
                "twin_layer": 1,
                "twin_head": 2,
                "twin_distance": 0.25,
            }
            for layer, head in PLACES
        ],
        "examples": [example("1.3", "syntactic: nsubj", '["the", "cat", "<b>"]', 1, 2)],
        "significance": [
            without("0.0", 0.3, True),
            without("0.1", -0.3, True),
            without("0.2", 0.001, False, half=0.005),
            without("0.3", 0.001, False, half=0.5),
            without("1.3", 0.2, True),
        ],
    }
    record = record_for(study.heads, weights_sha256(of_model))
    return Study(
        study.heads, study.maps, record, {name: pd.DataFrame(rows) for name, rows in tables.items()}
    )
