"""The model card of a pruned model: README.md next to its weights."""

from __future__ import annotations

from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import format_patterns
from headscope.model.pruning_record import PruningRecord
from headscope.model.reading_files import describe_left_out
from headscope.model.surgery import origin_of, removed_heads

_LOAD = {
    "small": """import headscope

model = headscope.load("this directory")
print(model.heads)                                   # the numbers are those of the original model
inputs = model.tokenizer("Hello there", return_tensors="pt")
print(model(**inputs))                               # model.model is the transformers model underneath""",
    "plain": """from transformers import AutoTokenizer, {cls}

model = {cls}.from_pretrained("this directory")
tokenizer = AutoTokenizer.from_pretrained("this directory")""",
    "onnx": """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")""",
}
_FORMS = {
    "small": "The weights of these heads are gone from the file: `headscope.load` reads it, `from_pretrained` cannot.",
    "plain": "The shapes are those of the original; where these heads were, the weights are zero. It is not faster.",
    "onnx": "A graph without these heads, compared with torch at two batch sizes and lengths.",
}
_POOL = {
    "small": "`headscope.load` reads this from the files. sentence-transformers cannot load this form: its tensors "
    "have other shapes than the configuration says.",
    "plain": '`SentenceTransformer("this directory")` reads this from the files and gives the vectors headscope uses.',
    "onnx": "The graph gives the token states [text, token, width]. Pool them in this way over the tokens whose "
    "`attention_mask` is 1, then apply the modules.",
}
_FIXED = (
    "These heads have no queries and keys: they attend by fixed patterns (Raganato et al. 2020)."
)


def format_card(model: AttentionModel, form: str, chosen: PruningRecord) -> str:
    """The text of README.md.

    form    small, plain or onnx
    chosen  how the heads were chosen, and the effect of pruning them, as in the manifest
    """
    origin, removed, fixed = origin_of(model), removed_heads(model), model.fixed
    cls, total = type(model.model).__name__, len(origin.heads)
    titles, details = [], []
    if removed or not fixed:
        titles.append(f"without {len(removed)} of {total} attention heads")
        details += [f"Removed (LAYER.HEAD, counted from 0): `{removed}`", ""]
    if fixed:
        titles.append(f"with {len(fixed)} of {total} attention heads fixed")
        patterns = format_patterns(fixed, model.heads).splitlines()
        details += [_FIXED, "", *(f"- {line}" for line in patterns), ""]
    lines = [
        "---",
        "library_name: transformers",
        "tags: [headscope, pruned]",
        "---",
        f"# {origin.name} {' and '.join(titles)}",
        "",
        f"Cut from `{origin.name}` (sha256 `{origin.sha256[:16]}…`), class `{cls}`. {_FORMS[form]}",
        "",
        *details,
        "```python",
        _LOAD[form].replace("{cls}", cls),
        "```",
    ]
    return "\n".join([*lines, *_vectors(model, form), *_choice(chosen)]) + "\n"


def _vectors(model: AttentionModel, form: str) -> list[str]:
    """The section on how token states become one vector of a text, if known, and the files that were not copied."""
    lines = []
    if model.reading.is_stated:
        facts = (f"- {name}: {value}" for name, value in model.reading.lines())
        lines = ["", "## Vectors of texts", "", *facts, "", _POOL[form]]
    if (left_out := describe_left_out(model.reading)) is not None:
        lines += ["", f"Files {left_out}."]
    return lines


def times_as_fast(time: float, low: float, high: float) -> str:
    """`1.20 times as fast [1.12, 1.24]`, from the time relative to the unpruned model and its interval."""
    return f"{1 / time:.2f} times as fast [{1 / high:.2f}, {1 / low:.2f}]"


def _choice(chosen: PruningRecord) -> list[str]:
    """The sections on how the heads were chosen, what pruning costs and what it gains, as far as recorded."""
    lines: list[str] = []
    if "how" in chosen:
        lines += ["", "## How the heads were chosen", "", str(chosen["how"])]
    if chosen.get("warning"):
        lines += ["", str(chosen["warning"])]
    if chosen.get("history"):
        steps = (f"- {step}" for step in chosen["history"])
        lines += ["", "Before, it had been cut already:", "", *steps]
    if metrics := chosen.get("metrics"):
        lines += ["", f"## What it costs ({chosen['judged_on']})", ""]
        lines += ["| | before | after |", "|---|---|---|"]
        for name, (before, after) in metrics.items():
            lines.append(f"| {name} | {_number(before)} | {_number(after)} |")
        lines += ["", str(chosen["verdict"])] if "verdict" in chosen else []
    if chosen.get("speed"):
        unpruned, pruned = chosen["speed"]
        millions = [speed["parameters"] / 1e6 for speed in (unpruned, pruned)]
        lines += ["", "## What it gains", ""]
        lines.append(
            f"{times_as_fast(pruned['ratio'], pruned['low'], pruned['high'])}, measured with {chosen['timed']} "
            f"on the machine that cut it; {millions[0]:.2f} to {millions[1]:.2f} million parameters."
        )
    return lines


def _number(value: dict[str, float | None]) -> str:
    """A value with its interval, such as `0.8123 [0.7950, 0.8281]`."""
    if value.get("value") is None:
        return "undefined"
    interval = "" if value.get("low") is None else f" [{value['low']:.4f}, {value['high']:.4f}]"
    return f"{value['value']:.4f}{interval}"
