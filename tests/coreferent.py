"""Documents with mentions in a short notation, and small models that read them in pieces.

conll("the/(0 king/0) saw her/(1)")     # a sentence a line, in CoNLL-2012 columns
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, PreTrainedTokenizerFast

from headscope.data.coreference import Document, read_coreference
from headscope.model.attention_model import AttentionModel
from tiny import excited

LETTERS = "abcdefgh"
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]  # "abc" is three pieces
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def conll(
    *sentences: str,
    name: str = "d",
    end: str = "#end document\n",
    tags: dict[str, str] | None = None,
) -> str:
    """A document; a word may carry marks behind a slash."""
    lines = [f"#begin document ({name}); part 000\n"]
    for sentence in sentences:
        for number, item in enumerate(sentence.split()):
            word, _, marks = item.partition("/")
            tag = "-" if tags is None else tags.get(word, "X")
            lines.append("\t".join([name, "0", str(number), word, tag, "*", marks or "-"]) + "\n")
        lines.append("\n")
    return "".join(lines) + end


def documents(folder: Path, *texts: str) -> list[Document]:
    (folder / "documents.conll").write_text("".join(texts), "utf-8")
    return list(read_coreference([folder / "documents.conll"]))


def random_document(chance: random.Random, sentences: int = 4) -> str:
    """Words of one to three pieces, some of them mentions of four entities, some of those nested."""
    made = []
    for _ in range(sentences):
        words = [
            "".join(chance.choices(LETTERS[:3], k=chance.choice((1, 1, 2, 3)))) for _ in range(5)
        ]
        words = chance.sample(
            [*words, "he", "Anna"], 7
        )  # no letter of Anna is known: one unknown piece
        marks: list[list[str]] = [[] for _ in words]
        for _ in range(4):
            start = chance.randrange(len(words))
            stop = min(start + chance.choice((0, 0, 1, 2)), len(words) - 1)
            entity = chance.randrange(4)
            marks[start].append(f"({entity})" if start == stop else f"({entity}")
            if start != stop:
                marks[stop].insert(0, f"{entity})")
        made.append(
            " ".join(
                f"{word}/{'|'.join(mark)}" if mark else word
                for word, mark in zip(words, marks, strict=True)
            )
        )
    return conll(*made)


def tokenizer(
    *, adds_special: bool = True, words: list[str] | None = None
) -> PreTrainedTokenizerFast:
    """Words are spelt in letters, or are those given."""
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *(words or PIECES)])}
    core = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = WhitespaceSplit()
    if adds_special:
        core.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=64, **names)


def reader(family: str = "bert", seed: int = 0, words: list[str] | None = None) -> AttentionModel:
    """Two layers of two heads with random weights, in float64: no tie but true ones."""
    size = len(SPECIAL) + len(words or PIECES)
    torch.manual_seed(seed)
    model: torch.nn.Module
    if family == "gpt2":
        model = GPT2Model(
            GPT2Config(
                vocab_size=size,
                n_embd=16,
                n_layer=2,
                n_head=2,
                n_positions=64,
                bos_token_id=2,
                eos_token_id=3,
            )
        )
    else:
        config = BertConfig(
            vocab_size=size,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=64,
        )
        model = BertModel(config, add_pooling_layer=False)
    model = excited(model.eval(), seed).double()
    return AttentionModel(
        model, tokenizer(adds_special=family != "gpt2", words=words), name=f"reader-{family}"
    )
