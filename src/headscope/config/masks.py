"""How a mask is written: `star`, `window:width=8`, `longformer-no-diagonal`, `window+star`, `mask.npz`, `mask.npy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.config.checks import check_choice, check_count
from headscope.config.names import MASKS
from headscope.errors import HeadscopeError

WITHOUT_DIAGONAL = "-no-diagonal"
FILES = (".npz", ".npy")
LONGEST = 16384  # positions that are timed: a mask is made whole, position by position
LEAST_REPEATS = 6  # of fewer, a median has no interval of 95 %
MASK_FILE = "a mask that headscope masks learn wrote, or an .npy file with n x n of true and false"


def check_mask(spec: str, option: str = "`mask`") -> None:
    """Refuse an unknown name, a wrong parameter and a file that does not exist. option: as errors name it."""
    where = f'{option} "{spec}"'
    for part in map(str.strip, spec.split("+")):
        file = part.removesuffix(WITHOUT_DIAGONAL)
        if file.endswith(FILES):
            if not Path(file).exists():
                raise HeadscopeError("not there", where=file, expected=MASK_FILE)
            continue
        name, parameters, _ = split_mask(part)
        check_choice(name, MASKS, where, "is not a mask")
        read_parameters(parameters, MASKS[name], where)


def split_mask(part: str) -> tuple[str, str, bool]:
    """Its name, its parameters, and whether it is without the diagonal."""
    name, _, parameters = part.partition(":")
    if parameters.endswith(WITHOUT_DIAGONAL):
        return name, parameters.removesuffix(WITHOUT_DIAGONAL), True
    if name.endswith(WITHOUT_DIAGONAL) and name not in MASKS:
        return name.removesuffix(WITHOUT_DIAGONAL), parameters, True
    return name, parameters, False


def format_parameters(defaults: Mapping[str, object]) -> str:
    """A mask's parameters with their defaults, as they are written: `width=5,globals=first/middle`."""
    return ",".join(
        f"{name}={'/'.join(x) if isinstance(x, tuple) else x}" for name, x in defaults.items()
    )


def read_parameters(text: str, defaults: Mapping[str, object], where: str) -> dict[str, Any]:
    """`width=8,globals=first/12` as the mask's function takes it; each value has the type of its default."""
    parameters: dict[str, Any] = {}
    for item in text.split(",") if text else []:
        key, _, value = item.partition("=")
        if key not in defaults:
            expected = format_parameters(defaults) or "no parameters"
            raise HeadscopeError(
                f'"{key}" is no parameter of this mask', where=where, expected=expected
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
            expected = "numbers from 0, first, middle or last, with /"
            raise HeadscopeError(f'"{position}" is no position', where=where, expected=expected)
    return positions


def _read_number(value: str, kind: type[Any], key: str, where: str) -> float:
    least = 1 if key == "stride" else 0
    try:
        number: float = kind(value)
    except ValueError as cause:
        expected = f"a number, {least} or more"
        raise HeadscopeError(f'{key} is "{value}"', where=where, expected=expected) from cause
    if not number >= least or (kind is float and number > 1):
        expected = "0 to 1" if kind is float else f"{least} or more"
        raise HeadscopeError(f"{key} is {value}", where=where, expected=expected)
    return number


def check_sizes(lengths: Sequence[int], batch_size: int, repeats: int) -> None:
    """Refuse lengths and repeats at which a mask cannot be timed."""
    for count in lengths:
        check_count(count, "`length`")
    check_count(batch_size, "`batch_size`")
    if repeats < LEAST_REPEATS:
        expected = f"{LEAST_REPEATS} or more with a mask"
        raise HeadscopeError(f"{repeats} is too few", where="`repeats`", expected=expected)
    if max(lengths) > LONGEST:
        raise HeadscopeError(
            f"{max(lengths)} tokens are too many", where="`length`", expected=f"at most {LONGEST}"
        )
    if len(set(lengths)) < len(lengths):
        raise HeadscopeError("a length is named twice", where="`length`", expected="each once")
