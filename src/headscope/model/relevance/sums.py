"""Sums of relevance of one batch: through every head, token and layer, and from biases.

The relevance of a tensor is the tensor times the gradient of the model's output by it. It is summed during the backward
pass; no gradient is kept.

A step is (stack, layer): layer -1 is everything before the first layer (embeddings), and the number of layers is
everything after the last one (a last norm, the model's head).
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
    """Sums for the sequences of one batch, in their order; the `Ledger` of the rules.

    inputs   {stack: [sequence, token]} of the embeddings of every token
    heads    {site: [sequence, query, head]}
    enters, leaves  {step: [sequence, token]} of the states before and after a layer
    source   {step: [sequence]} passed from a layer of the decoder to the encoder's states
    biases   {step: [sequence]}
    """

    def __init__(self, model: AttentionModel, sequences: int) -> None:
        self.model, self.sequences = model, sequences
        self.inputs: dict[str, Tensor] = {}
        self.heads: dict[Site, Tensor] = {}
        self.enters: dict[Step, Tensor] = {}
        self.leaves: dict[Step, Tensor] = {}
        self.source: defaultdict[Step, Tensor] = defaultdict(self._zeros)
        self.biases: defaultdict[Step, Tensor] = defaultdict(self._zeros)
        self._embeddings: list[Tensor] = []  # leaves of the graph
        self._lists = self._layer_lists()
        self._step: Step = (self.stacks[0], -1)
        self._calls: Counter[str] = Counter()
        self._encoded: Tensor | None = None

    def _zeros(self) -> Tensor:
        return torch.zeros(self.sequences, dtype=torch.float64)

    def _layer_lists(self) -> dict[str, str]:
        """The lists of layers by name, with the stack they belong to."""
        # Stacks whose sites are in layers of others
        host = {"cross": "decoder", "query": "encoder"}
        return {
            part.block.rpartition(".")[0]: host.get(site.stack, site.stack)
            for site, part in anatomy(self.model).items()
        }

    @property
    def stacks(self) -> tuple[str, ...]:
        """In the order in which they run."""
        return tuple(dict.fromkeys(self._lists.values()))

    def layers(self) -> dict[str, int]:
        """The number of layers of each stack that were run."""
        return {stack: self._calls[stack] for stack in self.stacks if self._calls[stack]}

    def entering(self, step: Step) -> Tensor:
        """[sequence]: the relevance of the states that the step received; of the first one, of the embeddings."""
        stack, layer = step
        if layer < 0:
            return self._sum_over_tokens(self.inputs, stack)
        if layer < self._calls[stack]:
            return self._sum_over_tokens(self.enters, step)
        return self._sum_over_tokens(self.leaves, (stack, layer - 1))

    def leaving(self, step: Step) -> Tensor:
        """[sequence]: the relevance of the states that the step passed on."""
        stack, layer = step
        if layer < 0:
            return self._sum_over_tokens(self.enters, (stack, 0))
        return self._sum_over_tokens(self.leaves, step)

    def _sum_over_tokens(self, sums: Mapping[Any, Tensor], key: Any) -> Tensor:
        return sums[key].sum(dim=1) if key in sums else self._zeros()

    # Calls of the rules

    def add_embedding(self, states: Tensor, ids: Tensor) -> Tensor:
        # Tables of biases are for all heads, also of sites that were pruned.
        whole = getattr(self.model.model.config, "num_attention_heads", 0)
        if states.shape[-1] in {whole, *(len(site.numbers or ()) for site in self.model.sites)}:
            return states  # a bias of the scores
        if self.sequences > 1 and (ids.dim() == 1 or ids.shape[0] == 1):
            # positions: each sequence has its own
            states = states.expand(self.sequences, *states.shape[-2:])
        leaf = states.detach().clone().requires_grad_()
        stack = self._step[0]

        def add(gradient: Tensor) -> None:
            relevance = self._by_token((gradient * leaf).sum(dim=-1))
            before = self.inputs.get(stack)
            self.inputs[stack] = relevance if before is None else before + relevance

        result = leaf * 1  # models write into the embeddings
        on_gradient(result, add)
        self._embeddings.append(leaf)
        return result

    def add_constant(self, result: Tensor, constant: Tensor | float) -> None:
        if not isinstance(result, Tensor) or not result.requires_grad:
            return
        step = self._step

        def add(gradient: Tensor) -> None:
            if isinstance(constant, Tensor) and constant.dim() == 1 and gradient.dim() > 1:
                product = (gradient @ constant)[..., None]
            else:  # the constant of a mask is infinite where the gradient is 0
                product = torch.where(gradient == 0, 0.0, gradient * constant)
            self.biases[step] = self.biases[step] + self._by_sequence(product)

        on_gradient(result, add)

    # Calls of the seam

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        if output.requires_grad:
            held = output.detach()

            def keep(gradient: Tensor) -> None:
                self.heads[site] = (gradient * held).sum(dim=-1).double().cpu()

            on_gradient(output, keep)
        return output

    # The course of a forward pass

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Follow the layers of forward passes while this is open."""
        modules = dict(self.model.model.named_modules())
        with ExitStack() as stack:
            for name, of_stack in self._lists.items():
                enter, leave = self._enter_hook(of_stack), self._leave_hook(of_stack)
                for layer in modules[name].children():
                    hook = layer.register_forward_pre_hook(enter, with_kwargs=True)
                    stack.callback(hook.remove)
                    stack.callback(layer.register_forward_hook(leave).remove)
            if self.model.is_encoder_decoder:
                encoder, decoder = self.model.model.get_encoder(), self.model.model.get_decoder()
                stack.callback(encoder.register_forward_hook(self._keep_encoded).remove)
                stack.callback(decoder.register_forward_pre_hook(self._begin_decoder).remove)
            stack.enter_context(self.model.edited(self))
            yield

    def backward(self, outputs: Tensor) -> None:
        """Run the backward pass from the model's output for each sequence."""
        torch.autograd.grad(outputs.sum(), self._embeddings, allow_unused=True)

    def _keep_encoded(self, module: nn.Module, args: Any, output: Any) -> None:
        self._encoded = output[0]

    def _begin_decoder(self, module: nn.Module, args: Any) -> None:
        self._step = ("decoder", -1)

    def _enter_hook(self, stack: str) -> Callable[..., Any]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self._step = step = (stack, self._calls[stack])
            self._calls[stack] += 1
            states = args[0] if args else kwargs["hidden_states"]
            self._keep_relevance(self.enters, step, states)
            if self._encoded is None or stack == "encoder":
                return None
            args = tuple(self._count_source(value, step) for value in args)
            return args, {name: self._count_source(value, step) for name, value in kwargs.items()}

        return enter

    def _count_source(self, value: Any, step: Step) -> Any:
        """The encoder's states as one layer of the decoder gets them, with their relevance added to `source`."""
        if not isinstance(value, Tensor) or value is not self._encoded or not value.requires_grad:
            return value
        same = value.view_as(value)
        held = same.detach()

        def add(gradient: Tensor) -> None:
            self.source[step] = self.source[step] + self._by_sequence(gradient * held)

        on_gradient(same, add)
        return same

    def _leave_hook(self, stack: str) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            layer = self._calls[stack] - 1
            states = output if isinstance(output, Tensor) else output[0]
            self._keep_relevance(self.leaves, (stack, layer), states)
            self._step = (stack, layer + 1)

        return leave

    def _keep_relevance(self, sums: dict[Step, Tensor], step: Step, states: Tensor) -> None:
        if states.requires_grad:
            held = states.detach()

            def keep(gradient: Tensor) -> None:
                sums[step] = self._by_token((gradient * held).sum(dim=-1))

            on_gradient(states, keep)

    # Shapes

    def _by_token(self, relevance: Tensor) -> Tensor:
        """[sequence, token]"""
        relevance = relevance.double().cpu()
        return relevance.T if self.model.family.time_major else relevance

    def _by_sequence(self, relevance: Tensor) -> Tensor:
        """[sequence]; if no axis is that of sequences, each gets the same share of the sum."""
        relevance = relevance.double()
        has_tokens_first = self.model.family.time_major and relevance.dim() > 2
        if has_tokens_first and relevance.shape[1] == self.sequences:
            relevance = relevance.transpose(0, 1)
        if relevance.shape[0] % self.sequences == 0:  # GPT-2 has all tokens in a row
            return relevance.reshape(self.sequences, -1).sum(dim=1).cpu()
        return (relevance.sum() / self.sequences).cpu().expand(self.sequences)
