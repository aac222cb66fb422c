"""What to remove, and what goes together with it: refused before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.config.requirements import check_effects
from headscope.config.search import Mending, SearchOptions
from headscope.errors import HeadscopeError
from headscope.pruning.target import Target

if TYPE_CHECKING:
    from headscope.pruning.recovery import Judgement


@dataclass(frozen=True)
class Wanted:
    """What to remove: heads by name, a plan in a file, or what a search finds; steps: with training between them."""

    heads: str | None = None
    plan: Path | None = None
    target: Target | None = None
    steps: bool = False

    @staticmethod
    def of(
        heads: str | None,
        plan: Path | None,
        sparsity: float | None,
        keep_metric: float | None,
        speedup: float | None,
        *,
        steps: bool = False,
    ) -> Wanted:
        """As the options of the command say it; a bare number of heads is a target."""
        count = int(heads) if heads is not None and heads.isdecimal() else None
        named = heads if count is None else None
        aims = [one for one in (count, sparsity, keep_metric, speedup) if one is not None]
        if (named is not None) + (plan is not None) + bool(aims) > 1:
            raise HeadscopeError(
                "the heads are given already",
                where="prune",
                expected="one way to say what to remove",
            )
        target = (
            Target(count, sparsity, keep_metric, speedup)
            if named is None and plan is None
            else None
        )
        return Wanted(named, plan, target, steps)

    def check(self, judgement: Judgement | None, mending: Mending, options: SearchOptions) -> None:
        """Refuse what does not go together, before anything is loaded."""
        self.check_options(judgement is not None, mending, options)
        if judgement is not None:
            judgement.check(mending)

    def check_options(self, has_task: bool, mending: Mending, options: SearchOptions) -> None:
        """The same, as far as the options alone can tell."""
        if self.target is not None and not has_task:
            raise HeadscopeError(
                "a search needs a task", where="`task`", mend="Add `task=NAME` and `data=PATH`"
            )
        if not has_task and (mending.repairs or mending.recover):
            where = "`repair`" if mending.repairs else "`recover`"
            raise HeadscopeError(
                "there is no task to learn from",
                where=where,
                mend="Add `task=NAME` and `data=PATH`",
            )
        given = options.given() | {
            "heads": self.heads,
            "plan": self.plan,
            "repair": mending.repairs,
        }
        given |= {
            "recover": mending.recover,
            "teacher": mending.teacher,
            "learning_rate": mending.learning_rate,
        }
        check_effects("prune", given)
        mending.check()
        if self.steps:
            self._check_steps(mending, options)

    def _check_steps(self, mending: Mending, options: SearchOptions) -> None:
        if mending.repairs or options.repairs:
            where = "`repair`" if mending.repairs else "`try_repairs`"
            raise HeadscopeError(
                "what was trained cannot be repaired from what was not", where=where
            )
        if not (options.how == "iterative" and mending.recover and self.target is not None):
            raise HeadscopeError(
                "there are no steps to train between",
                where="`recover_steps`",
                expected='`how="iterative"` and `recover=N`',
            )
        if self.target.heads is None and self.target.sparsity is None:
            raise HeadscopeError(
                "steps with training go to a number of heads",
                where="`recover_steps`",
                expected="`heads=N` or `sparsity=P`",
            )
