"""Read a model's tokenizer and check it against the model; write it with the settings that it was loaded with.

Every call with padding or truncation changes the settings of a tokenizer, and `save_pretrained` writes those of the
last call. The saved files would depend on what the model was used for before. Settings are therefore stored on loading.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headscope.errors import HeadscopeError, reason

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EXPECTED_FILES = "tokenizer.json, or the files the family uses, next to the weights"
Settings = tuple[dict[str, Any] | None, dict[str, Any] | None]  # padding, truncation
_AS_LOADED: WeakKeyDictionary[PreTrainedTokenizerBase, Settings] = WeakKeyDictionary()


def read_tokenizer(folder: Path, model: PreTrainedModel) -> PreTrainedTokenizerBase:
    """The tokenizer in the directory of a model; raises if it belongs to another model."""
    tokenizer = read_tokenizer_files(folder)
    rows = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise HeadscopeError(
            f"the tokenizer has token ids up to {largest}, but the model embeds only 0 to {rows - 1}",
            where=folder,
            expected="tokenizer and weights of one model",
        )
    # If its files are missing, transformers builds a tokenizer with only special tokens, without a warning.
    if len(tokenizer) < 0.1 * rows and len(tokenizer) <= len(tokenizer.all_special_ids) + 8:
        raise HeadscopeError(
            f"the tokenizer knows {len(tokenizer)} tokens, the model {rows}: its files are missing or of another kind",
            where=folder,
            expected=EXPECTED_FILES,
        )
    return tokenizer


def read_tokenizer_files(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a directory, which need not contain a model."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as cause:  # every tokenizer class raises other exceptions
        what = f"cannot be read ({reason(cause)})"
        if "trust_remote_code" in str(cause):
            what = "needs code of its own, which headscope never runs"
        raise HeadscopeError(
            f"the tokenizer {what}", where=folder, expected=EXPECTED_FILES
        ) from cause


def remember_settings(tokenizer: PreTrainedTokenizerBase) -> None:
    """Store the settings of a tokenizer, unless they were stored before: a pruned model uses the same tokenizer."""
    core = _core(tokenizer)
    if core is not None and tokenizer not in _AS_LOADED:
        _AS_LOADED[tokenizer] = core.padding, core.truncation


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the files of a tokenizer with the settings that it was loaded with; the tokenizer is not changed."""
    core = _core(tokenizer)
    if core is None or tokenizer not in _AS_LOADED:
        tokenizer.save_pretrained(folder)
        return
    present = core.padding, core.truncation
    try:
        _set(core, _AS_LOADED[tokenizer])
        tokenizer.save_pretrained(folder)
    finally:
        _set(core, present)


def _core(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """The part of a tokenizer that stores padding and truncation; None if it is written in Python."""
    core: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    return core


def _set(core: Tokenizer, settings: Settings) -> None:
    """Set padding and truncation of a tokenizer."""
    padding, truncation = settings
    if padding is None:
        core.no_padding()
    else:
        core.enable_padding(**padding)
    if truncation is None:
        core.no_truncation()
    else:
        core.enable_truncation(**truncation)
