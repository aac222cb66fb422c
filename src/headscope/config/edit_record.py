"""Edits of attention as data in run records: what kind of edit, and its fields."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.atomic_dir import read_record

TRAINING = "training.json"
MASK = "Masked"


@dataclass(frozen=True)
class EditRecord:
    """An edit as run.json holds it: `{"kind": "Masked", "mask": "star", "open_special": true}`.

    fields  JSON values: `heads` for most kinds, `mask` and `open_special` for a mask; `text` if it cannot be parsed
    """

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, recorded: object) -> EditRecord:
        """From run.json; version 0.1 stored the `repr` of the edit."""
        if not isinstance(recorded, Mapping):
            return _from_repr(str(recorded))
        fields = {str(name): value for name, value in recorded.items() if name != "kind"}
        return cls(str(recorded.get("kind", "")), fields)

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.fields}

    @property
    def mask(self) -> str | None:
        """The mask, if the edit is one."""
        return str(self.fields["mask"]) if self.kind == MASK and "mask" in self.fields else None

    @property
    def is_open_special(self) -> bool:
        """Whether special tokens are exempt from the mask."""
        return bool(self.fields.get("open_special"))

    def __str__(self) -> str:
        if "text" in self.fields:
            return str(self.fields["text"])
        if self.mask is not None:
            return f"{MASK}({self.mask!r}{', open_special=True' if self.is_open_special else ''})"
        return f"{self.kind}({', '.join(map(str, self.fields.get('heads', ())))})"


def _from_repr(text: str) -> EditRecord:
    """An edit from its `repr`: `Masked('star', open_special=True)`, `Ablate(encoder.3.2, encoder.4.0)`."""
    kind, _, inside = text.partition("(")
    if kind.isidentifier() and inside.endswith(")") and kind != MASK:
        heads = [head.strip() for head in inside[:-1].split(",") if head.strip()]
        if all(head.rpartition(".")[2].isdigit() for head in heads):
            return EditRecord(kind, {"heads": heads})
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return EditRecord(kind, {"text": text})
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == MASK:
        match call.args:
            case [ast.Constant(value=mask)]:
                is_open = any(option.arg == "open_special" for option in call.keywords)
                return EditRecord(MASK, {"mask": str(mask), "open_special": is_open})
    return EditRecord(kind, {"text": text})


def mask_of_training(trained: str | Path) -> EditRecord | None:
    """The mask that the model in this directory was trained under; None if there was none."""
    edits = read_record(Path(trained), TRAINING).get("model", {}).get("edits") or []
    records = [EditRecord.read(edit) for edit in edits]
    return next((record for record in records if record.mask is not None), None)
