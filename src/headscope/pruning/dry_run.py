"""A dry run of pruning: the heads that would be removed, the size of the model, and the files that would be written."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

from headscope.model.attention_model import AttentionModel
from headscope.model.pruning_record import PruningRecord
from headscope.pruning.pareto_front import Changes, change_text
from headscope.pruning.plan import Plan
from headscope.study.result import Result

if TYPE_CHECKING:
    import pandas as pd

WEIGHTS = {"small": "model.safetensors", "plain": "model.safetensors", "onnx": "model.onnx"}


@dataclass(frozen=True)
class Size:
    """Heads, parameters and megabytes of a model."""

    heads: int
    parameters: int
    megabytes: float

    @staticmethod
    def of(model: AttentionModel) -> Size:
        weights = list(model.model.parameters())
        size = sum(weight.numel() * weight.element_size() for weight in weights)
        return Size(len(model.heads), sum(weight.numel() for weight in weights), size / 1e6)


@dataclass(frozen=True)
class DryRun(Result):
    """A plan, and the model and files that it would produce.

    form         how the model would be written: small, plain or onnx
    sizes        sizes of the unpruned and of the pruned model
    measured_on  options of `headscope evaluate` that select the examples it would be measured on; None without a task
    has_study    whether a search made the plan; its study would be written, too
    """

    plan: Plan
    form: str
    sizes: tuple[Size, Size]
    measured_on: list[str] | None
    has_study: bool

    @property
    def files(self) -> list[str]:
        """Files that would be written, in addition to those of configuration and tokenizer."""
        files = [WEIGHTS[self.form], "cut.json", "plan.json", "README.md"]
        return [*files, "study/"] if self.has_study else files

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`sizes`: a row for the unpruned and one for the pruned model."""
        import pandas as pd

        return {"sizes": pd.DataFrame([asdict(size) for size in self.sizes])}

    @property
    def record(self) -> PruningRecord:
        """The plan and the predictions as JSON values."""
        return {
            **self.plan.chosen,
            "heads": str(self.plan.heads),
            "form": self.form,
            "sizes": [asdict(size) for size in self.sizes],
            "measured_on": None if self.measured_on is None else self._flags(),
            "files": self.files,
        }

    def lines(self) -> list[str]:
        """The plan and the predictions in words. The first line holds only the heads, so that a script can read it."""
        return [
            str(self.plan.heads),
            self._size_line(),
            *self._selection_lines(),
            *([] if self.measured_on is None else [f"would be measured: {self._flags()}"]),
            f"would be written: {', '.join(self.files)}, in addition to configuration and tokenizer",
        ]

    def _flags(self) -> str:
        return shlex.join(self.measured_on or ())

    def _size_line(self) -> str:
        before, after = self.sizes
        heads = f"{before.heads - after.heads} of {before.heads} heads"
        parameters, megabytes = f"{before.parameters / 1e6:.2f}", f"{before.megabytes:.1f}"
        if self.form == "plain":
            same = f"{parameters} million parameters, {megabytes} MB"
            return f"size: {heads} would be zeros; the form plain keeps its {same}"
        parameters += f" to {after.parameters / 1e6:.2f} million parameters"
        return (
            f"size: {heads} would be removed, {parameters}, {megabytes} to {after.megabytes:.1f} MB"
        )

    def _selection_lines(self) -> list[str]:
        """Target, splits and result of the search; empty if the heads were named."""
        chosen = self.plan.chosen
        if "search" not in chosen:
            return []
        name, value = next((name, value) for name, value in chosen["target"].items() if value)
        target = f"{name.replace('_', '-')} {value:g}"
        selected, reported = (
            f"{chosen[side]['split']}, {chosen[side]['examples']} examples"
            for side in ("selected_on", "reported_on")
        )
        row = cast("Changes", chosen["after"]["report"])
        return [
            f"target: {target}, by the search {chosen['search']} for {chosen['task']}",
            f"chosen on: {selected}",
            f"reported on: {reported}: {chosen['metric']} {row['metric']:.4f}, change {change_text(row)}",
            chosen["advice"],
        ]
