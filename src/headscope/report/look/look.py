"""look: one input through the model, and a view of the maps of all its heads through the requested lenses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headscope.analysis.lens_maps import compute_lens_maps, lens_names
from headscope.analysis.token_maps import Input, one_input
from headscope.config.requirements import check_effects
from headscope.heads import Heads, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, heads_off
from headscope.model.load import as_model
from headscope.report.look.lens_view import LensView, StackMaps
from headscope.report.look.token_axis import axes_of
from headscope.report.look.view import Look


def look(
    model: AttentionModel | str | Path,
    first: str,
    second: str | None = None,
    *,
    lens: str | Iterable[str] = "raw",
    target: int | None = None,
    off: Heads | None = None,
    max_length: int | None = None,
) -> Look:
    """What every head attends to in one text or pair; for an encoder-decoder, a source and its target.

    lens    what is looked at, as names with commas or a list: raw, norm, effective, gradient, rollout …
    target  where a lens takes gradients of what the model says: of which token; of all, or of the whole, by default
    off     heads to ablate while looking: "0.2,1.*" or (0, 2). The page marks them, and those that an edit around
            this call ablates

    The result draws itself in a notebook, and saves a page. Input longer than `max_length` is refused.
    """
    names = lens_names(lens)
    check_effects("look", {"lens": names, "target": target})
    model = as_model(model)
    with model.edited(*([] if off is None else [Ablate(off)])):
        given = Input(model, one_input(model, first, second, max_length=max_length), target)
        lenses = tuple(_view(given, name) for name in names)
        switched_off = str(HeadSet(heads_off(model.edits), among=model.heads))
        others = tuple(repr(edit) for edit in model.edits if not heads_off([edit]))
    return Look(
        model.name, (first,) if second is None else (first, second), lenses, switched_off, others
    )


def _view(given: Input, name: str) -> LensView:
    """The maps through one lens, with the tokens along their axes."""
    lens = compute_lens_maps(given, name)
    stacks = tuple(
        StackMaps(stack, *axes_of(given.model, given.batch, stack), weights)
        for stack, weights in lens.maps.items()
    )
    return LensView(lens.name, stacks, lens.how, lens.shares, lens.forms, lens.layers)
