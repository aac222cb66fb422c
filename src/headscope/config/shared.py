"""Options that several commands share: the task and its data, how texts are read, how a command runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headscope.config import names
from headscope.config.checks import check_device
from headscope.config.masks import check_mask
from headscope.config.option import ADVANCED, Config, option
from headscope.config.parsing import pairs
from headscope.config.poolings import parse_pooling
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError, choices


class Progress(Protocol):
    """Called with the number of finished units and their total. part: name of the part, if the work has several."""

    def __call__(self, done: int, total: int, part: str = "") -> None: ...


class Log(Protocol):
    """Called with lines for a person: the model that is being loaded, notes, intermediate results."""

    def __call__(self, line: str, /) -> None: ...


def no_progress(done: int, total: int, part: str = "") -> None:
    """Show nothing."""


def no_log(line: str) -> None:
    """Print nothing."""


def _check_task(task: Any) -> None:
    if not isinstance(task, str) and not hasattr(task, "model_class"):
        raise HeadscopeError(f"`task` must be a name or a `Task`, got {describe_value(task)}")
    if isinstance(task, str) and task not in names.TASKS:
        meant = names.TASKS_MEANT.get(task, ())
        raise HeadscopeError(
            f'"{task}" is not a task', where="`task`", expected=choices(task, names.TASKS, meant)
        )


SPLIT = (
    "train, dev or test; dev:half-a and dev:half-b are two disjoint halves of dev (by a hash of the text, so the "
    "same in every run)"
)


@dataclass(frozen=True)
class TaskData(Config):
    """A task, its data and how the data is split.

    Commands use some of the fields: `evaluate` and `importance` read one `split`; a search selects on one split and
    reports on another. `task` is a name or a `Task`.
    """

    primary = "data"

    task: Any = option(
        help=f"Task: {', '.join(names.TASKS[:-1])} or {names.TASKS[-1]}. Two names of the same task: choice and swag, "
        "masked and mlm, questions and squad, similarity and stsb",
        check=_check_task,
        show_default=False,
    )
    data: str | Path = option(
        help="Data of the task: a file (tsv, csv, jsonl, SQuAD json or text), a directory with train, dev and test "
        "files, "
        "or a data set of the Hugging Face hub (datasets:nyu-mll/glue:mnli); for translation and bleu also two files, "
        "SOURCE,TARGET",
        show_default=False,
    )
    split: str = option("dev", f"Split to evaluate on: {SPLIT}")
    select_on: str | None = option(None, f"Split to select on: {SPLIT}", panel=ADVANCED)
    report_on: str | None = option(None, f"Split to report on: {SPLIT}", panel=ADVANCED)
    limit: int | None = option(
        None,
        "Maximum number of examples to use, evenly spaced over the file",
        at_least=1,
        show_default="all",
    )
    report_limit: int | None = option(
        None,
        "Maximum number of examples to report on, evenly spaced over the file",
        at_least=1,
        show_default="all",
        panel=ADVANCED,
    )
    max_length: int | None = option(
        None,
        "Maximum number of tokens per sequence; longer texts are truncated (squad: split into windows)",
        at_least=1,
        show_default="squad: 384; stsb and retrieval: as the model's files state; otherwise the model's limit, at "
        "most 512",
        panel=ADVANCED,
    )
    columns: Mapping[str, str] | None = option(
        None,
        "Column names of the data that differ from those that the task expects: expected name first, e.g. "
        "premise=sentence_a,label=gold if the data calls them sentence_a and gold",
        parse=pairs("columns", "EXPECTED=YOURS"), metavar="EXPECTED=YOURS", show_default=False, panel=ADVANCED,
    )  # fmt: skip
    labels: Mapping[str, str] | None = option(
        None,
        "Labels of the data that differ from those that the task expects: label of the data first (the reverse of "
        "--columns), e.g. entails=entailment,0=neutral if the data says entails and 0",
        parse=pairs("labels", "YOURS=EXPECTED"), metavar="YOURS=EXPECTED", show_default=False, panel=ADVANCED,
    )  # fmt: skip


AS_STATED = "as the model's files state"
POOLINGS = "mean, first (or cls), last (or lasttoken), max, mean_sqrt_len or weightedmean"


@dataclass(frozen=True)
class Reading(Config):
    """How a model reads texts: pooling, prompt, and a mask on its attention."""

    pooling: str | None = option(
        None,
        f"Pooling of token states into one vector per text, for stsb and retrieval: {POOLINGS}",
        parse=parse_pooling,
        show_default=AS_STATED,
        panel=ADVANCED,
    )
    prompt: str | None = option(
        None,
        "Prompt to put before every text that is encoded as a vector (stsb, retrieval): a text, or the name of one of "
        "the model's prompts",
        show_default=AS_STATED,
        panel=ADVANCED,
    )
    mask: str | None = option(
        None,
        "Attention mask to apply: a name such as star or window:width=8 (listed by headscope masks), or a file such "
        "as mask.npz",
        check=check_mask, show_default="none", panel=ADVANCED,
    )  # fmt: skip
    open_special: bool = option(
        False,
        "With --mask: exempt special tokens; they attend to all tokens, and all tokens attend to them",
        panel=ADVANCED,
    )


@dataclass(frozen=True)
class Run(Config):
    """How a command runs: where results are written, the device, the seed, callbacks.

    out       directory to write; None writes nothing and returns the result
    progress  called with (done, total)
    log       called with lines for a person
    typed     the command line, for the run record
    """

    out: Path | None = option(
        None, "Output directory; must not exist yet", show_default=False, recorded=False
    )
    seed: int = option(0, "Random seed", panel=ADVANCED)
    revision: str | None = option(
        None,
        "Branch, tag or commit of a model on the Hugging Face hub; MODEL@REVISION is the same",
        show_default="main",
        panel=ADVANCED,
    )
    device: str = option(
        "auto",
        "Device: auto (a GPU if there is one), cpu, cuda, cuda:1, mps …",
        check=check_device,
        panel=ADVANCED,
    )
    dtype: str = option(
        "float32",
        "Precision: float32, float64, bfloat16 or float16",
        choices=names.DTYPES,
        panel=ADVANCED,
    )
    resume: bool = option(
        False,
        "Resume a stopped run; the result is that of an uninterrupted run",
        recorded=False,
        panel=ADVANCED,
    )
    overwrite: bool = option(
        False,
        "Replace the result of an earlier run in the output directory",
        recorded=False,
        panel=ADVANCED,
    )
    no_figures: bool = option(
        False, "Do not draw figures: the page then has tables and findings only", recorded=False
    )
    progress: Progress = field(default=no_progress, repr=False, compare=False)
    log: Log = field(default=no_log, repr=False, compare=False)
    typed: str = field(default="", repr=False, compare=False)
