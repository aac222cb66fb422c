"""Options of a search for heads, and of what is done after the cut."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from headscope.config.checks import check_count, check_rules, repair_names
from headscope.config.names import SCORES, SEARCHES
from headscope.errors import HeadscopeError, choices
from headscope.heads import Heads, written_heads

FRONT = 12  # sizes of the front that are reported on the other split, and timed
DRAWS = 3  # random orders
WIDTH, EXPANSION = 3, 12  # sets that a beam keeps, and candidates of each
SWAPS = 4  # heads that may come back, and heads that may go for each of them


@dataclass(frozen=True)
class SearchOptions:
    """How to search.

    how        beam, greedy, iterative, rank or random
    by         the importance that rank and iterative go by
    rules      of relevance, where they go by that: voita or attnlrp
    objective  loss or metric; by default what the task prefers
    at_least   so many heads stay in every layer
    among      only these heads may go, as in encoder.*.*; None: all
    step       the share of heads that iterative removes between two scorings
    width, expansion, swaps  the sets a beam keeps, the heads it tries to add, the heads that may come back
    draws      random orders
    limit      only so many examples to choose on
    sizes      the numbers of removed heads that are reported on the other split, and timed; or how many of them
    repairs    ways to mend that every reported set is tried with too: fold, refit, fold+refit
    """

    how: str = "beam"
    by: str = "gradient-second"
    rules: Literal["voita", "attnlrp"] = "voita"
    objective: str | None = None
    at_least: int = 0
    among: Heads | None = None
    step: float = 0.1
    width: int = WIDTH
    expansion: int = EXPANSION
    swaps: int = SWAPS
    draws: int = DRAWS
    limit: int | None = None
    sizes: int | tuple[int, ...] = FRONT
    repairs: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.how not in SEARCHES:
            raise HeadscopeError(
                f'"{self.how}" is no search', where="`how`", expected=choices(self.how, SEARCHES)
            )
        if self.by not in SCORES:
            raise HeadscopeError(
                f'"{self.by}" is no importance', where="`by`", expected=choices(self.by, SCORES)
            )
        check_rules(self.rules)
        if not 0 < self.step <= 1:
            raise HeadscopeError(
                f"{self.step} is no share", where="`step`", expected="more than 0, at most 1"
            )
        for repair in self.repairs:
            if "+".join(repair_names(repair.split("+"))) != repair:
                raise HeadscopeError(
                    f'"{repair}" is no way to mend',
                    where="`try_repairs`",
                    expected="fold, refit or fold+refit",
                )
        for name in ("width", "expansion", "draws"):
            check_count(getattr(self, name), f"`{name}`")
        if self.limit is not None:
            check_count(self.limit, "`limit`")
        for size in (self.sizes,) if isinstance(self.sizes, int) else self.sizes:
            check_count(size, "`sizes`")
        for name in ("at_least", "swaps"):
            if getattr(self, name) < 0:
                option = f"`{name}`"
                raise HeadscopeError(
                    f"{getattr(self, name)} is too few", where=option, expected="0 or more"
                )
        if self.among is not None:
            object.__setattr__(self, "among", written_heads(self.among))  # as it is recorded

    def given(self) -> dict[str, Any]:
        """The options as `headscope prune` names them, for check_effects."""
        repairs, sizes = self.repairs or None, None if self.sizes == FRONT else self.sizes
        return {name: value for name, value in asdict(self).items() if name != "repairs"} | {
            "try_repairs": repairs,
            "sizes": sizes,
        }


@dataclass(frozen=True)
class Mending:
    """repairs: fold, refit. recover: epochs of training on the train split, with the whole model as teacher or not."""

    repairs: tuple[str, ...] = ()
    recover: int = 0
    teacher: bool = False
    learning_rate: float = 5e-5
    seed: int = 0

    def check(self) -> None:
        if self.recover < 0:
            raise HeadscopeError(
                f"{self.recover} epochs are too few", where="`recover`", expected="1 or more"
            )
