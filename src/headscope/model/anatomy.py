"""Find the modules of each site: its block, the projections of queries, keys and values, and the output projection.

Nothing is assumed about the names of modules. One small forward pass compares the input and output of every linear
layer with the tensors at the seam, which is the point where headscope intercepts attention. The layer whose output
equals the keys is the key projection. The layer whose input equals the concatenated results of the heads is the
output projection. The comparison is exact, so layers are not confused. A module can be missing, for example if
queries are rotated after their projection, or if the projection is not a module. Its name is then None, and callers
must handle this.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscope.heads import Site
from headscope.model.edits import Edit
from headscope.model.kernels import Call
from headscope.model.sample_inputs import main_output, sample_inputs

if TYPE_CHECKING:
    from headscope.model.attention_model import AttentionModel


@dataclass(frozen=True)
class Parts:
    """The names of the modules of one site.

    block       the layer that contains the site: a member of a module list, such as `encoder.layer.3`
    turn        the number of earlier calls of the block in the same forward pass; more than 0 only if layers share it
    core        the attention module that the seam intercepts
    projection  the output projection: its input is the concatenated results of the heads
    query, key, value  the layers whose outputs are the queries, keys and values, without a further operation
    scaling     the factor that multiplies the products of queries and keys
    """

    block: str
    turn: int
    core: str
    projection: str | None
    query: str | None = None
    key: str | None = None
    value: str | None = None
    scaling: float = 1.0


def anatomy(model: AttentionModel) -> dict[Site, Parts]:
    """The parts of every site that has heads; computed once per model."""
    if model.parts is None:
        model.parts = _PartFinder(model).find()
    return model.parts


class _PartFinder(Edit):
    """Observes the inputs and outputs of linear layers and of attention in one forward pass, and matches them."""

    def __init__(self, model: AttentionModel) -> None:
        self.model = model
        self.names = {module: name for name, module in model.model.named_modules()}
        # (module name, output), in the order of calls
        self.linear_outputs: list[tuple[str, Tensor]] = []
        # A site and its result [batch, query, head * head width] that was not yet the input of a linear layer
        self.waiting: tuple[Site, Tensor] | None = None
        self.scaling: dict[Site, float] = {}
        # {query, key, value: the layer that computed it}
        self.sources: dict[Site, dict[str, str | None]] = {}
        self.projections: dict[Site, str] = {}  # the output projection

    def changes_output(self, site: Site) -> bool:
        return True  # so that `output` is called; it changes nothing

    def output(self, site: Site, output: Tensor) -> Tensor:
        self.waiting = site, output.flatten(2)
        return output

    def inspect(self, site: Site, call: Call) -> None:
        self.scaling[site] = call.scaling
        states = {"query": call.query, "key": call.key, "value": call.value}
        self.sources[site] = {name: self._source(tensor) for name, tensor in states.items()}

    def _source(self, states: Tensor) -> str | None:
        """The name of the last linear layer whose output equals these states [batch, head, token, width]."""
        flat = states.transpose(1, 2).flatten(2)  # [batch, token, head * width]
        outputs = reversed(self.linear_outputs)
        return next((name for name, output in outputs if _are_same(output, flat)), None)

    def before_linear(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self.waiting is None or not args or not isinstance(args[0], Tensor):
            return
        site, result = self.waiting
        if _are_same(args[0], result):
            self.projections[site] = self.names[module]
            self.waiting = None

    def after_linear(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            self.linear_outputs.append((self.names[module], output))

    def find(self) -> dict[Site, Parts]:
        model = self.model
        with ExitStack() as stack:
            for module in self.names:
                weight = getattr(module, "weight", None)
                if weight is not None and weight.dim() == 2:
                    before = module.register_forward_pre_hook(self.before_linear)
                    after = module.register_forward_hook(self.after_linear)
                    stack.callback(before.remove)
                    stack.callback(after.remove)
            stack.enter_context(torch.inference_mode())
            stack.enter_context(model.suspend_hooks())
            stack.enter_context(model.edited(self))
            stack.enter_context(model.inspected(self.inspect))
            main_output(model, sample_inputs(model, batch=2))
        return {site: self._parts(site) for site in model.sites if site.numbers}

    def _parts(self, site: Site) -> Parts:
        modules = self.model.attention_modules.items()
        core, turn = next((name, sites.index(site)) for name, sites in modules if site in sites)
        # For sites where the comparison found no projection: the one that the family declares for its softmax tap.
        tap = self.model.family.tap
        declared = None if tap is None or tap.projection is None else f"{core}.{tap.projection}"
        return Parts(
            _block_of(core),
            turn,
            core,
            self.projections.get(site, declared),
            **self.sources.get(site, {}),
            scaling=self.scaling.get(site, 1.0),
        )


def weight_of(projection: nn.Module) -> Tensor:
    """The weight of a linear layer as [out, in]; a Conv1D stores it as [in, out]."""
    from transformers.pytorch_utils import Conv1D

    weight: Tensor = projection.weight.detach()  # type: ignore[operator]
    return weight.T if isinstance(projection, Conv1D) else weight


def _are_same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first, second)


def _block_of(name: str) -> str:
    """The outermost member of a module list that contains this module, such as encoder.layer.3."""
    parts = name.split(".")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[: first + 1])
