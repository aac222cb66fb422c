"""The weights of a cut model, of shapes that no configuration gives: each tensor of the file is put in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError, reason
from headscope.model.attention_model import family_of
from headscope.model.checkpoint import check_missing, class_of
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
    """The model, its untrained parameters, and notes for the user; as `read_weights` does for whole ones."""
    cls, notes = class_of(config, model_class)
    tensors = _tensors(folder)
    model = _built(cls, folder, labels)
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
        _fill(model, names, tensors)  # what was there of these modules, and what is tied to it
        model.tie_weights()
    cast(model, dtype)
    check_missing(model, missing, folder, may_be_new=model_class is not None)
    return model, missing, tuple(notes)


def _tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as cause:
        raise HeadscopeError(
            f"the weights cannot be read ({reason(cause)})",
            where=folder / WEIGHTS,
            expected="a whole file",
        ) from cause
    return found


def _built(cls: Any, folder: Path, labels: Sequence[str]) -> PreTrainedModel:
    """A model of full shapes, of which no weight is set yet."""
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
    except Exception as cause:  # wrong values in config.json fail in every class in its own way
        raise HeadscopeError(
            f"no {getattr(cls, '__name__', cls)} can be built from it ({reason(cause)})",
            where=folder / "config.json",
        ) from cause
    if (folder / "generation_config.json").is_file() and model.can_generate():
        from transformers import GenerationConfig

        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model.eval()


class _Names:
    """What a tensor is called in the file and in the model: with a head on top all others get a prefix."""

    def __init__(self, model: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
        model.tie_weights()
        self.aliases: dict[str, list[str]] = {}  # the names of each tensor that has several
        by_tensor: dict[int, list[str]] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            by_tensor.setdefault(id(tensor), []).append(name)
        for names in by_tensor.values():
            self.aliases |= dict.fromkeys(names, names)
        self.prefix: str = f"{model.base_model_prefix}."
        self.tensors = tensors
        self.is_bare = model.base_model is model

    def in_file(self, name: str) -> str | None:
        """What the file calls a tensor of the model; of one with several names it has only one."""
        for alias in [name, *self.aliases.get(name, ())]:
            plain = str(alias).removeprefix(self.prefix)
            for one in (str(alias), plain, self.prefix + plain):
                if one in self.tensors:
                    return one
        return None

    def in_model(self, name: str) -> str:
        plain = name.removeprefix(self.prefix)
        return plain if self.is_bare else self.prefix + plain


def _submodule(model: PreTrainedModel, name: str, folder: Path) -> nn.Module:
    try:
        found: nn.Module = model.get_submodule(name)
    except AttributeError as cause:
        raise HeadscopeError(
            f"names a module {name!r} that {type(model).__name__} does not have",
            where=folder / NAME,
        ) from cause
    return found


def _fill(model: PreTrainedModel, names: _Names, tensors: dict[str, Tensor]) -> None:
    """Every tensor of the file in its place, of whatever shape."""
    for module_name, module in model.named_modules():
        for name in [*module._parameters, *module._buffers]:
            source = names.in_file(f"{module_name}.{name}".lstrip("."))
            if source is not None:
                _put(module, name, tensors[source])
        update_linear_sizes(module)


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    if name in module._parameters:
        setattr(module, name, nn.Parameter(value, requires_grad=value.is_floating_point()))
    else:
        module._buffers[name] = value
