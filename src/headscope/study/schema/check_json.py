"""Check that values read from JSON have the types that a TypedDict declares."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from headscope.errors import HeadscopeError
from headscope.study.schema.read_file import CORRECT

_KINDS: dict[object, tuple[str, tuple[type, ...]]] = {
    str: ("text", (str,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    list: ("a list", (list,)),
    dict: ("an object {…}", (dict,)),
    NoneType: ("null", (NoneType,)),
}


def check_type(value: Any, hint: Any, key: str, path: Path) -> None:
    """Raise an error if a value of a JSON file is not of the declared type. Keys may be missing.

    key  the address of the value in the file: "model.layers.encoder"
    """
    origin = get_origin(hint) or hint
    if hint in (Any, object):
        return
    if origin is NotRequired:
        check_type(value, get_args(hint)[0], key, path)
    elif origin is Literal:
        if value not in get_args(hint):
            raise wrong_value(key, " or ".join(map(repr, get_args(hint))), value, path)
    elif origin is UnionType:  # a type or null
        if value is not None:
            check_type(value, get_args(hint)[0], key, path)
    elif is_typeddict(hint):
        _check_kind(value, dict, key, path)
        hints = get_type_hints(hint, include_extras=True)
        for name, declared in hints.items():
            if name in value:
                check_type(value[name], declared, _join(key, name), path)
    else:
        _check_kind(value, origin, key, path)
        if origin in (list, dict) and get_args(hint):
            keys = value if origin is dict else range(len(value))
            for item in keys:
                check_type(value[item], get_args(hint)[-1], _join(key, item), path)


def check_keys(section: Mapping[str, Any], kinds: Mapping[str, type], key: str, path: Path) -> None:
    """Raise an error if a key of a section holds something else than its kind, or null."""
    for name, value in section.items():
        if name in kinds and value is not None:
            _check_kind(value, kinds[name], _join(key, name), path)


def check_required(section: Mapping[str, Any], names: Iterable[str], key: str, path: Path) -> None:
    for name in names:
        if name not in section:
            what = f'key "{_join(key, name)}" is missing'
            raise HeadscopeError(what, where=path, fix=CORRECT)


def wrong_value(key: str, expected: str, value: object, path: Path) -> HeadscopeError:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    what = f'key "{key}" must hold {expected}, got {shown}'
    return HeadscopeError(what, where=path, fix=CORRECT)


def _check_kind(value: object, kind: object, key: str, path: Path) -> None:
    expected, types = _KINDS[kind]
    # A flag is an int in Python, but not a number in JSON.
    if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
        raise wrong_value(key, expected, value, path)


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)
