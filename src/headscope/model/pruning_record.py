"""The record of a pruning: how heads were chosen and what removing them did, in plan.json, cut.json and model cards."""

from __future__ import annotations

from typing import Any, TypedDict


class SplitRecord(TypedDict):
    """A split, and how many of its examples were used."""

    split: str | None
    examples: int


class PruningRecord(TypedDict, total=False):
    """The types are those of JSON. Which entries there are depends on what was done."""

    # how the heads were chosen
    how: str
    history: list[str]  # of a model that had been cut before
    task: str
    data: list[Any]
    selected_on: SplitRecord
    reported_on: SplitRecord
    trained_on: int
    unknown: dict[str, Any]
    search: str
    by: str | None
    objective: str
    target: dict[str, float | None]
    metric: str
    intact: dict[str, Any]
    knows_nothing: str
    removed: str
    count: int
    of: int
    after: dict[str, Any]
    warning: str | None
    advice: str
    evaluations: float
    in_steps: dict[str, Any]
    learned: str
    # fixed heads
    patterns: dict[str, str]
    order: list[str]
    within: int
    # what was done, and what it costs and gains
    config: dict[str, Any]
    repair: list[str]
    recover: dict[str, Any] | None
    metrics: dict[str, list[dict[str, float | None]]]  # before and after
    stages: dict[str, Any]
    verdict: str
    judged_on: str
    timed: str
    speed: list[dict[str, Any]]  # fields of `latency.Speed` of the whole and the pruned model
    # a dry run
    heads: str
    form: str
    sizes: list[dict[str, Any]]
    measured_on: str | None
    files: list[str]
