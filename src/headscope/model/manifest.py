"""cut.json: what was pruned from a model, next to the weights that are left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.heads import Head, HeadSet, Site
from headscope.model.fixed_attention import FixedHeads
from headscope.model.pruning_record import PruningRecord
from headscope.model.zoo.wheels import sha256_of

NAME, WEIGHTS, SCHEMA = "cut.json", "model.safetensors", 1
_FIX = "Cut the model again, or get the whole directory: " + command_line(
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
    """What a pruned model has lost.

    kept    the numbers of the heads that each site has left
    silent  the names of the attention modules that have none
    history what was done to it before it was last saved, one sentence for each time
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
    chosen       how the heads were chosen, and what that did
    fixed        the attention modules with heads that follow fixed patterns
    left_out     files of the source directory that were not copied
    """

    model_class: str
    origin: Origin
    modules: dict[str, tuple[int, ...]]
    kept: dict[Site, tuple[int, ...]]
    chosen: PruningRecord = field(default_factory=PruningRecord)
    fixed: dict[str, FixedHeads] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def silent(self) -> tuple[str, ...]:
        return tuple(name for name, numbers in self.modules.items() if not numbers)

    @property
    def history(self) -> tuple[str, ...]:
        """What was done so far, this time included."""
        before = tuple(map(str, self.chosen.get("history", ())))
        steps = [f"Without {self.removed}."] if self.removed else []
        steps += [f"{self.count_fixed} heads with fixed patterns."] if self.fixed else []
        return (*before, f"{' '.join(steps)} {self.chosen.get('how', '')}".strip())

    @property
    def count_fixed(self) -> int:
        return sum(name is not None for fixed in self.fixed.values() for name in fixed.patterns)

    @property
    def removed(self) -> HeadSet:
        kept = {
            Head(site.stack, site.layer, number)
            for site, numbers in self.kept.items()
            for number in numbers
        }
        heads = self.origin.heads
        return HeadSet([head for head in heads if head not in kept], among=heads)


def write_manifest(manifest: Manifest, folder: Path, form: str) -> None:
    """Write cut.json. The weights must be there already: it contains their digests."""
    origin = manifest.origin
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "form": form,
        "class": manifest.model_class,
        "removed": str(manifest.removed),
        "parent": {
            "name": origin.name,
            "sha256": origin.sha256,
            "heads": {str(site): width for site, width in origin.widths.items()},
        },
        "kept": {str(site): list(numbers) for site, numbers in manifest.kept.items()},
        "modules": {name: list(numbers) for name, numbers in manifest.modules.items()},
    }
    if manifest.fixed:
        content["fixed"] = {name: asdict(fixed) for name, fixed in manifest.fixed.items()}
    content["chosen"] = manifest.chosen
    if manifest.left_out:
        content["left_out"] = list(manifest.left_out)
    weights = [p for p in sorted(folder.iterdir()) if p.suffix in (".safetensors", ".onnx")]
    content["weights"] = {path.name: sha256_of(path) for path in weights}
    content["sum"] = checksum(content)
    (folder / NAME).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a directory; None if there is none. An error if it is damaged, edited, or of other weights."""
    path = folder / NAME
    if not path.is_file():
        return None
    expected = "what headscope prune wrote"
    try:
        content = json.loads(path.read_text("utf-8"))
        manifest = _parse(content)
        weights, stated = dict(content["weights"]), content.pop("sum")
        form = content["form"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise HeadscopeError(
            f"not readable ({reason(cause)})", where=path, expected=expected, fix=_FIX
        ) from cause
    if stated != checksum(content):
        what = "was edited: its checksum differs"
        raise HeadscopeError(what, where=path, expected=expected, fix=_FIX)
    if form != "small":
        return None  # full shapes: any loader reads them
    for name, digest in weights.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != digest:
            raise HeadscopeError(
                f"{name} is not the file this was written for",
                where=path,
                expected=f"sha256 {str(digest)[:8]}…",
                fix=_FIX,
            )
    return manifest


def _parse(content: dict[str, Any]) -> Manifest:
    def numbers_by_name(section: str) -> dict[str, tuple[int, ...]]:
        return {str(name): tuple(map(int, numbers)) for name, numbers in content[section].items()}

    parent = content["parent"]
    widths = {_site(name): int(width) for name, width in parent["heads"].items()}
    return Manifest(
        model_class=str(content["class"]),
        origin=Origin(str(parent["name"]), str(parent["sha256"]), widths),
        modules=numbers_by_name("modules"),
        kept={_site(name): numbers for name, numbers in numbers_by_name("kept").items()},
        chosen=cast("PruningRecord", dict(content["chosen"])),
        fixed={
            str(name): FixedHeads(**{**fields, "patterns": tuple(fields["patterns"])})
            for name, fields in content.get("fixed", {}).items()
        },
    )


def _site(name: str) -> Site:
    stack, _, layer = name.rpartition(".")
    return Site(stack, int(layer))


def checksum(content: Mapping[str, object]) -> str:
    """Digest of JSON, whatever the order of its keys: a file that was edited by hand differs."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
