"""Surgery: heads taken out of the weights. Smaller matrices compute the same function as the ablated model.

The linear layers inside an attention module make queries, keys and values: their rows belong to heads, as do the
columns of its output projection. Anything else with an axis of heads (a position bias, for example) is handled by the
family. None of this is trusted: a pruned model is compared with the ablated one, and it is an error if they differ.
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

# Attributes of attention modules: a number of heads, and that number times the width of a head.
COUNTS = ("num_attention_heads", "num_heads", "n_heads", "n_head")
WIDTHS = ("all_head_size", "inner_dim", "split_size")
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}  # of the largest output


def origin_of(model: AttentionModel) -> Origin:
    """The model that this one was pruned from; the model itself if nothing was pruned yet."""
    if model.cut is not None:
        return model.cut.origin
    widths = {Site(site.stack, site.layer): len(site.numbers or ()) for site in model.sites}
    return Origin(model.name, weights_sha256(model), widths)


def original_heads(model: AttentionModel) -> tuple[Head, ...]:
    return model.heads if model.cut is None else model.cut.origin.heads


def removed_heads(model: AttentionModel) -> HeadSet:
    """The original model's heads that this one no longer has."""
    among = original_heads(model)
    return HeadSet(set(among) - set(model.heads), among=among)


def units(model: AttentionModel) -> list[tuple[Head, ...]]:
    """The sets of heads that can only be pruned together: single heads in most models.

    Layers that share a module lose the same head (ALBERT; the two streams of XLNet), and query heads that share a
    key and value head are removed with it.
    """
    size = group_size(model)  # query head n uses the key and value head n // size
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
    """The number of query heads that share a key and value head."""
    config = model.model.config
    keys = getattr(config, "num_key_value_heads", None)
    return int(config.num_attention_heads) // int(keys) if keys else 1


def prune(
    model: AttentionModel,
    heads: Heads | None = None,
    *,
    layers: int | str | Iterable[int | str] | None = None,
) -> AttentionModel:
    """A smaller model without these heads: equal to the ablated one, its head numbers those of the original.

    heads   `"3.2,4.*"`, `[(3, 2), (4, 0)]`, or heads
    layers  whole attention blocks: 5, `[4, 5]`, `"5"` or `"encoder.3,cross.5"`
    """
    remove = _heads_to_remove(model, heads, layers)
    check_prunable(model, remove)
    kept = {
        site: tuple(head.head for head in site.heads(len(site.numbers or ())) if head not in remove)
        for site in model.sites
    }
    smaller = copy.deepcopy(model.model)
    for part in _slices(model, smaller, kept):
        part.keep()
    for name, sites in model.attention_modules.items():
        numbers = kept[sites[0]]
        if numbers != sites[0].numbers:
            core = smaller.get_submodule(name)
            update_head_attributes(core, numbers, model.family)
            if (fixed := get_fixed_heads(core)) is not None:
                patterns = tuple(fixed.patterns[sites[0].index_of(number)] for number in numbers)
                set_fixed_heads(core, replace(fixed, patterns=patterns))
    # A module without heads adds only the bias of its projection. It makes no call, so that its name is recorded.
    silent = [name for name, sites in model.attention_modules.items() if not kept[sites[0]]]
    pruned = model.wrap_changed(smaller, cut=extend_cut(model, kept, silent))
    check_same_outputs(model, pruned, Ablate(remove))
    return pruned


def extend_cut(
    model: AttentionModel, kept: Mapping[Site, tuple[int, ...]], silent: Iterable[str] = ()
) -> Cut:
    """What a model made from this one has lost: these heads are left, and these modules lost all of theirs."""
    before = model.cut or Cut(origin_of(model), {})
    return Cut(before.origin, kept, (*before.silent, *silent), before.history)


def expand(model: AttentionModel) -> PreTrainedModel:
    """The transformers model of a pruned one in full shapes, with zeros where heads were: the same function."""
    assert model.cut is not None
    whole: PreTrainedModel = type(model.model)(copy.deepcopy(model.model.config)).eval()
    state = model.model.state_dict()
    shapes = {name: tensor.shape for name, tensor in whole.state_dict().items()}
    same = {name: tensor for name, tensor in state.items() if tensor.shape == shapes.get(name)}
    whole.load_state_dict(same, strict=False)
    # The rest are tensors with an axis of heads: their slices are filled, and removed heads stay 0.
    names = {module: name for name, module in whole.named_modules()}
    full = AttentionModel(whole, model.tokenizer, name=model.name)
    kept = {site: model._sites[site].numbers or () for site in full.sites}
    for part in _slices(full, whole, kept):
        part.fill(state.get(f"{names[part.module]}.{part.name}"))
    whole.generation_config = copy.deepcopy(getattr(model.model, "generation_config", None))
    cast(whole, model.model.dtype)
    return whole


def update_head_attributes(core: nn.Module, numbers: tuple[int, ...], family: Family) -> None:
    """Set the attributes of an attention module to the heads it has left, after surgery or on loading."""
    for module in core.modules():
        before = next((getattr(module, name) for name in COUNTS if hasattr(module, name)), 0)
        for name in WIDTHS:
            if before and hasattr(module, name):
                setattr(module, name, getattr(module, name) // before * len(numbers))
        for name in COUNTS:
            if hasattr(module, name):
                setattr(module, name, len(numbers))
    if not numbers:
        family.silence(core)
    elif family.settle is not None:
        family.settle(core, numbers)


def read_heads(model: AttentionModel, heads: str) -> HeadSet:
    """Heads of the original model from text, each named once, that the model still has.

    A star means those that are left; a head that was removed already cannot be named.
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
    removed = sorted(set(heads) & set(removed_heads(model)))
    if removed:
        present = HeadSet(model.heads, among=original_heads(model))
        raise HeadscopeError(
            f"{removed[0]} is already gone", where="`heads`", expected=f"some of {present}"
        )


def _heads_to_remove(
    model: AttentionModel, heads: Heads | None, layers: int | str | Iterable[int | str] | None
) -> HeadSet:
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
    present = {str(layer) for head in model.heads for layer in (head.layer, head.site)}
    for layer in layers:
        if layer not in present:
            sites = ", ".join(dict.fromkeys(str(head.site) for head in model.heads))
            raise HeadscopeError(
                f'"{layer}" has no heads in this model', where="layers", expected=sites
            )
    return read_heads(model, ",".join(f"{layer}.*" for layer in layers))


def check_prunable(model: AttentionModel, remove: HeadSet) -> None:
    """Refuse heads that cannot be removed: none, all, or some of a set that can only be removed together."""
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
            whole = HeadSet(unit, among=model.heads)
            reason, alternative = "query heads share a key and value head", str(whole)
            if len({head.site for head in unit}) > 1:
                reason, alternative = "layers share their weights", f"*.{selected[0].head}"
            raise HeadscopeError(
                f"{selected[0]} cannot be cut alone: {reason}",
                where=model.name,
                expected=f"all of {whole}, or none",
                fix=f"Write {alternative}; to switch off one of them without cutting, edit the model: Ablate",
            )


def _slices(
    model: AttentionModel, root: nn.Module, kept: Mapping[Site, tuple[int, ...]]
) -> list[Slice]:
    """The parts that stay of every attention module that loses heads; `root` is built like the model."""
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
    """Compare a changed model with the edited one on a small padded batch; an error if they differ."""
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
    # The largest difference, relative to the largest output, or absolute for outputs below 1
    limit = TOLERANCE.get(dtype, TOLERANCE[torch.float32])
    difference = float((actual - expected).abs().max() / expected.abs().max().clamp_min(1.0))
    if not difference <= limit:  # NaN must fail as well
        raise HeadscopeError(
            f"the cut model differs from the edited one by {difference:.1e} of its outputs",
            where=model.name,
            expected=f"at most {limit:.0e}",
            fix=f"{type(model.model).__name__} keeps its heads in a way headscope does not know; please report it",
        )
