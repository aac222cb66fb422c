"""look, the verb: one input through the model, and the maps of all its heads, through the lenses asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from headscope.analysis.token_maps import TOKEN_LENSES, Input, one_input
from headscope.config.requirements import check_effects
from headscope.errors import HeadscopeError, choices, names_in
from headscope.heads import Heads, HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Ablate, heads_off
from headscope.model.load import as_model
from headscope.model.token_map import TokenMap
from headscope.model.tokens import Tokens
from headscope.report.look import Look
from headscope.report.look_heads import HEAD_LENSES
from headscope.report.look_maps import Lens, StackMaps
from headscope.report.look_sides import Side
from headscope.tables import by_number

LENSES = (*HEAD_LENSES, *TOKEN_LENSES)


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
    wanted = lenses_asked(lens)
    check_effects("look", {"lens": wanted, "target": target})
    model = as_model(model)
    with model.edited(*([] if off is None else [Ablate(off)])):
        given = Input(model, one_input(model, first, second, max_length=max_length), target)
        lenses = tuple(through(given, name) for name in wanted)
        switched_off = str(HeadSet(heads_off(model.edits), among=model.heads))
        others = tuple(repr(edit) for edit in model.edits if not heads_off([edit]))
    return Look(
        model.name, (first,) if second is None else (first, second), lenses, switched_off, others
    )


def lenses_asked(lens: str | Iterable[str], where: str = "`lens`") -> tuple[str, ...]:
    """The lenses in a list, each once; an unknown one is refused with the choices."""
    wanted = tuple(dict.fromkeys(names_in(lens, "lens")))
    unknown = next((name for name in wanted if name not in LENSES), None)
    if unknown is not None or not wanted:
        raise HeadscopeError(
            f'"{unknown or ""}" is no lens', where=where, expected=choices(unknown or "", LENSES)
        )
    return wanted


def through(given: Input, name: str) -> Lens:
    """The maps of one input by one lens, of heads or of tokens."""
    if name in TOKEN_LENSES:
        return _token_lens(given, given.by(name))
    found, how, shares = HEAD_LENSES[name](given)
    stacks = []
    for stack in dict.fromkeys(site.stack for site in given.model.sites):
        here = {site: values for site, values in found.items() if site.stack == stack}
        if here:
            stacks.append(
                StackMaps(stack, *_sides(given, stack), by_number(here).astype(np.float32))
            )
    return Lens(name, tuple(stacks), how, shares)


def _token_lens(given: Input, found: TokenMap) -> Lens:
    stacks = tuple(
        StackMaps(stack, *_sides(given, stack), values) for stack, values in found.maps.items()
    )
    return Lens(found.by, stacks, found.how, found.shares, found.forms, found.layers)


def _sides(given: Input, stack: str) -> tuple[Side, Side]:
    sides = given.batch.layout.sides(stack)
    assert sides is not None
    query, key = (side_of(given.model, tokens) for tokens in sides)
    return query, key


def side_of(model: AttentionModel, tokens: Tokens) -> Side:
    """The tokens of the first sequence of a batch, as a page is told them."""
    assert tokens.ids is not None
    assert tokens.words is not None
    assert model.tokenizer is not None
    names: Iterable[str] = model.tokenizer.convert_ids_to_tokens(tokens.ids[0].tolist())
    words = (word if word >= 0 else None for word in tokens.words[0].tolist())
    return Side(tuple(names), tuple(tokens.special[0].tolist()), tuple(words))
