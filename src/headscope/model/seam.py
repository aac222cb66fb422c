"""The one place where attention is watched and edited.

Two doors lead here: the attention function that headscope registers with transformers (`interface.py`), and the
softmax tap (`tap.py`) for families with a softmax of their own. Behind both: which site is this, who watches, what
is edited. With nobody watching and nothing edited at a site, the model's own kernels run.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention, Scratch
from headscope.model.edits import Edit
from headscope.model.fixed_attention import expand_fixed_heads
from headscope.model.kernels import (
    Call,
    add_masks,
    add_masks_to_scores,
    attend_eager,
    attend_in_chunks,
    attend_sdpa,
)
from headscope.model.tokens import Chunk, Layout, Marks, Tokens, layout_of

Observer = Callable[[Attention], None]
CallInspector = Callable[
    [Site, Call], None
]  # called before each attention call, with its queries, keys and values
GradientObserver = Callable[
    [Attention, Tensor], None
]  # told of the loss' derivative by the weights, when it is known


class Seam:
    """What is watched and edited on one model, and where the current forward pass has got to."""

    def __init__(
        self, root: nn.Module, *, marks: Marks, decoder_only: bool, takes_text: bool
    ) -> None:
        self.root, self.marks = root, marks
        self.decoder_only, self.takes_text = decoder_only, takes_text
        self.sites: dict[
            str, list[Site]
        ] = {}  # the sites of each attention module, in the order of its calls
        self.observers: list[Observer] = []
        self.gradient_observers: list[GradientObserver] = []  # observers of the way back
        self.edits: list[Edit] = []
        self.layout_override: Layout | None = None
        self.recorded_calls: list[tuple[str, int]] | None = (
            None  # (module, heads) of each call, in the dry run
        )
        self.inspector: CallInspector | None = None
        self._layout = Layout()
        self._calls: Counter[str] = Counter()
        self._depth = 0
        self._scratch = Scratch()

    # The course of a forward pass

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Forward pre-hook of the model, and of its encoder, which may be called alone."""
        self._depth = 1 if module is self.root else self._depth + 1
        if self._depth == 1:
            self._calls.clear()
            self._layout = self.layout_override or self._read_layout(module, args, kwargs)
            for edit in self.edits:
                edit.begin_forward(self._layout)

    def end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Forward hook, also called after an exception (then without output): was every site seen?"""
        self._depth -= 1
        if self._depth == 0 and output is not None and self.recorded_calls is None:
            self._check_counts()

    def reset(self) -> None:
        """Forget the current forward pass, whatever stopped it."""
        self._calls.clear()
        self._depth, self._layout = 0, Layout()

    def _check_counts(self) -> None:
        """Each stack was seen whole or not at all: a silent miss would make every number wrong."""
        seen: Counter[str] = Counter()
        for name, calls in self._calls.items():
            seen.update(site.stack for site in (self.sites[name] * calls)[:calls])
        expected = Counter(site.stack for sites in self.sites.values() for site in sites)
        wrong = [
            f"{seen[stack]} of {expected[stack]} sites in {stack}"
            for stack in seen
            if seen[stack] != expected[stack]
        ]
        if wrong or not seen:
            raise HeadscopeError(
                f"this forward pass called {', '.join(wrong) or 'none of the attention sites'}",
                expected="each stack whole or not at all",
                fix="Call the whole model, once, without gradient checkpointing",
            )

    def _read_layout(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Layout:
        inputs = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        return layout_of(
            {**inputs.get("kwargs", {}), **inputs}, self.marks, decoder_only=self.decoder_only
        )

    # What happens at a site

    def next_site(self, name: str, heads: int) -> Site | None:
        """The site of this call of the module; None in the dry run that finds out which sites there are."""
        occurrence = self._calls[name]
        self._calls[name] += 1
        if self.recorded_calls is not None:
            self.recorded_calls.append((name, heads))
            return None
        sites = self.sites[name]
        return sites[occurrence % len(sites)]

    def _masks(
        self, site: Site, shape: tuple[int, int, int, int], device: torch.device
    ) -> list[Tensor]:
        return [edit.allowed(site, shape, device) for edit in self.edits if edit.changes_mask(site)]

    def mask_scores(self, site: Site | None, scores: Tensor) -> Tensor:
        """Scores [batch, head, query, key] with what the open edits forbid far below, for a family's own softmax."""
        masks = [] if site is None else self._masks(site, tuple(scores.shape), scores.device)  # type: ignore[arg-type]
        return add_masks_to_scores(scores, masks) if masks else scores

    def edit_scores(self, site: Site | None, scores: Tensor) -> Tensor:
        """Apply the open edits to the scores [batch, head, query, key]."""
        for edit in self.edits:
            if site is not None and edit.changes_scores(site):
                scores = edit.scores(site, scores)
        return scores

    def edit_weights(self, site: Site | None, weights: Tensor) -> Tensor:
        """Apply the open edits to the weights [batch, head, query, key]."""
        for edit in self.edits:
            if site is not None and edit.changes_weights(site):
                weights = edit.weights(site, weights)
        return weights

    def edit_output(self, site: Site | None, output: Tensor) -> Tensor:
        """Apply the open edits to the heads' outputs [batch, query, head, width]."""
        for edit in self.edits:
            if site is not None and edit.changes_output(site):
                output = edit.output(site, output)
        return output

    def is_watched(self, site: Site | None) -> bool:
        """Whether observers see this call: not in the dry run, nor when checkpointing computes a layer again."""
        return self._has_observers and self._depth > 0 and site is not None

    @property
    def _has_observers(self) -> bool:
        return bool(self.observers or self.gradient_observers)

    def attend(self, name: str, call: Call, own: Callable[[], Tensor]) -> Tensor:
        """The heads' outputs [batch, query, head, width] of one call; `own` runs the library's kernel."""
        site = self.next_site(name, call.shape[1])
        if call.fixed is not None and site is not None and self._is_opened(site):
            call = expand_fixed_heads(call)
        if self.inspector is not None and site is not None:
            self.inspector(site, call)
        if site is not None and (masks := self._masks(site, call.shape, call.query.device)):
            call = add_masks(call, masks)
            own = partial(attend_sdpa, call)
        written_out = site is not None and any(
            edit.changes_scores(site) or edit.changes_weights(site) for edit in self.edits
        )
        watched = self.is_watched(site)
        # Checkpointing computes a layer again outside the forward, and must find the operations it saw the first time.
        again = self._has_observers and self._depth == 0 and _needs_graph(call)
        if site is None or not (watched or written_out or again):
            output = own()
        elif (
            written_out
            or self.gradient_observers
            or call.dropout
            or _needs_graph(call)
            or call.query.dtype.itemsize < 4
        ):
            see = partial(self.show, site) if watched else None
            output = attend_eager(
                call, partial(self.edit_scores, site), partial(self.edit_weights, site), see
            )
        else:
            chunks, padding = self._chunks(site, call.shape, call.query.device)
            see_chunk = partial(self._tell, site)
            output = attend_in_chunks(call, chunks, padding, see_chunk, self._scratch)
        return self.edit_output(site, output)

    def _is_opened(self, site: Site) -> bool:
        """Whether somebody wants to see or change more of a call than what its heads give."""
        edited = any(
            edit.changes_mask(site) or edit.changes_scores(site) or edit.changes_weights(site)
            for edit in self.edits
        )
        return edited or self._has_observers or self.inspector is not None

    def show(self, site: Site, weights: Tensor, scores: Tensor, values: Tensor) -> None:
        """Hand a whole batch's weights [batch, head, query, key] to the observers, padding removed."""
        batch, heads, queries, keys = weights.shape
        chunks, _ = self._chunks(site, (batch, heads, queries, keys), weights.device)
        if self.gradient_observers:
            if not weights.requires_grad:
                raise HeadscopeError(
                    f"{site} has no graph, so no gradient will come back",
                    where="lens gradient",
                    fix="Run the model under torch.enable_grad(), with parameters that require gradients",
                )
            weights.register_hook(  # type: ignore[no-untyped-call]
                partial(self._tell_behind, site, chunks, weights.detach(), values.detach())
            )
        for chunk in chunks if self.observers else ():
            part, raw = _within(chunk, weights.detach()), _within(chunk, scores.detach())
            kept = values.detach()[chunk.rows][:, :, chunk.key_index]
            self._tell(site, chunk, part, raw.to(part.dtype, copy=torch.is_grad_enabled()), kept)

    def _tell(
        self, site: Site, chunk: Chunk, weights: Tensor, scores: Tensor, values: Tensor
    ) -> None:
        attention = Attention(
            site, weights, chunk.query, chunk.key, scores, self._scratch, chunk.rows, values
        )
        attention.query_index = chunk.query_index
        for observer in self.observers:
            observer(attention)

    def _tell_behind(
        self, site: Site, chunks: list[Chunk], weights: Tensor, values: Tensor, gradient: Tensor
    ) -> None:
        """On the way back: every chunk's weights with the loss' derivative by them."""
        with torch.no_grad():
            for chunk in chunks if self.gradient_observers else ():
                kept = values[chunk.rows][:, :, chunk.key_index]
                part = _within(chunk, weights)
                attention = Attention(
                    site, part, chunk.query, chunk.key, None, self._scratch, chunk.rows, kept
                )
                attention.query_index = chunk.query_index
                for observer in self.gradient_observers:
                    observer(attention, _within(chunk, gradient.detach()))

    def _chunks(
        self, site: Site, shape: tuple[int, int, int, int], device: torch.device
    ) -> tuple[list[Chunk], Tensor]:
        """The batch in runs of equal length, and which keys [batch, key] are padding."""
        batch, heads, queries, keys = shape
        if not self.takes_text and self._layout.encoder is None:
            self._layout = Layout(
                encoder=Tokens(torch.ones(batch, queries, dtype=torch.bool, device=device))
            )
        sides = self._layout.sides(site.stack)
        if sides is None:
            raise HeadscopeError(
                f"the tokens of {site.stack} are not among the model's inputs, so padding cannot be told",
                fix="Pass input_ids and a mask [sequence, token], and decoder_input_ids to an encoder-decoder",
            )
        if not all(bool(side.real.any(dim=1).all()) for side in sides):
            raise HeadscopeError(
                f"a sequence of {site.stack} is nothing but padding", expected="a token in each"
            )
        if (sides[0].length, sides[1].length) != (queries, keys):
            raise HeadscopeError(
                f"{site} attends from {queries} to {keys} tokens, but the input has "
                f"{sides[0].length} and {sides[1].length}",
                fix="Watch whole forward passes, without a cache of earlier tokens (use_cache=False)",
            )
        return self._layout.chunks(site.stack, heads), ~sides[1].real


def _needs_graph(call: Call) -> bool:
    return torch.is_grad_enabled() and any(
        t.requires_grad for t in (call.query, call.key, call.value)
    )


def _within(chunk: Chunk, cells: Tensor) -> Tensor:
    """Cells [batch, head, query, key] of the chunk's real tokens."""
    return cells[chunk.rows][:, :, chunk.query_index][:, :, :, chunk.key_index]
