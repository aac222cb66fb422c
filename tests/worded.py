"""Tiny models that read words: random weights, a real tokenizer, in memory or in a directory.

model = worded(BertForSequenceClassification, num_labels=2)     # an AttentionModel
saved(folder / "bert", BertForSequenceClassification)           # the same, as `load` finds it
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from headscope.model.attention_model import AttentionModel
from tiny import excited

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LIKED, DISLIKED = ("good", "fine", "warm", "kind"), ("bad", "poor", "cold", "mean")
PLAIN = (
    "the",
    "a",
    "cat",
    "dog",
    "mat",
    "sat",
    "on",
    "ran",
    "house",
    "saw",
    "old",
    "red",
    "who",
    "is",
    ".",
    ",",
    "?",
)
WORDS = [*SPECIAL, *LIKED, *DISLIKED, *PLAIN]
LONGEST = 32


def tokenizer(*, ends: bool = False) -> PreTrainedTokenizerFast:
    """One token a word. ends: a text is closed by [SEP], its end mark, and not opened, as for translation."""
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="$A [SEP]" if ends else "[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
    }
    names |= {"eos_token": "[SEP]"} if ends else {"cls_token": "[CLS]"}
    inputs = (
        ["input_ids", "attention_mask"]
        if ends
        else ["input_ids", "token_type_ids", "attention_mask"]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_max_length=LONGEST, model_input_names=inputs, **names
    )


def random_bert(kind: type[PreTrainedModel], seed: int = 0, **changes: Any) -> PreTrainedModel:
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = BertConfig(
        vocab_size=len(WORDS), max_position_embeddings=LONGEST, **{**size, **changes}
    )
    return excited(kind(config).eval(), seed)


def worded(kind: type[PreTrainedModel], seed: int = 0, **changes: Any) -> AttentionModel:
    """A BERT with this head."""
    return AttentionModel(random_bert(kind, seed, **changes), tokenizer(), name="worded")


def saved(folder: Path, kind: type[PreTrainedModel], seed: int = 0, **changes: Any) -> Path:
    random_bert(kind, seed, **changes).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def translator(seed: int = 0) -> AttentionModel:
    """An encoder-decoder that begins with the padding id, as Marian does."""
    config = MarianConfig(
        vocab_size=len(WORDS),
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=LONGEST,
        pad_token_id=0,
        eos_token_id=3,
        bos_token_id=None,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    return AttentionModel(
        excited(MarianMTModel(config).eval(), seed), tokenizer(ends=True), name="translator"
    )


def sentence(
    chance: random.Random, words: Sequence[str] = PLAIN, least: int = 2, most: int = 9
) -> str:
    return " ".join(chance.choices(words, k=chance.randint(least, most)))


def sentiments(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts with one word that is liked (label 1) or not (0)."""
    chance = random.Random(seed)
    made = []
    for i in range(count):
        label = i % 2
        words = sentence(chance).split()
        words.insert(chance.randrange(len(words) + 1), chance.choice((DISLIKED, LIKED)[label]))
        made.append((" ".join(words), str(label)))
    return made


def table(path: Path, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    """A tsv, or a csv by its name."""
    separator = "," if path.suffix == ".csv" else "\t"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(separator.join(map(str, row)) + "\n" for row in [names, *rows]), "utf-8"
    )
    return path


def glue(folder: Path, train: int = 48, dev: int = 24) -> Path:
    """A directory with train.tsv and dev.tsv for --task sst2."""
    for name, count, seed in (("train", train, 1), ("dev", dev, 2)):
        table(folder / f"{name}.tsv", ("sentence", "label"), sentiments(count, seed))
    return folder
