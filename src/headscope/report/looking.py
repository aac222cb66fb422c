"""look, the verb: one input through the model, and the maps of all its heads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.errors import HeadscopeError
from headscope.heads import Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.tokens import Batch, Tokens
from headscope.report.look import Look, Side, StackMaps
from headscope.tables import by_number


def look(model: AttentionModel | str, first: str, second: str | None = None, *, max_length: int | None = None) -> Look:
    """What every head attends to in one text or pair; for an encoder-decoder, a source and its target.

    The result draws itself in a notebook, and saves a page. Input longer than `max_length` is refused.
    """
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise HeadscopeError("not a text", where="look", expected='a text, or two: look(model, "a text", "another")')
    model = model if isinstance(model, AttentionModel) else load(model)
    batch = read_one(model, first, second, max_length=max_length)
    maps: dict[Site, NDArray[np.float32]] = {}

    def keep(attention: Attention) -> None:
        maps[attention.site] = attention.weights[0].float().cpu().numpy().copy()

    with model.watched(keep), torch.inference_mode():
        model(batch)
    stacks = []
    for stack in dict.fromkeys(site.stack for site in maps):
        sides = batch.layout.sides(stack)
        assert sides is not None
        query, key = (side_of(model, tokens) for tokens in sides)
        weights = by_number({site: weights for site, weights in maps.items() if site.stack == stack})
        weights = np.nan_to_num(weights).astype(np.float32)  # a head that was cut is an empty map
        stacks.append(StackMaps(stack, query, key, weights))
    order = {stack: i for i, stack in enumerate(dict.fromkeys(site.stack for site in model.sites))}
    stacks.sort(key=lambda one: order[one.stack])
    return Look(model.name, (first,) if second is None else (first, second), tuple(stacks))


def read_one(model: AttentionModel, first: str, second: str | None = None, *, max_length: int | None = None) -> Batch:
    """One text or pair as a batch; refused where there is nothing in it, or more than `max_length`."""
    encoder = Encoder(model, max_length=max_length, long="skip")
    where = f'text "{first if len(first) <= 40 else first[:39] + "…"}"'
    sequences = list(encoder.encode([Example(first, second, where)], start=0))
    if sequences:
        return collate(model, sequences)
    if "too long" not in encoder.counts.skipped:
        raise HeadscopeError("there are no tokens in it", where=where, expected="some text")
    apart = model.is_encoder_decoder and second is not None
    texts = [(first, None), (second, None)] if apart else [(first, second)]
    length = max(len(encoder.tokenizer(*text, verbose=False)["input_ids"]) for text in texts)
    more = f", or raise --max-length (up to {encoder.limit})" if encoder.max_length < encoder.limit else ""
    raise HeadscopeError(
        f"{length} tokens",
        where=where,
        expected=f"at most {encoder.max_length} tokens",
        mend=f"Shorten it{more}",
    )


def side_of(model: AttentionModel, tokens: Tokens) -> Side:
    """The tokens of the first sequence of a batch, as a page is told them."""
    assert tokens.ids is not None
    assert tokens.words is not None
    assert model.tokenizer is not None
    names: Iterable[str] = model.tokenizer.convert_ids_to_tokens(tokens.ids[0].tolist())
    words = (word if word >= 0 else None for word in tokens.words[0].tolist())
    return Side(tuple(names), tuple(tokens.special[0].tolist()), tuple(words))
