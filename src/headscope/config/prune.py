"""Options of `prune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.config.checks import repair_names
from headscope.config.names import FORMS
from headscope.config.option import ADVANCED, Output, option
from headscope.config.requirements import chooses_on_data
from headscope.config.search import KEEP_METRIC, SPLITS, SearchConfig, parse_heads
from headscope.config.shared import Reading, Run, TaskData
from headscope.errors import HeadscopeError


def _parse_names(value: Any) -> str:
    """Heads by name. A number is refused with a hint to `remove`, which takes numbers."""
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        raise HeadscopeError(
            f"`heads` must name heads, such as 3.2,4.*, got {value}",
            fix=f"To search for {value} heads to remove: `remove={value}`",
        )
    return parse_heads(value)


@dataclass(frozen=True)
class PruneConfig(SearchConfig):
    """Prune heads: heads by name, those of a plan, or those that a search selects. Then repair and train the model.

    The task and its data are required for a search, for repairs and for training, and optional otherwise.
    """

    command = "prune"
    group = "Prune"
    examples = (
        "headscope prune minilm --heads '3.2,4.*' --out small",
        "headscope prune minilm --task stsb --data stsb_dev.tsv --keep-metric 0.99 --search beam --out small",
        "headscope prune ./minilm-mnli --task mnli --data glue --remove 20"
        " --repair fold,refit --recover 1 --distil --out small",
        "headscope prune minilm --plan small/plan.json --form onnx --out graph",
    )
    python = "headscope.prune, headscope.search"
    splits = ("select_on", "report_on")
    output = Output(
        "cut.json", ("journal.jsonl", "steps.json", "cut", "recovered.partial", "recovered")
    )
    uses = {
        TaskData: (*SPLITS, "columns", "labels", "max_length"),
        Reading: ("pooling", "prompt"),
        Run: ("out", "seed", "revision", "device", "dtype", "resume", "overwrite", "no_figures"),
    }
    optional = (TaskData,)
    helps = {
        "task": "Task to select heads for and to report on, e.g. mnli, stsb or retrieval (headscope evaluate --help "
        "lists all)",
        "data": "Data of the task: a file, directory or data set, as for headscope evaluate",
        "limit": "Maximum number of examples to select heads on, evenly spaced over the file",
        "out": "Output directory of the pruned model; must not exist yet",
        "select_on": "Split to select heads on and to fit repairs to",
        "report_on": "Split to report on",
        "seed": "Random seed (order of examples, random search)",
    }

    heads: str | None = option(
        None,
        "Heads to remove, written LAYER.HEAD and counted from 0, e.g. 3.2,4.*",
        parse=_parse_names,
        show_default=False,
    )
    plan: str | Path | None = option(
        None,
        "Remove the heads of a plan.json that an earlier prune or gate wrote",
        metavar="PATH",
        show_default=False,
    )
    repair: tuple[str, ...] = option(
        (),
        "Repair of the remaining weights without training: fold (add the mean output of removed heads to a bias), "
        "refit (fit the output projections by least squares), or fold,refit for both",
        parse=repair_names,
        show_default="none",
    )
    recover: int = option(
        0,
        "Number of epochs to train on the train split after pruning; 0 does not train",
        at_least=0,
    )
    recover_steps: bool = option(
        False,
        "With --recover and --search iterative: train after every step of the search instead of at the end",
        panel=ADVANCED,
    )
    distil: bool = option(
        False,
        "With --recover: distil from the unpruned model in addition to the labels",
        panel=ADVANCED,
    )
    learning_rate: float = option(5e-5, "With --recover: learning rate", above=0, panel=ADVANCED)
    form: str = option(
        "small",
        "Form of the saved model: small (loads with headscope), plain (original size, with zeros for the pruned heads; "
        "loads with transformers alone) or onnx",
        choices=FORMS,
        panel=ADVANCED,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recover_steps:
            self._check_steps()

    @property
    def is_search(self) -> bool:
        """Whether heads are searched for, rather than named by `heads` or `plan`."""
        return self.plan is None and self.heads is None

    def _check_target(self, *others: str) -> None:
        super()._check_target("heads", "plan")

    def _check_steps(self) -> None:
        repairs = [f"`{name}`" for name in ("repair", "try_repairs") if getattr(self, name)]
        if repairs:
            raise HeadscopeError(
                f"{repairs[0]} cannot be combined with `recover_steps`: repairs are fitted to the unpruned model"
            )
        if not (self.search == "iterative" and self.recover and self.is_search):
            raise HeadscopeError('`recover_steps` requires `search="iterative"` and `recover`')
        if self.remove is None and self.sparsity is None:
            raise HeadscopeError("`recover_steps` requires `remove=N` or `sparsity`")

    @classmethod
    def splits_read(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        return cls.splits if chooses_on_data(values) else ("report_on",)

    def check_values(self, values: Mapping[str, Any]) -> None:
        """Refuse options that need a task if there is none."""
        if values.get("task") is not None:
            return
        needs = [f"`{name}`" for name in ("repair", "recover") if getattr(self, name)]
        if self.is_search or needs:
            if self.is_search and self.keep_metric == KEEP_METRIC:
                raise HeadscopeError(
                    "prune requires `heads`, `plan`, or `task` and `data` to search for heads with"
                )
            what = needs[0] if needs and not self.is_search else "a search for heads"
            raise HeadscopeError(f"{what} requires `task` and `data`")
