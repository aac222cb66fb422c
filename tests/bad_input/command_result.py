"""What a command said, and the tokenizer of the tiny models it is tried on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = [
    *SPECIAL,
    *".,<>/=()1",
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "the",
    "cat",
    "sat",
    "mat",
]
DOING = re.compile(r"(loading|reading) .* …|evaluating the unpruned model on \d+ examples")
MALICE = "</script><img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: exit status, stdout, stderr, and the error itself: the last line of stderr."""

    status: int
    out: str
    err: str

    @property
    def rest(self) -> list[str]:
        """Lines of stderr but for those at the start that say what is being done."""
        return list(dropwhile(DOING.fullmatch, self.err.splitlines()))

    @property
    def error(self) -> str:
        last = self.err.splitlines()[-1] if self.err else ""
        assert last.startswith("headscope: "), f"not an error of ours: {self.err}"
        assert "Traceback" not in self.err
        return last.removeprefix("headscope: ")


Run = Callable[..., CommandResult]


def save_tokenizer(folder: Path, *, words: list[str] = WORDS, adds_special: bool = True) -> None:
    """A WordPiece tokenizer of letters and a few words; without special tokens around a text if so wanted."""
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if adds_special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    names = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True
        )
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **names
    ).save_pretrained(folder)
