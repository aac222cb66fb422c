"""Read the files of a sentence-transformers model into a `TextReading`, and write them next to saved weights.

Only JSON files, licences and the safetensors of Dense modules are read. Nothing is executed: a module is recognised by
the name of its class. The contents of files are stored in memory, because the source directory may be gone when the
model is saved. Other files of the source are not copied, because they may belong to the unpruned weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headscope.config.poolings import ALIASES, POOLINGS
from headscope.errors import MANY, reason
from headscope.model.module_files import (
    MODULES,
    MOST_BYTES,
    CannotRead,
    list_modules,
    read_content,
    read_json,
    transformer_folder,
)
from headscope.model.reading import ACTIVATIONS, BY_OPTION, Dense, Normalize, TextReading

PROMPTS = "config_sentence_transformers.json"
LENGTHS = tuple(  # files with the maximum length, in the order in which sentence-transformers looks for them
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
LICENCES = re.compile(r"(licen[cs]e|copying|notice)([-_.].*)?", re.IGNORECASE)
# Suffixes of a licence file, so that no weights or code are copied
_TEXT = re.compile(r"(\.(txt|md|rst|\d+))?", re.IGNORECASE)
_BOOLEANS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TO_FILE = {ours: theirs for theirs, ours in ALIASES.items()}
_ARGUMENTS = [
    "model_args",
    "model_kwargs",
    "tokenizer_args",
    "processor_kwargs",
    "config_args",
    "config_kwargs",
]
# Arguments that do not change vectors, or that headscope reads from other files
_HARMLESS = {
    "attn_implementation",
    "dtype",
    "model_max_length",
    "padding_side",
    "torch_dtype",
    "trust_remote_code",
}
# Files that transformers and headscope write for the saved model, and files that describe how the source was made.
_NAMES_WRITTEN_ANEW = """
    config.json generation_config.json model.safetensors model.safetensors.index.json headscope.json cut.json
    README.md run.json training.json plan.json study checkpoints added_tokens.json chat_template.jinja merges.txt
    sentencepiece.bpe.model source.spm special_tokens_map.json spiece.model spm.model target.spm tokenizer.json
    tokenizer.model tokenizer_config.json vocab.json vocab.txt
"""
_WRITTEN_ANEW = frozenset(_NAMES_WRITTEN_ANEW.split())


def read_reading(folder: Path) -> TextReading:
    """The reading that the files of a model's directory state; without `modules.json`, an empty reading.

    Modules that cannot be applied are not an error here, since attention can still be observed: the reading then has a
    `problem`.
    """
    reading = TextReading()
    if (folder / MODULES).is_file():
        try:
            reading = _read_modules(folder)
        except CannotRead as cause:
            reading = TextReading(problem=str(cause))
    files = {path.name: path.read_bytes() for path in _licences(folder)} | dict(reading.files)
    return replace(reading, files=files, left_out=tuple(sorted(_others(folder, set(files)))))


def _read_modules(folder: Path) -> TextReading:
    """The reading that the modules in modules.json state; raises `CannotRead` if one is not supported."""
    modules = list_modules(folder)
    if _class_name(modules[0]) != "Transformer":
        raise CannotRead(f"{MODULES}: the first module is {modules[0]['type']}, not a Transformer")
    if len(modules) < 2 or _class_name(modules[1]) != "Pooling":
        raise CannotRead(f"{MODULES}: no Pooling follows the Transformer")
    # In a saved model the transformer is in the directory itself. Every function below adds the files that it reads.
    files = {MODULES: _as_bytes([{**modules[0], "path": ""}, *modules[1:]])}
    reading = _pooling(folder, modules[1]["path"], files)
    following = tuple(_module(folder, module, files) for module in modules[2:])
    reading = _lengths(folder, modules[0]["path"], replace(reading, modules=following), files)
    return replace(_prompts(folder, reading, files), files=files)


def _class_name(module: Mapping[str, Any]) -> str:
    """The name of a module's class; with its package if it is not from sentence-transformers."""
    package, _, name = str(module["type"]).rpartition(".")
    return name if package.partition(".")[0] == "sentence_transformers" else str(module["type"])


def _pooling(folder: Path, path: str, files: dict[str, bytes]) -> TextReading:
    """A reading with the pooling of a Pooling module."""
    name = f"{path}/config.json"
    content = _object(folder, name, files)
    modes = content.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in _BOOLEANS.items() if content.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1:
        shown = " and ".join(map(str, modes)) if isinstance(modes, list) else repr(modes)
        raise CannotRead(f"{name}: pooling by {shown} at once is not supported")
    pooling = ALIASES.get(modes[0], modes[0])
    if pooling not in POOLINGS:
        raise CannotRead(f'{name}: pooling "{modes[0]}" is not supported')
    return TextReading(
        pooling=pooling, stated_by=name, include_prompt=bool(content.get("include_prompt", True))
    )


def _module(folder: Path, module: dict[str, Any], files: dict[str, bytes]) -> Normalize | Dense:
    """A module after the pooling; raises `CannotRead` if it is not supported."""
    class_name, path = _class_name(module), module["path"]
    if class_name not in ("Normalize", "Dense"):
        raise CannotRead(
            f"{MODULES}: the module type {module['type']} is not supported (only Normalize and Dense are)"
        )
    name = f"{path}/config.json"
    if class_name == "Normalize" and not (folder / name).is_file():
        return Normalize(path)  # old versions of sentence-transformers write no config.json
    content = _object(folder, name, files)
    for key in ("module_input_name", "module_output_name"):
        if content.get(key, "sentence_embedding") not in (None, "sentence_embedding"):
            raise CannotRead(
                f"{name}: {key} {content[key]!r} is not supported (only sentence_embedding is)"
            )
    return Normalize(path) if class_name == "Normalize" else _dense(folder, path, content, files)


def _dense(folder: Path, path: str, content: dict[str, Any], files: dict[str, bytes]) -> Dense:
    """A Dense module with its weights. content: that of its config.json"""
    from safetensors import SafetensorError
    from safetensors.torch import load

    activation = content.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise CannotRead(f"{path}/config.json: the activation {activation!r} is not supported")
    if content.get("use_residual"):
        raise CannotRead(f"{path}/config.json: use_residual is not supported")
    name = f"{path}/model.safetensors"
    if not (folder / name).is_file():
        raise CannotRead(
            f"{path} has no model.safetensors, and weights in other formats are not read"
        )
    files[name] = (folder / name).read_bytes()
    try:
        tensors = load(files[name])
        weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    except (SafetensorError, KeyError, ValueError) as cause:
        raise CannotRead(f"{name} cannot be read ({reason(cause)})") from cause
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise CannotRead(f"{name} holds NaN or infinite numbers")
    return Dense(path, weight.float(), None if bias is None else bias.float(), activation)


def _lengths(folder: Path, path: str, reading: TextReading, files: dict[str, bytes]) -> TextReading:
    """The reading with the maximum length and lower-casing that the transformer's settings state."""
    name = next((name for name in LENGTHS if (folder / path / name).is_file()), None)
    if name is None:
        return reading
    settings_files: dict[str, bytes] = {}
    content = _object(folder / path, name, settings_files)
    files |= settings_files  # without `path`: in a saved model the transformer is in the directory itself
    if content.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise CannotRead(
            f"{name}: transformer_task {content['transformer_task']!r} is not supported"
        )
    groups = (content.get(group) or {} for group in _ARGUMENTS)
    arguments = {key: value for group in groups for key, value in group.items()}
    unknown = sorted(set(arguments) - _HARMLESS)
    if unknown:
        raise CannotRead(f"{name}: the argument {unknown[0]!r} is not supported")
    length = arguments.get("model_max_length", content.get("max_seq_length"))
    if length is not None and (not isinstance(length, int) or length < 1):
        raise CannotRead(f"{name}: max_seq_length must be a positive number, got {length!r}")
    return replace(reading, max_length=length, lower_case=bool(content.get("do_lower_case", False)))


def _prompts(folder: Path, reading: TextReading, files: dict[str, bytes]) -> TextReading:
    """The reading with the prompts and the similarity that a file states."""
    if not (folder / PROMPTS).is_file():
        return reading
    content = _object(folder, PROMPTS, files)
    prompts, default = content.get("prompts") or {}, content.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise CannotRead(f"{PROMPTS}: prompts must be texts by name")
    if default is not None and default not in prompts:
        raise CannotRead(f'{PROMPTS}: default_prompt_name "{default}" is not one of the prompts')
    stated = {name: text or "" for name, text in prompts.items()}
    similarity = content.get("similarity_fn_name")
    return replace(reading, prompts=stated, default_prompt_name=default, similarity=similarity)


# Saving


def write_reading(reading: TextReading, folder: Path, *, where: str, width: int | None) -> None:
    """Write files with which sentence-transformers computes the same vectors from the saved model, and licences.

    If the pooling of the model is not stated anywhere, no file with a pooling is written.

    width  the width of token states
    """
    reading.check(where)
    for name, content in files_of(reading, width).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def files_of(reading: TextReading, width: int | None) -> dict[str, bytes]:
    """{path: content} of the files, with changes if the user overrode the pooling or the prompt."""
    files = dict(reading.files)
    if reading.stated_by == BY_OPTION or (reading.prompt is not None and MODULES not in files):
        path = "1_Pooling"
        if MODULES in files:
            path = json.loads(files[MODULES])[1]["path"]
        else:
            files[MODULES] = _as_bytes(_new_modules())
        pooling = reading.pooling or "mean"
        mode = _TO_FILE.get(pooling, pooling)
        stated = {
            "embedding_dimension": width,
            "pooling_mode": mode,
            "include_prompt": reading.include_prompt,
        }
        # For sentence-transformers before version 5.4
        old: dict[str, Any] = {key: value == mode for key, value in _BOOLEANS.items()}
        content = {**stated, "word_embedding_dimension": width, **old}
        files[f"{path}/config.json"] = _as_bytes(content)
    if reading.prompt is not None:
        content = json.loads(files.get(PROMPTS, b"{}"))
        names = dict.fromkeys(("default", "query", "document"), reading.prompt)
        content["prompts"] = {**(content.get("prompts") or {}), **names}
        content["default_prompt_name"] = "default"
        files[PROMPTS] = _as_bytes(content)
    return files


def _new_modules() -> list[dict[str, Any]]:
    """The content of modules.json for a transformer and a pooling."""
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"))
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(modules)
    ]


# Files


def _licences(folder: Path) -> list[Path]:
    """The licence files in a directory."""
    return [
        path
        for path in sorted(folder.iterdir())
        if LICENCES.fullmatch(path.name)
        and _TEXT.fullmatch(path.suffix)
        and path.is_file()
        and path.stat().st_size <= MOST_BYTES
    ]


def _others(folder: Path, copied: set[str]) -> list[str]:
    """The files of the source directory that are not copied.

    A directory of which nothing is copied is one entry, with a slash at its end.
    """
    transformer = transformer_folder(folder)
    others = []
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in copied or _is_written_anew(path.name):
            continue
        is_copied_from = any(name.startswith(f"{path.name}/") for name in copied)
        # Other directories are not listed, because they may be large.
        if not path.is_dir() or not (path == transformer or is_copied_from):
            others.append(f"{path.name}/" if path.is_dir() else path.name)
            continue
        inside = {file.relative_to(folder).as_posix() for file in path.rglob("*") if file.is_file()}
        others += [
            name
            for name in inside - copied
            if path != transformer or not _is_written_anew(Path(name).name)
        ]
    return others


def _is_written_anew(name: str) -> bool:
    """Whether a file with this name is written for the saved model, or describes how the source was made."""
    is_part = re.fullmatch(r"model-\d+-of-\d+\.safetensors", name) is not None
    return is_part or name in _WRITTEN_ANEW or name in LENGTHS


def _object(folder: Path, name: str, files: dict[str, bytes]) -> dict[str, Any]:
    """The JSON object in a file, whose content is added to `files`."""
    content = read_json(folder, name)
    if not isinstance(content, dict):
        raise CannotRead(f"{name} is not a JSON object")
    files[name] = read_content(folder / name)
    return content


def _as_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def describe_left_out(reading: TextReading) -> str | None:
    """A sentence about the files of the source directory that are not copied; None if there are none."""
    names = reading.left_out
    if not names:
        return None
    more = f" and {len(names) - MANY} more" if len(names) > MANY else ""
    return f"not copied from the source directory: {', '.join(names[:MANY])}{more}"
