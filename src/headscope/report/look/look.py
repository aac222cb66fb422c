"""One input through the model: the maps of all its heads through the requested lenses."""

from __future__ import annotations

from headscope.analysis.lens_maps import compute_lens_maps
from headscope.analysis.token_maps import encode_input
from headscope.config.look import LookConfig
from headscope.errors import errors_at
from headscope.heads import HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, heads_off
from headscope.model.one_input import OneInput
from headscope.report.look.lens_view import LensView, StackMaps
from headscope.report.look.token_axis import axes_of
from headscope.report.look.view import Look


def look(model: AttentionModel, first: str, second: str | None, config: LookConfig) -> Look:
    """The maps of all heads in one text or pair; for an encoder-decoder, a source and its target."""
    edits = []
    if config.off is not None:
        with errors_at("`off`"):
            edits = [Ablate(list(HeadSet(config.off, among=model.heads)))]
    with model.edited(*edits):
        batch = encode_input(model, first, second, max_length=config.max_length)
        encoded = OneInput(model, batch, config.target)
        lenses = tuple(_view(encoded, name) for name in config.lens)
        switched_off = str(HeadSet(heads_off(model.edits), among=model.heads))
        others = tuple(repr(edit) for edit in model.edits if not heads_off([edit]))
    texts = (first,) if second is None else (first, second)
    return Look(model.name, texts, lenses, switched_off, others)


def _view(encoded: OneInput, name: str) -> LensView:
    """The maps through one lens, with the tokens along their axes."""
    lens = compute_lens_maps(encoded, name)
    stacks = tuple(
        StackMaps(stack, *axes_of(encoded.model, encoded.batch, stack), weights)
        for stack, weights in lens.maps.items()
    )
    return LensView(lens.name, stacks, lens.how, lens.shares, lens.forms, lens.layers)
