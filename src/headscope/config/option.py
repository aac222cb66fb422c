"""Options as fields of frozen dataclasses: name, default, help, range and choices are declared once.

    @dataclass(frozen=True)
    class SpeedConfig(Config):
        repeats: int = option(12, "Number of timed runs", at_least=1)

The command line is generated from these fields (`commands/_from_config.py`), Python functions take the same objects,
and both get the same checks. An error names the field in backticks; `commands` translates it into the flag.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from headscope.config.former_names import OPTIONS as FORMER_OPTIONS
from headscope.config.requirements import check_effects
from headscope.config.value_types import (
    describe_type,
    describe_value,
    freeze,
    has_type,
    takes_mapping,
)
from headscope.errors import HeadscopeError, choices

_OPTION = "option"
_KINDS: dict[str, dict[str, Any]] = {}  # annotations by config: resolving them is slow
ADVANCED, SEARCH, NEW_MODEL = "Advanced", "Search", "New model"  # panels of rarely used options
TRAINED_STATE = ("state.pt", "best.pt")  # files of a stopped training, from which it is resumed


@dataclass(frozen=True)
class Option:
    """The values that a field of a config allows, and how the command line shows the field.

    at_least, above   bounds of a number, inclusive and exclusive; at_most and below likewise
    choices           the allowed names
    is_list           the value is several of the choices, separated by commas in the shell
    parse             returns the value, from text (always in the shell) or from the value itself (in Python);
                      raises a `HeadscopeError` if neither can be read
    check             raises a `HeadscopeError` for a value that is not allowed
    flags             the flags of the shell, if they are not `--` and the name with hyphens
    show_default      what the help shows as the default; False shows none
    panel             heading in the help; options without one come first
    recorded          whether the run record holds it; False for an option that does not change the result
    """

    help: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: Sequence[str] = ()
    is_list: bool = False
    parse: Callable[[Any], Any] | None = None
    check: Callable[[Any], object] | None = None
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    show_default: str | bool = True
    panel: str = ""
    recorded: bool = True

    def bounds(self) -> str:
        """The allowed range in words: `at least 1`, `above 0 and at most 1`."""
        limits = {"at least": self.at_least, "above": self.above}
        limits |= {"at most": self.at_most, "below": self.below}
        return " and ".join(f"{word} {x:g}" for word, x in limits.items() if x is not None)

    def allows(self, number: float) -> bool:
        """Whether a number is finite and within the bounds."""
        return (
            abs(number) <= sys.float_info.max  # false for NaN, too
            and (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )


def option(default: Any = MISSING, help: str = "", **details: Any) -> Any:
    """A field of a `Config` that is an option. details: further fields of its `Option`."""
    return field(default=default, metadata={_OPTION: Option(help, **details)})


@dataclass(frozen=True)
class Output:
    """The directory that a command writes to `out`.

    record  file that identifies the directory
    kept    files of finished work that a stopped run leaves in OUT.partial
    part    entry of run.json that may be added to an existing study
    """

    record: str = "run.json"
    kept: tuple[str, ...] = ()
    part: str = ""


@dataclass(frozen=True)
class Config:
    """Base of all configs: values are parsed and checked when the object is made.

    command   the command whose main config this is; empty for configs that commands share
    group     heading of the command in the list of commands
    examples  command lines for the help; python: the same in Python
    rules_of  the command whose rules in `requirements.RULES` apply, if it is not `command`
    uses      the fields that the command uses, for each shared config
    defaults  defaults of shared fields that differ in this command
    helps     help texts of shared fields that differ in this command
    panels    panels of shared fields that differ in this command
    required  shared fields that the command line requires
    python_only  own fields that are not options of the command line
    completed  required fields of shared configs that `complete` can derive from other options
    optional  shared configs that may be missing: they are None if none of their required fields is given
    splits    splits of the data that the command reads: names, or the options that hold them
    output    the directory that the command writes; None if it writes another kind of file, or nothing
    primary   the field that is set if a Python caller passes a plain value in place of this config:
              `gate(model, "glue")` sets `data` of `TaskData`
    """

    command: ClassVar[str] = ""
    group: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    python: ClassVar[str] = ""
    rules_of: ClassVar[str] = ""
    uses: ClassVar[Mapping[type[Config], tuple[str, ...]]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    helps: ClassVar[Mapping[str, str]] = {}
    panels: ClassVar[Mapping[str, str]] = {}
    required: ClassVar[tuple[str, ...]] = ()
    python_only: ClassVar[tuple[str, ...]] = ()
    completed: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[type[Config], ...]] = ()
    splits: ClassVar[tuple[str, ...]] = ()
    output: ClassVar[Output | None] = None
    primary: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kinds = kinds_of(type(self))
        for f in fields(self):
            declared = f.metadata.get(_OPTION)
            value = getattr(self, f.name)
            if value is None and (
                f.default is None or (kinds[f.name] is not Any and has_type(None, kinds[f.name]))
            ):
                continue
            parsed = _read_value(f.name, value, declared or Option(""), kinds[f.name])
            if declared is not None:
                object.__setattr__(self, f.name, freeze(parsed))

    @classmethod
    def complete(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a call, with the values of `completed` fields that can be derived from them."""
        return dict(values)

    @classmethod
    def splits_read(cls, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The `splits` that a call with these options reads."""
        return cls.splits

    def check_values(self, values: Mapping[str, Any]) -> None:
        """Refuse combinations with options of other configs. values: the options of all configs of a call by name."""


def options_of(config: type[Config]) -> dict[str, Option]:
    """The options of a config by name."""
    return {f.name: f.metadata[_OPTION] for f in fields(config) if _OPTION in f.metadata}


def kinds_of(config: type[Config]) -> dict[str, Any]:
    """The types of a config's fields by name, from their annotations."""
    if config.__qualname__ not in _KINDS:
        _KINDS[config.__qualname__] = typing.get_type_hints(config)
    return _KINDS[config.__qualname__]


def default_of(config: type[Config], name: str) -> Any:
    """The default of a field; MISSING if the field is required."""
    declared: Field[Any] = next(f for f in fields(config) if f.name == name)
    return declared.default


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union without None: (int,) for `int | None`."""
    types = typing.get_args(kind) if type(None) in typing.get_args(kind) else (kind,)
    return tuple(member for member in types if member is not type(None))


def _read_value(name: str, value: Any, declared: Option, kind: Any) -> Any:
    """The parsed and checked value of a field. Every error names the field."""
    is_other = isinstance(value, bytes) or (isinstance(value, Mapping) and not takes_mapping(kind))
    if value is None or (declared.parse is not None and is_other):
        # A parser would read bytes and mappings as lists.
        raise _wrong_type(name, value, kind)
    try:
        is_path = members(kind) == (Path,) and isinstance(value, str)
        parse = Path if is_path else declared.parse
        parsed = value if parse is None else parse(value)
    except HeadscopeError as error:
        raise _naming(name, error) from error
    except (TypeError, AttributeError, ValueError, OverflowError) as cause:
        raise _wrong_type(name, value, kind) from cause
    if not has_type(parsed, kind):
        raise _wrong_type(name, value, kind)
    try:
        check_value(name, parsed, declared, kind)
    except HeadscopeError as error:
        raise _naming(name, error) from error
    return parsed


def _wrong_type(name: str, value: Any, kind: Any) -> HeadscopeError:
    return HeadscopeError(f"`{name}` must be {describe_type(kind)}, got {describe_value(value)}")


def _naming(name: str, error: HeadscopeError) -> HeadscopeError:
    """The error with the field as its place, unless it names a place already. Checks of heads name no field."""
    is_of_heads = str(error.where or "").startswith("heads")
    if is_of_heads or (error.where is None and name not in str(error)):
        error.where = f"`{name}`"
    return error


def check_value(name: str, value: Any, declared: Option, kind: Any) -> None:
    """Refuse a value that is out of range or not among the choices."""
    if members(kind) in ((int,), (float,)) and not declared.allows(value):
        shown = f"{value:g}" if isinstance(value, float) else describe_value(value)
        raise HeadscopeError(f"`{name}` must be {declared.bounds() or 'finite'}, got {shown}")
    for choice in _names(value, declared) if declared.choices else ():
        if choice not in declared.choices:
            near = get_close_matches(str(choice), declared.choices, n=1)
            raise HeadscopeError(
                f'`{name}` must be {choices("", declared.choices)}, got "{choice}"',
                fix=f'Did you mean "{near[0]}"?' if near else None,
            )
    if declared.check is not None:
        declared.check(value)


def _names(value: Any, declared: Option) -> list[Any]:
    if not declared.is_list:
        return [value]
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value)


# Several configs of one command


def values_of(*configs: Config | None) -> dict[str, Any]:
    """The values of all fields of several configs, by name."""
    return {f.name: getattr(config, f.name) for config in configs if config for f in fields(config)}


def record_options(*configs: Config | None) -> dict[str, Any]:
    """The options of a run as its record and its resume header hold them: plain JSON values.

    Callbacks, options that do not change the result (where it is written, whether it is resumed) and fields of shared
    configs that the command does not use are left out.
    """
    present = [config for config in configs if config is not None]
    main = next((config for config in present if config.command), None)

    def is_recorded(config: Config, f: Field[Any]) -> bool:
        declared = f.metadata.get(_OPTION)
        if not f.compare or (declared is not None and not declared.recorded):
            return False
        if main is None or config is main or f.name not in options_of(type(config)):
            return True
        return f.name in main.uses.get(type(config), ())

    return {
        f.name: _plain(getattr(config, f.name))
        for config in present
        for f in fields(config)
        if is_recorded(config, f)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value) if isinstance(value, Path) else getattr(value, "name", None) or str(value)


def check_together(main: Config, *shared: Config | None, keywords: Collection[str] = ()) -> None:
    """Refuse options of shared configs that the command does not use, and options that need others.

    keywords  options that the caller stated, even if their value is the default
    """
    stated = set(keywords)
    for config in filter(None, shared):
        used = main.uses.get(type(config), ())
        for name in options_of(type(config)):
            if name not in used and getattr(config, name) != default_of(type(config), name):
                raise HeadscopeError(f"`{name}` has no effect in {main.command}")
    for config in filter(None, (*shared, main)):
        for f in fields(config):
            value, default = getattr(config, f.name), main.defaults.get(f.name, f.default)
            if value is not None and value != () and value != default:
                stated.add(f.name)
    values = values_of(*shared, main)
    check_effects(main.rules_of or main.command, values, stated)
    main.check_values(values)


def fill(command: str, options: dict[str, Any], *slots: tuple[type[Config], Any]) -> list[Any]:
    """The configs of a call to a public function, in the order of `slots`, each a type and the config that was passed.

    A config that was passed is changed by `options`; a missing one (None) is made from `options` alone.

    headscope.gate(model, data, GateConfig(keep=20)) and headscope.gate(model, task=…, data=…, keep=20) are the same.
    The first slot is the command's own config. An option that no config has is a `TypeError`, as for any function.
    """
    _check_names(command, options, [f.name for kind, _ in slots for f in fields(kind)])
    made: list[Any] = []
    rest = _complete(options, slots)
    for kind, config in slots:
        own = {f.name: rest.pop(f.name) for f in fields(kind) if f.name in rest}
        for name in _required_names(kind):
            if own.get(name, MISSING) is None:
                del own[name]  # None counts as not given
        if config is not None and not isinstance(config, kind):
            if not kind.primary:
                raise TypeError(f"{command}() takes {_with_article(kind.__name__)}, got {config!r}")
            own[kind.primary], config = config, None  # plain data instead of a TaskData
        if config is None and is_left_out(slots[0][0], kind, own):
            if own:
                raise HeadscopeError(f"`{next(iter(own))}` requires {_required_of(kind)}")
            made.append(None)
            continue
        if config is None:
            check_required(command, kind, own)
        made.append(kind(**own) if config is None else replace(config, **own))
    main = made[0]
    for position, config in enumerate(made[1:], start=1):
        if config is None:
            continue
        unset = {
            name: value
            for name, value in main.defaults.items()
            if name in options_of(type(config)) and getattr(config, name) is None
        }
        made[position] = replace(config, **unset) if unset else config
    # As in the shell, where None, False and an empty list cannot be stated.
    keywords = [
        name
        for name, value in values_of(*made).items()
        if name in options and value is not None and value is not False and value != ()
    ]
    check_together(main, *made[1:], keywords=keywords)
    return made


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _complete(
    options: dict[str, Any], slots: tuple[tuple[type[Config], Any], ...]
) -> dict[str, Any]:
    """The options, and the values of `completed` fields that follow from the options and the command's own config."""
    main, config = slots[0]
    if any(config is not None for kind, config in slots if kind.primary):
        return dict(options)
    values = main.complete(({} if config is None else values_of(config)) | options)
    return {
        name: value for name, value in values.items() if name in options or name in main.completed
    }


def _check_names(command: str, options: Mapping[str, Any], names: list[str]) -> None:
    for name in options:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if (present := FORMER_OPTIONS.get(name)) in names:
                hint = f"; it is now called {present!r}"
            raise TypeError(f"{command}() got an unexpected keyword argument {name!r}{hint}")


def is_left_out(main: type[Config], kind: type[Config], own: Mapping[str, Any]) -> bool:
    """Whether an optional config is missing: none of its required fields is in `own`."""
    return kind in main.optional and not any(name in own for name in _required_names(kind))


def _required_names(kind: type[Config]) -> list[str]:
    return [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]


def _required_of(kind: type[Config]) -> str:
    return " and ".join(f"`{name}`" for name in _required_names(kind))


def check_required(command: str, kind: type[Config], own: Mapping[str, Any]) -> None:
    """Refuse values without the required fields of a config. own: the values of its fields."""
    for name in _required_names(kind):
        if name not in own:
            raise HeadscopeError(f"{command} requires `{name}`")
