"""A BERT built by hand: every head does one known thing."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from headscope.model.attention_model import AttentionModel

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", ",", "the", "cat", "sat", "on", "mat", "dog"]
POSITIONS = 24
SEGMENTS = POSITIONS + len(WORDS)  # where a token's state says of which segment it is
ROLES = {
    "0.0": "uniform",
    "0.1": "previous",
    "1.0": "next",
    "1.1": "self",
    "2.0": "sep",
    "2.1": "cls",
}


def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=POSITIONS, model_input_names=inputs, **names
    )


def planted(sharpness: float = 60.0, roles: dict[str, str] = ROLES) -> AttentionModel:
    """3 layers of 2 heads that do what `roles` says: a word's name looks at that word, `block` at its own segment.

    A token's state is its position and its word, one-hot side by side (layer norms keep that up to an affine map).
    Only the heads of the last layer add anything to it, so that none disturbs the layers above.
    """
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=POSITIONS,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "LayerNorm.weight" in name else 0.0)
        model.embeddings.position_embeddings.weight[:, :POSITIONS] = torch.eye(POSITIONS)
        words = slice(POSITIONS, POSITIONS + len(WORDS))
        model.embeddings.word_embeddings.weight[:, words] = torch.eye(len(WORDS))
        model.embeddings.token_type_embeddings.weight[:, SEGMENTS : SEGMENTS + 2] = torch.eye(2)
        for address, role in roles.items():
            layer, head = map(int, address.split("."))
            attention = model.encoder.layer[layer].attention.self
            if layer == 2:
                attention.value.weight.copy_(0.01 * torch.eye(48))
                model.encoder.layer[layer].attention.output.dense.weight.copy_(0.01 * torch.eye(48))
            _plant(attention, slice(head * 24, head * 24 + 24), role, sharpness)
    return AttentionModel(model, tokenizer(), name="planted")


def _plant(attention: torch.nn.Module, rows: slice, role: str, sharpness: float) -> None:
    query, key = attention.query, attention.key
    offsets = {"previous": 1, "self": 0, "next": -1}
    if (
        role in offsets
    ):  # the key at position p carries the code that the query at p + offset looks for
        query.weight[rows, :POSITIONS] = sharpness * torch.eye(POSITIONS)
        key.weight[rows, :POSITIONS] = torch.eye(POSITIONS).roll(offsets[role], dims=0)
        if role == "previous":
            key.weight[rows.start, POSITIONS - 1] = 0.0  # the last position is not before the first
        if role == "next":
            key.weight[rows.stop - 1, 0] = 0.0
    elif role == "block":  # a token's state says of which segment it is
        for segment in range(2):
            query.weight[rows.start + segment, SEGMENTS + segment] = sharpness
            key.weight[rows.start + segment, SEGMENTS + segment] = 1.0
    elif role != "uniform":  # every query looks for one word
        query.bias[rows.start] = sharpness
        word = role if role in WORDS else f"[{role.upper()}]"
        key.weight[rows.start, POSITIONS + WORDS.index(word)] = 1.0
