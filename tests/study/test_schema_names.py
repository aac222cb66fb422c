"""Names of statistics and roles: what is parsed is printed again as it was."""

from __future__ import annotations

import pytest

from headscope.statistics import glossary
from headscope.study.schema.names import RoleName, StatisticName, through_lens


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("entropy", StatisticName("entropy")),
        ("entropy@norm", StatisticName("entropy", lens="norm")),
        ("gate-keep-20", StatisticName("gate", aim="keep-20")),
        ("mask-open-sparsity-0.5", StatisticName("mask-open", aim="sparsity-0.5")),
        ("cut (small)", StatisticName("cut", study="small")),
        ("sep@norm (a (2))", StatisticName("sep", lens="norm", study="a (2)")),
        ("gate-keep-2 (other)", StatisticName("gate", aim="keep-2", study="other")),
        ("gate-", StatisticName("gate-")),
        ("gate", StatisticName("gate")),
        ("mine (half", StatisticName("mine (half")),
        ("", StatisticName("")),
    ],
)
def test_names_of_statistics(name: str, parts: StatisticName) -> None:
    assert StatisticName.parse(name) == parts
    assert str(parts) == name


@pytest.mark.parametrize("name", glossary())
def test_every_statistic_has_a_plain_name(name: str) -> None:
    assert StatisticName.parse(name) == StatisticName(name)
    assert through_lens(name, "raw") == name
    parsed = StatisticName.parse(through_lens(name, "norm"))
    assert (parsed.base, parsed.lens, parsed.of_raw) == (name, "norm", name)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("positional -1", RoleName("positional", "-1")),
        ("positional +3", RoleName("positional", "+3")),
        ("positional 0", RoleName("positional", "0")),
        ("syntactic: obj", RoleName("syntactic", "obj")),
        ("syntactic: nsubj:pass", RoleName("syntactic", "nsubj:pass")),
        ("broad", RoleName("broad")),
        ("classification token", RoleName("classification token")),
        ("positional", RoleName("positional")),
    ],
)
def test_names_of_roles(name: str, parts: RoleName) -> None:
    assert RoleName.parse(name) == parts
    assert str(parts) == name


@pytest.mark.parametrize("offset", [-7, -1, 0, 1, 12])
def test_offsets_of_positional_roles(offset: int) -> None:
    assert RoleName.parse(str(RoleName.positional(offset))).offset == offset


def test_relations_of_roles() -> None:
    assert RoleName.parse("syntactic: obj").relation == "obj"
    assert RoleName.parse("bonded").relation == "bonded"
    assert RoleName.parse("bonded").offset is None
