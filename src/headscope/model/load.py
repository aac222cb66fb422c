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
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import HeadscopeError, choices, reason
from headscope.model import zoo
from headscope.model.attention_model import AttentionModel, family_of
from headscope.model.families import families

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm")
_WEIGHTS = (  # in transformers' order of preference
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_MOST_LAYERS = 1000  # a damaged number of layers would build modules for hours before any file is read
_LARGEST_CONFIG_BYTES = 10_000_000
_AGAIN = "Download it again"


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
        raise HeadscopeError(f'"{dtype}" is not a dtype', where="--dtype", expected=choices(dtype, DTYPES))
    place = _device(device)
    folder, name, revision = find_folder(spec, revision, say)
    config = _read_config(folder)
    family = family_of(config["model_type"], where=folder / "config.json")
    with _quiet():
        model, untrained, notes = _load_weights(folder, config, model_class, DTYPES[dtype])
        tokenizer = _load_tokenizer(folder, model) if family.takes_text else None
    _check_finite(model, folder, dtype)
    model = model.to(place).eval()
    return AttentionModel(model, tokenizer, name=name, path=folder, revision=revision, untrained=untrained, notes=notes)


def find_folder(
    spec: str | Path, revision: str | None = None, say: Callable[[str], None] = lambda line: None
) -> tuple[Path, str, str | None]:
    """The directory a spec means, its name and revision; fetched if it must be and may be."""
    text = str(spec)
    folder = Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises for an unknown user
    is_named = isinstance(spec, str) and text in zoo.MODELS
    if is_named or (text and os.path.isdir(folder)):  # noqa: PTH112 - Path.is_dir raises for a name too long
        if revision is not None:
            what = "a named model" if is_named else "a directory"
            raise HeadscopeError(f'"{text}" is {what}', where=f'--revision "{revision}"', expected="a hub id with it")
        if is_named:
            return zoo.find(text) or zoo.fetch(text, say), text, None
        if not (folder / "config.json").is_file():
            raise HeadscopeError(
                "no config.json here",
                where=folder,
                expected="the directory of a transformers model",
                mend="Give the directory that save_pretrained wrote, or a name (headscope models)",
            )
        return folder, text, None
    identifier, _, tail = text.partition("@")
    if isinstance(spec, Path) or os.path.exists(folder) or not _HUB_ID.fullmatch(identifier):  # noqa: PTH110
        raise _no_model(text, folder)
    if revision and tail and revision != tail:
        raise HeadscopeError(
            f'"{text}" names another revision', where=f'--revision "{revision}"', expected="one of them"
        )
    revision = revision or tail or None
    return _from_hub(identifier, revision, say), identifier, revision


def _no_model(text: str, folder: Path) -> HeadscopeError:
    if os.path.exists(folder) and text:  # noqa: PTH110 - Path.exists raises for a name that is too long
        mend = "Give the directory it is in"
        return HeadscopeError("this is a file", where=text, expected="the directory of a transformers model", mend=mend)
    if os.sep in text:
        mend = "Check the path; a hub id has the form org/name, and headscope models lists the named models"
        return HeadscopeError("there is no such directory", where=text, mend=mend)
    return HeadscopeError(
        f'no model "{text}"',
        expected="a directory, a hub id such as google-bert/bert-base-uncased, or one of "
        + choices(text.partition("@")[0], zoo.MODELS),
        mend="headscope models says more of the named ones",
    )


def _from_hub(identifier: str, revision: str | None, say: Callable[[str], None]) -> Path:
    """A hub model's files in the hub's own cache: safetensors where there are any, else pickled weights."""
    from huggingface_hub import snapshot_download

    switches = (os.environ.get(name, "").upper() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    offline = any(switch in ("1", "TRUE", "YES", "ON") for switch in switches)
    if not offline:
        say(f"{identifier}: no such directory here, asking the hub")
    try:
        for patterns in (_FILES, ("pytorch_model*.bin*",)):
            folder = Path(
                snapshot_download(
                    identifier, revision=revision, allow_patterns=list(patterns), local_files_only=offline
                )
            )
            if list(folder.glob("*.safetensors")):
                break
        if not (folder / "config.json").is_file():
            raise FileNotFoundError("it has no config.json")
        return folder
    except Exception as cause:  # the hub library raises a dozen unrelated types for "not there" and "no network"
        at = f" at revision {revision}" if revision else ""
        raise HeadscopeError(
            f'there is no directory "{identifier}", and the hub\'s model of this name cannot be had{at}: '
            + ("it is not in the local cache and HF_HUB_OFFLINE is set" if offline else reason(cause)),
            mend="Check the name and the network, or give a directory or a named model (headscope models)",
        ) from cause


def _read_config(folder: Path) -> dict[str, Any]:
    """config.json, with what headscope relies on: an object, a `model_type`, a sane number of layers."""
    path = folder / "config.json"
    expected = "a model configuration"
    try:
        if (size := path.stat().st_size) > _LARGEST_CONFIG_BYTES:
            raise HeadscopeError(f"{size / 1e6:.0f} MB are too many", where=path, expected=expected)
        config = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as cause:
        where = f"{path}:{cause.lineno}:{cause.colno}"
        raise HeadscopeError(f"not JSON: {cause.msg}", where=where, expected=expected, mend=_AGAIN) from cause
    except (OSError, ValueError, RecursionError) as cause:
        raise HeadscopeError(f"not readable ({reason(cause)})", where=path, expected=expected, mend=_AGAIN) from cause
    if not isinstance(config, dict):
        raise HeadscopeError("not a JSON object", where=path, expected=expected, mend=_AGAIN)
    kind = config.get("model_type")
    if not isinstance(kind, str):
        said = "no model_type" if kind is None else f"model_type is {json.dumps(kind)[:40]}"
        raise HeadscopeError(said, where=path, expected='one that transformers knows, such as "bert"', mend=_AGAIN)
    if "auto_map" in config and kind not in families():
        raise HeadscopeError(
            f'model type "{kind}" needs code from its own files (auto_map), which headscope never runs',
            where=path,
            expected=f"one of {', '.join(families())}",
        )
    for name, number in config.items():
        if name.endswith(("layer", "layers")) and isinstance(number, int) and number > _MOST_LAYERS:
            raise HeadscopeError(f"{name} is {number}", where=path, expected=f"at most {_MOST_LAYERS}", mend=_AGAIN)
    return config


def _load_weights(
    folder: Path, config: dict[str, Any], model_class: str | type[PreTrainedModel] | None, dtype: torch.dtype
) -> tuple[PreTrainedModel, tuple[str, ...], tuple[str, ...]]:
    """The model, its untrained parameters, and notes for the user."""
    import transformers

    cls, notes = _class_of(config, model_class)
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


def _class_of(config: dict[str, Any], model_class: str | type[PreTrainedModel] | None) -> tuple[Any, list[str]]:
    """The asked-for class, else the one that config.json names if it fits the type, else the bare model."""
    import transformers

    def is_model(cls: object) -> bool:
        return isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)

    if model_class is not None:
        cls = getattr(transformers, model_class, None) if isinstance(model_class, str) else model_class
        if not is_model(cls) and not str(model_class).startswith("AutoModel"):
            raise HeadscopeError(f'transformers has no model class "{model_class}"', where="model_class")
        return cls, []
    listed = config.get("architectures")
    named = listed[0] if isinstance(listed, list) and listed else None
    cls = getattr(transformers, named, None) if isinstance(named, str) else None
    if is_model(cls) and getattr(cls.config_class, "model_type", None) == config["model_type"]:  # type: ignore[union-attr]
        return cls, []
    why = f"names {named!r}, which is no {config['model_type']} class of transformers" if named else "is missing"
    return transformers.AutoModel, [f"architectures in config.json {why}: loaded as the bare model"]


def _check_missing(model: PreTrainedModel, missing: tuple[str, ...], folder: Path, *, may_be_new: bool) -> None:
    """An untrained pooler is harmless; a head is new when the caller asked for one; the rest is damage."""
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
    """The model and the names of its parameters that the file lacks; nothing in the file is run."""
    weights = _weights_file(folder)
    try:
        model, info = cls.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            weights_only=True,
            ignore_mismatched_sizes=True,  # refused below, by name
            output_loading_info=True,
        )
    except pickle.UnpicklingError as cause:  # its text advises to switch the safety off
        raise HeadscopeError(
            "this is not a pickle of weights alone; nothing in it was run",
            where=weights,
            expected="tensors",
            mend="Get the model as safetensors",
        ) from cause
    except Exception as cause:  # wrong values in config.json fail in every class in its own way
        raise _refusal(cause, weights, getattr(cls, "__name__", str(cls))) from cause
    for name, in_file, in_model in sorted(info["mismatched_keys"]):
        raise HeadscopeError(
            f"{name!r} has shape {_shape(in_file)}, but config.json makes it {_shape(in_model)}",
            where=weights,
            expected="weights and config.json of one model",
        )
    return model, tuple(sorted(info["missing_keys"]))


def _refusal(cause: Exception, weights: Path, name: str) -> HeadscopeError:
    """Which file is to blame: the weights, the configuration, or neither."""
    from safetensors import SafetensorError

    if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
        mend = "Check the sizes in config.json; if they are right, take --dtype bfloat16 or a larger machine"
        return HeadscopeError(f"{name} needs more memory than there is", where=weights.parent, mend=mend)
    of_weights: tuple[type[Exception], ...] = (SafetensorError, OSError, EOFError, RuntimeError)
    if isinstance(cause, of_weights) or (weights.suffix == ".bin" and isinstance(cause, LookupError)):
        what = "the weights cannot be read"
        what += "" if isinstance(cause, LookupError) else f" ({reason(cause)})"
        return HeadscopeError(what, where=weights, expected="a whole file", mend=_AGAIN)
    return HeadscopeError(
        f"no {name} can be built from it ({reason(cause)})",
        where=weights.parent / "config.json",
        expected="the configuration the weights were saved with",
    )


def _shape(sizes: Any) -> str:
    return " x ".join(map(str, sizes)) or "of one number"


def _weights_file(folder: Path) -> Path:
    """The file transformers will read, or a refusal where it is plainly something else."""
    path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise HeadscopeError(
            "no weights here",
            where=folder,
            expected="model.safetensors or pytorch_model.bin",
            mend="Download the whole model; weights for other frameworks are not read",
        )
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError as cause:
        raise HeadscopeError(f"cannot be read: {reason(cause)}", where=path, expected="weights") from cause
    kinds = {
        b"version https://git-lfs": "a pointer of git-lfs",
        b"<!doctype": "a web page",
        b"<html": "a web page",
    }
    what = next((kind for mark, kind in kinds.items() if start.startswith(mark)), None if start else "empty")
    if what is not None:
        mend = "Fetch the file itself, with git lfs pull say" if "git-lfs" in what else _AGAIN
        raise HeadscopeError(f"the file is {what}", where=path, expected="weights", mend=mend)
    return path


def _load_tokenizer(folder: Path, model: PreTrainedModel) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as cause:  # every tokenizer class fails in its own way
        raise HeadscopeError(
            "the tokenizer "
            + (
                "needs code of its own, which headscope never runs"
                if "trust_remote_code" in str(cause)
                else f"cannot be read ({reason(cause)})"
            ),
            where=folder,
            expected="tokenizer.json, or the files the family uses, beside the weights",
        ) from cause
    rows = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= rows:
        raise HeadscopeError(
            f"the tokenizer has token ids up to {largest}, but the model embeds only 0 to {rows - 1}",
            where=folder,
            expected="tokenizer and weights of one model",
        )
    if len(tokenizer) < 0.1 * rows and len(tokenizer) <= len(tokenizer.all_special_ids) + 8:
        raise HeadscopeError(
            f"the tokenizer knows {len(tokenizer)} tokens, the model {rows}: its files are missing or of another kind",
            where=folder,
            expected="tokenizer.json, or the files the family uses, beside the weights",
        )
    return tokenizer


def _check_finite(model: PreTrainedModel, folder: Path, dtype: str) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise HeadscopeError(
                f"the weights hold NaN or infinite numbers, in {name!r} first",
                where=folder,
                expected="numbers",
                mend="Get a sound checkpoint" + (", or load it in float32" if dtype == "float16" else ""),
            )


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen).item()  # "meta" is a device that holds nothing
    except Exception as cause:  # each backend that is not there says so in its own way
        there = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        there += ["mps"] if torch.backends.mps.is_available() else []
        raise HeadscopeError(
            f'"{device}" cannot be used here',
            where="--device",
            expected=choices(device, ["auto", "cpu", *there]),
        ) from cause
    return chosen


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and load reports: what matters of them is said by us."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(logging.CRITICAL)
    reports.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()
