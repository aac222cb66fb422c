"""Types of the record of a pruning run (in plan.json, cut.json, model cards): how heads were chosen, and the effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class SplitRecord(TypedDict):
    """A split, and the number of its examples that were used."""

    split: str | None
    examples: int


class SpeedRecord(TypedDict):
    """The fields of `latency.Speed`."""

    name: str
    heads: int
    seconds: float
    throughput: float
    parameters: int
    megabytes: float
    working: float
    ratio: float
    low: float
    high: float


class StageRecord(TypedDict):
    """Results of the model after a stage: pruned, repaired or recovered."""

    metrics: dict[str, dict[str, float | None]]  # value, low and high of the loss and each metric
    change: Mapping[str, object]
    verdict: str


class AfterRecord(TypedDict, total=False):
    """Results of the chosen set of heads on both splits; `report` is a row of the table `front`."""

    selection: Mapping[str, object]
    report: Mapping[str, object]


class PruningRecord(TypedDict, total=False):
    """The record of one pruning run, with JSON types. Which entries it has depends on the search and the options."""

    # how the heads were chosen
    how: str
    history: list[str]  # earlier pruning steps of the model
    task: str
    data: Sequence[object]
    selected_on: SplitRecord
    reported_on: SplitRecord
    trained_on: int
    unknown: Mapping[str, object]
    search: str
    by: str | None
    objective: str
    target: dict[str, float | None]
    metric: str
    intact: Mapping[str, object]
    knows_nothing: str
    removed: str
    count: int
    of: int
    after: AfterRecord
    warning: str | None
    advice: str
    evaluations: float
    in_steps: Mapping[str, object]
    learned: str
    # fixed heads
    patterns: dict[str, str]
    order: list[str]
    within: int
    # what was done, and what it costs and gains
    config: Mapping[str, object]
    repair: list[str]
    recover: Mapping[str, object] | None
    metrics: dict[str, list[dict[str, float | None]]]  # before and after
    stages: dict[str, StageRecord]
    verdict: str
    judged_on: str
    timed: str
    speed: list[SpeedRecord]  # of the unpruned and the pruned model
    # a dry run
    heads: str
    form: str
    sizes: list[Mapping[str, object]]
    measured_on: str | None
    files: list[str]
