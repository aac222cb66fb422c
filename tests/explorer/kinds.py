"""The kinds of models that the explorer knows, as tiny ones, with something for each to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers.processors import TemplateProcessing
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
)

import headscope
from headscope.model.attention_model import AttentionModel
from tiny import excited
from worded import LONGEST, WORDS, tokenizer, translator, worded

THREE = {"num_labels": 3, "num_attention_heads": 4}


@dataclass(frozen=True)
class Kind:
    """A model, the name of what it says, texts for it, and heads to switch off."""

    make: Callable[[], AttentionModel]
    kind: str
    text: str = "the old cat sat on a mat ."
    second: str | None = None
    off: str = "0.1,1.*"


def causal() -> AttentionModel:
    config = GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2, n_positions=LONGEST)
    reads = tokenizer(ends=True)
    reads.backend_tokenizer.post_processor = TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[]
    )
    return AttentionModel(excited(GPT2LMHeadModel(config).eval(), 0), reads, name="causal")


def albert() -> AttentionModel:
    config = AlbertConfig(
        vocab_size=len(WORDS),
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LONGEST,
    )
    return AttentionModel(excited(AlbertForMaskedLM(config).eval(), 0), tokenizer(), name="albert")


def cut() -> AttentionModel:
    """A classifier that has lost a head of its first layer and all of its second."""
    return headscope.prune(
        worded(BertForSequenceClassification, num_hidden_layers=3, **THREE), "0.1,1.*"
    ).model


def several() -> AttentionModel:
    return worded(BertForSequenceClassification, problem_type="multi_label_classification", **THREE)


MASKED = "the [MASK] cat sat on a [MASK] ."
KINDS = {
    "encoder": Kind(lambda: worded(BertModel), "encoder"),
    "pair": Kind(lambda: worded(BertModel), "encoder", second="a dog ran"),
    "below its head": Kind(
        lambda: worded(BertForTokenClassification), "encoder", second="a dog ran"
    ),
    "classifier": Kind(
        lambda: worded(BertForSequenceClassification, **THREE), "classifier", second="a dog ran"
    ),
    "several classes": Kind(several, "classifier"),
    "a number": Kind(lambda: worded(BertForSequenceClassification, num_labels=1), "classifier"),
    "masked": Kind(lambda: worded(BertForMaskedLM), "masked", MASKED),
    "albert": Kind(albert, "masked", MASKED, off="1.0"),
    "causal": Kind(causal, "causal"),
    "translation": Kind(
        translator, "translation", second="a dog ran .", off="cross.1.0,encoder.0.1"
    ),
    "source alone": Kind(translator, "translation", off="encoder.0.1"),
    "cut": Kind(cut, "classifier", off="0.2,2.0"),
}
