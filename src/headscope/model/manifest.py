"""cut.json: what was cut from a model, beside the weights that are left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.heads import Head, HeadSet, Site
from headscope.model.fixed_attention import FixedHeads
from headscope.model.zoo.wheels import sha256_of

NAME, WEIGHTS, SCHEMA = "cut.json", "model.safetensors", 1
_MEND = "Cut the model again, or get the whole directory: " + command_line(
    "prune", "MODEL", heads="HEADS", out="DIR"
)


@dataclass(frozen=True)
class Origin:
    """The model that a cut one was cut from, however often, and how many heads each of its sites had."""

    name: str
    sha256: str
    widths: Mapping[Site, int]

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(head for site, width in self.widths.items() for head in site.heads(width))


@dataclass(frozen=True)
class Cut:
    """What a model has lost.

    kept    the numbers of the heads that each site has left
    silent  the names of the attention modules that have none
    history what was done to it before it was saved the last time, a sentence for each cut
    """

    origin: Origin
    kept: Mapping[Site, tuple[int, ...]]
    silent: tuple[str, ...] = ()
    history: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What a directory with a cut model says of it.

    model_class  the transformers class that was saved
    modules      the attention modules that lost heads, by name, and the numbers of those they kept
    kept         the same by site
    chosen       how the heads were chosen, and what that did: free in form
    fixed        the attention modules with heads that follow fixed patterns
    left_out     files of the source directory that were not copied
    """

    model_class: str
    origin: Origin
    modules: dict[str, tuple[int, ...]]
    kept: dict[Site, tuple[int, ...]]
    chosen: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, FixedHeads] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def silent(self) -> tuple[str, ...]:
        return tuple(name for name, numbers in self.modules.items() if not numbers)

    @property
    def history(self) -> tuple[str, ...]:
        """What was done up to here, this cut included."""
        before = tuple(map(str, self.chosen.get("history", ())))
        done = [f"Without {self.removed}."] if self.removed else []
        done += [f"{self.count_fixed} heads with fixed patterns."] if self.fixed else []
        return (*before, f"{' '.join(done)} {self.chosen.get('how', '')}".strip())

    @property
    def count_fixed(self) -> int:
        return sum(name is not None for fixed in self.fixed.values() for name in fixed.patterns)

    @property
    def removed(self) -> HeadSet:
        stay = {
            head
            for site, numbers in self.kept.items()
            for head in Site(site.stack, site.layer, numbers).heads(len(numbers))
        }
        return HeadSet(
            [head for head in self.origin.heads if head not in stay], among=self.origin.heads
        )


def write_manifest(manifest: Manifest, folder: Path, form: str) -> None:
    """Beside the weights, which must be there: their digest is part of it."""
    content = {
        "schema": SCHEMA,
        "form": form,
        "class": manifest.model_class,
        "removed": str(manifest.removed),
        "parent": {
            "name": manifest.origin.name,
            "sha256": manifest.origin.sha256,
            "heads": {str(site): width for site, width in manifest.origin.widths.items()},
        },
        "kept": {str(site): list(numbers) for site, numbers in manifest.kept.items()},
        "modules": {name: list(numbers) for name, numbers in manifest.modules.items()},
        **(
            {"fixed": {name: asdict(fixed) for name, fixed in manifest.fixed.items()}}
            if manifest.fixed
            else {}
        ),
        "chosen": manifest.chosen,
        **({"left_out": list(manifest.left_out)} if manifest.left_out else {}),
        "weights": {
            path.name: sha256_of(path)
            for path in sorted(folder.iterdir())
            if path.suffix in (".safetensors", ".onnx")
        },
    }
    content["sum"] = _sum(content)
    (folder / NAME).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """None where there is none; a refusal where it is torn, was edited, or is of other weights."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        found = Manifest(
            model_class=str(content["class"]),
            origin=Origin(
                str(content["parent"]["name"]),
                str(content["parent"]["sha256"]),
                {_site(name): int(width) for name, width in content["parent"]["heads"].items()},
            ),
            modules={
                str(name): tuple(map(int, numbers)) for name, numbers in content["modules"].items()
            },
            kept={
                _site(name): tuple(map(int, numbers)) for name, numbers in content["kept"].items()
            },
            chosen=dict(content["chosen"]),
            fixed={str(name): _fixed(told) for name, told in content.get("fixed", {}).items()},
        )
        weights, said = dict(content["weights"]), content["sum"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise HeadscopeError(
            f"not readable ({reason(cause)})",
            where=path,
            expected="what headscope prune wrote",
            fix=_MEND,
        ) from cause
    if said != _sum({name: value for name, value in content.items() if name != "sum"}):
        raise HeadscopeError(
            "was edited: its checksum differs",
            where=path,
            expected="what headscope prune wrote",
            fix=_MEND,
        )
    if content["form"] != "small":
        return None  # full shapes: any loader reads them
    for name, digest in weights.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != digest:
            raise HeadscopeError(
                f"{name} is not the file this was written for",
                where=path,
                expected=f"sha256 {digest[:8]}…",
                fix=_MEND,
            )
    return found


def _fixed(told: dict[str, Any]) -> FixedHeads:
    return FixedHeads(**{**told, "patterns": tuple(told["patterns"])})


def _site(name: str) -> Site:
    stack, _, layer = name.rpartition(".")
    return Site(stack, int(layer))


def _sum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
