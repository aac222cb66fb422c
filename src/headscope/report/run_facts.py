"""What made a study, in facts a reader asks for: the model, the texts, the task, and how to get it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headscope.config.edit_record import EditRecord
from headscope.data.unknown import WARN_SHARE, describe_unknown
from headscope.report.shared_heads import HeadKey, count_heads, is_shared
from headscope.report.study_access import entry_of, shape_of, stacks_of
from headscope.report.text import group_digits, is_number, plain, with_noun
from headscope.study.lengths import mean_length

if TYPE_CHECKING:
    from headscope.study.study import Study

ENOUGH_TEXTS = 30  # below, mean ± 1.96 standard errors is too narrow
UNKNOWN_IN = {"data": "Corpus", "knock_out": "Corpus", "coreference": "Documents"}
UNKNOWN_IN |= dict.fromkeys(("treebank", "train", "test"), "Treebank")
Facts = list[tuple[str, str]]


def summary(study: Study) -> str:
    """`72 heads: encoder 6 layers x 12 heads`."""
    sizes = []
    for stack in stacks_of(study):
        layers, heads = shape_of(study, stack)
        sizes.append(f"{plain(stack)} {with_noun(layers, 'layer')} × {with_noun(heads, 'head')}")
    if not sizes:
        return "no single heads"
    many = with_noun(len(heads_of(study)), "head")
    if is_shared(study):
        shared = with_noun(count_heads(study, heads_of(study)), "shared head")
        many = f"{shared} at {with_noun(len(heads_of(study)), 'site')}"
    return f"{many}: {', '.join(sizes)}"


def model_facts(study: Study) -> Facts:
    """What is known of the model, in the order a reader asks."""
    record = study.record
    facts = [
        (key, plain(entry_of(record, "model", key)))
        for key in ("class", "revision")
        if entry_of(record, "model", key)
    ]
    for kind in ("model", "gates", "learned_masks"):
        notes = entry_of(record, kind, "notes")
        facts += [("note", plain(note, 300)) for note in (notes if isinstance(notes, list) else [])]
    return [*([("model", summary(study))] if len(study.heads) else []), *facts, *_edits(record)]


def _edits(record: Mapping[str, Any]) -> Facts:
    """The edits that were active: a mask by its name, any other as it is printed."""
    edits = entry_of(record, "model", "edits")
    records = [EditRecord.read(edit) for edit in (edits if isinstance(edits, list) else [])]
    return [
        ("edit", plain(edit, 120))
        if edit.mask is None
        else (
            "mask",
            plain(edit.mask, 120) + (", special tokens open" if edit.is_open_special else ""),
        )
        for edit in records
    ]


def corpus_facts(study: Study) -> Facts:
    """Files and counts: read, used, truncated, skipped and why. What was not recorded is not mentioned."""
    record = study.record
    facts: Facts = []
    files = [
        plain(entry_of(file, "path"), 120) for file in _files(record) if entry_of(file, "path")
    ]
    if files:
        facts.append(
            (
                "files" if len(files) > 1 else "file",
                ", ".join(files[:5]) + _and_more(len(files) - 5),
            )
        )
    for key in ("read", "used", "truncated"):
        if entry_of(record, "data", key) is not None:
            facts.append((f"texts {key}", group_digits(entry_of(record, "data", key))))
    if (length := mean_length(record)) is not None:
        ends = [entry_of(record, "data", end) for end in ("shortest", "longest")]
        extent = (
            f" ({group_digits(ends[0])} to {group_digits(ends[1])})"
            if all(is_number(end) for end in ends)
            else ""
        )
        facts.append(("mean length", f"{length:.0f} tokens{extent}"))
    for kind, what in (("treebank", "sentences"), ("coreference", "documents")):
        known = entry_of(record, kind, "documents" if kind == "coreference" else "used")
        if known is not None:
            facts.append((f"{kind} {what}", group_digits(known)))
    facts += _task_facts(record)
    if entry_of(record, "frequency", "list") is not None:
        facts.append(("word frequencies", plain(entry_of(record, "frequency", "list"), 60)))
    skipped = entry_of(record, "data", "skipped")
    if isinstance(skipped, Mapping):
        reasons = [
            f"{group_digits(count)} {plain(reason, 60)}"
            for reason, count in skipped.items()
            if count
        ]
        facts.append(("texts skipped", ", ".join(reasons) or "0"))
    if entry_of(record, "data", "tokens") is not None:
        facts.append(("tokens", group_digits(entry_of(record, "data", "tokens"))))
    if entry_of(record, "data", "max_length") is not None:
        facts.append(
            ("texts cut at", f"{group_digits(entry_of(record, 'data', 'max_length'))} tokens")
        )
    if entry_of(record, "data", "pairs") is not None:
        facts.append(
            ("input", "pairs of texts" if entry_of(record, "data", "pairs") else "single texts")
        )
    return facts


def _task_facts(record: Mapping[str, Any]) -> Facts:
    """The task that heads were removed from: its examples, how good the intact model is, what was done to heads."""
    if entry_of(record, "importance", "task") is None:
        return []
    facts = [("task", plain(entry_of(record, "importance", "task"), 40))]
    facts.append(("examples", group_digits(entry_of(record, "importance", "examples"))))
    metric = plain(entry_of(record, "importance", "metric"), 40)
    known = entry_of(record, "importance", "intact", metric) or {}
    if all(isinstance(known.get(name), int | float) for name in ("value", "low", "high")):
        facts.append(
            (f"{metric} intact", f"{known['value']:.4f} [{known['low']:.4f}, {known['high']:.4f}]")
        )
    modes = {
        "mean": "its mean result in the place of a head's",
        "uniform": "a head attends to all tokens alike",
    }
    modes["fixed"] = "a head attends by the fixed pattern it is nearest to"
    if entry_of(record, "importance", "mode") in modes:
        facts.append(("ablation", modes[entry_of(record, "importance", "mode")]))
    return facts


def few_texts(study: Study) -> int | None:
    """How many texts there are, where these are too few for intervals from their spread."""
    most = int(study.heads["count"].max()) if len(study.heads) else 0
    return most if 0 < most < ENOUGH_TEXTS else None


def unknown_tokens(study: Study) -> list[str]:
    """A sentence for each input with more unknown tokens than a tokenizer should meet."""
    found = []
    for kind in study.record:
        content, tokens, pieces = (
            entry_of(study.record, kind, "unknown", key) for key in ("content", "tokens", "pieces")
        )
        if is_number(content) and is_number(tokens) and tokens > WARN_SHARE * content:
            listed = [plain(piece, 30) for piece in pieces] if isinstance(pieces, Mapping) else []
            found.append(
                f"{UNKNOWN_IN.get(kind, 'Task')}: {describe_unknown(content, tokens, listed)}."
            )
    return list(dict.fromkeys(found))


def reproduction(study: Study) -> Facts:
    """What one needs to get the same numbers again."""
    record = study.record
    facts: Facts = []
    if record.get("command"):
        facts.append(("command", plain(record["command"], 2000)))
    for name, version in _items(record.get("versions")):
        facts.append((f"{name} version", plain(version)))
    for label, key in (
        ("model path", "path"),
        ("model revision", "revision"),
        ("model sha256", "sha256"),
    ):
        if entry_of(record, "model", key):
            facts.append((label, plain(entry_of(record, "model", key))))
    for file in _files(record):
        if entry_of(file, "sha256"):
            facts.append(
                (
                    f"{plain(entry_of(file, 'path') or 'data', 120)} sha256",
                    plain(entry_of(file, "sha256")),
                )
            )
    if record.get("seed") is not None:
        facts.append(("seed", plain(record["seed"])))
    if record.get("options"):
        facts.append(
            ("options", plain(json.dumps(record["options"], default=str, ensure_ascii=False), 2000))
        )
    spent = [
        f"{name} {seconds:.1f} s"
        for name, seconds in _items(record.get("durations"))
        if is_number(seconds)
    ]
    if spent:
        facts.append(("time spent", ", ".join(spent)))
    if record.get("schema") is not None:
        facts.append(("study schema", plain(record["schema"])))
    return facts


def heads_of(study: Study) -> set[HeadKey]:
    return set(study.heads[["stack", "layer", "head"]].itertuples(index=False, name=None))


def _files(record: Mapping[str, Any]) -> list[Any]:
    """The files that were read: texts, treebanks, documents, the list of words, the data of a task."""
    kinds = [entry_of(record, kind, "files") for kind in ("data", "treebank", "coreference")]
    found = [file for files in kinds if isinstance(files, list) for file in files]
    if entry_of(record, "frequency", "path"):
        found.append(record["frequency"])
    of_task = entry_of(record, "importance", "data")
    found += of_task if isinstance(of_task, list) else []
    return list({json.dumps(file, sort_keys=True, default=str): file for file in found}.values())


def _items(value: object) -> list[tuple[str, Any]]:
    return (
        [(plain(key, 60), item) for key, item in value.items()]
        if isinstance(value, Mapping)
        else []
    )


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
