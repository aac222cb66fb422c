"""Fixed patterns of attention, which depend only on positions (Raganato et al. 2020), and the edit `Fixed`.

Weights of query i in a text of tokens j = 0 … n - 1:

    current, previous, next   all weight on token i, i - 1, i + 1
    left                      tokens 0 … i - 2, proportional to (j + 1)^3
    right                     the mirror image of left
    end                       all tokens, proportional to (j + 1)^3
    start                     the mirror image of end
    uniform                   the same weight on all tokens
    first                     all weight on token 0

If there is no such token, as for previous at the first token or left at the first two, all weight is on the first
token; for next and right it is on the last. The paper does not specify this. In a causal stack, uniform is limited to
tokens up to the query, and the patterns that look ahead (next, right, end, start) do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from headscope.errors import HeadscopeError, choices
from headscope.heads import Head, HeadSet, Site
from headscope.model.edits import Edit, masked_score
from headscope.model.tokens import Layout, pattern_over_layout

PATTERNS = ("current", "previous", "next", "left", "right", "end", "start", "uniform", "first")
LOOK_AHEAD = ("next", "right", "end", "start")
Patterns = Mapping[Any, str]  # {head, or text that names several heads: pattern}


@lru_cache(maxsize=512)
def fixed_pattern(name: str, length: int, is_causal: bool = False) -> Tensor:
    """[query, key], float64: the weights of a pattern; each row sums to 1."""
    return torch.stack([pattern_row(name, i, length, is_causal) for i in range(length)])


def pattern_row(name: str, row: int, length: int, is_causal: bool = False) -> Tensor:
    """[key], float64: one row of a pattern."""
    result, last = torch.zeros(length, dtype=torch.float64), length - 1
    targets = {"current": row, "previous": row - 1, "next": row + 1, "first": 0}
    if name in targets:
        result[min(max(targets[name], 0), last)] = 1.0
        return result
    ramp = torch.arange(1, length + 1, dtype=torch.float64) ** 3
    if name == "left":
        before = max(row - 1, 1)  # at least the first token, if there is nothing to the left
        result[:before] = ramp[:before]
    elif name == "right":
        after = max(last - row - 1, 1)
        result[length - after :] = ramp[:after].flip(0)
    elif name in ("end", "start"):
        result = ramp if name == "end" else ramp.flip(0)
    else:
        result[: row + 1 if is_causal else length] = 1.0
    return result / result.sum()


def patterns_by_head(patterns: Patterns, heads: tuple[Head, ...]) -> dict[Head, str]:
    """{head of a model: its pattern}; raises if a head cannot have its pattern."""
    if not isinstance(patterns, Mapping):
        raise HeadscopeError(
            f"must be a dict of patterns by heads, got {patterns!r}",
            where="`patterns`",
            fix='Write {"3.2": "previous"}',
        )
    by_head = {}
    for names, pattern in patterns.items():
        _check_name(pattern)
        for head in HeadSet(names, among=heads):
            if head.stack not in ("encoder", "decoder"):
                raise HeadscopeError(
                    f"{head} reads one text and attends to another", expected="self-attention"
                )
            if head.stack == "decoder" and pattern in LOOK_AHEAD:
                raise HeadscopeError(
                    f"{head} cannot look ahead, as {pattern} does", expected="a pattern to the left"
                )
            by_head[head] = pattern
    return by_head


def _check_name(name: str) -> None:
    if name not in PATTERNS:
        raise HeadscopeError(
            f'"{name}" is not a fixed pattern', where="Fixed", expected=choices(name, PATTERNS)
        )


class Fixed(Edit):
    """Let heads attend by fixed patterns, regardless of their queries and keys (Raganato et al. 2020).

    Parameters
    ----------
    patterns
        Patterns by head: current, previous, next, left, right, end, start, uniform or first. A key may be a head or a
        text that names several heads.

    Raises
    ------
    HeadscopeError
        If there is no pattern of this name.

    Examples
    --------
    >>> headscope.Fixed({"3.2": "previous", "4.*": "first"}).patterns
    {'3.2': 'previous', '4.*': 'first'}
    """

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = dict(patterns.items())
        for name in self.patterns.values():
            _check_name(name)
        self._at: dict[Site, list[tuple[int, str]]] = {}
        self._layout: Layout | None = None
        # Cache of the current forward pass, by (stack, pattern, number of keys)
        self._log_patterns: dict[tuple[str, str, int], Tensor] = {}

    def _fields(self) -> dict[str, Any]:
        names = [name for patterns in self._at.values() for _, name in patterns]
        return super()._fields() | {"patterns": names}

    def bind(self, heads: tuple[Head, ...]) -> None:
        self._at = {}
        for head, name in patterns_by_head(self.patterns, heads).items():
            self._at.setdefault(head.site, []).append((head.head, name))

    def begin_forward(self, layout: Layout) -> None:
        self._layout, self._log_patterns = layout, {}

    def changes_scores(self, site: Site) -> bool:
        return site in self._at

    def scores(self, site: Site, scores: Tensor) -> Tensor:
        by_head = list(scores.unbind(dim=1))
        lowest = masked_score(scores.dtype)
        for head, name in self._at[site]:
            index = site.index_of(head)
            # Scores that are the logarithm of a pattern have the pattern as their softmax. Masked keys stay masked.
            log_pattern = self._log_pattern(site.stack, name, scores)
            by_head[index] = torch.where(by_head[index] > lowest, log_pattern, by_head[index])
        return torch.stack(by_head, dim=1)

    def _log_pattern(self, stack: str, name: str, scores: Tensor) -> Tensor:
        """[sequence or 1, query, key]: the logarithm of a pattern."""
        batch, _, queries, keys = scores.shape
        key = (stack, name, keys)
        if key not in self._log_patterns:
            is_causal = stack == "decoder"
            pattern = pattern_over_layout(
                self._layout, stack, batch, keys, lambda n: fixed_pattern(name, n, is_causal)
            )
            log_pattern = pattern.log().clamp_min(masked_score(scores.dtype))
            self._log_patterns[key] = log_pattern.to(scores)
        return self._log_patterns[key][:, -queries:]
