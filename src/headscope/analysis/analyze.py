"""analyze, the verb: a pass of a model over each kind of data that is given, and a study of what its heads did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headscope.analysis.clusters import clusters_in
from headscope.analysis.examples import examples_of
from headscope.analysis.lens_examples import lens_examples
from headscope.analysis.lens_statistics import Looking, check_asked, lenses_asked
from headscope.analysis.roles import Thresholds, roles_of
from headscope.config.requirements import changed, check_effects
from headscope.data.batches import batches
from headscope.data.coreference import windows
from headscope.data.encode import Encoder, Long, check_long
from headscope.data.examples import Column, Example
from headscope.data.sentences import Sentence
from headscope.errors import HeadscopeError, check_whole, names_in
from headscope.model.attention_model import AttentionModel
from headscope.model.load import as_model
from headscope.model.random_control import random_twin
from headscope.model.word_attention import Pool, check_pool
from headscope.statistics import Statistic, chosen, stream
from headscope.statistics.coreference import Coreference
from headscope.statistics.head_distance import HeadDistance
from headscope.statistics.rare_words import RareWords
from headscope.statistics.relations import Relations
from headscope.study.inputs import Annotations, Corpus, Files, RelationOf, counted, read_annotations
from headscope.study.lens_agreement import furthest_apart
from headscope.study.run_record import build_record
from headscope.study.schema.record import RunRecord, Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import Row, TableRow, to_frame

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int], None]
CONTROL = "control"  # the name of the pass of the random twin


@dataclass
class Pass:
    """One run of the model over one kind of data, and the questions asked on the way."""

    name: str
    where: str  # the files, for messages
    examples: Iterable[Example]
    total: int
    statistics: list[Statistic]
    encoder: Encoder
    looking: Looking | None = None  # the other lenses that this pass is seen through

    def run(self, model: AttentionModel, batch_size: int, progress: Progress) -> None:
        done = 0
        read = batches(self.encoder, self.examples, batch_size=batch_size)
        through, losses = (
            (None, None) if self.looking is None else (self.looking.through, self.looking.losses)
        )
        for batch in stream(model, read, self.statistics, through=through, losses=losses):
            if self.name not in (
                "frequency",
                CONTROL,
            ):  # these read the texts of another pass again
                self.encoder.unknown.warn()
            done += len(batch)
            counts = (
                self.encoder.counts
            )  # a text cut into windows is several sequences, a skipped one none
            expected = round(self.total * counts.sequences / max(counts.read, 1))
            progress(done, max(expected, done))
        counts = self.encoder.counts
        if not counts.used:
            why = ", ".join(f"{count} {reason}" for reason, count in counts.skipped.items())
            raise HeadscopeError(
                f"none of the {counts.read} texts could be used ({why})",
                where=self.where,
                expected=f"texts of 1 to {self.encoder.max_length} tokens",
            )

    def describe(self) -> Section:
        counts = self.encoder.counts
        lengths = {"mean_length": round(counts.mean_length, 2)}
        return (
            asdict(counts)
            | lengths
            | {"max_length": self.encoder.max_length, "long": self.encoder.long}
        )


def analyze(
    model: AttentionModel | str | Path | Callable[[], AttentionModel],
    texts: Iterable[str | tuple[str, str]] = (),
    *,
    corpus: Files = (),
    pairs: bool = False,
    column: Column = None,
    treebank: Files = (),
    relations: Mapping[str, RelationOf] | None = None,
    sentences: Sequence[Sentence] = (),
    coreference: Files = (),
    frequency: str | Path | None = None,
    control: bool = False,
    lenient: bool = False,
    pool: Pool = "mean",
    all_rows: bool = False,
    lens: str | Iterable[str] = "raw",
    statistics: Iterable[str] | None = None,
    max_length: int | None = None,
    long: Long = "truncate",
    batch_size: int = 32,
    limit: int | None = None,
    seed: int = 0,
    thresholds: Thresholds | Mapping[str, float] | None = None,
    progress: Progress = lambda done, total: None,
) -> Study:
    """What every head does: every statistic whose data is given, with intervals.

    model       loaded; or what `load` takes, or a function that loads one: only done once the rest is seen to be right
    texts       a list of texts, or of pairs of texts
    corpus      files instead: text (one a line), tab-separated pairs, FASTA, or tables (csv, tsv, jsonl)
    pairs       the files hold pairs of texts; for an encoder-decoder, a source and its target
    column      column of csv, tsv or jsonl files that holds the texts, "smiles" say; two of them for pairs, "a,b" or
                ("a", "b"). By default text, or a and b
    treebank    CoNLL-U files: which head shows which relation. Without a corpus its sentences are the corpus too
    relations   more relations of the treebank, by name: a function from a parsed sentence to pairs of words
    sentences   words with their pairs, given directly (atoms, translations): see `Sentence`
    coreference CoNLL-2012 files: which head finds antecedents
    frequency   which head points at rare words: "english", a file, or "corpus" to count the texts themselves
    control     ask the relations of a twin with random weights as well
    lenient     leave malformed sentences and documents out, counted, instead of refusing the file
    pool        how the rows of a word's pieces become one: mean, first or max
    all_rows    distances between heads over all rows of attention instead of a few of each text: exact, and slow
    lens        what attention is seen through: raw, effective, effective-simplex, norm, gradient; several as a list
                or with commas between. Raw is always among them
    statistics  names from the glossary; all by default
    max_length  tokens a sequence may have; by default what the model can read, at most 512
    long        what to do with longer texts of the corpus: truncate, window, skip or error
    limit       only the first so many texts of the corpus; without a corpus, so many sentences and documents
    seed        of the halves to choose and to report on, the resampling and the twin
    thresholds  where each role begins: see `Thresholds`
    progress    told (examples done, examples in all) after every batch
    """
    started = time.perf_counter()
    for name, number in (("batch_size", batch_size), ("limit", limit), ("max_length", max_length)):
        check_whole(name, number)
    for name, number in (("`batch_size`", batch_size), ("`limit`", limit)):
        if number is not None and number < 1:
            raise HeadscopeError(f"{number} is too few", where=name, expected="1 or more")
    check_long(long)
    check_pool(pool)
    thresholds = (
        Thresholds(**thresholds) if isinstance(thresholds, Mapping) else thresholds or Thresholds()
    )
    if isinstance(texts, Iterable) and not isinstance(texts, str):
        texts = list(texts)  # a pandas column or an array has no truth value
    names = None if statistics is None else names_in(statistics, "statistics")
    asked = chosen(names)
    lenses = lenses_asked(lens)
    check_asked(lenses, names)
    given: dict[str, object] = {
        "corpus": corpus,
        "texts": texts,
        "pairs": pairs,
        "column": column,
        "long": long,
        "pool": pool,
    }
    given |= {
        "treebank": treebank,
        "sentences": sentences,
        "coreference": coreference,
        "frequency": frequency,
    }
    given |= {"control": control, "lenient": lenient, "all_rows": all_rows, "statistics": names}
    check_effects("analyze", given | {"threshold": tuple(changed(thresholds))})
    annotated = bool(treebank or sentences or coreference)
    plain = (
        Corpus(corpus, texts, pairs, column, limit) if corpus or texts or not annotated else None
    )
    notes = read_annotations(
        treebank=treebank,
        sentences=sentences,
        relations=relations,
        coreference=coreference,
        frequency=frequency,
        corpus=plain,
        lenient=lenient,
        limit=limit if plain is None else None,
    )
    model = as_model(model)
    model.canary()
    if notes.frequency == "corpus":
        notes.frequencies = counted(notes, plain, sources_only=model.is_encoder_decoder)
    if all_rows:
        asked = [
            HeadDistance(one.names, rows=None) if isinstance(one, HeadDistance) else one
            for one in asked
        ]
    passes = _passes(model, asked, plain, notes, max_length, long, seed, pool)
    looking = Looking(model, lenses, names, pairs=pairs, seed=seed)
    passes[0].looking = looking
    if control:
        passes.append(_relations(random_twin(model, seed), notes, max_length, seed, pool, CONTROL))
    durations = {"load": round(time.perf_counter() - started, 3)}
    for number, one in enumerate(passes):
        begun = time.perf_counter()
        one.run(one.encoder.model, batch_size, _placed(progress, passes, number))
        durations[one.name] = round(time.perf_counter() - begun, 3)
    study = _study(passes, looking)
    _name_sinks(study, model)
    if rows := furthest_apart(study):
        study.tables["lens_heads"] = TABLES["lens_heads"].frame(rows)
        read = (
            plain
            or [one.example() for one in notes.sentences]
            or [one.example for one in notes.windows]
        )
        apart = lens_examples(model, rows, read, losses=looking.losses, max_length=max_length)
        study.tables |= {"lens_examples": TABLES["lens_examples"].frame(apart)} if apart else {}
    clusters = clusters_in(study.heads, study.maps)
    if clusters:
        study.tables["clusters"] = TABLES["clusters"].frame(
            row for one in clusters.values() for row in one.rows()
        )
    sections: RunRecord = {
        **_described(passes, plain, notes),
        "relations": sorted(notes.own),
        "options": {
            "statistics": sorted(set(study.heads["statistic"])),
            "batch_size": batch_size,
            "pool": pool,
            "all_rows": all_rows,
            "thresholds": asdict(thresholds),
        },
        "lenses": looking.describe(),
        "durations": durations,
        "clusters": {stack: one.summary() for stack, one in clusters.items()},
    }
    study.record = build_record(model, sections, seed=seed, lens=",".join(lenses))
    study.tables["roles"] = roles_of(study, thresholds)
    shown = examples_of(
        model,
        study,
        sentences=notes.sentences,
        texts=plain or (),
        windows=notes.windows,
        frequencies=notes.frequencies,
        max_length=max_length,
    )
    if len(shown):
        study.tables["examples"] = shown
    return study


def _study(passes: list[Pass], looking: Looking) -> Study:
    """What the statistics of all passes say; the twin's go beside those of the model."""
    asked = [statistic for one in passes if one.name != CONTROL for statistic in one.statistics]
    tables = {
        name: _frame(name, rows) for one in asked for name, rows in one.tables().items() if rows
    }
    tables |= {name: _frame(name, rows) for name, rows in looking.tables().items()}
    twin = [statistic for one in passes if one.name == CONTROL for statistic in one.statistics]
    if twin and "relations" in tables:
        keys = ["relation", "direction", "stack"]
        found = (
            _frame("relations", twin[0].tables()["relations"]).set_index(keys)["accuracy"].to_dict()
        )
        relations = tables["relations"]
        relations["control"] = [
            found.get(row) for row in relations[keys].itertuples(index=False, name=None)
        ]
    heads = to_frame([*(row for one in asked for row in one.table()), *looking.rows()])
    return Study(
        heads, {name: array for one in asked for name, array in one.maps().items()}, {}, tables
    )


def _name_sinks(study: Study, model: AttentionModel) -> None:
    """Add the tokens' text and class to the table of sinks, whose statistic only knows their ids."""
    table = study.tables.get("sinks")
    if table is not None:
        classes = {"classification": model.marks.classification, "separator": model.marks.separator}
        table["token_class"] = [
            next((name for name, ids in classes.items() if token in ids), "other")
            for token in table["token_id"]
        ]
    if table is not None and model.tokenizer is not None:
        tokens = model.tokenizer.convert_ids_to_tokens([int(token) for token in table["token_id"]])
        table.insert(list(table.columns).index("token_id"), "token", tokens)


def _described(passes: list[Pass], plain: Corpus | None, notes: Annotations) -> RunRecord:
    """`data` is what the surface statistics were measured on; annotated data has keys of its own."""
    by_pass = {one.name: one.describe() for one in passes}
    described = {
        kind: of_files | by_pass.get(kind, {}) for kind, of_files in notes.describe().items()
    }
    asked = [
        row.count
        for one in passes
        for statistic in one.statistics
        for row in _antecedents(statistic)
    ]
    if (
        "coreference" in described
    ):  # the others lost their antecedent where a document was cut into windows
        described["coreference"]["mentions_asked"] = max(asked, default=0)
    data = plain.describe() | by_pass["corpus"] if plain is not None else described[passes[0].name]
    return cast("RunRecord", {"data": data, **described})


def _antecedents(statistic: Statistic) -> list[Row]:
    return statistic.table() if isinstance(statistic, Coreference) else []


def _frame(name: str, rows: list[TableRow]) -> pd.DataFrame:
    """A declared table, or one that a statistic of the user adds."""
    import pandas as pd

    return TABLES[name].frame(rows) if name in TABLES else pd.DataFrame(rows)


def _placed(progress: Progress, passes: list[Pass], number: int) -> Progress:
    """Progress of one pass as progress of all."""
    before, after = (
        sum(one.total for one in passes[:number]),
        sum(one.total for one in passes[number + 1 :]),
    )
    return lambda done, total: progress(before + done, before + total + after)


def _passes(
    model: AttentionModel,
    asked: list[Statistic],
    plain: Corpus | None,
    notes: Annotations,
    max_length: int | None,
    long: Long,
    seed: int,
    pool: Pool,
) -> list[Pass]:
    """The corpus, the treebank and the documents, each once. What needs no annotation rides along with the first."""
    passes = []
    rare = None
    if plain is not None:
        passes.append(
            Pass(
                "corpus",
                plain.name,
                plain,
                plain.total,
                asked,
                Encoder(model, max_length=max_length, long=long),
            )
        )
    if notes.sentences:
        one = _relations(model, notes, max_length, seed, pool, "treebank")
        if notes.frequencies is not None:
            rare = RareWords(
                [sentence.words for sentence in notes.sentences], notes.frequencies, pool=pool
            )
            one.statistics.append(rare)
        one.statistics += asked if plain is None else []
        passes.append(one)
    if notes.documents:
        encoder = Encoder(model, max_length=max_length, long="skip")
        notes.windows = list(windows(notes.documents, model, max_length=max_length))
        ask: list[Statistic] = [Coreference(dict(enumerate(notes.windows)), seed=seed, pool=pool)]
        ask += asked if not passes else []
        examples = [window.example for window in notes.windows]
        passes.append(
            Pass("coreference", _named(notes.coreference), examples, len(examples), ask, encoder)
        )
    if notes.frequencies is not None and rare is None and plain is not None:
        words = [text for text in plain.as_words(sources_only=model.is_encoder_decoder) if text]
        encoder = Encoder(model, max_length=max_length, long="skip")
        rare_words: list[Statistic] = [RareWords(words, notes.frequencies, pool=pool)]
        passes.append(
            Pass(
                "frequency",
                plain.name,
                [Example(text) for text in words],
                len(words),
                rare_words,
                encoder,
            )
        )
    return passes


def _relations(
    model: AttentionModel,
    notes: Annotations,
    max_length: int | None,
    seed: int,
    pool: Pool,
    name: str,
) -> Pass:
    """Sentences longer than the model reads are skipped and counted: a truncated tree is another tree."""
    encoder = Encoder(model, max_length=max_length, long="skip")
    asked = Relations(
        notes.sentences, seed=seed, pool=pool, whole=bool(notes.treebanks), own=notes.own
    )
    examples = [sentence.example() for sentence in notes.sentences]
    return Pass(name, _named(notes.treebanks), examples, len(examples), [asked], encoder)


def _named(files: list[str | Path]) -> str:
    return ", ".join(map(str, files)) or "sentences"
