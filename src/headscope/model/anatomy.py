"""Where each site's parts are: its block, the modules that make queries, keys and values, and the output projection.

Nothing is known by name. In one small forward pass every linear layer's input and output is compared with what the
seam sees: the layer whose output is the keys is the key projection, the layer whose input is the heads' results side
by side is the output projection. Equality is exact, so a wrong guess is impossible; what is not found is None (queries
that were rotated after their projection, a projection that is no module), and whoever needs it takes the long way.
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
    """One site's modules, by name. `turn` is which call of its block this site belongs to, counted from 0.

    block       the module of the layer list that the site is in
    core        the module that attends, as the seam knows it
    projection  the output projection: its input is the heads' results side by side
    query, key, value  their projections, where nothing is done to what they give
    scaling     what products of query and key are multiplied by
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
    """The parts of every site of a model that has heads; found once, as they stay where they are."""
    if model.parts is None:
        model.parts = _Dissection(model).parts()
    return model.parts


class _Dissection(Edit):
    """Watches one forward pass: what linear layers take and give, what attention takes and gives."""

    def __init__(self, model: AttentionModel) -> None:
        self.model = model
        self.names = {module: name for name, module in model.model.named_modules()}
        self.given: list[tuple[str, Tensor]] = []  # what linear layers gave, in order
        self.waiting: tuple[Site, Tensor] | None = (
            None  # a site's result that no projection has taken yet
        )
        self.calls: dict[Site, Call] = {}
        self.made: dict[Site, dict[str, str | None]] = {}
        self.projections: dict[Site, str] = {}

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        self.waiting = site, output.flatten(2)
        return output

    def inspect(self, site: Site, call: Call) -> None:
        self.calls[site] = call
        self.made[site] = {
            "query": self._maker(call.query),
            "key": self._maker(call.key),
            "value": self._maker(call.value),
        }

    def _maker(self, states: Tensor) -> str | None:
        """The layer that gave just this [batch, head, token, width], seen the other way round."""
        flat = states.transpose(1, 2).flatten(2)
        return next((name for name, given in reversed(self.given) if _same(given, flat)), None)

    def take(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if (
            self.waiting is not None
            and args
            and isinstance(args[0], Tensor)
            and _same(args[0], self.waiting[1])
        ):
            self.projections[self.waiting[0]] = self.names[module]
            self.waiting = None

    def give(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            self.given.append((self.names[module], output))

    def parts(self) -> dict[Site, Parts]:
        model = self.model
        with ExitStack() as stack:
            for module in self.names:
                if (
                    hasattr(module, "weight")
                    and module.weight is not None
                    and module.weight.dim() == 2
                ):
                    stack.callback(module.register_forward_pre_hook(self.take).remove)
                    stack.callback(module.register_forward_hook(self.give).remove)
            stack.enter_context(torch.inference_mode())
            stack.enter_context(model.suspend_hooks())
            stack.enter_context(model.edited(self))
            stack.enter_context(model.inspected(self.inspect))
            main_output(model, sample_inputs(model, batch=2))
        return {site: self._parts(site) for site in model.sites if site.numbers}

    def _parts(self, site: Site) -> Parts:
        core, turn = next(
            (name, sites.index(site))
            for name, sites in self.model.attention_modules.items()
            if site in sites
        )
        scaling = self.calls[site].scaling if site in self.calls else 1.0
        made = self.made.get(site, {})
        tap = self.model.family.tap
        named = None if tap is None or tap.projection is None else f"{core}.{tap.projection}"
        return Parts(
            _block(core), turn, core, self.projections.get(site, named), **made, scaling=scaling
        )


def weight_of(projection: nn.Module) -> Tensor:
    """[out, in], however the module stores it."""
    from transformers.pytorch_utils import Conv1D

    weight: Tensor = projection.weight.detach()  # type: ignore[operator]
    return weight.T if isinstance(projection, Conv1D) else weight


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _block(name: str) -> str:
    """The outermost member of a list of modules on the way to this one, such as encoder.layer.3."""
    parts = name.split(".")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
    return ".".join(parts[: first + 1])
