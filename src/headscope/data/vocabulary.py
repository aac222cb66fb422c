"""Trains a byte-pair tokenizer on texts. The same texts give the same tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BYTES = 256  # every byte is a token, so that no text has unknown tokens
ENCODER = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
TRANSLATOR = {"pad_token": "<pad>", "eos_token": "</s>"}


def check_vocabulary(size: int) -> None:
    least = BYTES + len(ENCODER)
    if size < least:
        what = f"{size} tokens are fewer than bytes and special tokens"
        raise HeadscopeError(what, where="`vocabulary`", expected=f"{least} or more")


def train_tokenizer(
    texts: Iterable[str], size: int, *, translates: bool = False
) -> PreTrainedTokenizerBase:
    """A tokenizer of at most `size` tokens including the special ones.

    translates: keep case and add </s> at the end of a text; otherwise lower-case it and add [CLS] and [SEP] around it
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    check_vocabulary(size)
    names = TRANSLATOR if translates else ENCODER
    core = tokenizers.Tokenizer(models.BPE())
    bert = normalizers.BertNormalizer(lowercase=True)
    core.normalizer = normalizers.NFKC() if translates else bert
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.decoder = decoders.ByteLevel()
    # Not WordPiece: its trainer numbers the tokens differently in each run.
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(names.values()),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    around = "$A </s>" if translates else "[CLS] $A [SEP]"
    core.post_processor = processors.TemplateProcessing(
        single=around,
        pair=None if translates else f"{around} $B:1 [SEP]:1",
        special_tokens=[(token, core.token_to_id(token)) for token in names.values()],
    )
    inputs = ["input_ids", "attention_mask", *([] if translates else ["token_type_ids"])]
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_input_names=inputs, clean_up_tokenization_spaces=False, **names
    )
