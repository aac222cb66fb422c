"""A tiny classifier whose words are what no page may mistake for markup, and what transformers says about it."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from headscope.model.attention_model import AttentionModel
from tiny import excited

MARKUP = "</script><img/src=x/onerror=window.__pwned=1>"
BIDI = "\u202egnihtemos\u202c"
TEMPLATE = "{{7*7}}"
WORDS = [
    "the",
    "cat",
    "dog",
    "mat",
    "sat",
    "on",
    "ran",
    "old",
    ".",
    ",",
    "עולם",
    "=2+3",
    MARKUP,
    BIDI,
    TEMPLATE,
    "<!--",
    "&amp;",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LAYERS, HEADS, LONGEST = 3, 4, 520
LABELS = ("no", "yes", "<b>perhaps</b>")


def classifier(name: str, seed: int = 0) -> AttentionModel:
    words = [*SPECIAL, *WORDS]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = WhitespaceSplit()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        model_max_length=LONGEST,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
    )
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=32,
        max_position_embeddings=LONGEST,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    return AttentionModel(
        excited(BertForSequenceClassification(config).eval(), seed), tokenizer, name=name
    )


@torch.no_grad()
def expected_outputs(
    model: AttentionModel, text: str, off: tuple[int, int] | None = None
) -> tuple[NDArray[np.float64], list[float]]:
    """Weights [layer, head, query, key] and class probabilities by transformers' own eager attention.

    off  layer and head whose columns of the output projection are zeroed: what is left without it
    """
    reference = copy.deepcopy(model.model)
    reference.set_attn_implementation("eager")
    if off is not None:
        layer, head = off
        width = reference.config.hidden_size // reference.config.num_attention_heads
        projection = reference.bert.encoder.layer[layer].attention.output.dense
        projection.weight[:, head * width : (head + 1) * width] = 0
    assert model.tokenizer is not None
    output = reference(**model.tokenizer(text, return_tensors="pt"), output_attentions=True)
    weights = np.stack([layer[0].double().numpy() for layer in output.attentions])
    return weights, output.logits[0].softmax(dim=-1).tolist()
