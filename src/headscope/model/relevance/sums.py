"""The accounts of one batch: what went through every head, token and layer, and what came from biases.

Relevance of a tensor is the tensor times the derivative of what the model said. It is added up in the backward pass,
where the derivatives come by; nothing of them is kept.

A step is (stack, layer): layer -1 is what comes before the first layer (embeddings), and the number of layers is what
comes after the last one (a last norm, the model's head).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headscope.heads import Site
from headscope.model.anatomy import anatomy
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.relevance.rules import on_gradient

Step = tuple[str, int]


class RelevanceSums(Edit):
    """Of the sequences of one batch, in their order.

    inputs   {stack: [sequence, token]} of the embeddings of every token
    heads    {site: [sequence, query, head]}
    enters, leaves  {step: [sequence, token]} of the states before and after a layer
    source   {step: [sequence]} what a layer of the decoder hands to the encoder's states
    biases   {step: [sequence]}
    """

    def __init__(self, model: AttentionModel, sequences: int) -> None:
        self.model, self.sequences = model, sequences
        self.inputs: dict[str, Tensor] = {}
        self.heads: dict[Site, Tensor] = {}
        self.enters: dict[Step, Tensor] = {}
        self.leaves: dict[Step, Tensor] = {}
        self.source: defaultdict[Step, Tensor] = defaultdict(self._nothing)
        self.biases: defaultdict[Step, Tensor] = defaultdict(self._nothing)
        self._leaves_of_graph: list[Tensor] = []
        self._lists = self._layer_lists()
        self._step: Step = (self.stacks[0], -1)
        self._calls: Counter[str] = Counter()
        self._encoded: Tensor | None = None

    def _nothing(self) -> Tensor:
        return torch.zeros(self.sequences, dtype=torch.float64)

    def _layer_lists(self) -> dict[str, str]:
        """The lists of layers by name, with the stack they belong to."""
        found = {}
        for site, part in anatomy(self.model).items():
            stack = (
                "decoder"
                if site.stack == "cross"
                else "encoder"
                if site.stack == "query"
                else site.stack
            )
            found[part.block.rpartition(".")[0]] = stack
        return found

    @property
    def stacks(self) -> tuple[str, ...]:
        """In the order in which they run."""
        return tuple(dict.fromkeys(self._lists.values()))

    def layers(self) -> dict[str, int]:
        """How many layers of each stack were run."""
        return {stack: self._calls[stack] for stack in self.stacks if self._calls[stack]}

    def entering(self, step: Step) -> Tensor:
        """[sequence]: what the step got from the one before it; the first one from the embeddings."""
        stack, layer = step
        if layer < 0:
            return self._sum(self.inputs, stack)
        if layer < self._calls[stack]:
            return self._sum(self.enters, step)
        return self._sum(self.leaves, (stack, layer - 1))

    def leaving(self, step: Step) -> Tensor:
        """[sequence]: what the step gave to the one after it."""
        stack, layer = step
        return self._sum(self.enters, (stack, 0)) if layer < 0 else self._sum(self.leaves, step)

    def _sum(self, place: Mapping[Any, Tensor], key: Any) -> Tensor:
        return place[key].sum(dim=1) if key in place else self._nothing()

    # What the rules tell

    def looked_up(self, states: Tensor, ids: Tensor) -> Tensor:
        if states.shape[-1] in self._head_counts:  # a bias of the scores
            return states
        if self.sequences > 1 and (ids.dim() == 1 or ids.shape[0] == 1):
            states = states.expand(
                self.sequences, *states.shape[-2:]
            )  # positions: each sequence has its own
        leaf = states.detach().clone().requires_grad_()
        stack = self._step[0]

        def add(slope: Tensor) -> None:
            mine = self._by_token((slope * leaf).sum(dim=-1))
            self.inputs[stack] = self.inputs[stack] + mine if stack in self.inputs else mine

        result = leaf * 1  # models write into what they looked up
        on_gradient(result, add)
        self._leaves_of_graph.append(leaf)
        return result

    def added(self, result: Tensor, constant: Tensor | float) -> None:
        if not isinstance(result, Tensor) or not result.requires_grad:
            return
        step = self._step

        def add(slope: Tensor) -> None:
            if isinstance(constant, Tensor) and constant.dim() == 1 and slope.dim() > 1:
                product = (slope @ constant)[..., None]
            else:
                product = torch.where(
                    slope == 0, 0.0, slope * constant
                )  # a mask's constant is infinite
            self.biases[step] = self.biases[step] + self._by_sequence(product)

        on_gradient(result, add)

    # What the seam tells

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        if output.requires_grad:
            held = output.detach()
            on_gradient(
                output,
                lambda slope: self._set(
                    self.heads, site, (slope * held).sum(dim=-1).double().cpu()
                ),
            )
        return output

    # The course of a forward pass

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Follow the layers while this is open."""
        modules = dict(self.model.model.named_modules())
        with ExitStack() as stack:
            for name, of_stack in self._lists.items():
                for layer in modules[name].children():
                    enter = layer.register_forward_pre_hook(
                        self._entering(of_stack), with_kwargs=True
                    )
                    leave = layer.register_forward_hook(self._leaving(of_stack))
                    stack.callback(enter.remove)
                    stack.callback(leave.remove)
            if self.model.is_encoder_decoder:
                encoded = self.model.model.get_encoder().register_forward_hook(self._take_encoded)
                begun = self.model.model.get_decoder().register_forward_pre_hook(
                    self._begin_decoder
                )
                stack.callback(encoded.remove)
                stack.callback(begun.remove)
            stack.enter_context(self.model.edited(self))
            yield

    def settle(self, said: Tensor) -> None:
        """Run the backward pass from what the model said of each sequence."""
        torch.autograd.grad(said.sum(), self._leaves_of_graph, allow_unused=True)

    def _take_encoded(self, module: nn.Module, args: Any, output: Any) -> None:
        self._encoded = output[0]

    def _begin_decoder(self, module: nn.Module, args: Any) -> None:
        self._step = ("decoder", -1)

    def _entering(self, stack: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self._step = step = (stack, self._calls[stack])
            self._calls[stack] += 1
            states = args[0] if args else kwargs["hidden_states"]
            self._follow(self.enters, step, states)
            if self._encoded is None or stack == "encoder":
                return None
            return tuple(self._lent(one, step) for one in args), {
                k: self._lent(v, step) for k, v in kwargs.items()
            }

        return hook

    def _lent(self, given: Any, step: Step) -> Any:
        """The encoder's states as one layer of the decoder gets them, with what it hands back booked."""
        if not isinstance(given, Tensor) or given is not self._encoded or not given.requires_grad:
            return given
        same = given.view_as(given)
        held = same.detach()

        def add(slope: Tensor) -> None:
            self.source[step] = self.source[step] + self._by_sequence(slope * held)

        on_gradient(same, add)
        return same

    def _leaving(self, stack: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            layer = self._calls[stack] - 1
            self._follow(
                self.leaves, (stack, layer), output if isinstance(output, Tensor) else output[0]
            )
            self._step = (stack, layer + 1)

        return hook

    def _follow(self, place: dict[Step, Tensor], step: Step, states: Tensor) -> None:
        if states.requires_grad:
            held = states.detach()
            on_gradient(
                states,
                lambda slope: self._set(place, step, self._by_token((slope * held).sum(dim=-1))),
            )

    # Shapes

    def _set(self, place: dict[Any, Tensor], key: Any, value: Tensor) -> None:
        place[key] = value

    @property
    def _head_counts(self) -> set[int]:
        """Of the sites, and of those that were cut as they had been: tables of biases are for all heads."""
        whole = getattr(self.model.model.config, "num_attention_heads", 0)
        return {whole, *(len(site.numbers or ()) for site in self.model.sites)}

    def _by_token(self, found: Tensor) -> Tensor:
        """[sequence, token]"""
        found = found.double().cpu()
        return found.T if self.model.family.time_major else found

    def _by_sequence(self, found: Tensor) -> Tensor:
        """[sequence]; where no axis is that of sequences, each gets the same share of the sum."""
        found = found.double()
        if self.model.family.time_major and found.dim() > 2 and found.shape[1] == self.sequences:
            found = found.transpose(0, 1)
        if found.shape[0] % self.sequences == 0:  # GPT-2 has all tokens in a row
            return found.reshape(self.sequences, -1).sum(dim=1).cpu()
        return (found.sum() / self.sequences).cpu().expand(self.sequences)
