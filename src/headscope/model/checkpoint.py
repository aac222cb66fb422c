"""Read a checkpoint: its configuration and weights, or an error that names the file and the problem.

Nothing in a checkpoint is executed: no remote code, no pickled objects. Some problems that transformers accepts without
an error are errors here: missing weights, which transformers replaces by random ones, and NaN weights.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import HeadscopeError, reason
from headscope.model.families import families

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WEIGHTS = (  # in transformers' order of preference
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# With a wrong, very large number of layers, transformers would build modules for hours before it reads any weights.
_MOST_LAYERS = 1000
_LAYERS = (
    "num_hidden_layers",
    "num_layers",
    "n_layers",
    "n_layer",
    "encoder_layers",
    "decoder_layers",
)
_LARGEST_CONFIG_BYTES = 10_000_000
_AGAIN = "Download it again"


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model's directory."""
    return read_config_file(folder / "config.json")


def read_config_file(path: Path) -> dict[str, Any]:
    """A configuration; raises unless it is a JSON object with a `model_type` and a plausible number of layers."""
    expected = "a model configuration"
    try:
        if (size := path.stat().st_size) > _LARGEST_CONFIG_BYTES:
            raise HeadscopeError(f"{size / 1e6:.0f} MB are too many", where=path, expected=expected)
        config = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as cause:
        where = f"{path}:{cause.lineno}:{cause.colno}"
        raise HeadscopeError(
            f"not JSON: {cause.msg}", where=where, expected=expected, fix=_AGAIN
        ) from cause
    except (OSError, ValueError, RecursionError) as cause:
        raise HeadscopeError(
            f"not readable ({reason(cause)})", where=path, expected=expected, fix=_AGAIN
        ) from cause
    if not isinstance(config, dict):
        raise HeadscopeError("not a JSON object", where=path, expected=expected, fix=_AGAIN)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise HeadscopeError(
            "no model_type"
            if model_type is None
            else f"model_type is {json.dumps(model_type)[:40]}",
            where=path,
            expected='one that transformers knows, such as "bert"',
            fix=_AGAIN,
        )
    if "auto_map" in config and model_type not in families():
        raise HeadscopeError(
            f'model type "{model_type}" needs code from its own files (auto_map), which headscope never runs',
            where=path,
            expected=f"one of {', '.join(families())}",
        )
    for name, number in config.items():
        if not name.endswith(("layer", "layers")) or not isinstance(number, int):
            continue
        least = 1 if name in _LAYERS else 0
        if not least <= number <= _MOST_LAYERS:
            expected = f"{least} to {_MOST_LAYERS}"
            raise HeadscopeError(f"{name} is {number}", where=path, expected=expected, fix=_AGAIN)
    return config


def read_weights(
    folder: Path,
    config: dict[str, Any],
    model_class: str | type[PreTrainedModel] | None,
    dtype: torch.dtype,
    labels: Sequence[str] = (),
) -> tuple[PreTrainedModel, tuple[str, ...], tuple[str, ...]]:
    """(model, names of its untrained parameters, notes for the user).

    model_class  the transformers class or its name; None for the class in the configuration
    labels       the classes of a new classifier
    """
    import transformers

    cls, notes = class_of(config, model_class)
    if "auto_map" in config:
        notes.append(
            "config.json names code of its own (auto_map), which was not run: loaded as transformers' own class"
        )
    model, missing, unused = _load_pretrained(cls, folder, dtype, labels)
    if missing and model_class is None and cls is not transformers.AutoModel:
        # Some files contain only the base model, although the configuration names a class with a task head.
        bare, bare_missing, bare_unused = _load_pretrained(transformers.AutoModel, folder, dtype)
        if len(bare_missing) < len(missing):
            notes.append(
                f"the file has no weights for the head of {type(model).__name__}: loaded as {type(bare).__name__}"
            )
            model, missing, unused = bare, bare_missing, bare_unused
    check_missing(model, missing, folder, may_be_new=model_class is not None)
    if unused:
        notes.append(
            f"{len(unused)} tensors of the file have no place in {type(model).__name__}, {unused[0]!r} first"
        )
    return model, missing, tuple(notes)


def class_of(
    config: dict[str, Any], model_class: str | type[PreTrainedModel] | None
) -> tuple[Any, list[str]]:
    """(class to load, notes for the user).

    The class is the requested one, else the one that config.json names if it fits the model type, else the base model.
    """
    import transformers

    def is_model(cls: object) -> bool:
        return isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)

    if model_class is not None:
        cls: Any = model_class
        if isinstance(model_class, str):
            cls = getattr(transformers, model_class, None)
        if not is_model(cls) and not str(model_class).startswith("AutoModel"):
            raise HeadscopeError(
                f'transformers has no model class "{model_class}"', where="model_class"
            )
        return cls, []
    listed = config.get("architectures")
    named = listed[0] if isinstance(listed, list) and listed else None
    cls = getattr(transformers, named, None) if isinstance(named, str) else None
    if is_model(cls) and getattr(cls.config_class, "model_type", None) == config["model_type"]:
        return cls, []
    problem = (
        f"names {named!r}, which is not a {config['model_type']} class of transformers"
        if named
        else "is missing"
    )
    return transformers.AutoModel, [
        f"architectures in config.json {problem}: loaded as the bare model"
    ]


def check_missing(
    model: PreTrainedModel, missing: tuple[str, ...], folder: Path, *, may_be_new: bool
) -> None:
    """Raise if weights are missing, except those of a pooler, and of a task head if the caller requested a new one.

    missing     names of parameters that are not in the file
    may_be_new  whether a task head may be new
    """
    prefix, is_bare = f"{model.base_model_prefix}.", model.base_model is model
    in_base = [key for key in missing if is_bare or key.startswith(prefix)]
    wrong = [key for key in (in_base if may_be_new else missing) if "pooler" not in key]
    if wrong:
        raise HeadscopeError(
            f"the weights lack {len(wrong)} tensors of {type(model).__name__}, {wrong[0]!r} first; "
            "they would be random",
            where=folder,
            fix="Get the whole checkpoint, or load another class with model_class",
        )


def _load_pretrained(
    cls: Any, folder: Path, dtype: torch.dtype, labels: Sequence[str] = ()
) -> tuple[PreTrainedModel, tuple[str, ...], tuple[str, ...]]:
    """(model, parameters that are not in the file, tensors of the file that are not in the model).

    Runs no code from the checkpoint.
    """
    weights = _weights_file(folder)
    classes = {
        "id2label": dict(enumerate(labels)),
        "label2id": {name: i for i, name in enumerate(labels)},
    }
    try:
        model, info = cls.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            weights_only=True,
            ignore_mismatched_sizes=True,  # an error below, which names the tensor
            output_loading_info=True,
            **(classes if labels else {}),
        )
    except pickle.UnpicklingError as cause:  # torch's message advises to allow arbitrary code
        raise HeadscopeError(
            "this is not a pickle of weights alone; nothing in it was run",
            where=weights,
            expected="tensors",
            fix="Get the model as safetensors",
        ) from cause
    except Exception as cause:
        # For wrong values in config.json, every class raises other exceptions.
        raise _load_error(cause, weights, getattr(cls, "__name__", str(cls))) from cause
    for name, in_file, in_model in sorted(info["mismatched_keys"]):
        raise HeadscopeError(
            f"{name!r} has shape {_shape(in_file)}, but config.json makes it {_shape(in_model)}",
            where=weights,
            expected="weights and config.json of one model",
        )
    return model, tuple(sorted(info["missing_keys"])), tuple(sorted(info["unexpected_keys"]))


def _load_error(cause: Exception, weights: Path, name: str) -> HeadscopeError:
    """The error for an exception while loading: names the weights, the configuration, or too little memory."""
    from safetensors import SafetensorError

    if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
        fix = 'Check the sizes in config.json; if they are right, take `dtype="bfloat16"` or a larger machine'
        return HeadscopeError(
            f"{name} needs more memory than there is", where=weights.parent, fix=fix
        )
    damage: tuple[type[Exception], ...] = (SafetensorError, OSError, EOFError, RuntimeError)
    is_bad_pickle = weights.suffix == ".bin" and isinstance(cause, LookupError)
    if is_bad_pickle or isinstance(cause, damage):
        what = "the weights cannot be read"
        what += "" if isinstance(cause, LookupError) else f" ({reason(cause)})"
        return HeadscopeError(what, where=weights, expected="a whole file", fix=_AGAIN)
    return HeadscopeError(
        f"no {name} can be built from it ({reason(cause)})",
        where=weights.parent / "config.json",
        expected="the configuration the weights were saved with",
    )


def _shape(sizes: Any) -> str:
    """A shape as text, such as `30522 x 384`."""
    return " x ".join(map(str, sizes)) or "of one number"


def _weights_file(folder: Path) -> Path:
    """The file of weights that transformers will read; raises if its beginning shows that it is something else."""
    path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if path is None and (folder / "model.onnx").is_file():
        raise HeadscopeError(
            "this is a graph for onnxruntime",
            where=folder,
            expected="weights",
            fix='Run model.onnx with onnxruntime, or cut the model in another form: `form="small"` or plain',
        )
    if path is None:
        raise HeadscopeError(
            "no weights here",
            where=folder,
            expected="model.safetensors or pytorch_model.bin",
            fix="Download the whole model; weights for other frameworks are not read",
        )
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip().lower()
    except OSError as cause:
        raise HeadscopeError(
            f"cannot be read: {reason(cause)}", where=path, expected="weights"
        ) from cause
    kinds = {
        b"version https://git-lfs": "a pointer of git-lfs",
        b"<!doctype": "a web page",
        b"<html": "a web page",
    }
    kind = next((kind for mark, kind in kinds.items() if start.startswith(mark)), None)
    if kind is not None or not start:
        fix = _AGAIN if kind != "a pointer of git-lfs" else "Fetch the file itself: git lfs pull"
        what = f"the file is {kind or 'empty'}"
        raise HeadscopeError(what, where=path, expected="weights", fix=fix)
    return path


def check_finite(model: PreTrainedModel, folder: Path, dtype: str) -> None:
    """Raise if a parameter has NaN or infinite numbers."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise HeadscopeError(
                f"the weights hold NaN or infinite numbers, in {name!r} first",
                where=folder,
                expected="numbers",
                fix="Get a sound checkpoint"
                + (", or load it in float32" if dtype == "float16" else ""),
            )
