"""Facts about how a study was made: the model, the texts, the task, and what is needed to reproduce it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headscope.config.edit_record import EditRecord
from headscope.config.names import IMPORTANCES
from headscope.data.unknown import WARN_SHARE, describe_unknown
from headscope.report.shared_heads import HeadKey, count_heads, is_shared, keys_of
from headscope.report.study_access import entry_of, shape_of, stacks_of
from headscope.report.text import group_digits, is_number, plain, with_noun
from headscope.study.lengths import mean_length

if TYPE_CHECKING:
    from headscope.study.study import Study

ENOUGH_TEXTS = 30  # with fewer, mean ± 1.96 standard errors is too narrow
UNKNOWN_IN = {"data": "Corpus", "knock_out": "Corpus", "coreference": "Documents"}
UNKNOWN_IN |= dict.fromkeys(("treebank", "train", "test"), "Treebank")
ABLATIONS = {
    "mean": "the output of a head is replaced by its mean",
    "uniform": "a head attends to all tokens equally",
    "fixed": "a head follows the fixed pattern nearest to its attention",
}
Facts = list[tuple[str, str]]


def summary(study: Study) -> str:
    """The number of heads and the size of each stack: `72 heads: encoder 6 layers × 12 heads`."""
    sizes = []
    for stack in stacks_of(study):
        layers, heads = shape_of(study, stack)
        sizes.append(f"{plain(stack)} {with_noun(layers, 'layer')} × {with_noun(heads, 'head')}")
    if not sizes:
        return "no measurements of single heads"
    sites = heads_of(study)
    many = with_noun(len(sites), "head")
    if is_shared(study):
        shared = with_noun(count_heads(study, sites), "shared head")
        many = f"{shared} at {with_noun(len(sites), 'site')}"
    return f"{many}: {', '.join(sizes)}"


def model_facts(study: Study) -> Facts:
    """Facts about the model: its size, class, revision, notes and edits of attention."""
    record = study.record
    facts: Facts = [("model", summary(study))] if len(study.heads) else []
    for key in ("class", "revision"):
        if value := entry_of(record, "model", key):
            facts.append((key, plain(value)))
    for kind in ("model", "gates", "learned_masks"):
        facts += [("note", plain(note, 300)) for note in _list(entry_of(record, kind, "notes"))]
    for edit in map(EditRecord.read, _list(entry_of(record, "model", "edits"))):
        if edit.mask is None:
            facts.append(("edit", plain(edit, 120)))
        else:
            special = ", special tokens open" if edit.is_open_special else ""
            facts.append(("mask", plain(edit.mask, 120) + special))
    return facts


def corpus_facts(study: Study) -> Facts:
    """Files and counts of texts: read, used, truncated, skipped and why. Facts that were not recorded are left out."""
    record = study.record
    data = dict(_items(entry_of(record, "data")))
    facts: Facts = []
    files = [plain(path, 120) for file in _files(record) if (path := entry_of(file, "path"))]
    if files:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        facts.append(("files" if len(files) > 1 else "file", ", ".join(files[:5]) + more))
    facts += [
        (f"texts {key}", group_digits(data[key]))
        for key in ("read", "used", "truncated")
        if data.get(key) is not None
    ]
    if (length := mean_length(record)) is not None:
        ends = [data.get(end) for end in ("shortest", "longest")]
        extent = (
            f", {group_digits(ends[0])} to {group_digits(ends[1])}"
            if all(map(is_number, ends))
            else ""
        )
        facts.append(("length of texts", f"{length:.0f} tokens on average{extent}"))
    for kind, key, noun in (
        ("treebank", "used", "sentences"),
        ("coreference", "documents", "documents"),
    ):
        if (count := entry_of(record, kind, key)) is not None:
            facts.append((f"{kind} {noun}", group_digits(count)))
    facts += _task_facts(record)
    if (words := entry_of(record, "frequency", "list")) is not None:
        facts.append(("word frequencies", plain(words, 60)))
    if isinstance(skipped := data.get("skipped"), Mapping):
        reasons = [
            f"{group_digits(count)} {plain(why, 60)}" for why, count in skipped.items() if count
        ]
        facts.append(("texts skipped", ", ".join(reasons) or "0"))
    if data.get("tokens") is not None:
        facts.append(("total tokens", group_digits(data["tokens"])))
    if data.get("max_length") is not None:
        facts.append(("maximum length", f"{group_digits(data['max_length'])} tokens"))
    if data.get("pairs") is not None:
        facts.append(("input", "pairs of texts" if data["pairs"] else "single texts"))
    return facts


def _task_facts(record: Mapping[str, Any]) -> Facts:
    """The task that heads were ablated on: its examples, the metric of the unpruned model, the ablation mode."""
    importance = dict(_items(entry_of(record, "importance")))
    if importance.get("task") is None:
        return []
    facts = [("task", plain(importance["task"], 40))]
    facts.append(("task examples", group_digits(importance.get("examples"))))
    metric = plain(importance.get("metric"), 40)
    intact = entry_of(importance, "intact", metric) or {}
    ends = [intact.get(name) for name in ("value", "low", "high")]
    if all(isinstance(end, int | float) for end in ends):
        value, low, high = (f"{end:.4f}" for end in ends)
        facts.append((f"{metric}, unpruned", f"{value} [{low}, {high}]"))
    if (mode := importance.get("mode")) in ABLATIONS:
        facts.append(("ablation", ABLATIONS[mode]))
    return facts


def few_texts(study: Study) -> int | None:
    """The number of texts, if there are too few for reliable intervals; else None."""
    most = int(study.heads["count"].max()) if len(study.heads) else 0
    return most if 0 < most < ENOUGH_TEXTS else None


def unknown_tokens(study: Study) -> list[str]:
    """A sentence for each input with a larger share of unknown tokens than is acceptable."""
    sentences = []
    for kind in study.record:
        content, tokens, pieces = (
            entry_of(study.record, kind, "unknown", key) for key in ("content", "tokens", "pieces")
        )
        if is_number(content) and is_number(tokens) and tokens > WARN_SHARE * content:
            names = [plain(piece, 30) for piece in pieces] if isinstance(pieces, Mapping) else []
            source = UNKNOWN_IN.get(kind, "Task")
            sentences.append(f"{source}: {describe_unknown(content, tokens, names)}.")
    return list(dict.fromkeys(sentences))


def run_facts(study: Study) -> Facts:
    """Everything about a run: model, data, counts, and what is needed to reproduce the numbers."""
    return [*model_facts(study), *corpus_facts(study), *reproduction(study)]


def reproduction(study: Study) -> Facts:
    """Everything that is needed to reproduce the numbers."""
    record = study.record
    options, durations = record.get("options"), _items(record.get("durations"))
    facts: Facts = (
        [("command", plain(record.get("command"), 2000))] if record.get("command") else []
    )
    facts += [(f"{name} version", plain(text)) for name, text in _items(record.get("versions"))]
    for key in ("path", "revision", "sha256"):
        if value := entry_of(record, "model", key):
            facts.append((f"model {key}", plain(value)))
    for file in _files(record):
        if checksum := entry_of(file, "sha256"):
            name = plain(entry_of(file, "path") or "data", 120)
            facts.append((f"{name} sha256", plain(checksum)))
    if record.get("seed") is not None:
        facts.append(("seed", plain(record["seed"])))
    if options:
        text = json.dumps(options, default=str, ensure_ascii=False)
        facts.append(("options", plain(text, 2000)))
    if spent := _time_spent({name: time for name, time in durations if is_number(time)}):
        facts.append(("time spent", ", ".join(spent)))
    if record.get("schema") is not None:
        facts.append(("version of the study format", plain(record["schema"])))
    return facts


def _time_spent(durations: Mapping[str, float]) -> list[str]:
    """The duration of each step. Those of single importance scores are part of the duration of `importance`."""
    texts = {name: f"{name.replace('_', ' ')} {time:.1f} s" for name, time in durations.items()}
    if "all" in durations:
        scores = [texts.pop(name) for name in (*IMPORTANCES, "sequential_test") if name in texts]
        included = f" (of which {', '.join(scores)})" if scores else ""
        texts["all"] = f"importance {durations['all']:.1f} s{included}"
    return list(texts.values())


def heads_of(study: Study) -> set[HeadKey]:
    """All heads that have rows."""
    return set(keys_of(study.heads))


def _files(record: Mapping[str, Any]) -> list[Any]:
    """The files that were read: texts, treebanks, documents, the list of words, the data of a task."""
    kinds = ("data", "treebank", "coreference")
    files = [file for kind in kinds for file in _list(entry_of(record, kind, "files"))]
    if entry_of(record, "frequency", "path"):
        files.append(record["frequency"])
    files += _list(entry_of(record, "importance", "data"))
    return list({json.dumps(file, sort_keys=True, default=str): file for file in files}.values())


def _list(value: object) -> list[Any]:
    """The entry of a run record if it is a list; else nothing."""
    return value if isinstance(value, list) else []


def _items(value: object) -> list[tuple[str, Any]]:
    """Names and values of an entry of a run record if it is a mapping; else nothing."""
    items = value.items() if isinstance(value, Mapping) else ()
    return [(plain(key, 60), item) for key, item in items]
