"""Every field of every config refuses values of a wrong type, in one line that names the field."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import headscope
import headscope.config
from headscope.config.option import Config, kinds_of, members
from headscope.config.value_types import FrozenDict, has_type
from headscope.errors import HeadscopeError

for module in iter_modules(headscope.config.__path__):
    import_module(f"headscope.config.{module.name}")

REQUIRED: dict[str, dict[str, Any]] = {
    "TaskData": {"task": "stsb", "data": "x.tsv"},
    "GateConfig": {"keep": (3,)},
    "LearnMaskConfig": {"soft": True},
    "SearchConfig": {"remove": 3},
    "PruneConfig": {"remove": 3},
}
ANYTHING = {("LoadConfig", "model_class")}  # transformers refuses what is not a class
# Heads and masks of other types than text have forms of their own.
NUMBERS = {"keep", "seeds", "length", "sizes", "penalty", "sparsity", "heads"}
WRONG = (
    object(),
    {"a": object()},
    {1: 2, 3: object()},
    [object()],
    [[]],
    float("nan"),
    10**400,
    b"x",
    3.7,
    True,
)


def configs(kind: type[Config] = Config) -> Iterator[type[Config]]:
    for config in kind.__subclasses__():
        if config.__module__.startswith("headscope."):
            yield config
            yield from configs(config)


FIELDS = [
    pytest.param(config, f.name, id=f"{config.__name__}-{f.name}")
    for config in dict.fromkeys(configs())
    for f in fields(config)
    if (config.__name__, f.name) not in ANYTHING
]


def make(config: type[Config], **options: Any) -> Config:
    return config(**(REQUIRED.get(config.__name__, {}) | options))


def wrong_values(config: type[Config], name: str) -> Iterator[Any]:
    """Values that cannot be right for a field, by its annotation."""
    kind = kinds_of(config)[name]
    default = next(f.default for f in fields(config) if f.name == name)
    yield object()
    if name in ("texts", "sentences"):  # any list of anything, which is read later
        yield from (3.7, True, 10**400)
        return
    for value in WRONG:
        is_number = isinstance(value, int | float) and value == value
        if is_number and (has_type(value, kind) or name in NUMBERS):
            continue
        yield value
    if default is not None and not has_type(None, kind):
        yield None
    if members(kind) == (bool,):
        yield from ("no", "yes", 1, 0, [], "")
    if members(kind) in ((int,), (float,)):
        yield from ("3", "zzz", [], float("inf"))
    if members(kind) == (str,):
        yield from (5, [], -1)


@pytest.mark.parametrize(("config", "name"), FIELDS)
def test_a_value_of_a_wrong_type_is_refused_in_one_line_that_names_the_field(
    config: type[Config], name: str
) -> None:
    for value in wrong_values(config, name):
        with pytest.raises(HeadscopeError) as error:
            pytest.fail(f"accepted {value!r}: {make(config, **{name: value})}")
        message = str(error.value)
        assert name in message, repr(value)
        assert "\n" not in message
        assert len(message) < 600


@pytest.mark.parametrize("config", dict.fromkeys(configs()))
def test_defaults_have_the_type_of_their_field(config: type[Config]) -> None:
    made = make(config)
    for f in fields(config):
        if f.default is not MISSING:
            assert has_type(f.default, kinds_of(config)[f.name]), f.name
        assert has_type(getattr(made, f.name), kinds_of(config)[f.name]), f.name


def test_a_study_is_not_replaced_by_a_text_for_overwrite(tmp_path: Path) -> None:
    with pytest.raises(HeadscopeError, match=r"^`overwrite` must be True or False, got 'no'"):
        headscope.analyze("bert", ["the cat"], out=tmp_path, overwrite="no")


@pytest.mark.parametrize("name", ["batch_size", "device", "dtype"])
def test_none_is_refused_where_it_has_no_meaning(name: str, tmp_path: Path) -> None:
    with pytest.raises(HeadscopeError, match=f"^`{name}` must be .*, got None"):
        headscope.evaluate("bert", tmp_path, task="stsb", **{name: None})


def test_dictionaries_and_lists_of_a_config_cannot_be_changed() -> None:
    values = {"sink": 0.2}
    config = headscope.AnalyzeConfig(thresholds=values)
    values["sink"] = 99.0
    assert config.thresholds == {"sink": 0.2}
    with pytest.raises(TypeError, match="cannot be changed"):
        config.thresholds["sink"] = 99  # type: ignore[index, call-overload]
    assert hash(config) == hash(copy.deepcopy(config))
    assert pickle.loads(pickle.dumps(config)) == config
    assert isinstance(config.thresholds, FrozenDict)
    assert headscope.TextData(corpus=["a", Path("b")]).corpus == ("a", Path("b"))


def test_functions_without_a_config_refuse_wrong_types() -> None:
    with pytest.raises(
        HeadscopeError, match=r"^studies: must be studies or their directories, got 5"
    ):
        headscope.join(5)  # type: ignore[arg-type]
    with pytest.raises(HeadscopeError, match=r"^`batch_size` must be a whole number, got 'x'"):
        headscope.encode("minilm", ["a"], batch_size="x")  # type: ignore[arg-type]
