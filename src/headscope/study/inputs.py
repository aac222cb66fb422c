"""Inputs of a study: texts, trees, coreference, word frequencies; all read and checked before a model is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from headscope.config.parsing import file_list
from headscope.config.texts import TextData
from headscope.data.coreference import Document, Window, read_coreference
from headscope.data.encode import Counts
from headscope.data.examples import Column, Example, columns_of, examples_of, read_examples
from headscope.data.frequency import Frequencies, count_frequencies, read_frequencies, words_in
from headscope.data.sentences import Sentence
from headscope.data.text_lines import can_be_read_again
from headscope.data.treebank import ROOT, ParsedSentence, read_treebank
from headscope.errors import HeadscopeError
from headscope.study.run_record import describe_files
from headscope.study.schema.record import Section

Files = str | Path | Iterable[str | Path]
RelationOf = Callable[[ParsedSentence], Iterable[tuple[int, int]]]


MOST_KEPT = 16_000_000  # characters of texts that are kept in memory


class Corpus:
    """Texts from files or from memory. They are read when it is made, to count and check them.

    Files of less than MOST_KEPT characters are then kept in memory, and larger ones are read again when needed.
    """

    def __init__(
        self,
        corpus: Files,
        texts: Iterable[str | tuple[str, str]],
        pairs: bool,
        column: Column,
        limit: int | None,
    ) -> None:
        self.files, self.column = list(file_list(corpus)), columns_of(column)
        self.pairs, self.limit = pairs, limit
        examples = examples_of(texts)
        self.name = ", ".join(map(str, self.files)) or "corpus"
        if self.files and examples:
            raise HeadscopeError("give files or texts, not both", where="corpus, texts")
        self._examples: list[Example] | None = None  # None: in files, read as often as needed
        if not self.files:
            self._examples = examples[:limit]
            self.pairs = any(example.second is not None for example in examples)
            if pairs and examples and not self.pairs:
                expected = "pairs: (first, second), as pairs=True says"
                raise HeadscopeError("single texts", where="texts", expected=expected)
        self.total = self._count()
        if not self.total and self.files:
            expected = "lines that are not blank and not comments (# …)"
            raise HeadscopeError("no text in it", where=self.name, expected=expected)
        if not self.total:
            expected = "a corpus (wikipedia-pairs is bundled, with pairs), texts, a treebank or coreference"
            raise HeadscopeError("no text was given", where=self.name, expected=expected)

    def __iter__(self) -> Iterator[Example]:
        if self._examples is not None:
            return iter(self._examples)
        return islice(read_examples(self.files, pairs=self.pairs, column=self.column), self.limit)

    def _count(self) -> int:
        """The number of texts; keeps them if there are few, or if their files cannot be read again."""
        if self._examples is not None:
            return len(self._examples)
        must_keep = not all(can_be_read_again(file) for file in self.files)
        total, characters, kept = 0, 0, list[Example]()
        for example in self:
            total += 1
            characters += len(str(example.first)) + len(str(example.second or ""))
            if must_keep or characters < MOST_KEPT:
                kept.append(example)
        self._examples = kept if len(kept) == total else None
        return total

    def describe(self) -> Section:
        return {
            "files": describe_files(self.files),
            "pairs": self.pairs,
            "column": self.column,
            "limit": self.limit,
        }

    def as_words(self, *, sources_only: bool = False) -> Iterator[tuple[str, ...]]:
        """The words of each text. sources_only: without the second text of a pair."""
        for example in self:
            for text in (example.first, None if sources_only else example.second):
                if isinstance(text, str):
                    yield words_in(text)


@dataclass
class Annotations:
    """Sentences with related words, documents with mentions, and word frequencies."""

    sentences: list[Sentence] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)  # of the documents, once the model is known
    frequencies: Frequencies | None = None
    frequency: str = ""  # source of the frequencies
    user_relations: frozenset[str] = frozenset()  # names of the relations that the user defined
    treebanks: list[str | Path] = field(default_factory=list)
    coreference: list[str | Path] = field(default_factory=list)
    malformed: dict[str, int] = field(default_factory=dict)
    documents_read: Counts = field(default_factory=Counts)

    def examples(self) -> list[Example]:
        """The sentences, or the documents if there are none, as texts."""
        sentences = [sentence.example() for sentence in self.sentences]
        return sentences or [window.example for window in self.windows]

    def describe(self) -> Section:
        """Sections of the run record: files, and what was left out of them."""
        sections: Section = {}
        if self.frequency in ("corpus", "english"):
            sections["frequency"] = {"list": self.frequency}
        elif self.frequency:
            sections["frequency"] = describe_files([self.frequency])[0]
        if self.sentences:
            files = describe_files(self.treebanks)
            sections["treebank"] = {"files": files, "malformed": dict(self.malformed)}
        if self.documents:
            sections["coreference"] = {
                "files": describe_files(self.coreference),
                "documents": len(self.documents),
                "mentions": sum(map(_with_antecedent, self.documents)),
                "malformed": dict(self.documents_read.skipped),
            }
        return sections


def read_annotations(data: TextData, *, limit: int | None = None) -> Annotations:
    """Sentences, documents and word frequencies of a study. limit: of sentences, and of documents.

    The frequencies of a corpus are counted later, since the model decides which of its texts are read.
    """
    relations = data.relations or {}
    if relations and not data.treebank:
        raise HeadscopeError(
            "relations are found in parsed sentences", where="relations", fix="Give a treebank too"
        )
    annotations = Annotations(treebanks=list(data.treebank), coreference=list(data.coreference))
    annotations.frequency = "" if data.frequency is None else str(data.frequency)
    of_sentences = (sentence.pairs for sentence in data.sentences)
    annotations.user_relations = frozenset(relations).union(*of_sentences)
    lenient = data.lenient
    trees = read_treebank(annotations.treebanks, lenient=lenient, counts=annotations.malformed)
    parsed = [sentence_of(tree, relations) for tree in islice(trees, limit)]
    annotations.sentences = [*data.sentences, *parsed]
    _check_pairs(annotations, relations)
    counts = annotations.documents_read
    documents = read_coreference(annotations.coreference, lenient=lenient, counts=counts)
    annotations.documents = list(islice(documents, limit))
    _check_mentions(annotations)
    if data.frequency not in (None, "corpus"):
        annotations.frequencies = read_frequencies(data.frequency)
    return annotations


def count_word_frequencies(
    annotations: Annotations, corpus: Corpus | None, *, sources_only: bool
) -> Frequencies:
    """Word frequencies in the texts of the study itself."""
    if corpus is not None:
        texts: Iterable[tuple[str, ...]] = corpus.as_words(sources_only=sources_only)
    else:
        texts = (sentence.words for sentence in annotations.sentences)
    return count_frequencies(word for words in texts for word in words)


def _check_pairs(annotations: Annotations, relations: Mapping[str, RelationOf]) -> None:
    """Raise an error if there are no related words, instead of leaving a table out."""
    sentences = annotations.sentences
    if sentences and not any(any(sentence.pairs.values()) for sentence in sentences):
        raise HeadscopeError(
            f"none of {len(sentences)} sentences has two related words",
            where=", ".join(map(str, annotations.treebanks)) or "sentences",
            expected="a relation between two words somewhere",
        )
    for name in relations:
        if not any(sentence.pairs.get(name) for sentence in sentences):
            what = f'the relation "{name}" never occurs in {len(sentences)} sentences'
            raise HeadscopeError(what, where="relations")


def _with_antecedent(document: Document) -> int:
    """Number of mentions after another one of the same entity, in the whole document."""
    return sum(
        any(
            other.entity == mention.entity and other.end <= mention.start
            for other in document.mentions
        )
        for mention in document.mentions
    )


def _check_mentions(annotations: Annotations) -> None:
    """Raise an error if there are no documents, or no mention has an antecedent."""
    documents, files = annotations.documents, ", ".join(map(str, annotations.coreference))
    if annotations.coreference and not documents:
        skipped = sum(annotations.documents_read.skipped.values())
        what = "no document in it"
        if skipped:
            what = f"no document could be used, {skipped} were malformed"
        expected = "documents in CoNLL-2012 columns"
        raise HeadscopeError(what, where=files, expected=expected)
    entities = (Counter(mention.entity for mention in doc.mentions) for doc in documents)
    if documents and not any(max(counts.values(), default=0) > 1 for counts in entities):
        raise HeadscopeError(
            f"no mention in {len(documents)} documents has an antecedent",
            where=files,
            expected="an entity that is mentioned twice",
        )


def sentence_of(parsed: ParsedSentence, relations: Mapping[str, RelationOf]) -> Sentence:
    """A parsed sentence with its relations without the root, and the user's relations."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    arcs = zip(parsed.governors, parsed.relations, strict=True)
    for word, (governor, relation) in enumerate(arcs):
        if governor != ROOT:
            pairs.setdefault(relation, []).append((word, governor))
    for name, of in relations.items():
        if name in pairs:
            what = f'"{name}" is a relation of the treebank already'
            raise HeadscopeError(what, where="relations", fix="Give yours another name")
        pairs[name] = list(of(parsed))
    return Sentence(parsed.words, pairs, where=parsed.where)
