"""Every lens is held against an independent reference on every family that it claims (docs/explanation/lenses.md)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from headscope.analysis.token_maps import TOKEN_LENSES
from headscope.model.families import families
from headscope.model.lenses import LENSES
from headscope.model.relevance.supported import supported_types
from reference.lenses import LENSES as REFERENCES
from tiny import FAMILIES, family_of_case

TESTS = Path(__file__).parent.parent
TEXT = {family for family in FAMILIES if family != "vit"}

# lens: the tests whose cases together are the families, and the families it claims
HELD: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "raw": (
        ("contracts/test_seam.py::test_weights_seen_are_those_the_library_computes",),
        set(FAMILIES),
    ),
    **dict.fromkeys(
        REFERENCES, (("contracts/test_lenses.py::test_a_lens_is_its_reference",), set(FAMILIES))
    ),
    "gradient": (
        (
            "contracts/test_lenses.py::test_the_gradient_lens_is_the_gradient_by_the_weights_of_the_library",
            "contracts/test_lenses.py::test_gradients_are_finite_differences",
        ),
        set(FAMILIES),
    ),
    "relevance": (
        ("model/test_relevance_rules.py::test_relevance_is_what_is_missing_without_the_head",),
        TEXT,
    ),
    "relevance by attnlrp": (
        (
            "model/test_relevance_rules.py::test_relevance_by_attnlrp_is_how_fast_the_output_grows_with_the_head",
        ),
        TEXT - {"deberta-v2", "xlnet"},
    ),
    "rollout": (
        ("contracts/test_token_maps.py::test_rollout_follows_every_way_down",),
        set(FAMILIES),
    ),
    "flow": (
        (
            "contracts/test_token_maps.py::test_flow_is_the_largest_that_every_way_together_lets_through",
        ),
        set(FAMILIES),
    ),
    "gradient-rollout": (
        ("contracts/test_token_maps.py::test_gradient_rollout_is_that_of_loops",),
        set(FAMILIES),
    ),
    "value-zeroing": (
        ("contracts/test_knock_outs.py::test_value_zeroing_is_that_of_a_run_for_every_token",),
        TEXT,
    ),
    "knock-out": (
        ("contracts/test_knock_outs.py::test_the_map_of_knock_outs_is_that_of_single_runs",),
        TEXT,
    ),
}


def cases_of(named: str) -> set[str]:
    """The families that a test is parametrised by."""
    file, _, name = named.partition("::")
    sys.path.insert(0, str((TESTS / file).parent))
    spec = importlib.util.spec_from_file_location(f"held_{Path(file).stem}", TESTS / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    marks = [
        mark
        for mark in getattr(module, name).pytestmark
        if mark.args[:1] in (("family",), ("case",))
    ]
    return {
        family_of_case(getattr(case, "values", (case,))[0])
        for mark in marks
        for case in mark.args[1]
    }


@pytest.mark.parametrize("lens", HELD)
def test_a_lens_has_a_reference_on_every_family_that_it_claims(lens: str) -> None:
    tests, claimed = HELD[lens]
    tested = set().union(*map(cases_of, tests))
    assert claimed <= tested, f"untested: {', '.join(sorted(claimed - tested))}"


def test_every_lens_is_held() -> None:
    assert {*LENSES, *TOKEN_LENSES} <= set(HELD)
    assert set(FAMILIES) >= set(families())
    assert set(supported_types()) <= TEXT


def test_the_docs_name_every_reference() -> None:
    page = (TESTS.parent / "docs" / "explanation" / "lenses.md").read_text("utf-8")
    for tests, _ in HELD.values():
        for named in tests:
            assert named.partition("::")[0] in page, named
