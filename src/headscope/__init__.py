"""headscope: see, measure, cut and learn the attention heads of transformers.

    import headscope
    model = headscope.load("minilm")
    study = headscope.analyze(model, corpus=["wiki.jsonl"], pairs=True)
    study.heads                                  # a pandas DataFrame, one row for each head and statistic
    headscope.write(study, "study")              # tables, figures and index.html

Public names are fetched late: importing headscope loads neither torch nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Aim": "headscope.study.gating",
    "Ablate": "headscope.model.edits",
    "Attention": "headscope.model.attention",
    "AttentionModel": "headscope.model.attention_model",
    "Batch": "headscope.model.tokens",
    "Comparison": "headscope.study.compare",
    "Edit": "headscope.model.edits",
    "Fixed": "headscope.model.fixed",
    "Gate": "headscope.model.edits",
    "GateOptions": "headscope.study.gating",
    "Head": "headscope.heads",
    "HeadSet": "headscope.heads",
    "HeadscopeError": "headscope.errors",
    "HeadscopeWarning": "headscope.errors",
    "Joined": "headscope.study.joining",
    "KnockOut": "headscope.model.knockout",
    "MaskAim": "headscope.study.mask_learning",
    "MaskOptions": "headscope.study.mask_learning",
    "MaskScores": "headscope.model.edits",
    "MaskTableOptions": "headscope.study.mask_table",
    "Masked": "headscope.masks",
    "Replace": "headscope.model.edits",
    "Scratch": "headscope.study.scratch",
    "SearchOptions": "headscope.config.search",
    "Sentence": "headscope.data.sentences",
    "Settings": "headscope.training.settings",
    "Site": "headscope.heads",
    "Sizes": "headscope.model.scratch",
    "Study": "headscope.study.study",
    "Target": "headscope.pruning.target",
    "Thresholds": "headscope.study.roles",
    "TokenMap": "headscope.model.token_map",
    "Uniform": "headscope.model.edits",
    "analyze": "headscope.study.analyze",
    "compare": "headscope.study.compare",
    "compare_masks": "headscope.study.mask_table",
    "encode": "headscope.data.batches",
    "evaluate": "headscope.study.evaluate",
    "film": "headscope.study.film",
    "finetune": "headscope.study.finetune",
    "fix": "headscope.model.fixing",
    "fronts": "headscope.study.fronts",
    "gate": "headscope.study.gating",
    "importance": "headscope.study.importance",
    "join": "headscope.study.joining",
    "knock_out": "headscope.study.knock_out",
    "learn_mask": "headscope.study.mask_learning",
    "load": "headscope.model.load",
    "look": "headscope.report.looking",
    "pretrain": "headscope.study.pretrain",
    "probe": "headscope.study.probe",
    "prune": "headscope.model.surgery",
    "search": "headscope.study.search",
    "serve": "headscope.explorer.serving",
    "stream": "headscope.statistics",
    "token_map": "headscope.study.token_maps",
    "write": "headscope.report.publish",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    if name in ("Comparison", "compare"):
        import_module("headscope.report.compare_page")  # so that a comparison can write its page
    if name in ("Joined", "join"):
        import_module("headscope.report.joined_page")  # the same for a report
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from headscope.config.search import SearchOptions as SearchOptions
    from headscope.data.batches import encode as encode
    from headscope.data.sentences import Sentence as Sentence
    from headscope.errors import HeadscopeError as HeadscopeError
    from headscope.errors import HeadscopeWarning as HeadscopeWarning
    from headscope.explorer.serving import serve as serve
    from headscope.heads import Head as Head
    from headscope.heads import HeadSet as HeadSet
    from headscope.heads import Site as Site
    from headscope.masks import Masked as Masked
    from headscope.model.attention import Attention as Attention
    from headscope.model.attention_model import AttentionModel as AttentionModel
    from headscope.model.edits import Ablate as Ablate
    from headscope.model.edits import Edit as Edit
    from headscope.model.edits import Gate as Gate
    from headscope.model.edits import MaskScores as MaskScores
    from headscope.model.edits import Replace as Replace
    from headscope.model.edits import Uniform as Uniform
    from headscope.model.fixed import Fixed as Fixed
    from headscope.model.fixing import fix as fix
    from headscope.model.knockout import KnockOut as KnockOut
    from headscope.model.load import load as load
    from headscope.model.scratch import Sizes as Sizes
    from headscope.model.surgery import prune as prune
    from headscope.model.token_map import TokenMap as TokenMap
    from headscope.model.tokens import Batch as Batch
    from headscope.pruning.target import Target as Target
    from headscope.report.looking import look as look
    from headscope.report.publish import write as write
    from headscope.statistics import stream as stream
    from headscope.study.analyze import analyze as analyze
    from headscope.study.compare import Comparison as Comparison
    from headscope.study.compare import compare as compare
    from headscope.study.evaluate import evaluate as evaluate
    from headscope.study.film import film as film
    from headscope.study.finetune import finetune as finetune
    from headscope.study.fronts import fronts as fronts
    from headscope.study.gating import Aim as Aim
    from headscope.study.gating import GateOptions as GateOptions
    from headscope.study.gating import gate as gate
    from headscope.study.importance import importance as importance
    from headscope.study.joining import Joined as Joined
    from headscope.study.joining import join as join
    from headscope.study.knock_out import knock_out as knock_out
    from headscope.study.mask_learning import MaskAim as MaskAim
    from headscope.study.mask_learning import MaskOptions as MaskOptions
    from headscope.study.mask_learning import learn_mask as learn_mask
    from headscope.study.mask_table import MaskTableOptions as MaskTableOptions
    from headscope.study.mask_table import compare_masks as compare_masks
    from headscope.study.pretrain import pretrain as pretrain
    from headscope.study.probe import probe as probe
    from headscope.study.roles import Thresholds as Thresholds
    from headscope.study.scratch import Scratch as Scratch
    from headscope.study.search import search as search
    from headscope.study.study import Study as Study
    from headscope.study.token_maps import token_map as token_map
    from headscope.training.settings import Settings as Settings
