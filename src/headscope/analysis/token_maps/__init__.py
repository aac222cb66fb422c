"""Token maps: how much every token of one input contributes to every other. One per file; files need no registration.

A file has a function `compute_map(text)`. The name of the file is the name of the map, with hyphens for underscores. A
file may have the following lines, which `config/names` reads without importing it:

TAKES_TARGET = True        the map depends on the option `target`
TAKES_POOLING = True       the map depends on how texts are pooled
ONE_PASS_PER_TOKEN = True  the map needs a forward pass for each token and layer
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from headscope.analysis.token_map_result import TokenMap
from headscope.config import names
from headscope.config.requirements import check_effects
from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.errors import HeadscopeError, choices
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.model.one_input import OneInput
from headscope.model.tokens import Batch


def token_map(
    model: AttentionModel | str | Path,
    first: str,
    second: str | None = None,
    *,
    by: str = "rollout",
    target: int | None = None,
    max_length: int | None = None,
) -> TokenMap:
    """How much every token of a text or pair contributes to every other, through all heads together.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    first, second
        A text, or a pair of texts. For an encoder-decoder, a source and its target.
    by
        rollout, flow, gradient-rollout, relevance, value-zeroing or knock-out.
    target
        Index of the token whose output is explained, for maps that depend on an output. By default the outputs of all
        tokens are explained, or the model's output as a whole.
    max_length
        Maximum number of tokens. A longer text is an error.

    Returns
    -------
    TokenMap
        `maps` by stack, `tokens`, and `table()` with a row for each cell.

    Raises
    ------
    HeadscopeError
        If there is no such map, or the model does not support it.

    Examples
    --------
    >>> result = headscope.token_map("minilm", "The cat sat.", by="rollout")
    >>> result.maps["encoder"].shape  # layer, form, query, key
    (6, 1, 6, 6)
    """
    check_token_lens(by)
    check_effects("look", {"lens": by}, () if target is None else ("target",))
    model = as_model(model)
    batch = encode_input(model, first, second, max_length=max_length)
    return TOKEN_LENSES[by](OneInput(model, batch, target))


def check_token_lens(by: str, where: str = "by") -> None:
    """Raise an error if there is no token map with this name."""
    if by not in TOKEN_LENSES:
        raise HeadscopeError(
            f'"{by}" is not a token map', where=where, expected=choices(by, TOKEN_LENSES)
        )


def encode_input(
    model: AttentionModel, first: str, second: str | None, *, max_length: int | None = None
) -> Batch:
    """The batch of one text or pair; an error if it has no tokens, or more than `max_length`."""
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise HeadscopeError(
            "not a text", where="look", expected='a text, or two: look(model, "a text", "another")'
        )
    encoder = Encoder(model, max_length=max_length, long="skip")
    where = f'text "{first if len(first) <= 40 else first[:39] + "…"}"'
    sequences = list(encoder.encode([Example(first, second, where)], start=0))
    if sequences:
        return collate(model, sequences)
    if "too long" not in encoder.counts.skipped:
        raise HeadscopeError("there are no tokens in it", where=where, expected="some text")
    is_separate = model.is_encoder_decoder and second is not None
    texts = [(first, None), (second, None)] if is_separate else [(first, second)]
    length = max(len(encoder.tokenizer(*text, verbose=False)["input_ids"]) for text in texts)
    fix = "Shorten it"
    if encoder.max_length < encoder.limit:
        fix += f", or raise `max_length` (up to {encoder.limit})"
    expected = f"at most {encoder.max_length} tokens"
    raise HeadscopeError(f"{length} tokens", where=where, expected=expected, fix=fix)


TOKEN_LENSES: dict[str, Callable[[OneInput], TokenMap]] = {
    name: import_module(f"{__name__}.{name.replace('-', '_')}").compute_map
    for name in names.TOKEN_MAPS
}
