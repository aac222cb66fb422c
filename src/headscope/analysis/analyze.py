"""Statistics of every head: runs the model once over each kind of data and collects the results in a study."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headscope.analysis.clusters import clusters_in
from headscope.analysis.examples import (
    MOST_TEXTS,
    Text,
    TokenRecorder,
    WordRecorder,
    examples_of,
    readable_sentences,
)
from headscope.analysis.lens_examples import lens_examples
from headscope.analysis.lens_statistics import LensStatistics, check_lenses
from headscope.analysis.roles import roles_of
from headscope.config.analyze import AnalyzeConfig
from headscope.config.option import record_options
from headscope.config.shared import Progress, Reading, Run
from headscope.config.texts import TextData
from headscope.config.thresholds import Thresholds, threshold_values
from headscope.data.batches import batches
from headscope.data.coreference import windows
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.errors import HeadscopeError
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.load import ModelSource
from headscope.model.new_model import random_control
from headscope.statistics import Statistic, select_statistics, stream
from headscope.statistics.coreference import Coreference
from headscope.statistics.head_distance import HeadDistance
from headscope.statistics.rare_words import RareWords
from headscope.statistics.relations import Relations
from headscope.study.inputs import Annotations, Corpus, count_word_frequencies, read_annotations
from headscope.study.lens_agreement import furthest_apart
from headscope.study.run_record import build_record
from headscope.study.schema.record import RunRecord, Section
from headscope.study.schema.tables import TABLES
from headscope.study.study import Study
from headscope.tables import TableRow, to_frame

if TYPE_CHECKING:
    import pandas as pd

CONTROL = "control"  # name of the pass of the random-weight control


@dataclass
class Pass:
    """One run of a model over one kind of data, and the statistics that are computed in it.

    where   names of the files, for messages
    total   number of examples
    lenses  statistics through lenses other than raw, if they are computed in this pass
    tokens  records the first texts, for examples of roles that are rules on tokens (previous token, sink …)
    words   records the first texts, for examples of roles that are rules on words (syntactic relations, rare words …)
    """

    name: str
    where: str
    examples: Iterable[Example]
    total: int
    statistics: list[Statistic]
    encoder: Encoder
    lenses: LensStatistics | None = None
    tokens: TokenRecorder | None = None
    words: WordRecorder | None = None

    @property
    def observers(self) -> list[Statistic]:
        """The statistics and the recorders of examples; all of them receive every attention map."""
        recorders = [recorder for recorder in (self.tokens, self.words) if recorder is not None]
        return [*self.statistics, *recorders]

    def run(self, batch_size: int, progress: Progress) -> None:
        """Run the model over the examples and update the observers."""
        done, counts = 0, self.encoder.counts
        # through: statistics by lens; losses: computes the losses for lenses that need gradients.
        through = None if self.lenses is None else self.lenses.through
        losses = None if self.lenses is None else self.lenses.losses
        for batch in stream(
            self.encoder.model,
            batches(self.encoder, self.examples, batch_size=batch_size),
            self.observers,
            through=through,
            losses=losses,
        ):
            # The excluded passes read the texts of an earlier pass again, and that pass has already warned.
            if self.name not in ("frequency", CONTROL):
                self.encoder.unknown.warn()
            done += len(batch)
            # The number of sequences is not known beforehand: a text that is split into windows has several, a skipped
            # one has none. Estimate it from the texts that were read so far.
            expected = round(self.total * counts.sequences / max(counts.read, 1))
            progress(done, max(expected, done))
        if not counts.used:
            why = ", ".join(f"{count} {reason}" for reason, count in counts.skipped.items())
            raise HeadscopeError(
                f"none of the {counts.read} texts could be used ({why})",
                where=self.where,
                expected=f"texts of 1 to {self.encoder.max_length} tokens",
            )

    def describe(self) -> Section:
        counts = self.encoder.counts
        limit = {"max_length": self.encoder.max_length, "long": self.encoder.long}
        return {**asdict(counts), "mean_length": round(counts.mean_length, 2), **limit}


def analyze(
    model: ModelSource, config: AnalyzeConfig, data: TextData, reading: Reading, run: Run
) -> Study:
    """Compute all statistics for which there is data, for every head, with intervals.

    Files are read and checked before the model is loaded.
    """
    started = time.perf_counter()
    names = None if config.statistics is None else list(config.statistics)
    statistics = select_statistics(names)
    check_lenses(config.lens, names)
    corpus = None  # stays None if there are only annotated data
    if data.corpus or data.texts or not data.is_annotated:
        corpus = Corpus(data.corpus, data.texts, data.pairs, data.column, data.limit)
    # If there is a corpus, `limit` applies to the corpus and not to the annotated data.
    annotations = read_annotations(data, limit=data.limit if corpus is None else None)
    model = open_model(model, reading, run)
    if model.is_encoder_decoder and not (corpus is not None and corpus.pairs):
        run.log("note: without `pairs=True` (source and target) only the encoder runs")
    model.self_check()
    plan = _Passes(model, config, data, corpus, annotations, run.seed)
    passes = plan.plan(statistics)
    tokens = plan.record_tokens(passes[0])
    lenses = LensStatistics(model, config.lens, names, pairs=data.pairs, seed=run.seed)
    passes[0].lenses = lenses
    durations = {"load": round(time.perf_counter() - started, 3)}
    for number, pass_ in enumerate(passes):
        pass_started = time.perf_counter()
        pass_.run(config.batch_size, _overall(run.progress, passes, number))
        durations[pass_.name] = round(time.perf_counter() - pass_started, 3)
    study = _study(passes, lenses)
    _name_sinks(study, model)
    _add_lens_tables(study, model, corpus or annotations.examples(), lenses, data.max_length)
    clusters = clusters_in(study.heads, study.maps)
    if rows := [row for of_stack in clusters.values() for row in of_stack.rows()]:
        study.tables["clusters"] = TABLES["clusters"].frame(rows)
    thresholds = Thresholds(**threshold_values(config.thresholds or {}))
    options = {
        "statistics": sorted(set(study.heads["statistic"])),
        "batch_size": config.batch_size,
        "pool": config.word_pooling,
        "all_rows": config.all_rows,
        "thresholds": asdict(thresholds),
    }
    sections: RunRecord = {
        "config": record_options(config, data, reading, run),
        **_describe_data(passes, corpus, annotations),
        "relations": sorted(annotations.user_relations),
        "options": options,
        "lenses": lenses.describe(),
        "durations": durations,
        "clusters": {stack: of_stack.summary() for stack, of_stack in clusters.items()},
    }
    lens = ",".join(config.lens)
    study.record = build_record(
        model, sections, command=run.typed or None, seed=run.seed, lens=lens
    )
    study.tables["roles"] = roles_of(study, thresholds)
    examples = examples_of(
        model, study, tokens, [pass_.words for pass_ in passes if pass_.words is not None]
    )
    if len(examples):
        study.tables["examples"] = examples
    return study


def _add_lens_tables(
    study: Study,
    model: AttentionModel,
    examples: Iterable[Example],
    lenses: LensStatistics,
    max_length: int | None,
) -> None:
    """Add the tables lens_heads (the heads that differ most between lenses) and lens_examples."""
    if rows := furthest_apart(study):
        study.tables["lens_heads"] = TABLES["lens_heads"].frame(rows)
        apart = lens_examples(model, rows, examples, losses=lenses.losses, max_length=max_length)
        study.tables |= {"lens_examples": TABLES["lens_examples"].frame(apart)} if apart else {}


def _study(passes: list[Pass], lenses: LensStatistics) -> Study:
    """A study with the tables of all passes. Accuracies of the random-weight control are a column of `relations`."""
    of_model = [pass_ for pass_ in passes if pass_.name != CONTROL]
    statistics = [statistic for pass_ in of_model for statistic in pass_.statistics]
    by_name = [item for statistic in statistics for item in statistic.tables().items()]
    tables = {name: _frame(name, rows) for name, rows in by_name if rows}
    tables |= {name: _frame(name, rows) for name, rows in lenses.tables().items()}
    control = [pass_.statistics[0] for pass_ in passes if pass_.name == CONTROL]
    if control and "relations" in tables:
        keys = ["relation", "direction", "stack"]
        of_control = _frame("relations", control[0].tables()["relations"]).set_index(keys)
        accuracies = of_control["accuracy"].to_dict()
        rows = tables["relations"][keys].itertuples(index=False, name=None)
        tables["relations"]["control"] = [accuracies.get(row) for row in rows]
    rows_of_heads = [row for statistic in statistics for row in statistic.table()]
    maps = {name: array for statistic in statistics for name, array in statistic.maps().items()}
    return Study(to_frame([*rows_of_heads, *lenses.rows()]), maps, {}, tables)


def _name_sinks(study: Study, model: AttentionModel) -> None:
    """Add the text and the class of each token to the table of sinks, which has only their ids."""
    table = study.tables.get("sinks")
    if table is None:
        return
    classes = {"classification": model.marks.classification, "separator": model.marks.separator}
    table["token_class"] = [
        next((name for name, ids in classes.items() if token in ids), "other")
        for token in table["token_id"]
    ]
    if model.tokenizer is not None:
        tokens = model.tokenizer.convert_ids_to_tokens([int(token) for token in table["token_id"]])
        table.insert(list(table.columns).index("token_id"), "token", tokens)


def _describe_data(
    passes: list[Pass], corpus: Corpus | None, annotations: Annotations
) -> RunRecord:
    """Sections of the run record: the data of each pass. `data` describes the data of the first one."""
    by_pass = {pass_.name: pass_.describe() for pass_ in passes}
    described = {
        kind: file_record | by_pass.get(kind, {})
        for kind, file_record in annotations.describe().items()
    }
    if "coreference" in described:
        # The mentions that were evaluated: those with an antecedent in the same window of the document.
        statistics = [statistic for pass_ in passes for statistic in pass_.statistics]
        rows = [row for s in statistics if isinstance(s, Coreference) for row in s.table()]
        described["coreference"]["mentions_asked"] = max((row.count for row in rows), default=0)
    data = described[passes[0].name] if corpus is None else corpus.describe() | by_pass["corpus"]
    return cast("RunRecord", {"data": data, **described})


def _frame(name: str, rows: list[TableRow]) -> pd.DataFrame:
    """A table that is declared in the schema, or a table of a user's own statistic."""
    import pandas as pd

    return TABLES[name].frame(rows) if name in TABLES else pd.DataFrame(rows)


def _overall(progress: Progress, passes: list[Pass], number: int) -> Progress:
    """Progress of one pass as progress of all passes."""
    before = sum(pass_.total for pass_ in passes[:number])
    after = sum(pass_.total for pass_ in passes[number + 1 :])

    def update(done: int, total: int, part: str = "") -> None:
        progress(before + done, before + total + after, part)

    return update


@dataclass
class _Passes:
    """The passes of one analysis: corpus, treebank, documents, word frequencies and random-weight control."""

    model: AttentionModel
    config: AnalyzeConfig
    data: TextData
    corpus: Corpus | None
    annotations: Annotations
    seed: int

    def plan(self, statistics: list[Statistic]) -> list[Pass]:
        """All passes in order. The given statistics, which need no annotations, are computed in the first pass."""
        model, pool = self.model, self.config.word_pooling
        corpus, annotations = self.corpus, self.annotations
        if annotations.frequency == "corpus":
            annotations.frequencies = count_word_frequencies(
                annotations, corpus, sources_only=model.is_encoder_decoder
            )
        for statistic in statistics:
            if isinstance(statistic, HeadDistance):
                statistic.seed = self.seed
                statistic.rows = None if self.config.all_rows else statistic.rows
        passes = []
        if corpus is not None:
            encoder = Encoder(model, max_length=self.data.max_length, long=self.data.long_texts)
            passes.append(Pass("corpus", corpus.name, corpus, corpus.total, statistics, encoder))
        if annotations.sentences:
            relations = self.relations(model, "treebank")
            if annotations.frequencies is not None:
                words = [sentence.words for sentence in annotations.sentences]
                relations.statistics.append(RareWords(words, annotations.frequencies, pool=pool))
            relations.statistics += [] if passes else statistics
            relations.words = self.record_words(self.sentences())
            passes.append(relations)
        if annotations.documents:
            parts = windows(annotations.documents, model, max_length=self.data.max_length)
            annotations.windows = list(parts)
            by_number = dict(enumerate(annotations.windows))
            antecedents: list[Statistic] = [Coreference(by_number, seed=self.seed, pool=pool)]
            antecedents += [] if passes else statistics
            examples = [window.example for window in annotations.windows]
            where = _join_names(annotations.coreference)
            of_documents = self._untruncated_pass(
                "coreference", where, examples, antecedents, model
            )
            first = annotations.windows[:MOST_TEXTS]
            texts = [Text(window.example, self.reader, window=window) for window in first]
            of_documents.words = self.record_words(dict(enumerate(texts)))
            passes.append(of_documents)
        if annotations.frequencies is not None and not annotations.sentences and corpus is not None:
            every = corpus.as_words(sources_only=model.is_encoder_decoder)
            words = [text for text in every if text]
            rare_words = RareWords(words, annotations.frequencies, pool=pool)
            examples = [Example(text) for text in words]
            of_words = self._untruncated_pass(
                "frequency", corpus.name, examples, [rare_words], model
            )
            texts = [
                Text(example, self.reader, frequencies=annotations.frequencies)
                for example in examples[:MOST_TEXTS]
            ]
            of_words.words = self.record_words(dict(enumerate(texts)))
            passes.append(of_words)
        if self.config.control:
            passes.append(self.relations(random_control(model, self.seed), CONTROL))
        return passes

    @property
    def reader(self) -> str:
        """The stack that reads a text."""
        has_encoder = any(site.stack == "encoder" for site in self.model.sites)
        return "encoder" if has_encoder else "decoder"

    def sentences(self) -> dict[int, Text]:
        """The sentences from which examples are taken, by their number."""
        sentences, frequencies = self.annotations.sentences, self.annotations.frequencies
        texts = {}
        for number in readable_sentences(sentences):
            sentence = sentences[number]
            of_words = frequencies if sentence.between == "words" else None
            texts[number] = Text(sentence.example(), self.reader, sentence, frequencies=of_words)
        return texts

    def record_words(self, texts: Mapping[int, Text]) -> WordRecorder:
        return WordRecorder(len(self.model.sites), texts, self.config.word_pooling)

    def record_tokens(self, first: Pass) -> TokenRecorder:
        """Keep examples of roles of tokens from the first texts of the first pass."""
        numbers = self.sentences() if first.name == "treebank" else range(MOST_TEXTS)
        first.tokens = TokenRecorder(len(self.model.sites), numbers)
        first.examples = first.tokens.remember(first.examples)
        return first.tokens

    def relations(self, model: AttentionModel, name: str) -> Pass:
        """The pass for relations between words, of the model or of its random-weight control."""
        annotations = self.annotations
        relations = Relations(
            annotations.sentences,
            seed=self.seed,
            pool=self.config.word_pooling,
            with_totals=bool(annotations.treebanks),
            own=annotations.user_relations,
        )
        examples = [sentence.example() for sentence in annotations.sentences]
        where = _join_names(annotations.treebanks)
        return self._untruncated_pass(name, where, examples, [relations], model)

    def _untruncated_pass(
        self,
        name: str,
        where: str,
        examples: list[Example],
        statistics: list[Statistic],
        model: AttentionModel,
    ) -> Pass:
        """A pass that skips texts that are too long for the model, because annotations do not fit truncated texts."""
        encoder = Encoder(model, max_length=self.data.max_length, long="skip")
        return Pass(name, where, examples, len(examples), statistics, encoder)


def _join_names(files: list[str | Path]) -> str:
    return ", ".join(map(str, files)) or "sentences"
