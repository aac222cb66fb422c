"""headscope: observe, measure, prune and learn the attention heads of transformers.

    import headscope
    model = headscope.load("minilm")
    study = headscope.analyze(model, corpus=["wiki.jsonl"], pairs=True)
    study.heads                                  # a pandas DataFrame, one row for each head and statistic
    headscope.write(study, "study")              # tables, figures and index.html

Public names are declared in `__init__.pyi` and imported when they are used: importing headscope loads neither torch nor
matplotlib.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from headscope.config.former_names import FUNCTIONS
from headscope.hooks import register

__version__ = "0.1.0"

_PUBLIC = re.compile(r"^from (\S+) import (\w+) as \w+$", re.MULTILINE)
_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_WHERE = {name: module for module, name in _PUBLIC.findall(_STUB)}

__all__ = ["__version__", *sorted(_WHERE)]

for _name, _module in {
    "write": "headscope.report.write",
    "write_joined_tables": "headscope.report.write",
    "write_joined_figures": "headscope.report.write",
    "study_html": "headscope.report.notebook",
    "batch_of_texts": "headscope.data.batches",
    "save": "headscope.model.saving",
    "look": "headscope.api.look",
}.items():
    register(_name, lambda name=_name, module=_module: getattr(import_module(module), name))


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        raise AttributeError(f"headscope.{name} is now called {FUNCTIONS[name]}")
    if name not in _WHERE:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
