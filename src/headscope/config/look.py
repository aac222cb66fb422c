"""Options of `look`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headscope.config.names import LENSES, TOKEN_MAPS
from headscope.config.option import ADVANCED, Config, option
from headscope.config.parsing import names
from headscope.config.search import parse_heads
from headscope.config.shared import POOLINGS, Reading, Run
from headscope.config.texts import READABLE
from headscope.config.value_types import describe_value
from headscope.errors import HeadscopeError, errors_at, names_in
from headscope.heads import head_names


def _lenses(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names(names_in(value, "`lens`"))))


def _head_names(value: Any) -> str:
    with errors_at("`off`"):
        heads = [] if isinstance(value, Mapping) else head_names(value)
        if not heads:
            raise HeadscopeError(f"{describe_value(value)} does not name heads")
        return parse_heads(heads)


@dataclass(frozen=True)
class LookConfig(Config):
    """Maps of all heads for one input."""

    command = "look"
    group = "Look"
    examples = (
        'headscope look minilm "The cat sat on the mat." --out cat.html',
        'headscope look minilm "The cat sat on the mat." --off "0.2,1.*" --out without.html',
        'headscope look minilm "The cat sat on the mat." --lens raw,norm,gradient,rollout --out cat.html',
        'headscope look opus-mt-en-fr "The cat sat on the mat." "Le chat s\'assit sur le tapis." --out cat.html',
    )
    python = 'model.look(text).save("cat.html")'
    uses = {
        Reading: ("mask", "open_special", "pooling"),
        Run: ("out", "revision", "device", "dtype"),
    }
    helps = {
        "out": "Page to write, e.g. look.html; .html is added to a name without an ending",
        "pooling": "With a lens that takes gradients of a text's vector: pooling of token states into that vector: "
        f"{POOLINGS}",
    }
    required = ("out",)

    lens: tuple[str, ...] = option(
        ("raw",),
        "Lenses (kinds of attention maps) to show, separated by commas; the page switches between them. Per head: "
        f"{', '.join(LENSES)}; "
        f"over all heads: {', '.join(TOKEN_MAPS)}",
        parse=_lenses,
        is_list=True,
        choices=(*LENSES, *TOKEN_MAPS),
    )
    target: int | None = option(
        None,
        "With a lens that takes gradients: position of the token, counted from 0, whose output is differentiated",
        at_least=0,
        show_default="all tokens",
        panel=ADVANCED,
    )
    max_length: int | None = option(
        None,
        "Maximum number of tokens of the input; longer input is refused",
        at_least=1,
        show_default=READABLE,
        panel=ADVANCED,
    )
    off: str | None = option(
        None,
        "Heads to ablate while the text is read, e.g. 0.2,1.*; the page marks them",
        parse=_head_names,
        show_default=False,
    )
