"""A classifier whose label is carried by one head, built by hand."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertForSequenceClassification

from headscope.model.attention_model import AttentionModel
from worded import DISLIKED, LIKED, PLAIN, WORDS, random_bert, sentiments, table, tokenizer

WIDTH, HEADS = 48, 4
FREE = len(
    WORDS
)  # a place in the state that no word uses: heads write what they found into it, the classifier reads it
CARRIER = "1.2"


def classifier(*, noise: float = 0.02, duplicate: str | None = None) -> AttentionModel:
    """Every head attends to all words alike. The carrier adds up what is liked and disliked; the others chance.

    A token's state is its word, one-hot. twin: this head does the same as the carrier, each by half.
    """
    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "intermediate_size": 8,
    }
    model = random_bert(BertForSequenceClassification, **sizes, num_labels=2)
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "LayerNorm.weight" in name else 0.0)
        model.bert.embeddings.word_embeddings.weight[:, : len(WORDS)] = torch.eye(len(WORDS))
        model.bert.pooler.dense.weight[0, FREE] = 1.0
        model.classifier.weight[:, 0] = torch.tensor([-1.5, 1.5])
        for layer in range(2):
            for head in range(HEADS):
                weights = torch.randn(len(PLAIN), generator=chance)
                write(model, f"{layer}.{head}", PLAIN, weights - weights.mean(), noise)
        likes = torch.tensor([1.0] * len(LIKED) + [-1.0] * len(DISLIKED))
        for head in [CARRIER] if duplicate is None else [CARRIER, duplicate]:
            write(model, head, (*LIKED, *DISLIKED), likes, 1.0 if duplicate is None else 0.5)
    return AttentionModel(model, tokenizer(), name="planted")


def write(
    model: BertForSequenceClassification,
    address: str,
    words: tuple[str, ...],
    weights: torch.Tensor,
    size: float,
) -> None:
    """Let a head add up these words' weights, and write `size` times their mean into the free place."""
    layer, head = map(int, address.split("."))
    attention = model.bert.encoder.layer[layer].attention
    row = head * (WIDTH // HEADS)
    attention.self.value.weight[row] = 0.0
    attention.self.value.weight[row, [WORDS.index(word) for word in words]] = weights
    attention.output.dense.weight[FREE, row] = size


def scale_values(model: AttentionModel, address: str, factor: float) -> AttentionModel:
    """Multiply the values of one head, so that what it adds is that much longer."""
    layer, head = map(int, address.split("."))
    value = model.model.bert.encoder.layer[layer].attention.self.value
    rows = slice(head * (WIDTH // HEADS), (head + 1) * (WIDTH // HEADS))
    with torch.no_grad():
        value.weight[rows] *= factor
        value.bias[rows] *= factor
    return model


def examples(folder: Path, count: int = 200) -> Path:
    return table(folder / "dev.tsv", ("sentence", "label"), sentiments(count))
