"""Heads cut out of the weights: smaller matrices, the same function as the ablated model.

The linear layers inside an attention module make queries, keys and values: their rows belong to heads. The columns of
its output projection do. What else has an axis of heads (a bias of positions, say) is the family's to handle. None of
this is trusted: a cut model is compared with the ablated one, and refused where it differs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Head, Heads, HeadSet, Site, format_heads, head_names
from headscope.model.anatomy import anatomy, weight_of
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, Edit
from headscope.model.families import Family
from headscope.model.fixed_attention import get_fixed_heads, set_fixed_heads
from headscope.model.manifest import Cut, Origin
from headscope.model.sample_inputs import main_output, sample_inputs
from headscope.model.weights import cast, in_float32, weights_sha256

if TYPE_CHECKING:
    from transformers import PreTrainedModel

COUNTS = (
    "num_attention_heads",
    "num_heads",
    "n_heads",
    "n_head",
)  # attributes that hold a number of heads
WIDTHS = (
    "all_head_size",
    "inner_dim",
    "split_size",
)  # attributes that hold heads times their width
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}  # of the largest output


def origin_of(model: AttentionModel) -> Origin:
    """The model itself, where nothing was cut yet."""
    if model.cut is not None:
        return model.cut.origin
    widths = {Site(site.stack, site.layer): len(site.numbers or ()) for site in model.sites}
    return Origin(model.name, weights_sha256(model), widths)


def original_heads(model: AttentionModel) -> tuple[Head, ...]:
    return model.heads if model.cut is None else model.cut.origin.heads


def removed_heads(model: AttentionModel) -> HeadSet:
    """The original model's heads that this one has no more."""
    among = original_heads(model)
    return HeadSet(set(among) - set(model.heads), among=among)


def units(model: AttentionModel) -> list[tuple[Head, ...]]:
    """The heads that can only be cut together: one by one in most models.

    Layers that share a module lose the same head (ALBERT; the two streams of XLNet), and query heads that share a
    key and value head go with it.
    """
    found = []
    for sites in model.attention_modules.values():
        groups = dict.fromkeys(number // group_size(model) for number in sites[0].numbers or ())
        for group in groups:
            found.append(
                tuple(
                    Head(site.stack, site.layer, number)
                    for site in sites
                    for number in site.numbers or ()
                    if number // group_size(model) == group
                )
            )
    places = {head: i for i, head in enumerate(model.heads)}
    return sorted(found, key=lambda unit: places[unit[0]])


def group_size(model: AttentionModel) -> int:
    """How many query heads share a key and value head."""
    config = model.model.config
    keys = getattr(config, "num_key_value_heads", None)
    return 1 if not keys else int(config.num_attention_heads) // int(keys)


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
    remove = _asked(model, heads, layers)
    check_prunable(model, remove)
    kept = {
        site: tuple(
            number
            for number in site.numbers or ()
            if Head(site.stack, site.layer, number) not in remove
        )
        for site in model.sites
    }
    origin = origin_of(model)
    smaller = copy.deepcopy(model.model)
    for part in _slices(model, smaller, kept):
        part.keep()
    for name, sites in model.attention_modules.items():
        if kept[sites[0]] != sites[0].numbers:
            core = smaller.get_submodule(name)
            update_head_attributes(core, kept[sites[0]], model.family)
            if (fixed := get_fixed_heads(core)) is not None:
                left = tuple(fixed.patterns[sites[0].index_of(number)] for number in kept[sites[0]])
                set_fixed_heads(core, replace(fixed, patterns=left))
    cut = AttentionModel(
        smaller,
        model.tokenizer,
        name=model.name,
        revision=model.revision,
        untrained=model.untrained,
        notes=model.notes,
        cut=Cut(origin, kept, _silent(model, kept), () if model.cut is None else model.cut.history),
        reading=model.reading,
    )
    check_same_outputs(model, cut, Ablate(remove))
    return cut


def _silent(model: AttentionModel, kept: Mapping[Site, tuple[int, ...]]) -> tuple[str, ...]:
    """The names of the attention modules without heads: those of now, and those of earlier cuts."""
    before = () if model.cut is None else model.cut.silent
    return *before, *(name for name, sites in model.attention_modules.items() if not kept[sites[0]])


def expand(model: AttentionModel) -> PreTrainedModel:
    """The same function in full shapes: zeros where heads were cut."""
    assert model.cut is not None
    whole: PreTrainedModel = type(model.model)(copy.deepcopy(model.model.config)).eval()
    state = model.model.state_dict()
    shapes = {name: tensor.shape for name, tensor in whole.state_dict().items()}
    whole.load_state_dict(
        {name: one for name, one in state.items() if one.shape == shapes.get(name)}, strict=False
    )
    names = {module: name for name, module in whole.named_modules()}
    full = AttentionModel(whole, model.tokenizer, name=model.name)
    for part in _slices(
        full, whole, {site: model._sites[site].numbers or () for site in full.sites}
    ):
        part.fill(state.get(f"{names[part.module]}.{part.name}"))
    whole.generation_config = copy.deepcopy(getattr(model.model, "generation_config", None))
    cast(whole, model.model.dtype)
    return whole


def update_head_attributes(core: nn.Module, numbers: tuple[int, ...], family: Family) -> None:
    """Tell an attention module which heads it has, whether they were cut just now or long ago."""
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
    """Heads of the original model as they are written, each named once, that the model still has.

    A star means those that are left; a head that is gone already cannot be named.
    """
    seen: set[Head] = set()
    for item in heads.split(","):
        here = set(HeadSet(item, among=original_heads(model)))
        if seen & here:
            raise HeadscopeError(
                f"{min(seen & here)} is given twice", where=f'heads "{heads}"', expected="each once"
            )
        seen |= here
        if "*" not in item or not here & set(model.heads):
            _refuse_gone(model, here)
    return HeadSet(seen & set(model.heads), among=original_heads(model))


def _refuse_gone(model: AttentionModel, heads: Iterable[Head]) -> None:
    again = sorted(set(heads) & set(removed_heads(model)))
    if again:
        left = HeadSet(model.heads, among=original_heads(model))
        raise HeadscopeError(
            f"{again[0]} is already gone", where="heads", expected=f"some of {left}"
        )


def _asked(
    model: AttentionModel, heads: Heads | None, layers: int | str | Iterable[int | str] | None
) -> HeadSet:
    if heads is None and layers is None:
        raise HeadscopeError(
            "nothing to remove", expected="heads, or layers", fix='prune(model, "3.2,4.*")'
        )
    if heads is not None and layers is not None:
        raise HeadscopeError(
            "heads and layers at once", expected="one of them", fix='prune(model, "3.2,4.*")'
        )
    if layers is not None:
        given = (
            layers.split(",")
            if isinstance(layers, str)
            else layers
            if isinstance(layers, Iterable)
            else [layers]
        )
        return _of_layers(model, [str(layer) for layer in given])
    if isinstance(heads, str):
        return read_heads(model, heads)
    named = head_names(heads or ())
    if any(isinstance(head, str) for head in named):
        return read_heads(model, format_heads(named))
    twice = [head for place, head in enumerate(named) if head in named[:place]]
    if twice:
        raise HeadscopeError(f"{twice[0]} is given twice", where="heads", expected="each once")
    wanted = HeadSet(named, among=original_heads(model))
    _refuse_gone(model, wanted)
    return wanted


def _of_layers(model: AttentionModel, layers: Sequence[str]) -> HeadSet:
    known = {str(layer) for head in model.heads for layer in (head.layer, head.site)}
    for layer in layers:
        if layer.strip() not in known:
            there = ", ".join(dict.fromkeys(str(head.site) for head in model.heads))
            raise HeadscopeError(
                f'"{layer.strip()}" has no heads in this model', where="layers", expected=there
            )
    return read_heads(model, ",".join(f"{layer.strip()}.*" for layer in layers))


def check_prunable(model: AttentionModel, remove: HeadSet) -> None:
    """Refuse what cannot be cut."""
    if model.is_open:
        raise HeadscopeError(
            "the model is being watched or edited", fix="Leave the with block before cutting"
        )
    if not remove:
        raise HeadscopeError("nothing to remove", expected="heads, or layers")
    if len(remove) == len(model.heads):
        raise HeadscopeError(
            "these are all heads of the model", where="heads", expected="at least one that stays"
        )
    for unit in units(model):
        asked = [head for head in unit if head in remove]
        if asked and len(asked) < len(unit):
            whole = HeadSet(unit, among=model.heads)
            is_shared = len({head.site for head in unit}) > 1
            raise HeadscopeError(
                f"{asked[0]} cannot be cut alone: "
                + (
                    "layers share their weights"
                    if is_shared
                    else "query heads share a key and value head"
                ),
                where=model.name,
                expected=f"all of {whole}, or none",
                fix=f"Write {f'*.{asked[0].head}' if is_shared else whole}; to switch off one of them without "
                "cutting, edit the model: Ablate",
            )


@dataclass(frozen=True)
class Slice:
    """The part of one parameter that belongs to some heads: these cells along this axis."""

    module: nn.Module
    name: str
    axis: int
    indices: Tensor

    def keep(self) -> None:
        whole: Tensor = getattr(self.module, self.name)
        left = whole.detach().index_select(self.axis, self.indices.to(whole.device)).contiguous()
        setattr(self.module, self.name, nn.Parameter(left, requires_grad=whole.requires_grad))
        update_linear_sizes(self.module)

    def fill(self, part: Tensor | None) -> None:
        """Put the part into the whole parameter, and zeros everywhere else."""
        whole: Tensor = getattr(self.module, self.name)
        with torch.no_grad():
            whole.zero_()
            if part is not None:
                whole.index_copy_(self.axis, self.indices.to(whole.device), part.to(whole))


def head_slices(
    core: nn.Module, projection: nn.Module | None, places: list[int], heads: int, group: int
) -> list[Slice]:
    """What belongs to these of a module's heads: rows of its linear layers, and columns of its output projection."""
    from transformers.pytorch_utils import Conv1D

    assert projection is not None, (
        f"{type(core).__name__} has no output projection that is a module"
    )
    width = weight_of(projection).shape[1] // heads
    fixed = get_fixed_heads(core)
    few = () if fixed is None else (core.get_submodule(fixed.query), core.get_submodule(fixed.key))
    found = []
    for module in core.modules():
        if not isinstance(module, nn.Linear | Conv1D) or module is projection:
            continue
        axis = int(isinstance(module, Conv1D))  # a Conv1D stores [in, out]
        blocks, shared = divmod(module.weight.shape[axis], heads * width)
        if (
            fixed is not None and module in few
        ):  # rows of those heads alone that have queries and keys
            starts = [place * width for place, head in enumerate(fixed.learned) if head in places]
        elif not shared:  # several blocks where queries, keys and values are made together
            starts = [
                (block * heads + place) * width for block in range(blocks) for place in places
            ]
        else:  # keys and values that several query heads share
            starts = [place * width for place in dict.fromkeys(place // group for place in places)]
        found.append(Slice(module, "weight", axis, block_indices(starts, width)))
        if module.bias is not None:
            found.append(Slice(module, "bias", 0, block_indices(starts, width)))
    columns = block_indices([place * width for place in places], width)
    return [*found, Slice(projection, "weight", int(not isinstance(projection, Conv1D)), columns)]


def block_indices(starts: list[int], width: int) -> Tensor:
    return torch.tensor([start + i for start in starts for i in range(width)], dtype=torch.long)


def _slices(
    model: AttentionModel, root: nn.Module, kept: Mapping[Site, tuple[int, ...]]
) -> list[Slice]:
    """What stays of every attention module that loses heads; `root` is built like the model."""
    parts = anatomy(model)
    found = []
    for name, sites in model.attention_modules.items():
        site = sites[0]
        if kept[site] != site.numbers:
            core, projection = root.get_submodule(name), parts[site].projection
            places = [site.index_of(number) for number in kept[site]]
            if model.family.axes:
                mine = torch.tensor(places, dtype=torch.long)
                found += [
                    Slice(core, parameter, axis, mine)
                    for parameter, axis in model.family.axes.items()
                ]
            else:
                output = None if projection is None else root.get_submodule(projection)
                found += head_slices(
                    core, output, places, len(site.numbers or ()), group_size(model)
                )
    return found


def update_linear_sizes(module: nn.Module) -> None:
    """Make what a linear layer says of its sizes true."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, Conv1D):
        module.nx, module.nf = module.weight.shape
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape


def check_same_outputs(model: AttentionModel, cut: AttentionModel, edit: Edit) -> None:
    """Compare the cut model with the edited one on a small padded batch."""
    training, dtype = model.model.training, model.model.dtype
    for one in (model, cut):
        one.model.eval()
    try:
        with in_float32(model.model), in_float32(cut.model), torch.no_grad():
            inputs = sample_inputs(model, batch=2)
            with model.edited(edit):
                wanted = main_output(model, inputs)
            found = main_output(cut, inputs)
    finally:
        for one in (model, cut):
            one.model.train(training)
    limit = TOLERANCE.get(dtype, TOLERANCE[torch.float32])
    difference = float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1.0))
    if not difference <= limit:
        raise HeadscopeError(
            f"the cut model differs from the edited one by {difference:.1e} of its outputs",
            where=model.name,
            expected=f"at most {limit:.0e}",
            fix=f"{type(model.model).__name__} keeps its heads in a way headscope does not know; please report it",
        )
