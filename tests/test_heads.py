"""Are heads read and printed the same way everywhere, and are typing errors caught?"""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import HeadscopeError
from headscope.heads import Head, HeadSet, Site

ONE = tuple(Head("encoder", layer, head) for layer in range(6) for head in range(4))
THREE = tuple(
    Head(stack, n, h)
    for stack in ("encoder", "decoder", "cross")
    for n in range(3)
    for h in range(4)
)


def test_heads_and_sites_print_as_addresses_and_sort_by_them() -> None:
    head = Head("encoder", 3, 2)
    assert (str(head), str(head.site), head.site) == (
        "encoder.3.2",
        "encoder.3",
        Site("encoder", 3),
    )
    assert sorted([Head("encoder", 10, 0), Head("encoder", 2, 1)])[0].layer == 2
    assert pickle.loads(pickle.dumps(head)) == head


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.2", {(3, 2)}),
        ("encoder.3.2", {(3, 2)}),
        ("3.2,4.*", {(3, 2), (4, 0), (4, 1), (4, 2), (4, 3)}),
        (" 3.2 , 0.1-3 ", {(3, 2), (0, 1), (0, 2), (0, 3)}),
        ("*.1", {(layer, 1) for layer in range(6)}),
        ("3.2,3.2", {(3, 2)}),
        ("*.*", {(head.layer, head.head) for head in ONE}),
    ],
)
def test_sets_are_read_from_text(text: str, expected: set[tuple[int, int]]) -> None:
    result = HeadSet(text, among=ONE)
    assert {(head.layer, head.head) for head in result} == expected
    assert len(result) == len(expected)
    assert all(head in result for head in result)


def test_a_stack_in_front_chooses_among_several() -> None:
    result = HeadSet("cross.2.0-1,encoder.0.3", among=THREE)
    assert set(result) == {Head("cross", 2, 0), Head("cross", 2, 1), Head("encoder", 0, 3)}
    assert result.by_site() == {Site("cross", 2): [0, 1], Site("encoder", 0): [3]}


@pytest.mark.parametrize("among", [ONE, THREE], ids=["one stack", "three stacks"])
@given(data=st.data())
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_a_set_prints_itself_back(among: tuple[Head, ...], data: st.DataObject) -> None:
    heads = data.draw(st.sets(st.sampled_from(among), min_size=1))
    result = HeadSet(heads, among=among)
    again = HeadSet(str(result), among=among)
    assert again == result
    assert hash(again) == hash(result)
    assert list(result) == sorted(heads)


def test_whole_layers_and_runs_are_printed_short() -> None:
    assert str(HeadSet("4.0,4.1,4.2,4.3,3.0,3.1,3.3", among=ONE)) == "3.0-1,3.3,4.*"
    assert str(HeadSet("cross.1.*", among=THREE)) == "cross.1.*"
    assert repr(HeadSet("1.1", among=ONE)) == "HeadSet('1.1')"


@pytest.mark.parametrize(
    "text", ["", "3", "3.", ".2", "3.2.1.0", "3.x", "L3H2", "-1.2", "3.2;4.1", "3.2,", "3.2-"]
)
def test_what_names_no_head_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(
        HeadscopeError,
        match=r"does not name a head.*Expected heads as LAYER\.HEAD, both counted from 0",
    ):
        HeadSet(text, among=ONE)


@pytest.mark.parametrize("text", ["6.0", "0.4", "0.2-4", "cross.0.0", "0.3-1", "9.*"])
def test_a_head_that_is_not_there_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(HeadscopeError, match="encoder layers 0 to 5 with heads 0 to 3"):
        HeadSet(text, among=ONE)


def test_an_address_without_a_stack_is_refused_where_there_are_several() -> None:
    with pytest.raises(HeadscopeError, match="could be in cross or decoder or encoder"):
        HeadSet("1.2", among=THREE)


def test_a_head_of_another_model_is_refused() -> None:
    with pytest.raises(HeadscopeError, match=r"encoder\.7\.0 is not a head of this model"):
        HeadSet([Head("encoder", 7, 0)], among=ONE)
