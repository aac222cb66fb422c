"""Read the weights of a pruned model.

Its tensors do not have the shapes that transformers expects from the configuration. A model is therefore built in the
original shapes, and then each of its parameters is replaced by the tensor in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError, reason
from headscope.model.checkpoint import check_missing, class_of
from headscope.model.families import family_of
from headscope.model.fixed_attention import set_fixed_heads
from headscope.model.head_slices import update_linear_sizes
from headscope.model.manifest import NAME, WEIGHTS, Manifest
from headscope.model.surgery import update_head_attributes
from headscope.model.weights import cast

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def read_cut_weights(
    folder: Path,
    config: dict[str, Any],
    manifest: Manifest,
    model_class: str | type[PreTrainedModel] | None,
    dtype: torch.dtype,
    labels: Sequence[str] = (),
) -> tuple[PreTrainedModel, tuple[str, ...], tuple[str, ...]]:
    """(model, names of its untrained parameters, notes for the user), as `read_weights` returns for unpruned models."""
    cls, notes = class_of(config, model_class)
    tensors = _read_tensors(folder)
    model = _build_model(cls, folder, labels)
    names = _Names(model, tensors)
    _fill(model, names, tensors)
    family = family_of(config["model_type"], where=folder / "config.json")
    for name, numbers in manifest.modules.items():
        update_head_attributes(_submodule(model, names.in_model(name), folder), numbers, family)
    for name, fixed in manifest.fixed.items():
        set_fixed_heads(_submodule(model, names.in_model(name), folder), fixed)
    model.tie_weights()
    missing = tuple(sorted(name for name in model.state_dict() if names.in_file(name) is None))
    if missing:
        for module in {model.get_submodule(name.rpartition(".")[0]) for name in missing}:
            model._init_weights(module)
        # Again, because _init_weights has also changed the other parameters of these modules.
        _fill(model, names, tensors)
        model.tie_weights()
    cast(model, dtype)
    check_missing(model, missing, folder, may_be_new=model_class is not None)
    return model, missing, tuple(notes)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of the weights file, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as cause:
        raise HeadscopeError(
            f"the weights cannot be read ({reason(cause)})",
            where=folder / WEIGHTS,
            expected="a whole file",
        ) from cause
    return tensors


def _build_model(cls: Any, folder: Path, labels: Sequence[str]) -> PreTrainedModel:
    """A model in the original shapes, without initialised weights."""
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: i for i, name in enumerate(labels)}
    try:
        with no_init_weights():
            model: PreTrainedModel = (
                cls.from_config(config) if hasattr(cls, "from_config") else cls(config)
            )
    except Exception as cause:
        # For wrong values in config.json, every class raises other exceptions.
        raise HeadscopeError(
            f"no {getattr(cls, '__name__', cls)} can be built from it ({reason(cause)})",
            where=folder / "config.json",
        ) from cause
    if (folder / "generation_config.json").is_file() and model.can_generate():
        from transformers import GenerationConfig

        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model.eval()


class _Names:
    """Maps names of tensors in the model to names in the file, and back.

    They differ by a prefix if one is a base model and the other has a task head.
    """

    def __init__(self, model: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
        model.tie_weights()
        # {name: all names of the same tensor}; tied tensors have several names
        self.aliases: dict[str, list[str]] = {}
        by_tensor: dict[int, list[str]] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            by_tensor.setdefault(id(tensor), []).append(name)
        for names in by_tensor.values():
            self.aliases |= dict.fromkeys(names, names)
        self.prefix: str = f"{model.base_model_prefix}."
        self.tensors = tensors
        self.is_bare = model.base_model is model

    def in_file(self, name: str) -> str | None:
        """The name in the file of a tensor of the model; None if it is not in the file.

        A tied tensor is in the file under only one of its names.
        """
        for alias in map(str, (name, *self.aliases.get(name, ()))):
            bare = alias.removeprefix(self.prefix)
            for candidate in (alias, bare, self.prefix + bare):
                if candidate in self.tensors:
                    return candidate
        return None

    def in_model(self, name: str) -> str:
        """The name in the model of a module of the base model."""
        bare = name.removeprefix(self.prefix)
        return bare if self.is_bare else self.prefix + bare


def _submodule(model: PreTrainedModel, name: str, folder: Path) -> nn.Module:
    """The module of this name; raises if the model does not have it."""
    try:
        module: nn.Module = model.get_submodule(name)
    except AttributeError as cause:
        raise HeadscopeError(
            f"names a module {name!r} that {type(model).__name__} does not have",
            where=folder / NAME,
        ) from cause
    return module


def _fill(model: PreTrainedModel, names: _Names, tensors: dict[str, Tensor]) -> None:
    """Replace every parameter and buffer by its tensor in the file, even if the shape differs."""
    for module_name, module in model.named_modules():
        for name in [*module._parameters, *module._buffers]:
            source = names.in_file(f"{module_name}.{name}".lstrip("."))
            if source is None:
                continue
            value = tensors[source]
            if name in module._parameters:
                parameter = nn.Parameter(value, requires_grad=value.is_floating_point())
                setattr(module, name, parameter)
            else:
                module._buffers[name] = value
        update_linear_sizes(module)
