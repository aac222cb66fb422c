"""A tokenizer is written as it was loaded.

Every call with padding or truncation leaves its settings in the tokenizer, and `save_pretrained` would write those of
the last call: what is on disk would depend on what the model was used for before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

Settings = tuple[dict[str, Any] | None, dict[str, Any] | None]  # padding, truncation
_AS_LOADED: WeakKeyDictionary[PreTrainedTokenizerBase, Settings] = WeakKeyDictionary()


def remember(tokenizer: PreTrainedTokenizerBase) -> None:
    """Its settings as they are when it is first seen; a cut model has the tokenizer of the whole one."""
    core = _core(tokenizer)
    if core is not None and tokenizer not in _AS_LOADED:
        _AS_LOADED[tokenizer] = core.padding, core.truncation


def write_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Its files, with the settings it was loaded with; those of now stay in the tokenizer."""
    core = _core(tokenizer)
    if core is None or tokenizer not in _AS_LOADED:
        tokenizer.save_pretrained(folder)
        return
    now = core.padding, core.truncation
    try:
        _set(core, _AS_LOADED[tokenizer])
        tokenizer.save_pretrained(folder)
    finally:
        _set(core, now)


def _core(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """The part that keeps such settings; tokenizers in Python alone have none."""
    core: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    return core


def _set(core: Tokenizer, settings: Settings) -> None:
    padding, truncation = settings
    if padding is None:
        core.no_padding()
    else:
        core.enable_padding(**padding)
    if truncation is None:
        core.no_truncation()
    else:
        core.enable_truncation(**truncation)
