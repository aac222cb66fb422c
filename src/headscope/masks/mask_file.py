"""A mask in a file, as it is learned: which positions may attend to which, or which distances."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from headscope.config.masks import MASK_FILE
from headscope.errors import HeadscopeError, reason
from headscope.heads import Head, Site
from headscope.masks.patterns import Mask

Per = Literal["model", "layer", "head"]
PLAIN = ".npy"


def groups_of(heads: Iterable[Head], per: Per) -> tuple[str, ...]:
    """What has a mask of its own: `all`, layers as `encoder.0`, or heads as `encoder.0.0`; cross attention has none."""
    own = [head for head in heads if head.stack in ("encoder", "decoder")]
    names = ({"model": "all", "layer": str(head.site), "head": str(head)}[per] for head in own)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class MaskPositions:
    """What is allowed.

    groups      the names of what has a mask of its own, see `groups_of`
    structured  allowed is [group, distance], the first and last position being open; else [group, position, position]
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
                f"this mask is of {self.length} positions, and a text has {length}",
                where=name,
                fix=f"Cut texts with `max_length={self.length}`, or learn a `structured=True` mask, which has no end",
            )
        if not self.structured:
            found = rows[:, :length, :length].clone()
        else:
            place = torch.arange(length)
            distance = (place[:, None] - place).abs()
            found = rows[:, distance.clamp_max(self.length - 1)] & (distance < self.length)
            found[:, [0, -1]] = True
            found[:, :, [0, -1]] = True
        if not self.diagonal:
            found.diagonal(dim1=1, dim2=2).zero_()
        return found

    def _rows(self, site: Site | None) -> list[int]:
        """Whose masks these are: of the site, or of its heads; without a site the first."""
        if site is None or self.per == "model":
            return [0]
        if self.per == "layer":
            return [self.groups.index(str(site))]
        if site.numbers is None:
            owners = [name.rpartition(".")[0] for name in self.groups]
            return [i for i, owner in enumerate(owners) if owner == str(site)]
        return [self.groups.index(f"{site}.{number}") for number in site.numbers]

    def _check(self, heads: Iterable[Head], name: str) -> None:
        """Refuse a model with layers or heads that the mask does not have."""
        missing = [group for group in groups_of(heads, self.per) if group not in self.groups]
        if missing:
            raise HeadscopeError(
                f"this mask has no {missing[0]}, which the model has",
                where=name,
                expected=f"a model with {self.groups[0]} to {self.groups[-1]}",
            )

    def write(self, path: Path) -> None:
        about = {"schema": 1, "groups": self.groups, "per": self.per, "diagonal": self.diagonal}
        with path.open("wb") as file:  # a path would be given another ending
            np.savez_compressed(
                file, allowed=self.allowed.numpy(), about=np.array(json.dumps(about))
            )


def read_positions(path: str | Path) -> MaskPositions:
    """A mask file, or a refusal that says what is wrong with it."""
    positions = _read_plain(path) if str(path).endswith(PLAIN) else _read_learned(path)
    _check_rows(positions, path)
    return positions


def _read_plain(path: str | Path) -> MaskPositions:
    """One array [position, position], of a mask that was made elsewhere: for all heads."""
    with _reading(path):
        held = np.load(path, allow_pickle=False)
    if not isinstance(held, np.ndarray):
        raise HeadscopeError("not a mask: it is an archive", where=path, expected=MASK_FILE)
    if held.ndim != 2 or held.shape[0] != held.shape[1] or not held.size:
        shape = " x ".join(map(str, held.shape)) or "one number"
        expected = "n x n: rows attend, columns are seen"
        raise HeadscopeError(f"it is {shape}, not square", where=path, expected=expected)
    if held.dtype.kind not in "buif" or not np.isin(held, (0, 1)).all():
        what = f"its values are {held.dtype}, and not all 0 or 1"
        expected = "true or 1 where attention may go, else false or 0"
        raise HeadscopeError(what, where=path, expected=expected)
    allowed = torch.from_numpy(held == 1)[None]
    return MaskPositions(("all",), "model", structured=False, diagonal=True, allowed=allowed)


def _read_learned(path: str | Path) -> MaskPositions:
    """As `write` leaves it."""
    with _reading(path), np.load(path, allow_pickle=False) as held:
        missing = [name for name in ("allowed", "about") if name not in held]
        if missing:
            raise HeadscopeError(
                f'there is no field "{missing[0]}" in it, but {", ".join(held) or "nothing"}',
                where=path,
                expected="allowed, true or false by position, and about, as docs/learning.md has them",
                fix="One n x n array of true and false is taken from an .npy file as it is",
            )
        allowed, about = held["allowed"], json.loads(str(held["about"]))
    _check_content(allowed, about, path)
    found = torch.from_numpy(allowed)
    return MaskPositions(
        tuple(about["groups"]), about["per"], found.dim() == 2, about["diagonal"], found
    )


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    """Raise what goes wrong while the file is read as an error that names it."""
    try:
        yield
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as cause:
        is_missing = isinstance(cause, FileNotFoundError)
        what = "not there" if is_missing else f"not a mask: {reason(cause)}"
        raise HeadscopeError(what, where=path, expected=MASK_FILE) from cause


def _check_content(allowed: Any, about: Any, path: str | Path) -> None:
    def refuse(what: str) -> None:
        raise HeadscopeError(what, where=path, expected=MASK_FILE)

    schema = about.get("schema") if isinstance(about, dict) else None
    if schema != 1:
        refuse(f"a mask of schema {schema!r}, not 1")
    if about.get("per") not in get_args(Per) or not isinstance(about.get("diagonal"), bool):
        refuse("it does not say what it is a mask of")
    groups = about.get("groups")
    if not isinstance(groups, list) or not all(isinstance(name, str) for name in groups):
        refuse("it does not name its layers or heads")
    if allowed.dtype != bool or allowed.ndim not in (2, 3) or 0 in allowed.shape:
        values = f"{allowed.dtype} {list(allowed.shape)}"
        refuse(f"its values are {values}, not true or false by position")
    if allowed.ndim == 3 and allowed.shape[1] != allowed.shape[2]:
        refuse(f"it is {allowed.shape[1]} by {allowed.shape[2]} positions, not square")
    if len(allowed) != len(groups):
        refuse(f"{len(allowed)} masks for {len(groups)} names")


def _check_rows(positions: MaskPositions, path: str | Path) -> None:
    """A position that may attend to nothing: what was meant?"""
    if positions.structured:
        return  # the first and last position are open
    found = positions.allowed.clone()
    if not positions.diagonal and positions.length > 1:
        found.diagonal(dim1=1, dim2=2).zero_()
    empty = (~found.any(dim=2)).nonzero()
    if len(empty):
        group, row = empty[0].tolist()
        raise HeadscopeError(
            f"position {row} of {positions.groups[group]} may attend to nothing",
            where=path,
            expected="a key for every position",
        )
