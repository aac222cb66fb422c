"""cut.json: a file next to the weights of a pruned model that records what was removed."""

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
    """The unpruned model that a pruned model was made from, in one or several steps.

    widths  {site: number of heads}
    """

    name: str
    sha256: str
    widths: Mapping[Site, int]

    @property
    def heads(self) -> tuple[Head, ...]:
        return tuple(head for site, width in self.widths.items() for head in site.heads(width))


@dataclass(frozen=True)
class Cut:
    """What was pruned from a model.

    kept    {site: the numbers of the heads that are left}
    silent  the names of the attention modules without heads
    history one sentence per earlier pruning step, up to when the model was last saved
    """

    origin: Origin
    kept: Mapping[Site, tuple[int, ...]]
    silent: tuple[str, ...] = ()
    history: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The content of cut.json.

    model_class  the transformers class that was saved
    modules      {attention module that lost heads: the numbers of the heads that are left}
    kept         {site: the numbers of the heads that are left}, of all sites
    chosen       how the heads were chosen, and the effect of pruning them
    fixed        {attention module: its heads that follow fixed patterns}
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
        """The names of the attention modules without heads."""
        return tuple(name for name, numbers in self.modules.items() if not numbers)

    @property
    def history(self) -> tuple[str, ...]:
        """One sentence per pruning step, including the last."""
        before = tuple(map(str, self.chosen.get("history", ())))
        steps = [f"Without {self.removed}."] if self.removed else []
        steps += [f"{self.count_fixed} heads with fixed patterns."] if self.fixed else []
        return (*before, f"{' '.join(steps)} {self.chosen.get('how', '')}".strip())

    @property
    def count_fixed(self) -> int:
        """The number of heads that follow fixed patterns."""
        return sum(name is not None for fixed in self.fixed.values() for name in fixed.patterns)

    @property
    def removed(self) -> HeadSet:
        """The heads of the original model that were pruned."""
        kept = {
            Head(site.stack, site.layer, number)
            for site, numbers in self.kept.items()
            for number in numbers
        }
        heads = self.origin.heads
        return HeadSet([head for head in heads if head not in kept], among=heads)


def write_manifest(manifest: Manifest, folder: Path, form: str) -> None:
    """Write cut.json into a folder that already contains the weights, whose hashes it records."""
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
    """The manifest of a directory; None if there is none or if its weights have the original shapes.

    Raises if the file is damaged, was edited, or belongs to other weights.
    """
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
        return None  # weights in the original shapes are read like any others
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
    """The manifest from the content of cut.json."""

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
    """The site of a text such as `encoder.3`."""
    stack, _, layer = name.rpartition(".")
    return Site(stack, int(layer))


def checksum(content: Mapping[str, object]) -> str:
    """Hash of JSON content, independent of the order of keys. It shows whether a file was edited by hand."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
