"""Models with new weights: the architecture of a configuration, with a given or a new tokenizer."""

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
    """A model with random weights, determined by torch's seed.

    texts      texts from which a tokenizer is learned, if `sizes.vocabulary` is set
    tokenizer  the model whose tokenizer is used instead of the configuration's own
    """
    if not isinstance(source, Source):
        source = read_source(source, run.revision, run.log)
    new_tokenizer = None
    if sizes.vocabulary is not None:
        run.log(f"learning {sizes.vocabulary} tokens from the texts")
        translates = source.config.is_encoder_decoder
        new_tokenizer = train_tokenizer(texts, sizes.vocabulary, translates=translates)
    elif tokenizer is not None:
        new_tokenizer = read_source(tokenizer, say=run.log).tokenizer()
    return new_model(
        source,
        tokenizer=new_tokenizer,
        model_class=model_class,
        sizes=sizes,
        labels=labels,
        max_length=max_length,
        device=run.device,
    )
