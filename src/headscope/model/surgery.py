"""Surgery: remove heads from the weights, so that a smaller model computes the same function as the ablated one.

The linear layers inside an attention module compute queries, keys and values. Their output features belong to heads, as
do the input features of the output projection. Other tensors with an axis of heads, such as a position bias, are
handled by the family. Since this relies on how a model class stores its heads, every pruned model is run and compared
with the ablated one; a difference is an error.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from headscope.errors import HeadscopeError
from headscope.heads import Head, Heads, HeadSet, Site, format_heads, head_names
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Edit
from headscope.model.families import Family
from headscope.model.fixed_attention import get_fixed_heads, set_fixed_heads
from headscope.model.head_slices import Slice, head_slices
from headscope.model.manifest import Cut, Origin
from headscope.model.sample_inputs import main_output, sample_inputs
from headscope.model.weights import cast, in_float32, weights_sha256

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Names of attributes of attention modules in transformers: the number of heads, and that number times the head width
COUNTS = ("num_attention_heads", "num_heads", "n_heads", "n_head")
WIDTHS = ("all_head_size", "inner_dim", "split_size")
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}  # relative to the largest output


def origin_of(model: AttentionModel) -> Origin:
    """The unpruned model that this one was made from; describes the model itself if it is unpruned."""
    if model.cut is not None:
        return model.cut.origin
    widths = {Site(site.stack, site.layer): len(site.numbers or ()) for site in model.sites}
    return Origin(model.name, weights_sha256(model), widths)


def original_heads(model: AttentionModel) -> tuple[Head, ...]:
    """The heads of the unpruned model that this one was made from."""
    return model.heads if model.cut is None else model.cut.origin.heads


def removed_heads(model: AttentionModel) -> HeadSet:
    """The heads that were pruned from the original model."""
    among = original_heads(model)
    return HeadSet(set(among) - set(model.heads), among=among)


def units(model: AttentionModel) -> list[tuple[Head, ...]]:
    """The sets of heads that can only be pruned together. In most models each set is one head.

    Sites that share a module lose the same head: all layers of ALBERT, and the two streams of XLNet. Query heads that
    share a KV head are removed together with it.
    """
    size = group_size(model)  # query head n uses KV head n // size
    units_of_model = []
    for sites in model.attention_modules.values():
        for group in dict.fromkeys(number // size for number in sites[0].numbers or ()):
            units_of_model.append(
                tuple(
                    Head(site.stack, site.layer, number)
                    for site in sites
                    for number in site.numbers or ()
                    if number // size == group
                )
            )
    order = {head: i for i, head in enumerate(model.heads)}
    return sorted(units_of_model, key=lambda unit: order[unit[0]])


def group_size(model: AttentionModel) -> int:
    """The number of query heads that share one KV head; 1 without grouped-query attention."""
    config = model.model.config
    kv_heads = getattr(config, "num_key_value_heads", None)
    return int(config.num_attention_heads) // int(kv_heads) if kv_heads else 1


def prune(
    model: AttentionModel,
    heads: Heads | None = None,
    *,
    layers: int | str | Iterable[int | str] | None = None,
) -> AttentionModel:
    """A smaller copy of the model without these heads, with the same outputs as the model with the heads ablated.

    The remaining heads keep their numbers: without head 3.2, the next head of layer 3 is still 3.3.

    heads   `"3.2,4.*"`, `[(3, 2), (4, 0)]` or `Head` objects
    layers  remove all heads of these layers: 5, `[4, 5]`, `"5"` or `"encoder.3,cross.5"`
    """
    remove = _heads_to_remove(model, heads, layers)
    check_prunable(model, remove)
    kept = {
        site: tuple(head.head for head in site.heads(len(site.numbers or ())) if head not in remove)
        for site in model.sites
    }
    smaller = copy.deepcopy(model.model)
    for parameter_slice in _slices(model, smaller, kept):
        parameter_slice.keep()
    for name, sites in model.attention_modules.items():
        numbers = kept[sites[0]]
        if numbers != sites[0].numbers:
            core = smaller.get_submodule(name)  # the attention module
            update_head_attributes(core, numbers, model.family)
            if (fixed := get_fixed_heads(core)) is not None:
                patterns = tuple(fixed.patterns[sites[0].index_of(number)] for number in numbers)
                set_fixed_heads(core, replace(fixed, patterns=patterns))
    # A module without heads makes no attention call: its sites cannot be found by observing, so its name is recorded.
    silent = [name for name, sites in model.attention_modules.items() if not kept[sites[0]]]
    pruned = model.wrap_changed(smaller, cut=extend_cut(model, kept, silent))
    check_same_outputs(model, pruned, Ablate(remove))
    return pruned


def extend_cut(
    model: AttentionModel, kept: Mapping[Site, tuple[int, ...]], silent: Iterable[str] = ()
) -> Cut:
    """The `Cut` of a model that was pruned from this one.

    kept    the numbers of the heads left at each site
    silent  the names of the attention modules that now lose their last heads
    """
    before = model.cut or Cut(origin_of(model), {})
    return Cut(before.origin, kept, (*before.silent, *silent), before.history)


def expand(model: AttentionModel) -> PreTrainedModel:
    """The pruned model as a transformers model with the original shapes, and zeros in place of the removed heads.

    It computes the same function, and transformers can load it without headscope.
    """
    assert model.cut is not None
    full: PreTrainedModel = type(model.model)(copy.deepcopy(model.model.config)).eval()
    state = model.model.state_dict()
    shapes = {name: tensor.shape for name, tensor in full.state_dict().items()}
    same = {name: tensor for name, tensor in state.items() if tensor.shape == shapes.get(name)}
    full.load_state_dict(same, strict=False)
    # The other tensors have an axis of heads: fill the slices of the heads that are left, and set the others to 0.
    names = {module: name for name, module in full.named_modules()}
    wrapped = AttentionModel(full, model.tokenizer, name=model.name)
    kept = {site: site.numbers or () for site in model.sites}
    for parameter_slice in _slices(wrapped, full, kept):
        module_name = names[parameter_slice.module]
        parameter_slice.fill(state.get(f"{module_name}.{parameter_slice.name}"))
    full.generation_config = copy.deepcopy(getattr(model.model, "generation_config", None))
    cast(full, model.model.dtype)
    return full


def update_head_attributes(core: nn.Module, numbers: tuple[int, ...], family: Family) -> None:
    """Set the attributes of an attention module to the number of heads left; used after surgery and on loading.

    numbers  the original numbers of the heads that are left
    """
    for module in core.modules():
        old_count = next((getattr(module, name) for name in COUNTS if hasattr(module, name)), 0)
        for name in WIDTHS:
            if old_count and hasattr(module, name):
                setattr(module, name, getattr(module, name) // old_count * len(numbers))
        for name in COUNTS:
            if hasattr(module, name):
                setattr(module, name, len(numbers))
    if not numbers:
        family.silence(core)
    elif family.settle is not None:
        family.settle(core, numbers)


def read_heads(model: AttentionModel, heads: str) -> HeadSet:
    """The heads of the model that a text such as "3.2,4.*" selects; an error if a head is selected twice.

    Numbers are those of the original model. A star selects the heads that are left. It is an error to name a head that
    was already removed.
    """
    among = original_heads(model)
    selected: set[Head] = set()
    for item in heads.split(","):
        named = set(HeadSet(item, among=among))
        if again := selected & named:
            raise HeadscopeError(
                f"{min(again)} is given twice", where=f'heads "{heads}"', expected="each once"
            )
        selected |= named
        if "*" not in item or not named & set(model.heads):
            _check_present(model, named)
    return HeadSet(selected & set(model.heads), among=among)


def _check_present(model: AttentionModel, heads: Iterable[Head]) -> None:
    """Raise if one of these heads was already pruned."""
    removed = sorted(set(heads) & set(removed_heads(model)))
    if removed:
        present = HeadSet(model.heads, among=original_heads(model))
        raise HeadscopeError(
            f"{removed[0]} is already gone", where="`heads`", expected=f"some of {present}"
        )


def _heads_to_remove(
    model: AttentionModel, heads: Heads | None, layers: int | str | Iterable[int | str] | None
) -> HeadSet:
    """The heads that the arguments of `prune` select; exactly one of the two must be given."""
    if (heads is None) == (layers is None):
        raise HeadscopeError(
            "nothing to remove" if heads is None else "heads and layers at once",
            expected="heads, or layers" if heads is None else "one of them",
            fix='prune(model, "3.2,4.*")',
        )
    if layers is not None:
        if isinstance(layers, str):
            layers = layers.split(",")
        elif not isinstance(layers, Iterable):
            layers = [layers]
        return _heads_of_layers(model, [str(layer).strip() for layer in layers])
    names = head_names(heads or ())
    if isinstance(heads, str) or any(isinstance(head, str) for head in names):
        return read_heads(model, format_heads(names))
    again = [head for i, head in enumerate(names) if head in names[:i]]
    if again:
        raise HeadscopeError(f"{again[0]} is given twice", where="`heads`", expected="each once")
    remove = HeadSet(names, among=original_heads(model))
    _check_present(model, remove)
    return remove


def _heads_of_layers(model: AttentionModel, layers: list[str]) -> HeadSet:
    """The heads of layers such as "5" or "encoder.3" that are left."""
    present = {str(layer) for head in model.heads for layer in (head.layer, head.site)}
    for layer in layers:
        if layer not in present:
            sites = ", ".join(dict.fromkeys(str(head.site) for head in model.heads))
            raise HeadscopeError(
                f'"{layer}" has no heads in this model', where="layers", expected=sites
            )
    return read_heads(model, ",".join(f"{layer}.*" for layer in layers))


def check_prunable(model: AttentionModel, remove: HeadSet) -> None:
    """Raise if these heads cannot be removed.

    That is the case if there are none, if they are all heads of the model, or if they include only a part of a unit
    (`units`). The model must not be observed or edited either.
    """
    if model.is_open:
        raise HeadscopeError(
            "the model is being watched or edited", fix="Leave the with block before cutting"
        )
    if not remove:
        raise HeadscopeError("nothing to remove", expected="heads, or layers")
    if len(remove) == len(model.heads):
        raise HeadscopeError(
            "these are all heads of the model", where="`heads`", expected="at least one that stays"
        )
    for unit in units(model):
        selected = [head for head in unit if head in remove]
        if 0 < len(selected) < len(unit):
            unit_heads = HeadSet(unit, among=model.heads)
            reason, alternative = "query heads share a key and value head", str(unit_heads)
            if len({head.site for head in unit}) > 1:
                reason, alternative = "layers share their weights", f"*.{selected[0].head}"
            raise HeadscopeError(
                f"{selected[0]} cannot be cut alone: {reason}",
                where=model.name,
                expected=f"all of {unit_heads}, or none",
                fix=f"Write {alternative}; to switch off one of them without cutting, edit the model: Ablate",
            )


def _slices(
    model: AttentionModel, root: nn.Module, kept: Mapping[Site, tuple[int, ...]]
) -> list[Slice]:
    """The slices of parameters that belong to the kept heads, for every attention module that loses heads.

    root  the model to slice: a copy of `model`, or a model with the same module names
    kept  the numbers of the heads to keep at each site
    """
    parts = anatomy(model)
    slices: list[Slice] = []
    for name, sites in model.attention_modules.items():
        site = sites[0]  # all sites of a module lose the same heads (`units`)
        if kept[site] == site.numbers:
            continue
        core, projection = root.get_submodule(name), parts[site].projection
        heads = [site.index_of(number) for number in kept[site]]
        if model.family.axes:
            indices = torch.tensor(heads, dtype=torch.long)
            axes = model.family.axes.items()
            slices += [Slice(core, parameter, axis, indices) for parameter, axis in axes]
        else:
            output = None if projection is None else root.get_submodule(projection)
            slices += head_slices(core, output, heads, len(site.numbers or ()), group_size(model))
    return slices


def check_same_outputs(model: AttentionModel, changed: AttentionModel, edit: Edit) -> None:
    """Raise if the outputs of a changed model differ from those of the model under an edit, on a small padded batch.

    For pruning the edit is the ablation of the removed heads.
    """
    training, dtype = model.model.training, model.model.dtype
    modules = model.model, changed.model
    for module in modules:
        module.eval()
    try:
        with in_float32(model.model), in_float32(changed.model), torch.no_grad():
            inputs = sample_inputs(model, batch=2)
            with model.edited(edit):
                expected = main_output(model, inputs)
            actual = main_output(changed, inputs)
    finally:
        for module in modules:
            module.train(training)
    limit = TOLERANCE.get(dtype, TOLERANCE[torch.float32])
    # Relative to the largest output; absolute if all outputs are below 1.
    difference = float((actual - expected).abs().max() / expected.abs().max().clamp_min(1.0))
    if not difference <= limit:  # not `>`, which would let NaN pass
        raise HeadscopeError(
            f"the cut model differs from the edited one by {difference:.1e} of its outputs",
            where=model.name,
            expected=f"at most {limit:.0e}",
            fix=f"{type(model.model).__name__} keeps its heads in a way headscope does not know; please report it",
        )
