"""The names that options accept, found without importing the code they stand for (it imports torch: seconds).

tests/config/test_names.py compares every list with the registry it stands for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def _files_in(package: str, first: Sequence[str] = (), with_line: str = "") -> tuple[str, ...]:
    """The modules of a package whose files register themselves, without importing them.

    first      names at the front of the list; the others follow in alphabetical order
    with_line  only files with this line, such as `needs_gradient = True`
    """
    texts = {
        file.stem.replace("_", "-"): file.read_text("utf-8") if with_line else ""
        for file in sorted(PACKAGE.joinpath(package).glob("[a-z]*.py"))
    }
    ordered = dict.fromkeys((*first, *texts))
    return tuple(name for name in ordered if with_line in map(str.strip, texts[name].split("\n")))


def _words(text: str) -> tuple[str, ...]:
    """The words of a text, as a tuple; shorter to write than a tuple of many names."""
    return tuple(text.split())


def _task_flags() -> dict[str, set[str]]:
    """The names of tasks in tasks/*.py, each with the flags of its class and its base (`pools = True`)."""
    bases: dict[str, str] = {}
    bodies: dict[str, str] = {}
    for file in PACKAGE.joinpath("tasks").glob("[a-z]*.py"):
        _, *parts = re.split(
            r"^class (\w+)\((\w+)\):$", file.read_text("utf-8"), flags=re.MULTILINE
        )
        for kind, base, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            bases[kind], bodies[kind] = base, body

    def flags(kind: str) -> set[str]:
        stated = set(
            re.findall(r"^    (\w+)(?:: ClassVar\[bool\])? = True$", bodies[kind], re.MULTILINE)
        )
        return stated | (flags(bases[kind]) if bases[kind] in bodies else set())

    tasks: dict[str, set[str]] = {}
    for kind, body in bodies.items():
        names = re.search(
            r"^    names: ClassVar\[tuple\[str, \.\.\.\]\] = (\([^)]*\))", body, re.MULTILINE
        )
        if names is not None:
            tasks |= dict.fromkeys(ast.literal_eval(names[1]), flags(kind))
    return dict(sorted(tasks.items()))


_TASK_FLAGS = _task_flags()
TASKS = tuple(_TASK_FLAGS)
# Tasks that compare vectors of texts
POOLED_TASKS = tuple(name for name, flags in _TASK_FLAGS.items() if "pools" in flags)
# Tasks in which any text is an example; the command divides a single file of texts into splits itself
CORPUS_TASKS = tuple(name for name, flags in _TASK_FLAGS.items() if "is_free_of_labels" in flags)
TASKS_MEANT = {  # tasks to suggest for names that are often tried
    "lm": ("causal", "mlm"),
    "clm": ("causal",),
    "sts": ("stsb",),
    "mt": ("translation",),
    "qa": ("squad",),
}


@cache
def statistics_of_texts() -> tuple[str, ...]:
    """The names that `--statistics` accepts: statistics of plain texts, sorted.

    They are the keys of `definitions` in the classes of statistics/*.py, read as source because importing them imports
    torch. Statistics with `needs` require other data.
    """
    names: set[str] = set()
    for file in PACKAGE.joinpath("statistics").glob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            body = node.body if isinstance(node, ast.ClassDef) else []
            assigned = {
                ast.unparse(line.targets[0]): line.value
                for line in body
                if isinstance(line, ast.Assign)
            }
            definitions = assigned.get("definitions")
            if isinstance(definitions, ast.Dict) and "needs" not in assigned:
                names |= {ast.literal_eval(key) for key in definitions.keys if key is not None}
    return tuple(sorted(names))


_LENSES = "model/lenses", ("raw", "norm")
LENSES = _files_in(*_LENSES)  # one map for each head
_TOKEN_MAPS = "analysis/token_maps", _words("rollout flow gradient-rollout relevance value-zeroing")
TOKEN_MAPS = _files_in(*_TOKEN_MAPS)  # one map for all heads together
GRADIENT_LENSES = _files_in(*_LENSES, with_line="needs_gradient = True")
# Lenses that depend on --target, and lenses that depend on --pooling
TARGETED_LENSES = (*GRADIENT_LENSES, *_files_in(*_TOKEN_MAPS, with_line="TAKES_TARGET = True"))
POOLED_LENSES = (*GRADIENT_LENSES, *_files_in(*_TOKEN_MAPS, with_line="TAKES_POOLING = True"))
PER_TOKEN_LENSES = _files_in(*_TOKEN_MAPS, with_line="ONE_PASS_PER_TOKEN = True")

ESTIMATES = _files_in(
    "ablation/estimates", first=("gradient", "relevance", "confidence", "entropy", "norm")
)
IMPORTANCES = ("ablation", *ESTIMATES)  # importance --by
KINDS = ("head", "only", "site", "layer", "all", "pair", "shared")
MODES = _files_in("ablation/modes", first=("zero", "mean", "uniform", "fixed"))
RULES = ("voita", "attnlrp")

SEARCHES = _files_in("pruning/searches")
SEARCHES_BY = _files_in(
    "pruning/searches", ("rank",), with_line="TAKES_BY = True"
)  # by an importance
VARIANTS = {  # further scores of an estimate that prune --by accepts
    "gradient": tuple(
        f"gradient-{name}" for name in ("absolute", "tokens", "fisher", "second", "batch")
    ),
    "relevance": ("relevance-signed",),
}
# Scores of prune --by, each with the estimate that computes it. `random` is missing: it is a search.
SCORES = {"ablation": "ablation"} | {
    score: name
    for name in ESTIMATES
    if name != "random"
    for score in (name, *VARIANTS.get(name, ()))
}
OBJECTIVES = ("loss", "metric")
REPAIRS = ("fold", "refit")
FORMS = ("small", "plain", "onnx")

FIXED_PATTERNS = _words("current previous next left right end start uniform first raganato")
MASKED_TOKENS = _words("special classification separator punctuation content")  # ablate-edges --to
NEW_MODEL_SIZES = ("layers", "heads_per_layer", "hidden", "intermediate")
MASK_FORMS = ("renormalised", "additive", "multiplicative")
PER = ("model", "layer", "head")

POOLS = ("mean", "first", "max")
LONG = ("truncate", "window", "skip", "error")
DTYPES = ("float32", "float64", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")  # kinds; cuda:1 is a kind and a number

MASKS: dict[str, dict[str, object]] = {  # parameters of each named mask with their defaults
    "dense": {},
    "diagonal": {},
    "no-diagonal": {},
    "window": {"width": 4},
    "first-and-last": {},
    "strided": {"stride": 4},
    "fixed": {"stride": 4, "summary": 1},
    "longformer": {"width": 5, "globals": ("first", "middle")},
    "logsparse": {},
    "bigbird": {"width": 1, "globals": ("first",), "random": 4, "seed": 0},
    "star": {},
    "random": {"keep": 0.5, "drop": 0, "seed": 0},
}
