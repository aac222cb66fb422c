"""A forward pass that is run again and again with one site's output changed, without repeating what cannot change.

The first pass remembers what each block gave. A later pass runs the model's own code, but the blocks below the changed
site answer from memory, and so does the attention of the changed site itself: its output is the remembered one minus
what a head added to it. Everything above is computed anew by the model's own modules, so the result is that of the
plain run up to rounding, whatever the family. Where only the first token of the last block is read, as by a
classifier, that block computes only this row (`reads_first`); whether that is so is for the caller to try.
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

Forward = Callable[[], Any]  # runs the whole model on one batch


@dataclass
class SiteOutput:
    """What the heads of one site add to its output, for one batch.

    output   [sequence, query, width] after the output projection
    context  [sequence, query, head, head width] before it
    weight   [width, head, head width] of the projection
    before   what the sites before this one in the same block gave, which does not change either
    edited_context  the context under an edit of the whole site, once somebody has asked for it
    """

    output: Tensor
    context: Tensor
    weight: Tensor
    before: dict[Site, Tensor] = field(default_factory=dict)
    edited_context: Tensor | None = None

    def without(self, head: int, instead: Tensor | None = None) -> Tensor:
        """The output as if the head had said nothing, or `instead` [.., .., head width].

        Exact, not an estimate: the projection is linear, so taking a share away is running the site without it.
        """
        mine = self.context[:, :, head]
        return self.output - (mine if instead is None else mine - instead) @ self.weight[:, head].T

    def without_heads(self) -> Tensor:
        """The output as if no head of the site had said anything: what the projection adds by itself."""
        return self.output - self.context.flatten(2) @ self.weight.flatten(1).T

    def is_zero(self, head: int) -> bool:
        """Whether the head adds exactly nothing."""
        return not bool((self.context[:, :, head] @ self.weight[:, head].T).any())


class Replay:
    """One batch's forward pass, remembered.

    forward      runs the whole model on the batch, through its own code; `result` is what it gave the first time
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
        self.outputs: dict[tuple[str, int], Any] = {}  # what each call of each block gave
        self.encoded: Any = None  # what the encoder of an encoder-decoder gave
        self.order: list[tuple[str, int]] = []  # the calls of blocks
        self.forms: dict[
            str, tuple[Any, int]
        ] = {}  # what attention modules give, and which item holds the result
        self.result = self._first()
        self.last = self.order[-1]
        self.by_row = reads_first and self._can_read_a_row()

    def site_output(self, site: Site) -> SiteOutput:
        """What the heads of this site add; runs the blocks below from memory and stops at the projection."""
        part = self.parts[site]
        projection = self.modules[_projection(part)]
        before = {self.modules[_projection(self.parts[one])]: one for one in self._before(site)}
        found: dict[Site, Tensor] = {}
        seen: list[tuple[Tensor, Tensor]] = []

        def take(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
            if module is projection:
                seen.append((args[0], output))
                raise _Reached
            found[before[module]] = output

        with ExitStack() as stack:
            stack.enter_context(self._from_memory(part))
            if self.by_row:
                stack.enter_context(self._row_of_last())
            for module in (projection, *before):
                stack.callback(module.register_forward_hook(take).remove)
            stack.enter_context(suppress(_Reached))
            self.forward()
        context, output = seen[0]
        heads = sum(head.site == site for head in self.model.heads)
        weight = weight_of(projection)
        if self.by_row and (part.block, part.turn) == self.last:
            context = self._row_context[0]
        return SiteOutput(
            output,
            context.reshape(*context.shape[:-1], heads, -1),
            weight.reshape(weight.shape[0], heads, -1),
            found,
        )

    def run_with(self, site: Site, output: Tensor, shares: SiteOutput) -> Any:
        """The model's result when this site gives `output` [sequence, query, width] after its projection."""
        part = self.parts[site]
        with ExitStack() as stack:
            stack.enter_context(self._from_memory(part))
            if self.by_row:
                stack.enter_context(self._row_of_last(known=(part.block, part.turn) == self.last))
            for one, given in shares.before.items():
                stack.enter_context(self._answering(self.parts[one], given))
            stack.enter_context(self._answering(part, output))
            return self.forward()

    def context_under(self, site: Site) -> Tensor:
        """The heads' results [sequence, query, head, head width] at a site in a whole pass under the open edits."""
        part = self.parts[site]
        seen: list[Tensor] = []

        def take(module: nn.Module, args: tuple[Tensor]) -> None:
            seen.append(args[0])
            if len(seen) > part.turn:
                raise _Reached

        handle = self.modules[_projection(part)].register_forward_pre_hook(take)
        try:
            with suppress(_Reached):
                self.forward()
        finally:
            handle.remove()
        heads = sum(head.site == site for head in self.model.heads)
        return seen[part.turn].reshape(*seen[part.turn].shape[:-1], heads, -1)

    # The first pass

    def _first(self) -> Any:
        turns: Counter[str] = Counter()
        given: dict[str, Any] = {}  # what an attention module gave last
        used: dict[str, tuple[Tensor, Tensor]] = {}  # what a projection took and gave last

        def remember(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                self.order.append((name, turns[name]))
                self.outputs[name, turns[name]] = output
                turns[name] += 1

            return hook

        def remember_encoder(module: nn.Module, args: Any, output: Any) -> None:
            self.encoded = output

        def keep(place: dict[str, Any], name: str, *, whole: bool) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                place[name] = output if whole else (args[0], output)

            return hook

        with ExitStack() as stack:
            for name in {part.block for part in self.parts.values()}:
                stack.callback(self.modules[name].register_forward_hook(remember(name)).remove)
            for part in self.parts.values():
                core, projection = self.modules[part.core], self.modules[_projection(part)]
                stack.callback(
                    core.register_forward_hook(keep(given, part.core, whole=True)).remove
                )
                stack.callback(
                    projection.register_forward_hook(keep(used, part.core, whole=False)).remove
                )
            if self.model.is_encoder_decoder:
                encoder = self.model.model.get_encoder()
                stack.callback(encoder.register_forward_hook(remember_encoder).remove)
            result = self.forward()
        for name, output in given.items():
            form = _form(output, used[name])
            if form is not None:
                self.forms[name] = form
        return result

    # Later passes

    def _before(self, site: Site) -> list[Site]:
        """The sites of the same call of the same block that come before this one: self attention before cross."""
        part = self.parts[site]
        same = [
            one
            for one, other in self.parts.items()
            if (other.block, other.turn) == (part.block, part.turn)
        ]
        names = list(self.model.attention_modules)
        return [one for one in same if names.index(self.parts[one].core) < names.index(part.core)]

    @contextmanager
    def _from_memory(self, part: Parts) -> Iterator[None]:
        """Blocks called before the site's own answer what they gave the first time."""
        known = Counter(name for name, _ in self.order[: self.order.index((part.block, part.turn))])
        with ExitStack() as stack:
            for name, count in known.items():
                stack.enter_context(self._remembering(name, count))
            if self.model.is_encoder_decoder:
                encoder = self.model.model.get_encoder()
                inside = next(name for name, module in self.modules.items() if module is encoder)
                if not part.block.startswith(f"{inside}."):
                    stack.enter_context(_patched(encoder, lambda *args, **kwargs: self.encoded))
            yield

    @contextmanager
    def _remembering(self, name: str, count: int) -> Iterator[None]:
        """The first `count` calls of a block answer from memory, the later ones compute."""
        original = self.modules[name].forward
        turn = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal turn
            turn += 1
            return self.outputs[name, turn - 1] if turn <= count else original(*args, **kwargs)

        with _patched(self.modules[name], forward):
            yield

    @contextmanager
    def _answering(self, part: Parts, output: Tensor) -> Iterator[None]:
        """The site's projection gives `output` at its next call, and its attention need not compute anything.

        Where the attention module gives nothing but the projected result, or that before the projection, it is not
        run at all. Elsewhere (a norm inside it) it runs, on zeros instead of queries, keys and values.
        """
        with ExitStack() as stack:
            stack.enter_context(
                _once(self.modules[_projection(part)], lambda *args, **kwargs: output)
            )
            if part.core in self.forms:
                form, place = self.forms[part.core]
                filled = output if form is None else (*form[:place], output, *form[place + 1 :])
                stack.enter_context(_once(self.modules[part.core], lambda *args, **kwargs: filled))
            else:
                for name in {part.query, part.key, part.value} - {None}:
                    assert name is not None
                    stack.enter_context(_once(self.modules[name], _zeros(self.modules[name])))
            yield

    # Only the first row of the last block

    def _can_read_a_row(self) -> bool:
        parts = [part for part in self.parts.values() if (part.block, part.turn) == self.last]
        plain = len(parts) == 1 and None not in (parts[0].query, parts[0].key, parts[0].value)
        return plain and self.real is not None

    @contextmanager
    def _row_of_last(self, *, known: bool = False) -> Iterator[None]:
        """The last call of the last block computes its first row alone; its attention still reads all rows.

        known  the site's output is answered anyway, so that its attention is not wanted
        """
        name, last = self.last
        part = next(one for one in self.parts.values() if (one.block, one.turn) == self.last)
        block, projection = self.modules[name], self.modules[_projection(part)]
        original, project = block.forward, projection.forward
        turn = 0

        def forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal turn
            turn += 1
            if turn <= last:
                return original(*args, **kwargs)
            hidden = args[0] if args else kwargs["hidden_states"]
            row = hidden[:, :1]
            rest = [_without_masks(value) for value in args[1:]]
            named = {key: _without_masks(value) for key, value in kwargs.items()}
            if args:
                args = (row, *rest)
            else:
                named["hidden_states"] = row
            if known:
                return original(*args, **named)
            self._row_context = [self._first_row(part, hidden)]
            with (
                _once(projection, lambda *_: project(self._row_context[0])),
                self._without_attention(part, row),
            ):
                return original(*args, **named)

        with _patched(block, forward):
            yield

    @contextmanager
    def _without_attention(self, part: Parts, row: Tensor) -> Iterator[None]:
        """Attention that ends before its projection is not run; attention that holds it runs on the one row."""
        if part.core in self.forms and not _projection(part).startswith(f"{part.core}."):
            form, place = self.forms[part.core]
            filled = row if form is None else (*form[:place], row, *form[place + 1 :])
            with _once(self.modules[part.core], lambda *args, **kwargs: filled):
                yield
        else:
            yield

    def _first_row(self, part: Parts, hidden: Tensor) -> Tensor:
        """The heads' results side by side [sequence, 1, width] at the first token.

        Keys and values of all tokens are never made: a query of head width is taken back through the key projection
        and compared with the tokens themselves, and their mean by attention goes through the value projection.
        """
        query, key, value = (
            self.modules[name] for name in (part.query, part.key, part.value) if name is not None
        )
        assert self.real is not None
        states = query(hidden[:, 0])
        heads = sum(head.site == self._site(part) for head in self.model.heads)
        batch, width = states.shape[0], states.shape[-1] // heads
        asked = torch.einsum(
            "bhw,hwd->bhd", states.view(batch, heads, width), weight_of(key).view(heads, width, -1)
        )
        scores = asked @ hidden.transpose(1, 2) * part.scaling
        scores = scores.masked_fill(~self.real[:, None], torch.finfo(scores.dtype).min)
        mixed = torch.softmax(scores, dim=-1) @ hidden
        results = torch.einsum(
            "bhd,hwd->bhw", mixed, weight_of(value).view(heads, width, -1)
        ).flatten(1)
        if value.bias is not None:
            results = results + value.bias
        return results[:, None]

    def _site(self, part: Parts) -> Site:
        return next(site for site, one in self.parts.items() if one is part)


class _Reached(Exception):
    """The forward pass got as far as it was wanted."""


def _projection(part: Parts) -> str:
    assert part.projection is not None, f"{part.core} has no output projection that is a module"
    return part.projection


def _form(output: Any, used: tuple[Tensor, Tensor]) -> tuple[Any, int] | None:
    """What an attention module gives besides its result, and where in it the result stands; None where it is not."""
    items = output if isinstance(output, tuple) else (output,)
    for place, item in enumerate(items):
        if isinstance(item, Tensor) and any(item.data_ptr() == one.data_ptr() for one in used):
            rest = tuple(None if i == place else other for i, other in enumerate(items))
            return (rest if isinstance(output, tuple) else None), place
    return None


def _zeros(module: nn.Module) -> Callable[..., Tensor]:
    width = weight_of(module).shape[0]

    def forward(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return hidden.new_zeros(()).expand(*hidden.shape[:-1], width)

    return forward


def _without_masks(value: Any) -> Any:
    return None if isinstance(value, Tensor) and value.dim() == 4 else value


@contextmanager
def _once(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """The module's next call answers so; later ones are its own."""
    original = module.forward
    waiting = True

    def first(*args: Any, **kwargs: Any) -> Any:
        nonlocal waiting
        if waiting:
            waiting = False
            return forward(*args, **kwargs)
        return original(*args, **kwargs)

    with _patched(module, first):
        yield


@contextmanager
def _patched(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """The module's forward replaced; restored on leaving, also after an exception."""
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before
