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
    "AnalyzeConfig": "headscope.config.analyze",
    "Attention": "headscope.model.attention",
    "AttentionModel": "headscope.model.attention_model",
    "Batch": "headscope.model.tokens",
    "CompareConfig": "headscope.config.compare",
    "CompareMasksConfig": "headscope.config.compare_masks",
    "Comparison": "headscope.analysis.compare",
    "Edit": "headscope.model.edits",
    "FilmConfig": "headscope.config.film",
    "FinetuneConfig": "headscope.config.finetune",
    "FixConfig": "headscope.config.fix",
    "Fixed": "headscope.model.fixed_patterns",
    "FrontsConfig": "headscope.config.fronts",
    "Gate": "headscope.model.edits",
    "GateConfig": "headscope.config.gate",
    "Head": "headscope.heads",
    "HeadSet": "headscope.heads",
    "HeadscopeError": "headscope.errors",
    "HeadscopeWarning": "headscope.errors",
    "ImportanceConfig": "headscope.config.importance",
    "Joined": "headscope.analysis.join",
    "KnockOut": "headscope.model.knockout",
    "KnockOutConfig": "headscope.config.knock_out",
    "LearnMaskConfig": "headscope.config.learn_mask",
    "LoadConfig": "headscope.config.load",
    "MaskScores": "headscope.model.edits",
    "Masked": "headscope.masks",
    "ModelSizes": "headscope.config.training",
    "PretrainConfig": "headscope.config.pretrain",
    "ProbeConfig": "headscope.config.probe",
    "Probes": "headscope.analysis.probe",
    "PruneConfig": "headscope.config.prune",
    "Reading": "headscope.config.shared",
    "Replace": "headscope.model.edits",
    "Run": "headscope.config.shared",
    "SearchConfig": "headscope.config.search",
    "Sentence": "headscope.data.sentences",
    "Site": "headscope.heads",
    "SpeedConfig": "headscope.config.speed",
    "Study": "headscope.study.study",
    "TaskData": "headscope.config.shared",
    "TextData": "headscope.config.texts",
    "Thresholds": "headscope.analysis.roles",
    "TokenMap": "headscope.model.token_map",
    "TrainingResult": "headscope.training.result",
    "Uniform": "headscope.model.edits",
    "analyze": "headscope.api.analyze",
    "compare": "headscope.api.compare",
    "compare_masks": "headscope.api.compare_masks",
    "encode": "headscope.data.batches",
    "evaluate": "headscope.api.evaluate",
    "film": "headscope.api.film",
    "finetune": "headscope.api.finetune",
    "fix": "headscope.api.fix",
    "fronts": "headscope.api.fronts",
    "gate": "headscope.api.gate",
    "importance": "headscope.api.importance",
    "join": "headscope.analysis.join",
    "knock_out": "headscope.api.knock_out",
    "learn_mask": "headscope.api.learn_mask",
    "load": "headscope.api.load",
    "look": "headscope.api.look",
    "pretrain": "headscope.api.pretrain",
    "preview_prune": "headscope.api.prune",
    "probe": "headscope.api.probe",
    "prune": "headscope.api.prune",
    "save": "headscope.model.saving",
    "search": "headscope.api.search",
    "serve": "headscope.explorer.serving",
    "speed": "headscope.api.speed",
    "stream": "headscope.statistics",
    "token_map": "headscope.analysis.token_maps",
    "write": "headscope.report.write",
}

__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from headscope.analysis.compare import Comparison as Comparison
    from headscope.analysis.join import Joined as Joined
    from headscope.analysis.join import join as join
    from headscope.analysis.probe import Probes as Probes
    from headscope.analysis.roles import Thresholds as Thresholds
    from headscope.analysis.token_maps import token_map as token_map
    from headscope.api.analyze import analyze as analyze
    from headscope.api.compare import compare as compare
    from headscope.api.compare_masks import compare_masks as compare_masks
    from headscope.api.evaluate import evaluate as evaluate
    from headscope.api.film import film as film
    from headscope.api.finetune import finetune as finetune
    from headscope.api.fix import fix as fix
    from headscope.api.fronts import fronts as fronts
    from headscope.api.gate import gate as gate
    from headscope.api.importance import importance as importance
    from headscope.api.knock_out import knock_out as knock_out
    from headscope.api.learn_mask import learn_mask as learn_mask
    from headscope.api.load import load as load
    from headscope.api.look import look as look
    from headscope.api.pretrain import pretrain as pretrain
    from headscope.api.probe import probe as probe
    from headscope.api.prune import preview_prune as preview_prune
    from headscope.api.prune import prune as prune
    from headscope.api.search import search as search
    from headscope.api.speed import speed as speed
    from headscope.config.analyze import AnalyzeConfig as AnalyzeConfig
    from headscope.config.compare import CompareConfig as CompareConfig
    from headscope.config.compare_masks import CompareMasksConfig as CompareMasksConfig
    from headscope.config.film import FilmConfig as FilmConfig
    from headscope.config.finetune import FinetuneConfig as FinetuneConfig
    from headscope.config.fix import FixConfig as FixConfig
    from headscope.config.fronts import FrontsConfig as FrontsConfig
    from headscope.config.gate import GateConfig as GateConfig
    from headscope.config.importance import ImportanceConfig as ImportanceConfig
    from headscope.config.knock_out import KnockOutConfig as KnockOutConfig
    from headscope.config.learn_mask import LearnMaskConfig as LearnMaskConfig
    from headscope.config.load import LoadConfig as LoadConfig
    from headscope.config.pretrain import PretrainConfig as PretrainConfig
    from headscope.config.probe import ProbeConfig as ProbeConfig
    from headscope.config.prune import PruneConfig as PruneConfig
    from headscope.config.search import SearchConfig as SearchConfig
    from headscope.config.shared import Reading as Reading
    from headscope.config.shared import Run as Run
    from headscope.config.shared import TaskData as TaskData
    from headscope.config.speed import SpeedConfig as SpeedConfig
    from headscope.config.texts import TextData as TextData
    from headscope.config.training import ModelSizes as ModelSizes
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
    from headscope.model.fixed_patterns import Fixed as Fixed
    from headscope.model.knockout import KnockOut as KnockOut
    from headscope.model.saving import save as save
    from headscope.model.token_map import TokenMap as TokenMap
    from headscope.model.tokens import Batch as Batch
    from headscope.report.write import write as write
    from headscope.statistics import stream as stream
    from headscope.study.study import Study as Study
    from headscope.training.result import TrainingResult as TrainingResult
