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
    "Ablate": "headscope.model.edits",
    "Attention": "headscope.model.attention",
    "AttentionModel": "headscope.model.attention_model",
    "Batch": "headscope.model.tokens",
    "Edit": "headscope.model.edits",
    "Gate": "headscope.model.edits",
    "Head": "headscope.heads",
    "HeadSet": "headscope.heads",
    "HeadscopeError": "headscope.errors",
    "MaskScores": "headscope.model.edits",
    "Replace": "headscope.model.edits",
    "Site": "headscope.heads",
    "Study": "headscope.report.notebook",
    "analyze": "headscope.report.notebook",
    "encode": "headscope.data.batches",
    "load": "headscope.model.load",
    "look": "headscope.report.looking",
    "stream": "headscope.statistics",
    "write": "headscope.report.write",
}

__all__ = ["__version__", *_WHERE]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from headscope.data.batches import encode
    from headscope.errors import HeadscopeError
    from headscope.heads import Head, HeadSet, Site
    from headscope.model.attention import Attention
    from headscope.model.attention_model import AttentionModel
    from headscope.model.edits import Ablate, Edit, Gate, MaskScores, Replace
    from headscope.model.load import load
    from headscope.model.tokens import Batch
    from headscope.report.looking import look
    from headscope.report.notebook import Study, analyze
    from headscope.report.write import write
    from headscope.statistics import stream
