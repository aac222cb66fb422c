"""The card of a cut model: README.md beside its weights."""

from __future__ import annotations

from typing import Any

from headscope.model.attention_model import AttentionModel
from headscope.model.fix_heads import format_patterns
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
_SAID = {
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


def format_card(model: AttentionModel, form: str, chosen: dict[str, Any]) -> str:
    origin, removed, fixed = origin_of(model), removed_heads(model), model.fixed
    title = (
        [f"without {len(removed)} of {len(origin.heads)} attention heads"]
        if removed or not fixed
        else []
    )
    title += [f"with {len(fixed)} of {len(origin.heads)} attention heads fixed"] if fixed else []
    cls = type(model.model).__name__
    lines = [
        "---",
        "library_name: transformers",
        "tags: [headscope, pruned]",
        "---",
        f"# {origin.name} {' and '.join(title)}",
        "",
        f"Cut from `{origin.name}` (sha256 `{origin.sha256[:16]}…`), class `{cls}`. {_SAID[form]}",
        "",
        *(
            [f"Removed (LAYER.HEAD, counted from 0): `{removed}`", ""]
            if removed or not fixed
            else []
        ),
        *(
            [
                _FIXED,
                "",
                *(f"- {line}" for line in format_patterns(fixed, model.heads).splitlines()),
                "",
            ]
            if fixed
            else []
        ),
        "```python",
        _LOAD[form].replace("{cls}", cls),
        "```",
    ]
    return "\n".join([*lines, *_vectors(model, form), *_told(chosen)]) + "\n"


def _vectors(model: AttentionModel, form: str) -> list[str]:
    """How token states become one vector of a text, if that is stated, and which files were not copied."""
    reading, lines = model.reading, []
    if reading.is_stated:
        lines = [
            "",
            "## Vectors of texts",
            "",
            *(f"- {name}: {value}" for name, value in reading.lines()),
            "",
        ]
        lines.append(_POOL[form])
    if (left_out := describe_left_out(reading)) is not None:
        lines += ["", f"Files {left_out}."]
    return lines


def times_as_fast(time: float, low: float, high: float) -> str:
    """`1.20 times as fast [1.12, 1.24]`, from the time over the whole model's time and its interval."""
    return f"{1 / time:.2f} times as fast [{1 / high:.2f}, {1 / low:.2f}]"


def _told(chosen: dict[str, Any]) -> list[str]:
    """How it was chosen and what that did, where that is known."""
    lines: list[str] = []
    if "how" in chosen:
        lines += ["", "## How the heads were chosen", "", str(chosen["how"])]
    if chosen.get("warning"):
        lines += ["", str(chosen["warning"])]
    if chosen.get("history"):
        lines += [
            "",
            "Before, it had been cut already:",
            "",
            *(f"- {one}" for one in chosen["history"]),
        ]
    metrics = chosen.get("metrics")
    if metrics:
        lines += [
            "",
            f"## What it costs ({chosen['judged_on']})",
            "",
            "| | before | after |",
            "|---|---|---|",
        ]
        for name, (before, after) in metrics.items():
            lines.append(f"| {name} | {_number(before)} | {_number(after)} |")
        lines += ["", str(chosen["verdict"])] if "verdict" in chosen else []
    if chosen.get("speed"):
        whole, cut = chosen["speed"]
        lines += [
            "",
            "## What it gains",
            "",
            f"{times_as_fast(cut['ratio'], cut['low'], cut['high'])}, measured with "
            f"{chosen['timed']} on the machine that cut it; {whole['parameters'] / 1e6:.2f} to "
            f"{cut['parameters'] / 1e6:.2f} million parameters.",
        ]
    return lines


def _number(value: dict[str, float | None]) -> str:
    if value.get("value") is None:
        return "undefined"
    interval = "" if value.get("low") is None else f" [{value['low']:.4f}, {value['high']:.4f}]"
    return f"{value['value']:.4f}{interval}"
