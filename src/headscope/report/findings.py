"""What stands out in a study, in sentences that are true by construction: each is read off the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headscope.report import findings_attention as attention
from headscope.report import findings_learned as learned
from headscope.report import findings_tasks as tasks
from headscope.report import findings_training as training
from headscope.report.finding import Finding

if TYPE_CHECKING:
    from headscope.study.study import Study

MAKERS: tuple[Callable[[Study], Iterable[Finding]], ...] = (
    tasks.knows_nothing,
    attention.surface,
    tasks.cut,
    tasks.removals,
    tasks.cheap,
    training.over_training,
    attention.roles,
    attention.relations,
    attention.coreference,
    attention.rare_words,
    attention.twins,
    learned.separators,
    learned.lenses,
    learned.gates,
    learned.fixed,
    learned.masks,
    learned.probes,
)


def findings_of(study: Study) -> list[Finding]:
    """All of them, as far as the study has their statistics and tables; `five` says which come first."""
    return [finding for make in MAKERS for finding in make(study)]
