"""Repeat a forward pass with the output of one site changed, without recomputing what cannot change.

Exact ablation needs one forward pass per head, and most of each pass is the same as without the ablation. The first
pass stores the output of every block. Later passes run the model's own code with these shortcuts:

- The blocks before the changed site return their stored outputs.
- The attention of the changed site is not computed. The caller passes its new output, which is the stored output minus
  what a head added to it (`SiteOutput.without`).
- If the task reads only the first token of the last block, as a classifier does, that block computes only this row
  (`reads_first`). The caller has to test whether the task's results stay the same.

Everything after the site is computed by the model's own modules. The result therefore equals that of a plain pass up to
rounding, in every family.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headscope.heads import Site
from headscope.model.anatomy import Parts, weight_of
from headscope.model.attention_model import AttentionModel
from headscope.model.patch_forward import Patch, patch_forward, patch_once, return_zeros

Forward = Callable[[], Any]  # runs the model on one batch


@dataclass
class SiteOutput:
    """The output of one site for one batch, before and after the output projection.

    output   [sequence, query, width]: after the projection
    context  [sequence, query, head, head width]: the heads' results, which are the input of the projection
    weight   [width, head, head width]: the weight of the projection
    before   the outputs of earlier sites in the same call of the block (self before cross attention). An
             ablation at this site does not change them
    edited_context  the context under an edit of the site's heads; set by the caller when it is needed
    """

    output: Tensor
    context: Tensor
    weight: Tensor
    before: dict[Site, Tensor] = field(default_factory=dict)
    edited_context: Tensor | None = None

    def without(self, head: int, replacement: Tensor | None = None) -> Tensor:
        """The output with the head's result set to zero, or to `replacement` [sequence, query, head width].

        Exact, not an estimate: the projection is linear, so the output is a sum with one term per head.
        """
        removed = self.context[:, :, head]  # [sequence, query, head width]
        if replacement is not None:
            removed = removed - replacement
        return self.output - removed @ self.weight[:, head].T

    def without_heads(self) -> Tensor:
        """The output with the results of all heads set to zero, which is the bias of the projection."""
        return self.output - self.context.flatten(2) @ self.weight.flatten(1).T

    def is_zero(self, head: int) -> bool:
        """Whether the head adds exactly 0 to the output of every token."""
        return not bool((self.context[:, :, head] @ self.weight[:, head].T).any())


class Replay:
    """The stored forward pass of one batch.

    forward      runs the model on the batch through its own code; `result` is what it returned in the first pass
    real         [sequence, token], False at padding; required for `reads_first`
    reads_first  only the first token of the last block is read, so it need not compute the others
    by_row       whether the last block really computes only its first row (`reads_first`, and the block allows it)
    """

    def __init__(
        self,
        model: AttentionModel,
        parts: dict[Site, Parts],
        forward: Forward,
        *,
        real: Tensor | None = None,
        reads_first: bool = False,
    ) -> None:
        self.model, self.parts, self.forward, self.real = model, parts, forward, real
        self.modules = dict(model.model.named_modules())
        # A call of a block is (name of the block, number of its earlier calls): ALBERT calls one block in every layer.
        self.order: list[tuple[str, int]] = []  # all calls, in the order of the first pass
        self.outputs: dict[tuple[str, int], Any] = {}  # by call
        self.encoded: Any = None  # the output of the encoder of an encoder-decoder
        # By attention module, see _output_template. Modules without a template are run, see _substitute_output.
        self.output_templates: dict[str, tuple[Any, int]] = {}
        # [sequence, 1, head * head width]: the context of the last site, if only its first row is computed
        self._row_context: Tensor
        self.result = self._run_first_pass()
        self.last = self.order[-1]
        self.by_row = reads_first and self._can_compute_one_row()

    def site_output(self, site: Site) -> SiteOutput:
        """The output of this site in the unchanged model.

        Needs a pass of its own, since the first pass stores only outputs of blocks. It computes only the site's block:
        earlier blocks return stored outputs, and the pass stops after the site's output projection.
        """
        parts = self.parts[site]
        projection = self.modules[_projection(parts)]
        before = {self.modules[_projection(self.parts[s])]: s for s in self._sites_before(site)}
        outputs_before: dict[Site, Tensor] = {}
        projected: list[tuple[Tensor, Tensor]] = []  # input and output of the projection; one item

        def store_and_stop(module: nn.Module, args: tuple[Tensor], result: Tensor) -> None:
            if module is projection:
                projected.append((args[0], result))
                raise _StopForward
            outputs_before[before[module]] = result

        with ExitStack() as stack:
            stack.enter_context(self._replay_below(parts))
            if self.by_row:
                stack.enter_context(self._compute_one_row())
            for module in (projection, *before):
                stack.callback(module.register_forward_hook(store_and_stop).remove)
            stack.enter_context(suppress(_StopForward))
            self.forward()
        # [sequence, query, head * head width] and [sequence, query, width]
        context, output = projected[0]
        if self.by_row and (parts.block, parts.turn) == self.last:
            context = self._row_context
        weight = weight_of(projection)  # [width, head * head width]
        by_head = weight.reshape(weight.shape[0], self._count_heads(site), -1)
        return SiteOutput(output, self._split_heads(site, context), by_head, outputs_before)

    def run_with(self, site: Site, output: Tensor, unchanged: SiteOutput) -> Any:
        """The model's result if the output projection of this site returns `output` [sequence, query, width].

        unchanged  the output of this site in the unchanged model (`site_output`)
        """
        parts = self.parts[site]
        with ExitStack() as stack:
            stack.enter_context(self._replay_below(parts))
            if self.by_row:
                is_last = (parts.block, parts.turn) == self.last
                stack.enter_context(self._compute_one_row(skip_attention=is_last))
            for earlier, stored in unchanged.before.items():
                stack.enter_context(self._substitute_output(self.parts[earlier], stored))
            stack.enter_context(self._substitute_output(parts, output))
            return self.forward()

    def context_under(self, site: Site) -> Tensor:
        """The heads' results [sequence, query, head, head width] at a site under the open edits.

        Runs the model from its first block up to this site; stored outputs are not used.
        """
        parts = self.parts[site]
        # One per call of the projection, up to the call of this site; layers of ALBERT share one projection
        contexts: list[Tensor] = []

        def store_and_stop(module: nn.Module, args: tuple[Tensor]) -> None:
            contexts.append(args[0])
            if len(contexts) > parts.turn:
                raise _StopForward

        handle = self.modules[_projection(parts)].register_forward_pre_hook(store_and_stop)
        try:
            with suppress(_StopForward):
                self.forward()
        finally:
            handle.remove()
        return self._split_heads(site, contexts[parts.turn])

    def _count_heads(self, site: Site) -> int:
        return sum(head.site == site for head in self.model.heads)

    def _split_heads(self, site: Site, context: Tensor) -> Tensor:
        """[sequence, query, head, head width] from [sequence, query, head * head width]."""
        return context.reshape(*context.shape[:-1], self._count_heads(site), -1)

    # The first pass

    def _run_first_pass(self) -> Any:
        """Run the model, and store what later passes return instead of computing it."""
        calls: Counter[str] = Counter()  # by block
        # By attention module, from its last call: its output, and (input, output) of its output projection
        core_outputs: dict[str, Any] = {}
        projected: dict[str, tuple[Tensor, Tensor]] = {}

        def store_block(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                self.order.append((name, calls[name]))
                self.outputs[name, calls[name]] = output
                calls[name] += 1

            return hook

        def store_encoder(module: nn.Module, args: Any, output: Any) -> None:
            self.encoded = output

        def store_core(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                core_outputs[name] = output

            return hook

        def store_projection(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                projected[name] = args[0], output

            return hook

        hooks = [
            (name, store_block(name)) for name in {parts.block for parts in self.parts.values()}
        ]
        for parts in self.parts.values():
            hooks.append((parts.core, store_core(parts.core)))
            hooks.append((_projection(parts), store_projection(parts.core)))
        with ExitStack() as stack:
            for name, hook in hooks:
                stack.callback(self.modules[name].register_forward_hook(hook).remove)
            if self.model.is_encoder_decoder:
                encoder = self.model.model.get_encoder()
                stack.callback(encoder.register_forward_hook(store_encoder).remove)
            result = self.forward()
        for name, output in core_outputs.items():
            if (template := _output_template(output, projected[name])) is not None:
                self.output_templates[name] = template
        return result

    # Later passes

    def _sites_before(self, site: Site) -> list[Site]:
        """The sites before this one in the same call of its block: self attention comes before cross attention."""
        parts = self.parts[site]
        order = list(self.model.attention_modules)
        return [
            other_site
            for other_site, other in self.parts.items()
            if (other.block, other.turn) == (parts.block, parts.turn)
            and order.index(other.core) < order.index(parts.core)
        ]

    @contextmanager
    def _replay_below(self, parts: Parts) -> Iterator[None]:
        """While open, the calls of blocks before the one of these parts return their stored outputs."""
        below = self.order[: self.order.index((parts.block, parts.turn))]
        with ExitStack() as stack:
            for name, count in Counter(name for name, _ in below).items():
                stack.enter_context(self._replay_block(name, count))
            if self.model.is_encoder_decoder:
                encoder = self.model.model.get_encoder()
                name = next(name for name, module in self.modules.items() if module is encoder)
                # For sites of the decoder the entire encoder is skipped, including its embeddings and last norm.
                if not parts.block.startswith(f"{name}."):
                    stack.enter_context(
                        patch_forward(encoder, lambda *args, **kwargs: self.encoded)
                    )
            yield

    @contextmanager
    def _replay_block(self, name: str, count: int) -> Iterator[None]:
        """While open, the first `count` calls of a block return stored outputs; later calls run the block."""
        original = self.modules[name].forward
        calls = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return self.outputs[name, calls - 1] if calls <= count else original(*args, **kwargs)

        with patch_forward(self.modules[name], forward):
            yield

    @contextmanager
    def _substitute_output(self, parts: Parts, output: Tensor) -> Iterator[None]:
        """While open, the site's output projection returns `output` at its next call, and its attention is skipped.

        The attention module is not run if its own output is known, which is the case if it contains the output or the
        input of the projection (`output_templates`). Otherwise, for example if there is a norm inside the module after
        the projection, the module runs, but on zeros instead of queries, keys and values.
        """
        with ExitStack() as stack:
            projection = self.modules[_projection(parts)]
            stack.enter_context(patch_once(projection, lambda *args, **kwargs: output))
            if parts.core in self.output_templates:
                stack.enter_context(self._skip_core(parts, output))
            else:
                for name in {parts.query, parts.key, parts.value} - {None}:
                    assert name is not None
                    module = self.modules[name]
                    stack.enter_context(patch_once(module, return_zeros(module)))
            yield

    def _skip_core(self, parts: Parts, result: Tensor) -> Patch:
        """While open, the next call of the attention module returns its stored output with this result in it."""
        template, index = self.output_templates[parts.core]
        output = result if template is None else (*template[:index], result, *template[index + 1 :])
        return patch_once(self.modules[parts.core], lambda *args, **kwargs: output)

    # Only the first row of the last block

    def _can_compute_one_row(self) -> bool:
        """Whether the last block has one site with separate linear layers for queries, keys and values.

        `_first_row` computes attention from their weights and `real`.
        """
        in_block = [p for p in self.parts.values() if (p.block, p.turn) == self.last]
        if len(in_block) != 1 or self.real is None:
            return False
        return None not in (in_block[0].query, in_block[0].key, in_block[0].value)

    @contextmanager
    def _compute_one_row(self, *, skip_attention: bool = False) -> Iterator[None]:
        """While open, the last call of the last block computes only the first token, which still attends to all tokens.

        skip_attention  do not compute attention, because the output of the site is replaced anyway
        """
        name, last = self.last
        site = next(s for s, parts in self.parts.items() if (parts.block, parts.turn) == self.last)
        parts = self.parts[site]
        block, projection = self.modules[name], self.modules[_projection(parts)]
        original, project = block.forward, projection.forward
        calls = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            # ALBERT calls one block several times; only the last call is reduced to one row.
            if calls <= last:
                return original(*args, **kwargs)
            hidden = args[0] if args else kwargs["hidden_states"]  # [sequence, token, width]
            row = hidden[:, :1]
            # Masks [batch, head, query, key] do not fit one row. None are needed: _first_row masks padding.
            kwargs = {key: _without_masks(value) for key, value in kwargs.items()}
            if args:
                args = (row, *map(_without_masks, args[1:]))
            else:
                kwargs["hidden_states"] = row
            if skip_attention:
                return original(*args, **kwargs)
            self._row_context = context = self._first_row(site, hidden)
            with ExitStack() as stack:
                # Whatever the attention module computes from the one row, the projection gets the correct context.
                stack.enter_context(patch_once(projection, lambda *_: project(context)))
                # A module that does not contain the projection need not run at all; its result is not used.
                contains_projection = _projection(parts).startswith(f"{parts.core}.")
                if parts.core in self.output_templates and not contains_projection:
                    stack.enter_context(self._skip_core(parts, row))
                return original(*args, **kwargs)

        with patch_forward(block, forward):
            yield

    def _first_row(self, site: Site, hidden: Tensor) -> Tensor:
        """The heads' results [sequence, 1, head * head width] at the first token, from hidden [sequence, token, width].

        Keys and values are not computed, which saves two projections of all tokens. Since q·(W_k h) = (W_kᵀ q)·h, the
        query is multiplied by the key projection instead, and compared with the hidden states themselves. Since
        Σ a_j W_v h_j = W_v Σ a_j h_j, hidden states are averaged first, and only the average is projected. The bias of
        the keys adds the same number to every score of a query, so the softmax cancels it.
        """
        parts = self.parts[site]
        query, key, value = (
            self.modules[name] for name in (parts.query, parts.key, parts.value) if name is not None
        )
        assert self.real is not None
        states = query(hidden[:, 0])  # [batch, head * head width]
        heads = self._count_heads(site)
        batch, width = states.shape[0], states.shape[-1] // heads
        states = states.view(batch, heads, width)  # [batch, head, head width]
        # [head, head width, width]
        key_weight, value_weight = (
            weight_of(projection).view(heads, width, -1) for projection in (key, value)
        )
        back_projected = torch.einsum("bhw,hwd->bhd", states, key_weight)  # [batch, head, width]
        scores = back_projected @ hidden.transpose(1, 2) * parts.scaling  # [batch, head, token]
        scores = scores.masked_fill(~self.real[:, None], torch.finfo(scores.dtype).min)
        mixed = torch.softmax(scores, dim=-1) @ hidden  # [batch, head, width]
        results = torch.einsum("bhd,hwd->bhw", mixed, value_weight).flatten(1)
        if value.bias is not None:
            results = results + value.bias
        return results[:, None]


class _StopForward(Exception):
    """Ends a forward pass of which the rest is not needed."""


def _projection(parts: Parts) -> str:
    """The name of the site's output projection; callers have checked that it has one."""
    assert parts.projection is not None, f"{parts.core} has no output projection that is a module"
    return parts.projection


def _output_template(output: Any, projected: tuple[Tensor, Tensor]) -> tuple[Any, int] | None:
    """The output tuple of an attention module with None in place of its result, and the index of the result.

    The tuple is None if the output is a single tensor. Returns None if the output does not contain the result. The
    result is the item that shares memory with the input or the output of the output projection.
    """
    items = output if isinstance(output, tuple) else (output,)
    for index, item in enumerate(items):
        if isinstance(item, Tensor) and any(item.data_ptr() == t.data_ptr() for t in projected):
            template = (*items[:index], None, *items[index + 1 :])
            return (template if isinstance(output, tuple) else None), index
    return None


def _without_masks(value: Any) -> Any:
    """None for a tensor with four axes (a mask); other arguments unchanged."""
    return None if isinstance(value, Tensor) and value.dim() == 4 else value
