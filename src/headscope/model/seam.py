"""The seam: the one place where attention is observed and edited.

Two backends route attention calls through the seam: the attention function that headscope registers with transformers
(`attention_interface`), and the softmax tap (`softmax_tap`) for families that compute their own softmax. For each call
the seam determines the site, applies the open edits and calls the observers. At sites without observers and edits the
model's own kernels run.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor, nn

from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention, Scratch
from headscope.model.edits import Edit
from headscope.model.fixed_attention import expand_fixed_heads
from headscope.model.fold import attend_and_fold, has_numba, plan_fold
from headscope.model.kernels import (
    Call,
    add_masks,
    add_masks_to_scores,
    attend_eager,
    attend_in_chunks,
    attend_sdpa,
)
from headscope.model.row_sums import RowQuantities, Wanted
from headscope.model.tokens import Chunk, Layout, Marks, Tokens, layout_of

Observer = Callable[[Attention], None]
GradientObserver = Callable[[Attention, Tensor], None]  # in the backward pass, with dLoss/dWeights
SumsObserver = Callable[[RowQuantities], None]  # gets maps (`Attention`) or only sums (`RowSums`)
CallInspector = Callable[[Site, Call], None]  # before each call, with its queries, keys and values


class Seam:
    """The observers and edits of one model, and the state of the current forward pass.

    sites            {name of an attention module: its sites, in the order of its calls}
    layout_override  the layout of the next forward pass; None to derive it from the inputs of the pass
    recorded_calls   (module name, number of heads) of each call during the test forward pass that finds the sites;
                     else None
    """

    def __init__(
        self, root: nn.Module, *, marks: Marks, decoder_only: bool, takes_text: bool
    ) -> None:
        self.root, self.marks = root, marks
        self.decoder_only, self.takes_text = decoder_only, takes_text
        self.sites: dict[str, list[Site]] = {}
        self.observers: list[Observer] = []
        self.sums_observers: list[tuple[SumsObserver, Wanted]] = []
        self.gradient_observers: list[GradientObserver] = []
        self.edits: list[Edit] = []
        self.inspector: CallInspector | None = None
        self.layout_override: Layout | None = None
        self.recorded_calls: list[tuple[str, int]] | None = None
        self._layout = Layout()
        self._calls: Counter[str] = Counter()  # by attention module, in this forward pass
        # Depth of nested forward passes: a model with a classifier calls its base model. 0 outside a forward pass.
        self._depth = 0
        self._scratch = Scratch()

    # Begin and end of a forward pass

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Forward pre-hook of the model, and of its parts that may be called alone (its encoder, for example)."""
        # A call of the root always starts a new pass: an interrupted pass may have left a wrong depth behind.
        self._depth = 1 if module is self.root else self._depth + 1
        if self._depth == 1:
            self._calls.clear()
            self._layout = self.layout_override or self._read_layout(module, args, kwargs)
            for edit in self.edits:
                edit.begin_forward(self._layout)

    def end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """Forward hook, also called after an exception (then `output` is None): check that every site was called."""
        self._depth -= 1
        if self._depth == 0 and output is not None and self.recorded_calls is None:
            self._check_counts()

    def reset(self) -> None:
        """Forget the current forward pass, however it ended."""
        self._calls.clear()
        self._depth, self._layout = 0, Layout()

    def _check_counts(self) -> None:
        """Raise unless each stack was called at all its sites or at none: results without some sites would be wrong."""
        called: Counter[str] = Counter()
        for name, calls in self._calls.items():
            # A module that is called more often than it has sites starts again with its first site, as in next_site.
            called.update(site.stack for site in (self.sites[name] * calls)[:calls])
        expected = Counter(site.stack for sites in self.sites.values() for site in sites)
        wrong = [
            f"{count} of {expected[stack]} sites in {stack}"
            for stack, count in called.items()
            if count != expected[stack]
        ]
        if wrong or not called:
            raise HeadscopeError(
                f"this forward pass called {', '.join(wrong) or 'none of the attention sites'}",
                expected="calls of all sites of a stack, or of none",
                fix="Call the whole model, once, without gradient checkpointing",
            )

    def _read_layout(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Layout:
        inputs = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
        inputs = {**inputs.get("kwargs", {}), **inputs}
        return layout_of(inputs, self.marks, decoder_only=self.decoder_only)

    # The steps at a site

    def next_site(self, name: str, heads: int) -> Site | None:
        """The site of this call of a module; None in the test forward pass that finds the sites."""
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
        """Apply the masks of the open edits to scores [batch, head, query, key].

        For the softmax tap only: it gets scores to which the model's own masks were already added.
        """
        batch, heads, queries, keys = scores.shape
        shape = (batch, heads, queries, keys)
        masks = [] if site is None else self._masks(site, shape, scores.device)
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

    def is_observed(self, site: Site | None) -> bool:
        """Whether observers get this call.

        They do not in the test forward pass (no site), nor when gradient checkpointing recomputes a layer (depth 0).
        """
        return self._has_observers and self._depth > 0 and site is not None

    @property
    def _has_observers(self) -> bool:
        return bool(self.observers or self.sums_observers or self.gradient_observers)

    def attend(self, name: str, call: Call, library_kernel: Callable[[], Tensor]) -> Tensor:
        """The heads' outputs [batch, query, head, width] of one call.

        Runs the cheapest kernel that gives the open edits and observers what they need. `library_kernel` is the one
        that transformers would have called.
        """
        site = self.next_site(name, call.shape[1])
        if site is None:
            return library_kernel()
        kernel = library_kernel
        if call.fixed is not None and self._needs_weights(site):
            call = expand_fixed_heads(call)
        if self.inspector is not None:
            self.inspector(site, call)
        if masks := self._masks(site, call.shape, call.query.device):
            call = add_masks(call, masks)
            kernel = partial(attend_sdpa, call)
        is_edited = any(e.changes_scores(site) or e.changes_weights(site) for e in self.edits)
        is_observed = self.is_observed(site)
        has_graph = torch.is_grad_enabled() and any(
            states.requires_grad for states in (call.query, call.key, call.value)
        )
        # Gradient checkpointing recomputes a layer in the backward pass, when the depth is 0. It requires the same
        # operations as in the forward pass, so the kernel for observed calls has to run although no observer is called.
        is_recomputed = self._has_observers and self._depth == 0 and has_graph
        if not (is_observed or is_edited or is_recomputed):
            output = kernel()
        elif (
            is_edited
            or self.gradient_observers
            or call.dropout
            or has_graph
            or call.query.dtype.itemsize < 4  # statistics need weights in float32
        ):
            observe = partial(self.observe_batch, site) if is_observed else None
            output = attend_eager(
                call, partial(self.edit_scores, site), partial(self.edit_weights, site), observe
            )
        else:
            output = self._attend_observed(site, call)
        return self.edit_output(site, output)

    def _attend_observed(self, site: Site, call: Call) -> Tensor:
        """The heads' outputs [batch, query, head, width] of an observed call without edits and gradients."""
        chunks, padding = self._chunks(site, call.shape, call.query.device)
        is_foldable = call.query.device.type == "cpu" and call.query.dtype == torch.float32
        if self.observers or not is_foldable or not has_numba():
            return attend_in_chunks(
                call, chunks, padding, partial(self._notify, site), self._scratch
            )
        plan = plan_fold(self._layout, site.stack)
        if plan is None:
            return attend_in_chunks(
                call, chunks, padding, partial(self._notify, site), self._scratch
            )
        wanted = reduce(or_, (wanted for _, wanted in self.sums_observers))
        is_plain = call.is_causal or call.hides_only(padding)
        output, sums = attend_and_fold(call, site, plan, wanted, is_plain, self._scratch)
        for observer, _ in self.sums_observers:
            observer(sums)
        return output

    def _needs_weights(self, site: Site) -> bool:
        """Whether an edit, an observer or the inspector needs more of this site than the outputs of its heads."""
        is_edited = any(
            edit.changes_mask(site) or edit.changes_scores(site) or edit.changes_weights(site)
            for edit in self.edits
        )
        return is_edited or self._has_observers or self.inspector is not None

    # Observers

    def observe_batch(self, site: Site, weights: Tensor, scores: Tensor, values: Tensor) -> None:
        """Pass the weights and scores [batch, head, query, key] of an entire batch to the observers, without padding.

        values  [batch, head, key, width]
        """
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
                partial(self._notify_gradient, site, chunks, weights.detach(), values.detach())
            )
        for chunk in chunks if self.observers or self.sums_observers else ():
            chunk_weights = _real_cells(chunk, weights.detach())
            chunk_scores = _real_cells(chunk, scores.detach())
            chunk_values = values.detach()[chunk.rows][:, :, chunk.key_index]
            # With gradients enabled, autograd may still need these scores: observers get a copy, which they may change.
            chunk_scores = chunk_scores.to(chunk_weights.dtype, copy=torch.is_grad_enabled())
            self._notify(site, chunk, chunk_weights, chunk_scores, chunk_values)

    def _notify(
        self, site: Site, chunk: Chunk, weights: Tensor, scores: Tensor, values: Tensor
    ) -> None:
        attention = self._attention(site, chunk, weights, scores, values)
        for observer in (*self.observers, *(observer for observer, _ in self.sums_observers)):
            observer(attention)

    def _notify_gradient(
        self, site: Site, chunks: list[Chunk], weights: Tensor, values: Tensor, gradient: Tensor
    ) -> None:
        """Backward hook of the weights: pass each chunk's weights and gradient (dLoss/dWeights) to the observers."""
        with torch.no_grad():
            for chunk in chunks if self.gradient_observers else ():
                chunk_weights = _real_cells(chunk, weights)
                chunk_values = values[chunk.rows][:, :, chunk.key_index]
                attention = self._attention(site, chunk, chunk_weights, None, chunk_values)
                for observer in self.gradient_observers:
                    observer(attention, _real_cells(chunk, gradient.detach()))

    def _attention(
        self, site: Site, chunk: Chunk, weights: Tensor, scores: Tensor | None, values: Tensor
    ) -> Attention:
        attention = Attention(
            site, weights, chunk.query, chunk.key, scores, self._scratch, chunk.rows, values
        )
        attention.query_index = chunk.query_index
        return attention

    def _chunks(
        self, site: Site, shape: tuple[int, int, int, int], device: torch.device
    ) -> tuple[list[Chunk], Tensor]:
        """The batch divided into chunks of equally long sequences, and the padding keys [batch, key] (bool)."""
        batch, heads, queries, keys = shape
        if not self.takes_text and self._layout.encoder is None:  # patches of images: no padding
            real = torch.ones(batch, queries, dtype=torch.bool, device=device)
            self._layout = Layout(encoder=Tokens(real))
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


def _real_cells(chunk: Chunk, cells: Tensor) -> Tensor:
    """The cells [sequence, head, query, key] of a chunk, without padding, from those of the batch."""
    return cells[chunk.rows][:, :, chunk.query_index][:, :, :, chunk.key_index]
