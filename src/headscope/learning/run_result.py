"""The result of one training of gates or masks, as JSON. The study is made when all trainings are finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from headscope.pruning.pareto_front import Changes, FrontRow, SelectionColumns
from headscope.study.schema.record import Section
from headscope.training.result import History


class Collapse(TypedDict, total=False):
    """A training that was stopped because all gates had closed, and its best epoch before that, if there is one."""

    what: str
    where: str
    step: int
    kept_epoch: int
    left: int
    metric: float


class JudgedChanges(Changes, SelectionColumns):
    """Columns of tables: results of a model on the selection split and the report split."""


class GateRow(FrontRow):
    """A row of the table `front`, with the target of the gates (`aim`)."""

    aim: str


class MaskRow(JudgedChanges):
    """A row of the table `learned_masks`."""

    aim: str
    seed: int
    sparsity: NotRequired[float]  # a soft mask has none


class RunResult(TypedDict, total=False):
    """The result of one training, as JSON."""

    history: History
    learning_rate: float
    row: Mapping[str, object]  # a row of the table `front` or `learned_masks`
    note: str  # for the user; empty if there is none
    gates: list[float]  # by head
    collapsed: Collapse
    closed: bool  # whether a penalty has closed every pair of positions that a mask can close
    open: dict[str, float]  # open share of the mask of each group


RunResults = Mapping[str, RunResult]  # by the name of the target


def describe_trainings(results: RunResults) -> Section:
    """Epochs, learning rates and notes of each training, for the run record."""
    histories = {name: result["history"] for name, result in results.items()}
    return {
        "epochs": {name: history["epochs"] for name, history in histories.items()},
        "learning_rates": {name: result["learning_rate"] for name, result in results.items()},
        "notes": [result["note"] for result in results.values() if result.get("note")],
        "diverged": {name: h["diverged"] for name, h in histories.items() if "diverged" in h},
    }
