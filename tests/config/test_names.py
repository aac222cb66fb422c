"""Are the names that are checked before torch is imported those of the registries?"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from typing import get_args

from headscope.ablation.ablation_targets import KINDS
from headscope.analysis.token_maps import TOKEN_LENSES
from headscope.config import names
from headscope.data.encode import Long
from headscope.masks.mask_file import Per
from headscope.masks.mask_spec import defaults_of
from headscope.masks.patterns import PATTERNS
from headscope.model.fixed_patterns import PATTERNS as FIXED
from headscope.model.knockout import TOKENS
from headscope.model.lenses import LENSES
from headscope.model.load import DTYPES
from headscope.model.relevance.rules import RULES
from headscope.model.saving import FORMS
from headscope.model.word_attention import Pool
from headscope.pruning import searches
from headscope.pruning.subset_evaluator import OBJECTIVES
from headscope.statistics import registry
from headscope.tasks import tasks
from headscope.tasks.classification import FORMS as FORMS_OF_LABELS
from headscope.tasks.classification import Classification


def test_the_names_are_those_of_the_registries() -> None:
    of_texts = {name for kind in registry() if kind.needs is None for name in kind.definitions}
    assert tuple(tasks()) == names.TASKS
    assert tuple(name for name, task in tasks().items() if task.pools) == names.POOLED_TASKS
    assert [name for name, task in tasks().items() if task.is_free_of_labels] == [
        *names.CORPUS_TASKS
    ]
    assert set(FORMS_OF_LABELS) == set(Classification.names)
    assert of_texts == set(names.statistics_of_texts())
    assert (*FIXED, "raganato") == names.FIXED_PATTERNS
    assert tuple(name for name in TOKENS if name != "all") == names.MASKED_TOKENS
    assert {name: defaults_of(make) for name, make in PATTERNS.items()} == names.MASKS
    assert KINDS == names.KINDS
    assert RULES == names.RULES
    assert OBJECTIVES == names.OBJECTIVES
    assert tuple(FORMS) == names.FORMS
    assert get_args(Per) == names.PER
    assert get_args(Pool) == names.POOLS
    assert get_args(Long) == names.LONG
    assert tuple(DTYPES) == names.DTYPES


def test_lenses_and_token_maps_are_their_files_with_the_lines_that_are_read_from_them() -> None:
    assert tuple(LENSES) == names.LENSES
    assert all(lens.name == name for name, lens in LENSES.items())
    assert tuple(TOKEN_LENSES) == names.TOKEN_MAPS
    gradient_lenses = [name for name, lens in LENSES.items() if lens.needs_gradient]
    files = {name: sys.modules[compute.__module__] for name, compute in TOKEN_LENSES.items()}
    for options, line in (
        (names.TARGETED_LENSES, "TAKES_TARGET"),
        (names.POOLED_LENSES, "TAKES_POOLING"),
    ):
        token_maps = [name for name, file in files.items() if getattr(file, line, False)]
        assert options == (*gradient_lenses, *token_maps)
    per_token = [n for n, file in files.items() if getattr(file, "ONE_PASS_PER_TOKEN", False)]
    assert list(names.PER_TOKEN_LENSES) == per_token == ["value-zeroing", "knock-out"]


def test_searches_by_an_importance_are_the_files_that_read_the_option() -> None:
    files = {
        name: import_module(f"{searches.__name__}.{name.replace('-', '_')}")
        for name in names.SEARCHES
    }
    marked = [name for name, file in files.items() if getattr(file, "TAKES_BY", False)]
    assert set(names.SEARCHES_BY) == set(marked)
    assert set(marked) == {
        name for name, file in files.items() if "config.by" in inspect.getsource(file)
    }


def test_what_is_suggested_for_a_wrong_task_exists() -> None:
    assert {name for suggested in names.TASKS_MEANT.values() for name in suggested} <= set(
        names.TASKS
    )
    assert not set(names.TASKS_MEANT) & set(names.TASKS)
