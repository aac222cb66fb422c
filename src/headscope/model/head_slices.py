"""The parts of a module's parameters that belong to its heads: taken out by surgery, put back into full shapes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headscope.model.anatomy import weight_of
from headscope.model.fixed_attention import get_fixed_heads


@dataclass(frozen=True)
class Slice:
    """The part of one parameter that belongs to some heads: these indices along this axis."""

    module: nn.Module
    name: str
    axis: int
    indices: Tensor

    def keep(self) -> None:
        """Reduce the parameter to this part."""
        whole: Tensor = getattr(self.module, self.name)
        part = whole.detach().index_select(self.axis, self.indices.to(whole.device)).contiguous()
        setattr(self.module, self.name, nn.Parameter(part, requires_grad=whole.requires_grad))
        update_linear_sizes(self.module)

    def fill(self, part: Tensor | None) -> None:
        """Write the part into the whole parameter, and zeros everywhere else."""
        whole: Tensor = getattr(self.module, self.name)
        with torch.no_grad():
            whole.zero_()
            if part is not None:
                whole.index_copy_(self.axis, self.indices.to(whole.device), part.to(whole))


def head_slices(
    core: nn.Module, projection: nn.Module | None, heads: list[int], count: int, group: int
) -> list[Slice]:
    """The slices of some heads: rows of the attention module's linear layers, columns of its output projection.

    heads  their indices in the module
    count  the number of heads that the module has
    group  the number of query heads that share a key and value head
    """
    from transformers.pytorch_utils import Conv1D

    assert projection is not None, (
        f"{type(core).__name__} has no output projection that is a module"
    )
    width = weight_of(projection).shape[1] // count
    fixed = get_fixed_heads(core)
    without_fixed = (
        [] if fixed is None else [core.get_submodule(n) for n in (fixed.query, fixed.key)]
    )
    slices = []
    for module in core.modules():
        if not isinstance(module, nn.Linear | Conv1D) or module is projection:
            continue
        axis = int(isinstance(module, Conv1D))  # a Conv1D stores [in, out]
        blocks, rest = divmod(module.weight.shape[axis], count * width)
        if fixed is not None and module in without_fixed:
            # Queries and keys of a module with fixed heads have rows only for its other heads.
            starts = [i * width for i, head in enumerate(fixed.learned) if head in heads]
        elif not rest:
            # Several blocks if queries, keys and values are computed by one layer.
            starts = [(block * count + head) * width for block in range(blocks) for head in heads]
        else:
            # Keys and values that several query heads share.
            starts = [shared * width for shared in dict.fromkeys(head // group for head in heads)]
        slices.append(Slice(module, "weight", axis, block_indices(starts, width)))
        if module.bias is not None:
            slices.append(Slice(module, "bias", 0, block_indices(starts, width)))
    columns = block_indices([head * width for head in heads], width)
    axis = int(not isinstance(projection, Conv1D))
    return [*slices, Slice(projection, "weight", axis, columns)]


def block_indices(starts: list[int], width: int) -> Tensor:
    """The indices of blocks of this width that begin at these indices."""
    return torch.tensor([start + i for start in starts for i in range(width)], dtype=torch.long)


def update_linear_sizes(module: nn.Module) -> None:
    """Set the sizes that a linear layer states to those of its weight."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, Conv1D):
        module.nx, module.nf = module.weight.shape
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
