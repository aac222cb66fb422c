"""The heads and the maximum length of a model, read from config.json without importing torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.heads import Head
from headscope.model import zoo
from headscope.model.module_files import transformer_folder
from headscope.model.resolve_spec import read_spec

# Encoders with the same number of heads in every layer. Other families are only checked after loading.
LAYERS_AND_HEADS = {
    **dict.fromkeys(("albert", "bert", "electra"), ("num_hidden_layers", "num_attention_heads")),
    "distilbert": ("n_layers", "n_heads"),
}


@dataclass(frozen=True)
class Shape:
    """The heads of a model, and the maximum number of tokens of its input (`longest`), as its files state them."""

    heads: tuple[Head, ...]
    longest: int


def read_shape(model: str, revision: str | None = None) -> Shape | None:
    """The shape of an unpruned encoder on this machine; None for a hub id, or if the files do not state it clearly."""
    folder, name, _ = read_spec(model, revision)
    folder = folder or (zoo.find(name) if name in zoo.MODELS else None)
    if folder is None:
        return None
    folder = transformer_folder(folder)
    config, tokenizer = _read(folder / "config.json"), _read(folder / "tokenizer_config.json")
    keys = LAYERS_AND_HEADS.get(str(config.get("model_type")))
    is_pruned = config.get("pruned_heads") or (folder / "cut.json").exists()
    if keys is None or is_pruned or config.get("is_decoder"):
        return None
    numbers = [config.get(key) for key in (*keys, "max_position_embeddings")]
    valid = [number for number in numbers if isinstance(number, int) and 0 < number < 1e6]
    if len(valid) < len(numbers):
        return None
    layers, heads, longest = valid
    stated = tokenizer.get("model_max_length")
    if isinstance(stated, int | float) and stated > 0:
        longest = int(min(longest, stated))
    every_head = (Head("encoder", layer, head) for layer in range(layers) for head in range(heads))
    return Shape(tuple(every_head), longest)


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if it cannot be read. Errors are reported later, when the model is loaded."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
