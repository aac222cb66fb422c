"""Masks in files, as allowed pairs of positions or as allowed distances."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from headscope.config.masks import MASK_FILE
from headscope.errors import HeadscopeError, reason
from headscope.heads import Head, Site
from headscope.masks.patterns import Mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

Per = Literal["model", "layer", "head"]
PLAIN = ".npy"


def groups_of(heads: Iterable[Head], per: Per) -> tuple[str, ...]:
    """Names of the groups that have a mask each: `all`, or layers (`encoder.0`) or heads (`encoder.0.0`)."""
    self_attention = [head for head in heads if head.stack in ("encoder", "decoder")]
    names = (
        {"model": "all", "layer": str(head.site), "head": str(head)}[per] for head in self_attention
    )
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class MaskPositions:
    """The masks of all groups.

    groups      names of the groups, see `groups_of`
    per         what has a mask of its own: "model", "layer" or "head"
    structured  whether `allowed` is [group, distance], and the first and last position have no restriction;
                otherwise `allowed` is [group, position, position]
    diagonal    whether a token may attend to itself
    """

    groups: tuple[str, ...]
    per: Per
    structured: bool
    diagonal: bool
    allowed: Tensor

    @property
    def length(self) -> int:
        return self.allowed.shape[1]

    def mask(self, name: str) -> Mask:
        return Mask(
            name,
            lambda length, site: self._at(length, site, name),
            self.per,
            lambda heads: self._check(heads, name),
        )

    def _at(self, length: int, site: Site | None, name: str) -> Tensor:
        rows = self.allowed[self._rows(site)]
        if not self.structured and length > self.length:
            raise HeadscopeError(
                f"texts must have at most {self.length} tokens under this mask, got {length}",
                where=name,
                fix=f"Truncate texts with `max_length={self.length}`, or learn a `structured=True` mask",
            )
        if not self.structured:
            allowed = rows[:, :length, :length].clone()
        else:
            position = torch.arange(length)
            distance = (position[:, None] - position).abs()
            # [group, query, key]
            allowed = rows[:, distance.clamp_max(self.length - 1)] & (distance < self.length)
            allowed[:, [0, -1]] = True
            allowed[:, :, [0, -1]] = True
        if not self.diagonal:
            allowed.diagonal(dim1=1, dim2=2).zero_()
        return allowed

    def _rows(self, site: Site | None) -> list[int]:
        """Indices of the masks of a site or of its heads; the first mask if there is no site."""
        if site is None or self.per == "model":
            return [0]
        if self.per == "layer":
            return [self.groups.index(str(site))]
        if site.numbers is None:
            owners = [name.rpartition(".")[0] for name in self.groups]
            return [i for i, owner in enumerate(owners) if owner == str(site)]
        return [self.groups.index(f"{site}.{number}") for number in site.numbers]

    def _check(self, heads: Iterable[Head], name: str) -> None:
        """Raise an error if the model has layers or heads that the mask does not have."""
        missing = [group for group in groups_of(heads, self.per) if group not in self.groups]
        if missing:
            raise HeadscopeError(
                f"the model must have only {self.groups[0]} to {self.groups[-1]}, which the mask is for, "
                f"got one with {missing[0]}",
                where=name,
            )

    def write(self, path: Path) -> None:
        about = {"schema": 1, "groups": self.groups, "per": self.per, "diagonal": self.diagonal}
        with path.open("wb") as file:  # numpy would add a suffix to a path
            np.savez_compressed(
                file, allowed=self.allowed.numpy(), about=np.array(json.dumps(about))
            )


def read_positions(path: str | Path) -> MaskPositions:
    """Read and check a mask file."""
    positions = _read_plain(path) if str(path).endswith(PLAIN) else _read_archive(path)
    # In a structured mask every query may attend to the first and last position.
    if not positions.structured:
        _check_rows(positions, path)
    return positions


def _read_plain(path: str | Path) -> MaskPositions:
    """Read an array [position, position] that another program wrote: one mask for all heads."""
    with _name_errors(path):
        array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise HeadscopeError("not a mask: it is an archive", where=path, expected=MASK_FILE)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        shape = " x ".join(map(str, array.shape)) or "one number"
        what = f"a mask must be n x n (rows attend, columns are attended to), got {shape}"
        raise HeadscopeError(what, where=path)
    if array.dtype.kind not in "buif" or not np.isin(array, (0, 1)).all():
        what = f"values must be true or 1 where attention is allowed, else false or 0, got {array.dtype}"
        raise HeadscopeError(what, where=path)
    allowed = torch.from_numpy(array == 1)[None]
    return MaskPositions(("all",), "model", structured=False, diagonal=True, allowed=allowed)


def _read_archive(path: str | Path) -> MaskPositions:
    """Read a file written by `MaskPositions.write`."""
    with _name_errors(path), np.load(path, allow_pickle=False) as arrays:
        missing = [name for name in ("allowed", "about") if name not in arrays]
        if missing:
            names = ", ".join(arrays) or "nothing"
            raise HeadscopeError(
                f"a mask file must have the fields allowed and about (docs/explanation/learning.md), got {names}",
                where=path,
                fix="Save an n x n array of true and false as an .npy file instead",
            )
        allowed, about = arrays["allowed"], json.loads(str(arrays["about"]))
    _check_content(allowed, about, path)
    groups, structured = tuple(about["groups"]), allowed.ndim == 2
    positions = torch.from_numpy(allowed)
    return MaskPositions(groups, about["per"], structured, about["diagonal"], positions)


@contextmanager
def _name_errors(path: str | Path) -> Iterator[None]:
    """Turn errors of reading into one that names the file."""
    try:
        yield
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as cause:
        is_missing = isinstance(cause, FileNotFoundError)
        what = "not there" if is_missing else f"not a mask: {reason(cause)}"
        raise HeadscopeError(what, where=path, expected=MASK_FILE) from cause


def _check_content(allowed: NDArray[Any], about: Any, path: str | Path) -> None:
    """Raise an error if the arrays of an archive are not a mask."""
    fields = about if isinstance(about, dict) else {}
    groups, per, diagonal = (fields.get(name) for name in ("groups", "per", "diagonal"))
    has_names = isinstance(groups, list) and all(isinstance(name, str) for name in groups)
    values = f"{allowed.dtype} {list(allowed.shape)}"
    is_square = allowed.ndim != 3 or allowed.shape[1] == allowed.shape[2]
    checks = (
        (fields.get("schema") == 1, f"its schema must be 1, got {fields.get('schema')!r}"),
        (
            per in get_args(Per) and isinstance(diagonal, bool),
            f"per and diagonal must state the kind of mask, got {per!r} and {diagonal!r}",
        ),
        (has_names, f"groups must be names of layers or heads, got {groups!r}"),
        (
            allowed.dtype == bool and allowed.ndim in (2, 3) and 0 not in allowed.shape,
            f"values must be true or false by position, got {values}",
        ),
        (is_square, f"masks must be square, got {values}"),
        (
            has_names and allowed.shape[:1] == (len(groups or ()),),
            f"there must be a mask for each of the groups {groups}, got {values}",
        ),
    )
    for is_valid, what in checks:
        if not is_valid:
            raise HeadscopeError(what, where=path, expected=MASK_FILE)


def _check_rows(positions: MaskPositions, path: str | Path) -> None:
    """Raise an error if a position may attend to no key, since it is unclear what such a mask is meant to do."""
    allowed = positions.allowed.clone()
    if not positions.diagonal and positions.length > 1:
        allowed.diagonal(dim1=1, dim2=2).zero_()
    empty = (~allowed.any(dim=2)).nonzero()
    if len(empty):
        group, row = empty[0].tolist()
        name = positions.groups[group]
        what = f"every position must have a key, got none for position {row} of {name}"
        raise HeadscopeError(what, where=path)
