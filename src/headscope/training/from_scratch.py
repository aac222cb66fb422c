"""Beginning from nothing: a model of a configuration's kind with new weights, its tokenizer taken or learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headscope.data.vocabulary import check_vocabulary, learned_tokenizer
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.new_model import Sizes, Source, new_model, read_source

Say = Callable[[str], None]


@dataclass(frozen=True)
class Scratch:
    """How to begin from nothing.

    sizes       layers, heads, hidden, intermediate: of the configuration where not said
    tokenizer   that of another model (a name, a directory, a hub id) instead of the configuration's own
    vocabulary  learn a tokenizer of so many tokens from the texts instead
    """

    sizes: Sizes = field(default_factory=Sizes)
    tokenizer: str | None = None
    vocabulary: int | None = None

    def __post_init__(self) -> None:
        if self.tokenizer is not None and self.vocabulary is not None:
            raise HeadscopeError(
                "a tokenizer is taken or learned, not both", where="`tokenizer`, `vocabulary`"
            )
        if self.vocabulary is not None:
            check_vocabulary(self.vocabulary)


def begun(
    source: str | Path | Source,
    scratch: Scratch,
    texts: Iterable[str],
    *,
    model_class: str,
    labels: Sequence[str] = (),
    max_length: int | None = None,
    device: str = "auto",
    revision: str | None = None,
    say: Say = lambda line: None,
) -> AttentionModel:
    """The model before the first step; its weights follow from torch's seed. A tokenizer is learned from the texts."""
    if not isinstance(source, Source):
        source = read_source(source, revision, say)
    tokenizer = None
    if scratch.vocabulary is not None:
        say(f"learning {scratch.vocabulary} tokens from the texts")
        tokenizer = learned_tokenizer(
            texts, scratch.vocabulary, translates=source.config.is_encoder_decoder
        )
    elif scratch.tokenizer is not None:
        tokenizer = read_source(scratch.tokenizer, say=say).tokenizer()
    return new_model(
        source,
        tokenizer=tokenizer,
        model_class=model_class,
        sizes=scratch.sizes,
        labels=labels,
        max_length=max_length,
        device=device,
    )
