"""Names of statistics and of roles: parsed and printed here and nowhere else.

entropy@norm                statistic "entropy" through the lens "norm"
gate-keep-20                statistic "gate" of the aim "keep-20"
mask-open-sparsity-0.5      statistic "mask-open" of the aim "sparsity-0.5"
cut (small)                 statistic "cut" of the study "small", where joined studies differ
positional -1               role "positional" with the offset −1
syntactic: obj              role "syntactic" with the relation "obj"
"""

from __future__ import annotations

from dataclasses import dataclass, replace

RAW = "raw"
GATE, MASK_OPEN, CUT = "gate", "mask-open", "cut"
OF_AIM = (GATE, MASK_OPEN)  # statistics that are named with the aim of a training run
POSITIONAL, SYNTACTIC = "positional", "syntactic"


@dataclass(frozen=True)
class StatisticName:
    """The parts of a name in the column `statistic` of heads.csv; empty if absent."""

    base: str
    aim: str = ""
    lens: str = ""
    study: str = ""

    @classmethod
    def parse(cls, name: str) -> StatisticName:
        name, _, study = name.partition(" (") if name.endswith(")") else (name, "", "")
        base, _, lens = name.partition("@")
        for beginning in OF_AIM:
            aim = base.removeprefix(f"{beginning}-")
            if aim and aim != base:
                return cls(beginning, aim, lens, study[:-1])
        return cls(base, "", lens, study[:-1])

    def __str__(self) -> str:
        aim = f"-{self.aim}" if self.aim else ""
        lens = f"@{self.lens}" if self.lens else ""
        return f"{self.base}{aim}{lens}{f' ({self.study})' if self.study else ''}"

    @property
    def qualified_lens(self) -> str:
        """The lens, with the study where joined studies differ."""
        return f"{self.lens} ({self.study})" if self.lens and self.study else self.lens

    @property
    def is_gate(self) -> bool:
        """Whether it is the value of learned gates."""
        return self.base == GATE and bool(self.aim)

    @property
    def unqualified(self) -> str:
        """The name within its own study."""
        return str(replace(self, study=""))

    @property
    def of_raw(self) -> str:
        """The name of the same statistic of raw attention, within its own study."""
        return str(replace(self, lens="", study=""))


def through_lens(statistic: str, lens: str) -> str:
    """The name of a statistic seen through a lens."""
    return str(StatisticName(statistic, lens="" if lens == RAW else lens))


@dataclass(frozen=True)
class RoleName:
    """The parts of a name in the column `role` of roles.csv; detail is an offset, a relation, or empty."""

    kind: str
    detail: str = ""

    @classmethod
    def parse(cls, name: str) -> RoleName:
        for kind, between in ((POSITIONAL, " "), (SYNTACTIC, ": ")):
            detail = name.removeprefix(kind + between)
            if detail and detail != name:
                return cls(kind, detail)
        return cls(name)

    @classmethod
    def positional(cls, offset: int) -> RoleName:
        return cls(POSITIONAL, f"{offset:+d}" if offset else "0")

    @classmethod
    def syntactic(cls, relation: str) -> RoleName:
        return cls(SYNTACTIC, relation)

    def __str__(self) -> str:
        between = {POSITIONAL: " ", SYNTACTIC: ": "}.get(self.kind, "")
        return f"{self.kind}{between}{self.detail}" if self.detail else self.kind

    @property
    def is_positional(self) -> bool:
        return self.kind == POSITIONAL and bool(self.detail)

    @property
    def is_syntactic(self) -> bool:
        return self.kind == SYNTACTIC and bool(self.detail)

    @property
    def offset(self) -> int | None:
        """The offset of a positional role."""
        return int(self.detail) if self.is_positional else None

    @property
    def relation(self) -> str:
        """The relation of a syntactic role; a relation of your own is named without "syntactic"."""
        return self.detail if self.is_syntactic else str(self)
