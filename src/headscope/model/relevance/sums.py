"""Relevance of one batch, summed per head, token and layer, and over biases.

The relevance of a tensor is the tensor times the gradient of the model's output with respect to it, elementwise. Hooks
sum it during the backward pass, so that no gradient is stored.

A model is divided into steps (stack, layer). Layer -1 stands for everything before the first layer (embeddings). With n
layers, layer n stands for everything after the last one (a final norm, the classifier or language model head).
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

Step = tuple[str, int]  # (stack, layer)


class RelevanceSums(Edit):
    """The relevance sums of one batch, filled by its backward pass.

    It is the `Ledger` of the rules. It is also an `Edit` without effect, in order to get the outputs of the heads.

    inputs   {stack: [sequence, token]}: relevance of the embeddings of every token
    heads    {site: [sequence, query, head]}: relevance of each head's output
    enters   {step: [sequence, token]}: relevance of the states that a layer receives
    leaves   {step: [sequence, token]}: relevance of the states that a layer returns
    source   {step: [sequence]}: relevance that a layer of the decoder passes back to the encoder's states
    biases   {step: [sequence]}: relevance of the constants that were added in a step
    """

    def __init__(self, model: AttentionModel, sequences: int) -> None:
        self.model, self.sequences = model, sequences
        self.inputs: dict[str, Tensor] = {}
        self.heads: dict[Site, Tensor] = {}
        self.enters: dict[Step, Tensor] = {}
        self.leaves: dict[Step, Tensor] = {}
        self.source: defaultdict[Step, Tensor] = defaultdict(self._zeros)
        self.biases: defaultdict[Step, Tensor] = defaultdict(self._zeros)
        self._embeddings: list[Tensor] = []  # the leaves of the autograd graph
        self._lists = self._layer_lists()
        self._step: Step = (self.stacks[0], -1)  # the step that the forward pass is in
        self._calls: Counter[str] = Counter()  # calls of layers, by stack
        self._encoded: Tensor | None = None  # the encoder's states that the decoder receives

    def _zeros(self) -> Tensor:
        return torch.zeros(self.sequences, dtype=torch.float64)

    def _layer_lists(self) -> dict[str, str]:
        """{name of a module list with layers: the stack that it belongs to}."""
        # Cross attention is inside the decoder's layers, and XLNet's query stream inside the encoder's.
        host = {"cross": "decoder", "query": "encoder"}
        return {
            part.block.rpartition(".")[0]: host.get(site.stack, site.stack)
            for site, part in anatomy(self.model).items()
        }

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks in the order in which they run."""
        return tuple(dict.fromkeys(self._lists.values()))

    def layers(self) -> dict[str, int]:
        """The number of layers of each stack that were run."""
        return {stack: self._calls[stack] for stack in self.stacks if self._calls[stack]}

    def entering(self, step: Step) -> Tensor:
        """[sequence]: relevance of the states that the step receives; for layer -1, of the embeddings."""
        stack, layer = step
        if layer < 0:
            return self._sum_over_tokens(self.inputs, stack)
        if layer < self._calls[stack]:
            return self._sum_over_tokens(self.enters, step)
        return self._sum_over_tokens(self.leaves, (stack, layer - 1))

    def leaving(self, step: Step) -> Tensor:
        """[sequence]: relevance of the states that the step returns; not known for the step after the last layer."""
        stack, layer = step
        if layer < 0:
            return self._sum_over_tokens(self.enters, (stack, 0))
        return self._sum_over_tokens(self.leaves, step)

    def _sum_over_tokens(self, sums: Mapping[Any, Tensor], key: Any) -> Tensor:
        return sums[key].sum(dim=1) if key in sums else self._zeros()

    # The ledger, called by the rules

    def add_embedding(self, states: Tensor, ids: Tensor) -> Tensor:
        """Start the autograd graph at these embeddings [sequence, token, width], and sum their relevance per token."""
        # T5 and MPNet look up the bias of relative positions in an embedding table with one column per head. It is a
        # constant that is added to the scores, not an input. Pruned heads of a site may still have their columns.
        all_heads = getattr(self.model.model.config, "num_attention_heads", 0)
        head_counts = {all_heads, *(len(site.numbers or ()) for site in self.model.sites)}
        if states.shape[-1] in head_counts:
            return states
        if self.sequences > 1 and (ids.dim() == 1 or ids.shape[0] == 1):
            # Position embeddings are looked up once per batch; relevance needs them per sequence.
            states = states.expand(self.sequences, *states.shape[-2:])
        leaf = states.detach().clone().requires_grad_()
        stack = self._step[0]

        def add(gradient: Tensor) -> None:
            relevance = self._by_token((gradient * leaf).sum(dim=-1))
            total = self.inputs.get(stack)  # of the other embeddings: words, positions, segments
            self.inputs[stack] = relevance if total is None else total + relevance

        result = leaf * 1  # models change embeddings in place, which autograd forbids on a leaf
        on_gradient(result, add)
        self._embeddings.append(leaf)
        return result

    def add_constant(self, result: Tensor, constant: Tensor | float) -> None:
        """Add the relevance of a constant, which is constant * gradient of `result`, to the biases of this step."""
        if not isinstance(result, Tensor) or not result.requires_grad:
            return
        step = self._step

        def add(gradient: Tensor) -> None:
            if isinstance(constant, Tensor) and constant.dim() == 1 and gradient.dim() > 1:
                # The sum of gradient * constant over the last axis, without a tensor of all products
                product = (gradient @ constant)[..., None]
            else:  # where a mask adds -inf, the gradient is 0, and the product would be NaN
                product = torch.where(gradient == 0, 0.0, gradient * constant)
            self.biases[step] = self.biases[step] + self._by_sequence(product)

        on_gradient(result, add)

    # The edit, called by the seam

    def changes_output(self, site: Site) -> bool:
        return True

    def output(self, site: Site, output: Tensor) -> Tensor:
        """The output [batch, query, head, width] unchanged, with a hook that stores its relevance."""
        if output.requires_grad:
            values = output.detach()

            def store(gradient: Tensor) -> None:
                self.heads[site] = (gradient * values).sum(dim=-1).double().cpu()

            on_gradient(output, store)
        return output

    # Hooks on layers

    @contextmanager
    def follow(self) -> Iterator[None]:
        """While open, keep track of the step that a forward pass is in, and sum relevance in its backward pass."""
        modules = dict(self.model.model.named_modules())
        with ExitStack() as exits:
            for list_name, stack in self._lists.items():
                enter, leave = self._enter_hook(stack), self._leave_hook(stack)
                for layer in modules[list_name].children():
                    hook = layer.register_forward_pre_hook(enter, with_kwargs=True)
                    exits.callback(hook.remove)
                    exits.callback(layer.register_forward_hook(leave).remove)
            if self.model.is_encoder_decoder:
                encoder, decoder = self.model.model.get_encoder(), self.model.model.get_decoder()
                exits.callback(encoder.register_forward_hook(self._store_encoded).remove)
                exits.callback(decoder.register_forward_pre_hook(self._begin_decoder).remove)
            exits.enter_context(self.model.edited(self))
            yield

    def backward(self, outputs: Tensor) -> None:
        """Run the backward pass from the model's output for each sequence."""
        torch.autograd.grad(outputs.sum(), self._embeddings, allow_unused=True)

    def _store_encoded(self, module: nn.Module, args: Any, output: Any) -> None:
        self._encoded = output[0]

    def _begin_decoder(self, module: nn.Module, args: Any) -> None:
        self._step = ("decoder", -1)

    def _enter_hook(self, stack: str) -> Callable[..., Any]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self._step = step = (stack, self._calls[stack])
            self._calls[stack] += 1
            states = args[0] if args else kwargs["hidden_states"]
            self._store_relevance(self.enters, step, states)
            if self._encoded is None or stack == "encoder":
                return None
            args = tuple(self._track_source(value, step) for value in args)
            return args, {name: self._track_source(value, step) for name, value in kwargs.items()}

        return enter

    def _track_source(self, value: Any, step: Step) -> Any:
        """If the value is the encoder's states: a view of them whose relevance is added to `source` of this step.

        All layers of the decoder read the same tensor. Each gets a view of its own, so that its gradient is separate.
        """
        if not isinstance(value, Tensor) or value is not self._encoded or not value.requires_grad:
            return value
        view = value.view_as(value)
        states = view.detach()

        def add(gradient: Tensor) -> None:
            self.source[step] = self.source[step] + self._by_sequence(gradient * states)

        on_gradient(view, add)
        return view

    def _leave_hook(self, stack: str) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            layer = self._calls[stack] - 1
            states = output if isinstance(output, Tensor) else output[0]
            self._store_relevance(self.leaves, (stack, layer), states)
            self._step = (stack, layer + 1)

        return leave

    def _store_relevance(self, sums: dict[Step, Tensor], step: Step, states: Tensor) -> None:
        """In the backward pass, store the relevance of these states as `sums[step]`."""
        if states.requires_grad:
            values = states.detach()

            def store(gradient: Tensor) -> None:
                sums[step] = self._by_token((gradient * values).sum(dim=-1))

            on_gradient(states, store)

    # Shapes

    def _by_token(self, relevance: Tensor) -> Tensor:
        """Relevance as [sequence, token], from [token, sequence] in time-major models."""
        relevance = relevance.double().cpu()
        return relevance.T if self.model.family.time_major else relevance

    def _by_sequence(self, relevance: Tensor) -> Tensor:
        """Relevance of any shape, summed to [sequence]; without an axis of sequences, each gets an equal share."""
        relevance = relevance.double()
        has_tokens_first = self.model.family.time_major and relevance.dim() > 2
        if has_tokens_first and relevance.shape[1] == self.sequences:
            relevance = relevance.transpose(0, 1)
        # The first axis is [sequence] or [sequence * token], as in the linear layers of GPT-2.
        if relevance.shape[0] % self.sequences == 0:
            return relevance.reshape(self.sequences, -1).sum(dim=1).cpu()
        return (relevance.sum() / self.sequences).cpu().expand(self.sequences)
