"""From a zoo name, a directory or a hub id to an `AttentionModel`, or a refusal that says why.

Nothing from a model is ever executed: no remote code, no pickled objects. What transformers would let pass in
silence (missing weights replaced by random ones, a tokenizer of five entries, NaN weights) is refused here.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import HeadscopeError
from headscope.model import zoo
from headscope.model.attention_model import AttentionModel, family_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm")


def load(
    spec: str | Path,
    *,
    revision: str | None = None,
    model_class: str | type[PreTrainedModel] | None = None,
    device: str = "auto",
    dtype: str = "float32",
    say: Callable[[str], None] = lambda line: None,
) -> AttentionModel:
    """Load a model to watch and edit.

    spec         a zoo name (`minilm`), a directory, or a hub id (`org/name`, `org/name@revision`)
    model_class  a transformers class or its name, instead of the one the checkpoint names
    device       auto, cpu, cuda, mps …
    dtype        float32 (whatever the checkpoint has), float64, bfloat16 or float16
    say          told what is being fetched
    """
    if dtype not in DTYPES:
        raise HeadscopeError(f'"{dtype}" is not a dtype', where="--dtype", expected=", ".join(DTYPES))
    folder, name, revision = find_folder(spec, revision, say)
    config = _read_config(folder)
    family = family_of(config.get("model_type"), where=folder)
    with _quiet():
        model, untrained, notes = _load_weights(folder, config, model_class, DTYPES[dtype])
        tokenizer = _load_tokenizer(folder, model) if family.takes_text else None
    _check_finite(model, folder)
    model = model.to(_device(device)).eval()
    return AttentionModel(
        model, tokenizer, name=name, path=folder, revision=revision, untrained=untrained, notes=notes
    )


def find_folder(
    spec: str | Path, revision: str | None = None, say: Callable[[str], None] = lambda line: None
) -> tuple[Path, str, str | None]:
    """The directory a spec means, its name and revision; fetched if it must be and may be."""
    text = str(spec)
    if text in zoo.MODELS:
        return zoo.find(text) or zoo.fetch(text, say), text, None
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise HeadscopeError("no config.json here", where=folder, expected="the directory of a transformers model")
        return folder, text, None
    identifier, _, tail = text.partition("@")
    if isinstance(spec, Path) or folder.exists() or not _HUB_ID.fullmatch(identifier) or "/" not in identifier:
        raise HeadscopeError(
            f'no model "{text}"',
            expected=f"a directory, a hub id such as org/name, or one of {', '.join(zoo.MODELS)}",
            mend="headscope models lists the named ones",
        )
    return _from_hub(identifier, revision or tail or None), identifier, revision or tail or None


def _from_hub(identifier: str, revision: str | None) -> Path:
    """A hub model's files in the hub's own cache: safetensors where there are any, else pickled weights."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(identifier, revision=revision, allow_patterns=list(_FILES)))
        if not list(folder.glob("*.safetensors")):
            snapshot_download(identifier, revision=revision, allow_patterns=["pytorch_model*.bin*"])
        if not (folder / "config.json").is_file():
            raise FileNotFoundError("it has no config.json")
        return folder
    except Exception as cause:  # the hub library raises a dozen unrelated types for "not there" and "no network"
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")
        why = "it is not in the local cache and HF_HUB_OFFLINE is set" if offline else str(cause).splitlines()[0]
        raise HeadscopeError(
            f'hub model "{identifier}" cannot be had: {why}',
            mend="Check the name and the network, or give a directory or a zoo name (headscope models)",
        ) from cause


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as cause:
        raise HeadscopeError(f"not readable as JSON ({cause})", where=path, expected="a model configuration") from cause
    if not isinstance(config, dict):
        raise HeadscopeError("not a JSON object", where=path, expected="a model configuration")
    if "auto_map" in config and config.get("model_type") is None:
        raise HeadscopeError(
            "this model needs code of its own (auto_map), which headscope never runs",
            where=path,
            expected="a model_type that transformers knows",
        )
    return config


def _load_weights(
    folder: Path, config: dict[str, Any], model_class: str | type[PreTrainedModel] | None, dtype: torch.dtype
) -> tuple[PreTrainedModel, tuple[str, ...], tuple[str, ...]]:
    """The model, its untrained parameters, and notes for the user."""
    import transformers

    named = (config.get("architectures") or [None])[0]
    chosen = model_class if model_class is not None else named
    cls = getattr(transformers, str(chosen), None) if isinstance(chosen, str) else chosen
    if cls is None and model_class is not None:
        raise HeadscopeError(f'transformers has no class "{chosen}"', where="model_class")
    notes = []
    if cls is None:
        cls = transformers.AutoModel
        notes.append(f"architectures names {named!r}, which transformers does not have: loaded as the bare model")
    model, missing = _from_pretrained(cls, folder, dtype)
    if missing and model_class is None and cls is not transformers.AutoModel:
        # Some files hold the bare encoder although the configuration names a model with a head.
        bare, still_missing = _from_pretrained(transformers.AutoModel, folder, dtype)
        if len(still_missing) < len(missing):
            notes.append(
                f"the file has no weights for the head of {type(model).__name__}: loaded as {type(bare).__name__}"
            )
            model, missing = bare, still_missing
    _check_missing(model, missing, folder, may_be_new=model_class is not None)
    return model, missing, tuple(notes)


def _check_missing(model: PreTrainedModel, missing: tuple[str, ...], folder: Path, *, may_be_new: bool) -> None:
    """A pooler that nobody trained is harmless; a head is new when the caller asked for one; the rest is damage."""
    inside = [key for key in missing if key.startswith(model.base_model_prefix + ".") or model.base_model is model]
    wrong = [key for key in (inside if may_be_new else missing) if "pooler" not in key]
    if wrong:
        raise HeadscopeError(
            f"the weights lack {len(wrong)} tensors of {type(model).__name__}, {wrong[0]!r} first; "
            "they would be random",
            where=folder,
            mend="Get the whole checkpoint, or load another class with model_class",
        )


def _from_pretrained(cls: Any, folder: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, tuple[str, ...]]:
    from safetensors import SafetensorError

    try:
        model, info = cls.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            weights_only=True,
            output_loading_info=True,
        )
    except (SafetensorError, OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError) as cause:
        raise HeadscopeError(*_why(cause, folder)) from cause
    return model, tuple(sorted(info["missing_keys"]))


def _why(cause: Exception, folder: Path) -> tuple[str]:
    """transformers' reasons in one honest line; its advice to switch safety off is left out."""
    weights = next((p.name for p in sorted(folder.iterdir()) if p.suffix in (".safetensors", ".bin")), None)
    if isinstance(cause, pickle.UnpicklingError):
        what = f"{weights} is a pickle that holds more than weights; it was not run"
    elif "ignore_mismatched_sizes" in str(cause):
        what = f"the shapes in {weights} do not fit config.json"
    elif weights is None:
        what = "no model.safetensors or pytorch_model.bin here"
    else:
        what = f"{weights} cannot be read ({str(cause).splitlines()[0] if str(cause) else type(cause).__name__})"
    return (f"{folder}: {what}. Expected a whole transformers checkpoint. Download it again, or convert it to safetensors.",)


def _load_tokenizer(folder: Path, model: PreTrainedModel) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as cause:  # every tokenizer class fails in its own way
        raise HeadscopeError(
            f"the tokenizer cannot be read ({str(cause).splitlines()[0] if str(cause) else type(cause).__name__})",
            where=folder,
            expected="tokenizer files beside the weights",
        ) from cause
    rows = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise HeadscopeError(
            f"the tokenizer has token ids up to {largest}, but the model embeds only {rows}",
            where=folder,
            mend="Tokenizer and weights are of different models",
        )
    if len(tokenizer) < 0.1 * rows and len(tokenizer) <= len(tokenizer.all_special_ids) + 8:
        raise HeadscopeError(
            f"the tokenizer knows {len(tokenizer)} tokens, the model {rows}: its files are missing or of another kind",
            where=folder,
            mend="Put tokenizer.json beside the weights",
        )
    return tokenizer


def _check_finite(model: PreTrainedModel, folder: Path) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise HeadscopeError(
                f"the weights hold NaN or infinite numbers, in {name!r} first",
                where=folder,
                mend="Get a sound checkpoint; no number from this one would mean anything",
            )


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as cause:
        raise HeadscopeError(f'device "{device}" cannot be used here', where="--device", expected="auto, cpu, cuda …") from cause
    return chosen


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and load reports: what matters of them is checked and said by us."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.CRITICAL)
    reports.disable_progress_bar()
    try:
        yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()
