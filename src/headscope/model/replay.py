"""A forward pass that is run again and again with one site's output changed, without repeating what cannot change.

The first pass stores the output of every block. A later pass runs the model's own code, but the blocks below the
changed site return their stored outputs, and so does the attention of the changed site itself: its output is the
stored one minus what a head added to it. Everything above is computed again by the model's own modules, so the result
is that of the plain run up to rounding, whatever the family. If only the first token of the last block is read, as by a
classifier, that block computes only this row (`reads_first`); the caller has to test whether that is so.
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

Forward = Callable[[], Any]  # runs the whole model on one batch


@dataclass
class SiteOutput:
    """What the heads of one site add to its output, for one batch.

    output   [sequence, query, width] after the output projection
    context  [sequence, query, head, head width] before it
    weight   [width, head, head width] of the projection
    before   the outputs of the sites before this one in the same block, which do not change either
    edited_context  the context under an edit of the whole site; set by the caller when needed
    """

    output: Tensor
    context: Tensor
    weight: Tensor
    before: dict[Site, Tensor] = field(default_factory=dict)
    edited_context: Tensor | None = None

    def without(self, head: int, replacement: Tensor | None = None) -> Tensor:
        """The output with the head's result zeroed, or replaced by one [.., .., head width].

        Exact, not an estimate: the projection is linear, so subtracting a head's term is running the site without it.
        """
        removed = self.context[:, :, head]
        if replacement is not None:
            removed = removed - replacement
        return self.output - removed @ self.weight[:, head].T

    def without_heads(self) -> Tensor:
        """The output with all heads of the site zeroed: the bias of the projection."""
        return self.output - self.context.flatten(2) @ self.weight.flatten(1).T

    def is_zero(self, head: int) -> bool:
        """Whether the head adds exactly nothing."""
        return not bool((self.context[:, :, head] @ self.weight[:, head].T).any())


class Replay:
    """The stored forward pass of one batch.

    forward      runs the whole model on the batch, through its own code; `result` is its result in the first pass
    real         [sequence, token], False at padding: needed for `reads_first`
    reads_first  the last block need only compute the first token
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
        self.outputs: dict[tuple[str, int], Any] = {}  # of each call of each block
        self.encoded: Any = None  # the output of the encoder of an encoder-decoder
        # The calls of blocks: (name, how often it was called before)
        self.order: list[tuple[str, int]] = []
        # The output of an attention module without its result, and the index of the result in it. See _answer.
        self.forms: dict[str, tuple[Any, int]] = {}
        self._row_context: Tensor  # of the last site, if only its first row is computed
        self.result = self._run_first_pass()
        self.last = self.order[-1]
        self.by_row = reads_first and self._can_compute_one_row()

    def site_output(self, site: Site) -> SiteOutput:
        """What the heads of this site add. Blocks below return stored outputs; the pass stops at the projection."""
        part = self.parts[site]
        projection = self.modules[_projection(part)]
        before = {self.modules[_projection(self.parts[s])]: s for s in self._sites_before(site)}
        outputs_before: dict[Site, Tensor] = {}
        projected: list[tuple[Tensor, Tensor]] = []  # input and output of the projection

        def take(module: nn.Module, args: tuple[Tensor], result: Tensor) -> None:
            if module is projection:
                projected.append((args[0], result))
                raise _Reached
            outputs_before[before[module]] = result

        with ExitStack() as stack:
            stack.enter_context(self._replay_below(part))
            if self.by_row:
                stack.enter_context(self._compute_one_row())
            for module in (projection, *before):
                stack.callback(module.register_forward_hook(take).remove)
            stack.enter_context(suppress(_Reached))
            self.forward()
        context, output = projected[
            0
        ]  # [sequence, query, head * head width], [sequence, query, width]
        if self.by_row and (part.block, part.turn) == self.last:
            context = self._row_context
        weight = weight_of(projection)
        # [width, head * head width] to [width, head, head width]
        by_head = weight.reshape(weight.shape[0], self._count_heads(site), -1)
        return SiteOutput(output, self._split_heads(site, context), by_head, outputs_before)

    def run_with(self, site: Site, output: Tensor, unchanged: SiteOutput) -> Any:
        """The model's result when this site gives `output` [sequence, query, width] after its projection."""
        part = self.parts[site]
        with ExitStack() as stack:
            stack.enter_context(self._replay_below(part))
            if self.by_row:
                is_last = (part.block, part.turn) == self.last
                stack.enter_context(self._compute_one_row(skip_attention=is_last))
            for earlier, stored in unchanged.before.items():
                stack.enter_context(self._answer(self.parts[earlier], stored))
            stack.enter_context(self._answer(part, output))
            return self.forward()

    def context_under(self, site: Site) -> Tensor:
        """The heads' results [sequence, query, head, head width] at a site in a whole pass under the open edits."""
        part = self.parts[site]
        contexts: list[Tensor] = []

        def take(module: nn.Module, args: tuple[Tensor]) -> None:
            contexts.append(args[0])
            if len(contexts) > part.turn:
                raise _Reached

        handle = self.modules[_projection(part)].register_forward_pre_hook(take)
        try:
            with suppress(_Reached):
                self.forward()
        finally:
            handle.remove()
        return self._split_heads(site, contexts[part.turn])

    def _count_heads(self, site: Site) -> int:
        return sum(head.site == site for head in self.model.heads)

    def _split_heads(self, site: Site, context: Tensor) -> Tensor:
        """[sequence, query, head, head width] from results that stand side by side."""
        return context.reshape(*context.shape[:-1], self._count_heads(site), -1)

    # The first pass

    def _run_first_pass(self) -> Any:
        """Run the whole model, and store what later passes return instead of computing it."""
        calls: Counter[str] = Counter()
        core_outputs: dict[str, Any] = {}  # of the last call of each attention module
        projected: dict[str, tuple[Tensor, Tensor]] = {}  # input and output of its projection

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

        hooks = [(name, store_block(name)) for name in {part.block for part in self.parts.values()}]
        for part in self.parts.values():
            hooks.append((part.core, store_core(part.core)))
            hooks.append((_projection(part), store_projection(part.core)))
        with ExitStack() as stack:
            for name, hook in hooks:
                stack.callback(self.modules[name].register_forward_hook(hook).remove)
            if self.model.is_encoder_decoder:
                encoder = self.model.model.get_encoder()
                stack.callback(encoder.register_forward_hook(store_encoder).remove)
            result = self.forward()
        for name, output in core_outputs.items():
            if (form := _form_of(output, projected[name])) is not None:
                self.forms[name] = form
        return result

    # Later passes

    def _sites_before(self, site: Site) -> list[Site]:
        """The sites of the same call of the same block that come before this one: self attention before cross."""
        part = self.parts[site]
        order = list(self.model.attention_modules)
        return [
            other_site
            for other_site, other in self.parts.items()
            if (other.block, other.turn) == (part.block, part.turn)
            and order.index(other.core) < order.index(part.core)
        ]

    @contextmanager
    def _replay_below(self, part: Parts) -> Iterator[None]:
        """Blocks called before the site's own return their stored outputs."""
        below = self.order[: self.order.index((part.block, part.turn))]
        with ExitStack() as stack:
            for name, count in Counter(name for name, _ in below).items():
                stack.enter_context(self._replay_block(name, count))
            if self.model.is_encoder_decoder:
                encoder = self.model.model.get_encoder()
                name = next(name for name, module in self.modules.items() if module is encoder)
                # For sites of the decoder the encoder is skipped as a whole, its embeddings and last norm included.
                if not part.block.startswith(f"{name}."):
                    stack.enter_context(
                        patch_forward(encoder, lambda *args, **kwargs: self.encoded)
                    )
            yield

    @contextmanager
    def _replay_block(self, name: str, count: int) -> Iterator[None]:
        """The first `count` calls of a block return stored outputs, the later ones compute."""
        original = self.modules[name].forward
        calls = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            return self.outputs[name, calls - 1] if calls <= count else original(*args, **kwargs)

        with patch_forward(self.modules[name], forward):
            yield

    @contextmanager
    def _answer(self, part: Parts, output: Tensor) -> Iterator[None]:
        """The site's projection returns `output` at its next call, and its attention need not compute anything.

        An attention module whose output holds the projection's output, or its input, is not run at all. Elsewhere (a
        norm inside the module) it runs, but on zeros instead of queries, keys and values.
        """
        with ExitStack() as stack:
            projection = self.modules[_projection(part)]
            stack.enter_context(patch_once(projection, lambda *args, **kwargs: output))
            if part.core in self.forms:
                stack.enter_context(self._skip_core(part, output))
            else:
                for name in {part.query, part.key, part.value} - {None}:
                    assert name is not None
                    module = self.modules[name]
                    stack.enter_context(patch_once(module, return_zeros(module)))
            yield

    def _skip_core(self, part: Parts, result: Tensor) -> Patch:
        """The attention module returns this result at its next call, in the form of its usual output."""
        form, index = self.forms[part.core]
        output = result if form is None else (*form[:index], result, *form[index + 1 :])
        return patch_once(self.modules[part.core], lambda *args, **kwargs: output)

    # Only the first row of the last block

    def _can_compute_one_row(self) -> bool:
        """Whether the last block has one site, whose queries, keys and values are plain linear layers."""
        parts = [part for part in self.parts.values() if (part.block, part.turn) == self.last]
        plain = len(parts) == 1 and None not in (parts[0].query, parts[0].key, parts[0].value)
        return plain and self.real is not None

    @contextmanager
    def _compute_one_row(self, *, skip_attention: bool = False) -> Iterator[None]:
        """The last call of the last block computes only its first row; its attention still reads all rows.

        skip_attention  the output of the site is replaced anyway
        """
        name, last = self.last
        site = next(s for s, part in self.parts.items() if (part.block, part.turn) == self.last)
        part = self.parts[site]
        block, projection = self.modules[name], self.modules[_projection(part)]
        original, project = block.forward, projection.forward
        calls = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if (
                calls <= last
            ):  # ALBERT calls one block several times; only the last call is cut to one row
                return original(*args, **kwargs)
            hidden = args[0] if args else kwargs["hidden_states"]
            row = hidden[:, :1]
            # Masks [batch, head, query, key] no longer fit; padding is masked in _first_row.
            kwargs = {key: _without_masks(value) for key, value in kwargs.items()}
            if args:
                args = (row, *map(_without_masks, args[1:]))
            else:
                kwargs["hidden_states"] = row
            if skip_attention:
                return original(*args, **kwargs)
            self._row_context = context = self._first_row(site, hidden)
            with ExitStack() as stack:
                stack.enter_context(patch_once(projection, lambda *_: project(context)))
                # Attention that ends before its projection is not run; attention that contains it runs on the one row.
                if part.core in self.forms and not _projection(part).startswith(f"{part.core}."):
                    stack.enter_context(self._skip_core(part, row))
                return original(*args, **kwargs)

        with patch_forward(block, forward):
            yield

    def _first_row(self, site: Site, hidden: Tensor) -> Tensor:
        """The heads' results [sequence, 1, width] at the first token, from hidden [sequence, token, width].

        Keys and values of all tokens are never computed. With q·(W_k h) = (W_kᵀ q)·h the query is mapped back through
        the key projection and compared with the tokens themselves. With Σ a_j W_v h_j = W_v Σ a_j h_j only the mean of
        the tokens by attention is projected. The bias of the keys adds the same to every score, so the softmax cancels
        it.
        """
        part = self.parts[site]
        query, key, value = (
            self.modules[name] for name in (part.query, part.key, part.value) if name is not None
        )
        assert self.real is not None
        states = query(hidden[:, 0])
        heads = self._count_heads(site)
        batch, width = states.shape[0], states.shape[-1] // heads
        states = states.view(batch, heads, width)  # [batch, head, head width]
        # [head, head width, width]
        key_weight, value_weight = (
            weight_of(projection).view(heads, width, -1) for projection in (key, value)
        )
        back_projected = torch.einsum("bhw,hwd->bhd", states, key_weight)
        scores = back_projected @ hidden.transpose(1, 2) * part.scaling  # [batch, head, token]
        scores = scores.masked_fill(~self.real[:, None], torch.finfo(scores.dtype).min)
        mixed = torch.softmax(scores, dim=-1) @ hidden  # [batch, head, width]
        results = torch.einsum("bhd,hwd->bhw", mixed, value_weight).flatten(1)
        if value.bias is not None:
            results = results + value.bias
        return results[:, None]


class _Reached(Exception):
    """The forward pass has got as far as it is needed."""


def _projection(part: Parts) -> str:
    assert part.projection is not None, f"{part.core} has no output projection that is a module"
    return part.projection


def _form_of(output: Any, projected: tuple[Tensor, Tensor]) -> tuple[Any, int] | None:
    """The output of an attention module with None for its result, and the result's index; None if it is not in there.

    The result is known by its memory: it is the input or the output of the projection.
    """
    items = output if isinstance(output, tuple) else (output,)
    for index, item in enumerate(items):
        if isinstance(item, Tensor) and any(item.data_ptr() == t.data_ptr() for t in projected):
            rest = (*items[:index], None, *items[index + 1 :])
            return (rest if isinstance(output, tuple) else None), index
    return None


def _without_masks(value: Any) -> Any:
    return None if isinstance(value, Tensor) and value.dim() == 4 else value
