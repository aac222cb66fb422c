"""Models with new weights: the architecture of a configuration, its tokenizer taken or learned from texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headscope.config.shared import Run
from headscope.config.training import ModelSizes
from headscope.data.vocabulary import train_tokenizer
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import Source, new_model, read_source


def build_model(
    source: str | Path | Source,
    sizes: ModelSizes,
    texts: Iterable[str],
    *,
    model_class: str,
    run: Run,
    labels: Sequence[str] = (),
    tokenizer: str | Path | None = None,
    max_length: int | None = None,
) -> AttentionModel:
    """The model before the first step; its weights follow from torch's seed.

    texts      what a tokenizer is learned from, if `sizes.vocabulary` is set
    tokenizer  the model whose tokenizer is used instead of the configuration's own
    """
    if not isinstance(source, Source):
        source = read_source(source, run.revision, run.log)
    made = None
    if sizes.vocabulary is not None:
        run.log(f"learning {sizes.vocabulary} tokens from the texts")
        translates = source.config.is_encoder_decoder
        made = train_tokenizer(texts, sizes.vocabulary, translates=translates)
    elif tokenizer is not None:
        made = read_source(tokenizer, say=run.log).tokenizer()
    return new_model(
        source,
        tokenizer=made,
        model_class=model_class,
        sizes=sizes,
        labels=labels,
        max_length=max_length,
        device=run.device,
    )
