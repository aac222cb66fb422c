"""The parts of each site: its block, the modules that compute queries, keys and values, and the output projection.

No names are assumed. In one small forward pass every linear layer's input and output is compared with what the seam
sees: the layer whose output is the keys is the key projection, the layer whose input is the heads' results side by side
is the output projection. Equality is exact, so a wrong guess is impossible. A part that is not found is None (queries
that were rotated after their projection, a projection that is not a module), and its users must do without it.
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
    """The modules of one site, by name. `turn` is the number of earlier calls of its block in a forward pass.

    block       the module of the layer list that the site is in
    core        the module that attends, as the seam knows it
    projection  the output projection: its input is the heads' results side by side
    query, key, value  their projections, if their output is used as it is
    scaling     factor of the products of queries and keys
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
    """The parts of every site of a model that has heads; found once for each model."""
    if model.parts is None:
        model.parts = _PartFinder(model).find()
    return model.parts


class _PartFinder(Edit):
    """Observes one forward pass: inputs and outputs of linear layers, and of attention."""

    def __init__(self, model: AttentionModel) -> None:
        self.model = model
        self.names = {module: name for name, module in model.model.named_modules()}
        self.linear_outputs: list[tuple[str, Tensor]] = []  # in the order of calls
        # The result of a site that no projection has had as its input yet.
        self.waiting: tuple[Site, Tensor] | None = None
        self.scaling: dict[Site, float] = {}
        self.sources: dict[Site, dict[str, str | None]] = {}
        self.projections: dict[Site, str] = {}

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        self.waiting = site, output.flatten(2)
        return output

    def inspect(self, site: Site, call: Call) -> None:
        self.scaling[site] = call.scaling
        states = {"query": call.query, "key": call.key, "value": call.value}
        self.sources[site] = {name: self._source(tensor) for name, tensor in states.items()}

    def _source(self, states: Tensor) -> str | None:
        """The last layer whose output is exactly these states [batch, head, token, width]."""
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
    """The outermost member of a list of modules on the way to this one, such as encoder.layer.3."""
    parts = name.split(".")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[: first + 1])
