"""A plan: the heads to remove from one model, with a record of how they were chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from headscope.config.command_line import command_line
from headscope.errors import HeadscopeError, reason
from headscope.heads import HeadSet
from headscope.model.attention_model import AttentionModel
from headscope.model.manifest import checksum
from headscope.model.pruning_record import PruningRecord
from headscope.model.surgery import original_heads
from headscope.model.weights import weights_sha256

SCHEMA = 1


@dataclass(frozen=True)
class Plan:
    """The heads to remove from one model.

    model_sha256  digest of the model's weights
    chosen        record of how the heads were chosen; empty if they were named
    """

    heads: HeadSet
    model_name: str
    model_sha256: str
    chosen: PruningRecord = field(default_factory=PruningRecord)

    @staticmethod
    def of(model: AttentionModel, heads: HeadSet, chosen: PruningRecord | None = None) -> Plan:
        # Heads are written among the original ones, so that 4.* also means heads that were removed earlier.
        original = HeadSet(heads, among=original_heads(model))
        return Plan(original, model.name, weights_sha256(model), chosen or {})

    def write(self, path: Path) -> None:
        content = {
            "schema": SCHEMA,
            "heads": str(self.heads),
            "count": len(self.heads),
            "model": {"name": self.model_name, "sha256": self.model_sha256},
            "chosen": self.chosen,
        }
        content["sum"] = checksum(content)
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_plan(path: str | Path, model: AttentionModel) -> Plan:
    """Read a plan for this model; a plan for another model is refused."""
    expected = "a plan that headscope wrote"
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        heads, name, digest = content["heads"], content["model"]["name"], content["model"]["sha256"]
        chosen = cast("PruningRecord", dict(content.get("chosen", {})))
    except OSError as cause:
        what = f"cannot be read: {reason(cause)}"
        raise HeadscopeError(what, where=path, expected=expected) from cause
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        what = f"not a plan ({reason(cause)})"
        raise HeadscopeError(what, where=path, expected=expected) from cause
    if content.get("sum") != checksum(
        {key: value for key, value in content.items() if key != "sum"}
    ):
        raise HeadscopeError(
            "was edited: its checksum differs",
            where=path,
            expected=expected,
            fix=f'Name the heads: `heads="{heads}"`',
        )
    own_digest = weights_sha256(model)
    if digest != own_digest:
        raise HeadscopeError(
            f"made for another model (sha256 {str(digest)[:8]}… there, {own_digest[:8]}… here)",
            where=path,
            expected="a plan of the model it is carried out on",
            fix="Load that model, or search again: "
            + command_line("prune", "MODEL", task="NAME", data="PATH", keep_metric=0.99),
        )
    if not heads:
        raise HeadscopeError(f"it removes nothing: all {len(model.heads)} heads stay", where=path)
    return Plan(HeadSet(str(heads), among=original_heads(model)), str(name), str(digest), chosen)
