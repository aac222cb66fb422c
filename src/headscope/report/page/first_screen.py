"""The subtitle of the page and the links that it suggests next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headscope.config.command_line import command_line_of
from headscope.config.edit_record import EditRecord
from headscope.config.serve import ServeConfig
from headscope.model.zoo import MODELS
from headscope.report.study_access import entry_of, model_name, shape_of, stacks_of
from headscope.report.text import group_digits, is_number, plain
from headscope.study.lengths import mean_length

if TYPE_CHECKING:
    from headscope.study.study import Study

SEPARATOR = " · "
# Suggestions for the reader, in this order: (part of the page, words of the link)
LINKS = (
    ("relations", "Which heads follow syntactic relations"),
    ("coreference", "Which heads find antecedents"),
    ("significance", "Which heads matter for the task"),
    ("front", "What can be pruned"),
    ("roles", "Roles of all heads"),
)
# Short names of parts in the navigation
SHORT = {
    "roles": "Roles",
    "relations": "Relations",
    "coreference": "Coreference",
    "rare-words": "Rare words",
    "significance": "Importance",
    "agreement": "Scores against ablation",
    "front": "Pruning",
    "fixed": "Fixed patterns",
    "no-op": "No-op attention",
}


def short_heading(part: str, heading: str) -> str:
    """The name of a part of the page in the navigation: a short one if there is one, else its heading."""
    return SHORT.get(part, heading)


def full_name(study: Study) -> str:
    """For a model of the zoo the published name in its description; for other models the name in the run record."""
    name = entry_of(study.record, "model", "name")
    if isinstance(name, str) and name in MODELS:
        published, colon, _ = MODELS[name].description.partition(":")
        return published if colon and " " not in published else name
    return model_name(study)


def subtitle(study: Study) -> str:
    """`6 layers × 12 heads · 500 text pairs, mean 104 tokens · retrieval task, 64 examples`."""
    record = study.record
    return SEPARATOR.join(
        filter(
            None, (_size(study), _texts(record), _sentences(record), _task(record), *_edits(record))
        )
    )


def _size(study: Study) -> str:
    stacks = stacks_of(study)
    sizes = []
    for stack in stacks:
        layers, heads = shape_of(study, stack)
        name = f"{plain(stack, 20)} " if len(stacks) > 1 else ""
        layer, head = ("layer" if layers == 1 else "layers"), ("head" if heads == 1 else "heads")
        sizes.append(f"{name}{layers} {layer} × {heads} {head}")
    return ", ".join(sizes)


def _texts(record: Mapping[str, Any]) -> str:
    used = entry_of(record, "data", "used")
    is_treebank = entry_of(record, "data", "files") == entry_of(record, "treebank", "files")
    if not is_number(used) or (is_treebank and entry_of(record, "treebank") is not None):
        return ""
    kind = "text pair" if entry_of(record, "data", "pairs") else "text"
    length = mean_length(record)
    mean = f", mean {length:.0f} tokens" if length is not None else ""
    return f"{group_digits(used)} {kind}{'' if used == 1 else 's'}{mean}"


def _sentences(record: Mapping[str, Any]) -> str:
    used = entry_of(record, "treebank", "used")
    return f"{group_digits(used)} parsed sentences" if is_number(used) else ""


def _task(record: Mapping[str, Any]) -> str:
    task, examples = (entry_of(record, "importance", key) for key in ("task", "examples"))
    if task is None:
        return ""
    count = f", {group_digits(examples)} examples" if is_number(examples) else ""
    return f"{plain(task, 40)} task{count}"


def _edits(record: Mapping[str, Any]) -> list[str]:
    """Changes of attention that were active during the measurement."""
    edits = entry_of(record, "model", "edits")
    read = map(EditRecord.read, edits if isinstance(edits, list) else [])
    return [
        f"under the mask {plain(edit.mask, 60)}" if edit.mask is not None else plain(edit, 80)
        for edit in read
    ]


def next_links(part_names: list[str]) -> list[tuple[str, str]]:
    """(part, words) of the links to parts that the page has."""
    return [(part, words) for part, words in LINKS if part in part_names]


def explorer_command(study: Study, directories: list[str]) -> str:
    """The command that opens the model next to these studies; empty if the model is not known by a name."""
    name = entry_of(study.record, "model", "name")
    if not isinstance(name, str) or not len(study.heads):
        return ""
    config = ServeConfig(study=[plain(directory, 80) for directory in directories])
    return plain(command_line_of(config, arguments=(model_name(study),)), 300)
