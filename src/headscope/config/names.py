"""The names that options take, without importing what they stand for (that imports torch, which takes seconds).

tests/test_names.py compares every list with the registry it stands for.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


def _files_in(*package: str, first: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The modules of a package whose files register themselves, without importing them; sorted after the first."""
    files = Path(__file__).parents[1].joinpath(*package).glob("[a-z]*.py")
    return tuple(dict.fromkeys((*first, *sorted(file.stem.replace("_", "-") for file in files))))


TASKS = (
    *(
        "bleu",
        "causal",
        "choice",
        "classification",
        "cola",
        "masked",
        "mlm",
        "mnli",
        "mrpc",
        "pairs",
        "qnli",
        "qqp",
    ),
    *(
        "questions",
        "retrieval",
        "rte",
        "similarity",
        "snli",
        "squad",
        "sst2",
        "stsb",
        "swag",
        "translation",
    ),
)
POOLED_TASKS = ("retrieval", "similarity", "stsb")  # they compare vectors of texts
TASKS_MEANT = {
    "lm": ("causal", "mlm"),
    "clm": ("causal",),
    "sts": ("stsb",),
    "mt": ("translation",),
    "qa": ("squad",),
}


@cache
def statistics_of_texts() -> tuple[str, ...]:
    """What `--statistics` takes: names of statistics of plain texts, sorted.

    They are the keys of `definitions` in the classes of statistics/*.py, read as source because importing them imports
    torch. Statistics with `needs` require other data.
    """
    names: set[str] = set()
    for file in Path(__file__).parents[1].joinpath("statistics").glob("*.py"):
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


LENSES = ("raw", "effective", "effective-simplex", "norm", "gradient")  # one map for each head
TOKEN_MAPS = (
    "rollout",
    "flow",
    "gradient-rollout",
    "relevance",
    "value-zeroing",
    "knock-out",
)  # of all heads together
POOLED_LENSES = ("gradient", "gradient-rollout")  # those that take gradients of a text's vector
TARGETED_LENSES = (
    "gradient",
    "gradient-rollout",
    "relevance",
)  # those that take gradients of one token's output

ESTIMATES = _files_in(
    "ablation", "estimates", first=("gradient", "relevance", "confidence", "entropy", "norm")
)
IMPORTANCES = ("ablation", *ESTIMATES)  # importance --by
KINDS = ("head", "only", "site", "layer", "all", "pair", "shared")
MODES = ("zero", "mean", "uniform", "fixed")
RULES = ("voita", "attnlrp")

SEARCHES = _files_in("pruning", "searches")
VARIANTS = {  # of an estimate: other statistics that pruning can go by
    "gradient": tuple(
        f"gradient-{name}" for name in ("absolute", "tokens", "fisher", "second", "batch")
    ),
    "relevance": ("relevance-signed",),
}
# prune --by: the estimate of each score. Random orders are a search.
SCORES = {"ablation": "ablation"} | {
    score: name
    for name in ESTIMATES
    if name != "random"
    for score in (name, *VARIANTS.get(name, ()))
}
OBJECTIVES = ("loss", "metric")
REPAIRS = ("fold", "refit")
FORMS = ("small", "plain", "onnx")

FIXED_PATTERNS = (
    "current",
    "previous",
    "next",
    "left",
    "right",
    "end",
    "start",
    "uniform",
    "first",
    "raganato",
)
MASKED_TOKENS = (
    "special",
    "classification",
    "separator",
    "punctuation",
    "content",
)  # knock-out --to
MASK_FORMS = ("renormalised", "additive", "multiplicative")
PER = ("model", "layer", "head")

POOLS = ("mean", "first", "max")
LONG = ("truncate", "window", "skip", "error")
DTYPES = ("float32", "float64", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")  # kinds; cuda:1 is a kind and a number

MASKS: dict[
    str, dict[str, int | float | tuple[str, ...]]
] = {  # parameters of each named mask with their defaults
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
