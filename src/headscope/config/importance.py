"""Options of `importance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headscope.config import names
from headscope.config.checks import check_pairs
from headscope.config.option import ADVANCED, Config, Output, option
from headscope.config.parsing import name_list
from headscope.config.shared import Reading, Run, TaskData
from headscope.heads import check_heads, format_heads


def _estimates(value: Any) -> tuple[str, ...]:
    """Names of importances, each once; `all` is every one."""
    by = name_list("by")(value)
    return names.IMPORTANCES if "all" in by else by


@dataclass(frozen=True)
class ImportanceConfig(Config):
    """Importance of every head for a task: exact ablation and faster estimates.

    patterns  Python only, with `mode="fixed"`: the pattern of each head, chosen on other examples
    """

    command = "importance"
    group = "Measure"
    examples = (
        "headscope importance ./minilm-mnli --task mnli --data glue --by all --out study",
        "headscope importance minilm --task stsb --data stsb_dev.tsv --by ablation,gradient"
        " --sequential-test 0.05 --out study",
        "headscope importance opus-mt-en-fr --task bleu --data test.en,test.fr --heads cross.5.*,cross.4.2 --out study",
        "headscope importance opus-mt-en-fr --task translation --data val.en,val.fr --by"
        " relevance,ablation --out study",
        "headscope importance rxnmapper --task masked --data reactions.txt --kind head,only,shared --out study",
    )
    python = "headscope.importance"
    splits = ("split",)
    output = Output(kept=("journal.jsonl",), part="importance")
    uses = {
        TaskData: ("task", "data", "split", "columns", "labels", "limit", "max_length"),
        Reading: ("mask", "open_special", "pooling", "prompt"),
        Run: ("out", "seed", "revision", "device", "dtype", "resume", "overwrite", "no_figures"),
    }
    helps = {
        "out": "Output directory, or an existing study of the same model to add the importances to",
        "seed": "Random seed (order of examples, bootstrap)",
    }
    required = ("out",)

    by: tuple[str, ...] = option(
        ("ablation",),
        f"Importance scores to compute, separated by commas: ablation (exact), {', '.join(names.ESTIMATES)}; or all",
        parse=_estimates,
        choices=(*names.IMPORTANCES, "all"),
        is_list=True,
    )
    kind: tuple[str, ...] = option(
        ("head",),
        "Units to ablate, separated by commas: head, site (all heads of one attention module), only (all heads of a "
        "site but one), layer, all, pair (two of --heads) or shared (a head with the same weights in several "
        "layers)",
        parse=name_list("kind"),
        choices=names.KINDS,
        is_list=True,
    )
    mode: str = option(
        "zero",
        "Replacement of an ablated head: zero, mean (its average output), uniform (attention 1/n) or fixed (its "
        "nearest fixed pattern)",
        choices=names.MODES,
    )
    heads: str | None = option(
        None,
        "With --kind head or pair: heads to ablate, written LAYER.HEAD and counted from 0, e.g. 3.2,4.*",
        parse=format_heads,
        check=check_heads,
        show_default="all",
    )
    sequential_test: float | None = option(
        None,
        "Stop evaluating a head once its verdict is clear, at this error rate (e.g. 0.05)",
        above=0,
        below=1,
        show_default="evaluate all heads on all examples",
    )
    self_labels: bool = option(
        False,
        "With --by gradient: take gradients of the loss against the model's own predictions instead of the labels. "
        "Data "
        "without labels can then be used; ablation is then also measured against these predictions",
        panel=ADVANCED,
    )
    normalized: bool = option(
        False,
        "With --by gradient: divide the scores of each layer by their l2 norm",
        panel=ADVANCED,
    )
    relevance_rules: Literal["voita", "attnlrp"] | None = option(
        None,
        "With --by relevance: rules of relevance propagation, voita (gating factors are constants) or attnlrp",
        choices=names.RULES,
        show_default="voita",
        panel=ADVANCED,
    )
    batch_size: int = option(32, "Sequences per batch", at_least=1, panel=ADVANCED)
    patterns: Mapping[Any, str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pairs(self.kind, self.heads)
