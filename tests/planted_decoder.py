"""A GPT-2 built by hand: every head does one known thing, and what it reads there is known too."""

from __future__ import annotations

import random

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from headscope.model.attention_model import AttentionModel

START, MIDDLE = "start", "middle"
FILLERS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far"]
WORDS = ["<pad>", "<unk>", "<eos>", START, MIDDLE, *FILLERS]
POSITIONS = 24
WIDTH = 48
HEADS = 2
ROLES = {
    "0.0": "first",
    "0.1": "uniform",
    "1.0": "previous",
    "1.1": "self",
    "2.0": MIDDLE,
    "2.1": "first",
}


def tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    names = {"unk_token": "<unk>", "eos_token": "<eos>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=POSITIONS, **names)


def texts(count: int, seed: int = 0) -> list[str]:
    """Texts of 14 to 20 words that begin with START and have MIDDLE as their fifth word."""
    draw = random.Random(seed)
    return [
        " ".join(
            [
                START,
                *draw.choices(FILLERS, k=3),
                MIDDLE,
                *draw.choices(FILLERS, k=draw.randrange(9, 16)),
            ]
        )
        for _ in range(count)
    ]


def planted_decoder(
    roles: dict[str, str] = ROLES, *, sharpness: float = 1.5, start_value: float = 0.0
) -> AttentionModel:
    """Layers of 2 heads; only the last layer moves values.

    A state is its position and its word, one-hot side by side; both have the same length everywhere, so that the
    layer norm is one affine map of it. `start_value` is how much of a value START has; all other words have 1.
    """
    layers = 1 + max(int(address.split(".")[0]) for address in roles)
    config = GPT2Config(
        vocab_size=len(WORDS),
        n_embd=WIDTH,
        n_layer=layers,
        n_head=HEADS,
        n_inner=8,
        n_positions=POSITIONS,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    model = GPT2LMHeadModel(config).eval()
    words = slice(POSITIONS, POSITIONS + len(WORDS))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(
                1.0 if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else 0.0
            )
        model.transformer.wpe.weight[:, :POSITIONS] = torch.eye(POSITIONS)
        model.transformer.wte.weight[:, words] = torch.eye(len(WORDS))
        for address, role in roles.items():
            layer, head = map(int, address.split("."))
            _plant(model.transformer.h[layer].attn, head, role, sharpness)
        last = model.transformer.h[-1].attn
        # Values shift each word to the next one of the vocabulary: they change what is predicted.
        shift = torch.eye(len(WORDS)).roll(1, dims=1)
        shift[WORDS.index(START)] *= start_value
        for head in range(HEADS):
            columns = slice(
                2 * WIDTH + head * (WIDTH // HEADS),
                2 * WIDTH + head * (WIDTH // HEADS) + len(WORDS),
            )
            last.c_attn.weight[words, columns] = 0.2 * shift
            # The layer norm adds a constant to all coordinates: take away what it brings.
            last.c_attn.bias[columns] = -last.c_attn.weight[:, columns].sum(dim=0) * _constant()
            last.c_proj.weight[
                head * (WIDTH // HEADS) : head * (WIDTH // HEADS) + len(WORDS), words
            ] = torch.eye(len(WORDS))
    return AttentionModel(model, tokenizer(), name="planted-decoder")


def _constant() -> float:
    """What the layer norm makes of a coordinate that is 0."""
    state = torch.zeros(WIDTH)
    state[:2] = 1.0
    return float(torch.nn.functional.layer_norm(state, (WIDTH,))[-1])


def _plant(attention: torch.nn.Module, head: int, role: str, sharpness: float) -> None:
    width = WIDTH // HEADS
    query, key = head * width, WIDTH + head * width
    weight, bias = attention.c_attn.weight, attention.c_attn.bias
    if role in ("previous", "self"):
        codes = torch.eye(POSITIONS)
        weight[:POSITIONS, query : query + width] = 4 * sharpness * codes
        weight[:POSITIONS, key : key + width] = codes if role == "self" else codes.roll(1, dims=1)
        if role == "previous":
            weight[POSITIONS - 1, key] = 0.0  # the last position is not before the first
    elif role != "uniform":  # every query looks for one position or word
        bias[query] = 4 * sharpness
        where = 0 if role == "first" else POSITIONS + WORDS.index(role)
        weight[where, key] = 1.0
