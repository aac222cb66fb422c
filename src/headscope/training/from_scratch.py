"""Models with random weights, made from an architecture and an existing or a new tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headscope.config.shared import Run
from headscope.data.vocabulary import train_tokenizer
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import Architecture, new_model, read_source


def build_model(
    new: Architecture, texts: Iterable[str], run: Run, tokenizer: str | Path | None = None
) -> AttentionModel:
    """A model with random weights, which depend on torch's current random state.

    texts      texts from which a tokenizer is learned, if `new.sizes.vocabulary` is set
    tokenizer  the model whose tokenizer is used instead of the configuration's own
    """
    new_tokenizer, size = None, new.sizes.vocabulary
    if size is not None:
        run.log(f"learning {size} tokens from the texts")
        translates = new.source.config.is_encoder_decoder
        new_tokenizer = train_tokenizer(texts, size, translates=translates)
    elif tokenizer is not None:
        new_tokenizer = read_source(tokenizer, say=run.log).tokenizer()
    return new_model(new, new_tokenizer, run.device)
