"""`dev:half-a` and `dev:half-b`: two halves that know nothing of each other, whatever the order of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import HeadscopeError
from headscope.tasks import get_task
from headscope.tasks.items import Item, check_apart, select_half
from worded import sentiments, table


def items(count: int) -> list[Item]:
    return [
        Item((f"question {i}", f"the paragraph of number {i // 3}"), i, f"file:{i}")
        for i in range(count)
    ]


def test_every_example_is_in_one_half() -> None:
    whole = items(300)
    even, odd = select_half(whole, "dev:half-a"), select_half(whole, "dev:half-b")
    assert sorted([*even, *odd], key=lambda item: item.target) == whole
    assert 100 < len(even) < 200
    assert select_half(whole, "dev") == whole


def test_examples_that_share_their_longest_text_stay_together() -> None:
    even, odd = (
        {item.texts[1] for item in select_half(items(300), f"dev:{half}")}
        for half in ("half-a", "half-b")
    )
    assert even
    assert not even & odd


def test_the_order_of_a_file_is_not_the_order_of_the_halves() -> None:
    """Labels that take turns are in both halves, and so they are when the file is turned round."""
    whole = items(300)
    assert {item.target % 2 for item in select_half(whole, "dev:half-a")} == {0, 1}
    assert select_half(whole[::-1], "dev:half-a") == select_half(whole, "dev:half-a")[::-1]


def test_a_task_reads_one_half_of_a_file(tmp_path: Path) -> None:
    data = table(tmp_path / "dev.tsv", ("sentence", "label"), sentiments(60))
    task = get_task("sst2")
    even, odd = (task.items(data, f"dev:{half}") for half in ("half-a", "half-b"))
    assert len(even) + len(odd) == 60
    assert not {item.where for item in even} & {item.where for item in odd}
    assert len(task.items(data, "dev:half-a", limit=5)) == 5
    with pytest.raises(HeadscopeError, match='"third" is not a half of dev'):
        task.items(data, "dev:third")


def test_what_was_chosen_on_is_not_reported_on() -> None:
    check_apart(items(3), items(6)[3:], "--report-on")
    with pytest.raises(
        HeadscopeError, match="2 examples are selected on and reported on, for example file:1"
    ):
        check_apart(items(3), items(6)[1:], "--report-on")
