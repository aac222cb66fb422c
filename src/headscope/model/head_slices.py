"""The slices of an attention module's parameters that belong to given heads.

Surgery keeps only these slices; `surgery.expand` writes them back into parameters of the original shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headscope.model.anatomy import weight_of
from headscope.model.fixed_attention import get_fixed_heads


@dataclass(frozen=True)
class Slice:
    """The slice of one parameter that belongs to given heads.

    module, name  the parameter is the attribute `name` of this module
    axis          the axis of the parameter that is divided among heads
    indices       indices along this axis
    """

    module: nn.Module
    name: str
    axis: int
    indices: Tensor

    def keep(self) -> None:
        """Replace the parameter by this slice."""
        full: Tensor = getattr(self.module, self.name)
        values = full.detach().index_select(self.axis, self.indices.to(full.device)).contiguous()
        setattr(self.module, self.name, nn.Parameter(values, requires_grad=full.requires_grad))
        update_linear_sizes(self.module)

    def fill(self, values: Tensor | None) -> None:
        """Write values into this slice of the full parameter, and zeros everywhere else; None writes only zeros."""
        full: Tensor = getattr(self.module, self.name)
        with torch.no_grad():
            full.zero_()
            if values is not None:
                full.index_copy_(self.axis, self.indices.to(full.device), values.to(full))


def head_slices(
    core: nn.Module, projection: nn.Module | None, heads: list[int], count: int, group: int
) -> list[Slice]:
    """The slices that belong to some heads of an attention module.

    These are output features of its linear layers, and input features of its output projection.

    heads  the indices of the heads in the module
    count  the number of heads of the module
    group  the number of query heads that share a key and value head
    """
    from transformers.pytorch_utils import Conv1D

    assert projection is not None, (
        f"{type(core).__name__} has no output projection that is a module"
    )
    width = weight_of(projection).shape[1] // count  # of one head
    fixed = get_fixed_heads(core)
    # Layers without rows for fixed heads, whose attention is a constant pattern and needs no queries and keys
    without_fixed = (
        [] if fixed is None else [core.get_submodule(n) for n in (fixed.query, fixed.key)]
    )
    slices = []
    for module in core.modules():
        if not isinstance(module, nn.Linear | Conv1D) or module is projection:
            continue
        axis = int(isinstance(module, Conv1D))  # of the output features: a Conv1D stores [in, out]
        blocks, remainder = divmod(module.weight.shape[axis], count * width)
        if fixed is not None and module in without_fixed:
            starts = [i * width for i, head in enumerate(fixed.learned) if head in heads]
        elif not remainder:
            # One block of all heads; three if one layer computes queries, keys and values (GPT-2, ModernBERT).
            starts = [(block * count + head) * width for block in range(blocks) for head in heads]
        else:
            # Fewer rows than heads * width: a layer of keys or values that several query heads share.
            starts = [kv_head * width for kv_head in dict.fromkeys(head // group for head in heads)]
        slices.append(Slice(module, "weight", axis, block_indices(starts, width)))
        if module.bias is not None:
            slices.append(Slice(module, "bias", 0, block_indices(starts, width)))
    columns = block_indices([head * width for head in heads], width)
    axis = int(not isinstance(projection, Conv1D))
    return [*slices, Slice(projection, "weight", axis, columns)]


def block_indices(starts: list[int], width: int) -> Tensor:
    """The indices of the blocks of this width that begin at `starts`."""
    return torch.tensor([start + i for start in starts for i in range(width)], dtype=torch.long)


def update_linear_sizes(module: nn.Module) -> None:
    """Set the size attributes of a linear layer to the shape of its weight."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, Conv1D):
        module.nx, module.nf = module.weight.shape
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
