"""The text that names a mask: `star`, `window:width=8`, `longformer-no-diagonal`, `window+star`, `mask.npz`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.config.checks import check_choice, check_count
from headscope.config.names import MASKS
from headscope.errors import HeadscopeError

WITHOUT_DIAGONAL = "-no-diagonal"
FILES = (".npz", ".npy")
LONGEST = 16384  # largest length that is timed: the mask has length x length entries in memory
LEAST_REPEATS = 6  # a median of fewer runs has no 95 % interval
MASK_FILE = "a mask that headscope masks learn wrote, or an .npy file of n x n booleans"


def check_mask(spec: str, option: str = "`mask`") -> None:
    """Refuse an unknown name, a wrong parameter and a file that does not exist. option: its name in errors."""
    where = f'{option} "{spec}"'
    for part in map(str.strip, spec.split("+")):
        file = part.removesuffix(WITHOUT_DIAGONAL)
        if file.endswith(FILES):
            if not Path(file).exists():
                raise HeadscopeError("there is no such file", where=file, expected=MASK_FILE)
            continue
        name, parameters, _ = split_mask(part)
        check_choice(name, MASKS, where, "is not a mask")
        read_parameters(parameters, MASKS[name], where)


def split_mask(part: str) -> tuple[str, str, bool]:
    """Name and parameters of one mask, and whether the text says that it is without the diagonal."""
    name, _, parameters = part.partition(":")
    if parameters.endswith(WITHOUT_DIAGONAL):
        return name, parameters.removesuffix(WITHOUT_DIAGONAL), True
    if name.endswith(WITHOUT_DIAGONAL) and name not in MASKS:
        return name.removesuffix(WITHOUT_DIAGONAL), parameters, True
    return name, parameters, False


def format_parameters(defaults: Mapping[str, object]) -> str:
    """The parameters of a mask with their defaults, as text: `width=5,globals=first/middle`."""
    return ",".join(
        f"{name}={'/'.join(x) if isinstance(x, tuple) else x}" for name, x in defaults.items()
    )


def read_parameters(text: str, defaults: Mapping[str, object], where: str) -> dict[str, Any]:
    """The parameters in `width=8,globals=first/12`, by name; each value has the type of its default."""
    parameters: dict[str, Any] = {}
    for item in text.split(",") if text else []:
        key, _, value = item.partition("=")
        if key not in defaults:
            expected = format_parameters(defaults) or "no parameters"
            raise HeadscopeError(
                f'"{key}" is not a parameter of this mask', where=where, expected=expected
            )
        default = defaults[key]
        if isinstance(default, tuple):
            parameters[key] = _read_positions(value, where)
        else:
            parameters[key] = _read_number(value, type(default), key, where)
    return parameters


def _read_positions(value: str, where: str) -> tuple[str, ...]:
    positions = tuple(value.split("/"))
    for position in positions:
        if position not in ("first", "middle", "last") and not position.isdecimal():
            expected = "numbers from 0, first, middle or last, separated by /"
            raise HeadscopeError(f'"{position}" is not a position', where=where, expected=expected)
    return positions


def _read_number(value: str, kind: type[Any], key: str, where: str) -> float:
    least = 1 if key == "stride" else 0
    try:
        number: float = kind(value)
    except ValueError as cause:
        what = f'{key} must be a number of at least {least}, got "{value}"'
        raise HeadscopeError(what, where=where) from cause
    if not number >= least or (kind is float and number > 1):
        allowed = "between 0 and 1" if kind is float else f"at least {least}"
        raise HeadscopeError(f"{key} must be {allowed}, got {value}", where=where)
    return number


def check_sizes(lengths: Sequence[int], batch_size: int, repeats: int) -> None:
    """Refuse lengths, batch sizes and repeats with which a mask cannot be timed."""
    for count in lengths:
        check_count(count, "`length`")
    check_count(batch_size, "`batch_size`")
    if repeats < LEAST_REPEATS:
        raise HeadscopeError(
            f"`repeats` must be at least {LEAST_REPEATS} with `mask`, got {repeats}"
        )
    if max(lengths) > LONGEST:
        raise HeadscopeError(f"`length` must be at most {LONGEST} with `mask`, got {max(lengths)}")
    if len(set(lengths)) < len(lengths):
        raise HeadscopeError("`length` must not repeat a value")
