"""Parsed sentences for probes: read and checked before a model is loaded, then encoded and put into batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from headscope.data.encode import Counts, Encoder
from headscope.data.encode import Sequence as Encoded
from headscope.data.examples import Example
from headscope.data.treebank import ParsedSentence, read_treebank
from headscope.data.word_vectors import WordVectors
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.statistics.resampling import fingerprint, is_reported
from headscope.study.run_record import describe_files
from headscope.study.schema.record import Section

SPECIAL = 2  # positions before the words in a map: the classification token and the separator
SENTENCES = 8  # maximum number of sentences in one batch
CELLS = 4_000_000  # maximum number of attention weights in the maps of one batch


@dataclass(frozen=True)
class Tree:
    """A sentence with its dependency tree.

    unit     hash of the sentence. It identifies the unit of resampling, and decides to which half the sentence belongs
    encoded  its tokens, once a model is loaded
    """

    parsed: ParsedSentence
    unit: int
    encoded: Encoded | None = None


@dataclass
class Treebanks:
    """Sentences to train on (`train`) and to score on (`test`). Without test files, `files` are split into two halves.

    malformed  numbers of malformed sentences that were skipped, by split and reason
    repeated   number of test sentences that are left out, since they are also in the training files
    """

    files: list[str | Path]
    test_files: list[str | Path]
    lenient: bool
    limit: int | None
    seed: int
    train: list[Tree] = field(default_factory=list)
    test: list[Tree] = field(default_factory=list)
    malformed: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    repeated: int = 0

    def __post_init__(self) -> None:
        self.train = self._read(self.files, "train")
        if self.test_files:
            trained_on = {tree.parsed.words for tree in self.train}
            read = self._read(self.test_files, "test")
            self.test = [tree for tree in read if tree.parsed.words not in trained_on]
            self.repeated = len(read) - len(self.test)
        else:
            self.test = [tree for tree in self.train if is_reported(tree.unit)]
            self.train = [tree for tree in self.train if not is_reported(tree.unit)]
        self._check()

    def _read(self, files: list[str | Path], name: str) -> list[Tree]:
        malformed = self.malformed.setdefault(name, {})
        parsed = islice(read_treebank(files, lenient=self.lenient, counts=malformed), self.limit)
        return [Tree(s, fingerprint(" ".join(s.words), self.seed)) for s in parsed]

    def _check(self, why: str = "") -> None:
        for sentences, files, purpose in (
            (self.train, self.files, "train on"),
            (self.test, self.test_files or self.files, "be scored on"),
        ):
            if not any(any(_is_scored(tree)) for tree in sentences):
                fix = "Give others with `test`: one file is split into two halves"
                raise HeadscopeError(
                    f"no sentence with words other than punctuation is left to {purpose}{why}",
                    where=", ".join(map(str, files)) or "`treebank`",
                    expected="sentences in CoNLL-U that the model can read",
                    fix=None if self.test_files else fix,
                )

    def vocabulary(self) -> set[Hashable]:
        return {key for tree in (*self.train, *self.test) for key in words_of(tree)}

    def encode(self, model: AttentionModel, max_length: int | None) -> None:
        """Encode the sentences. Those too long for the model are left out, since a tree cannot be truncated."""
        for name in ("train", "test"):
            encoder = Encoder(model, max_length=max_length, long="skip")
            sentences: list[Tree] = getattr(self, name)
            examples = [Example(tree.parsed.words, where=tree.parsed.where) for tree in sentences]
            encoded = encoder.encode(examples, 0)
            setattr(self, name, [replace(sentences[s.index], encoded=s) for s in encoded])
            encoder.unknown.warn()
            self.counts[name] = encoder.counts
        skipped = [item for counts in self.counts.values() for item in counts.skipped.items()]
        why = ", ".join(f"{count} {reason}" for reason, count in skipped)
        self._check(f" ({why})" if why else "")

    def describe(self, name: str) -> Section:
        files = self.test_files if name == "test" and self.test_files else self.files
        return {
            "files": describe_files(files),
            "half": None if self.test_files else name,
            "malformed": self.malformed.get(name, {}),
            "also_trained_on": self.repeated if name == "test" else 0,
            **asdict(self.counts[name]),
        }


def _is_scored(tree: Tree) -> list[bool]:
    """[word]: whether the word counts in the score; punctuation does not."""
    words = zip(tree.parsed.relations, tree.parsed.tags, strict=True)
    return [relation not in ("punct", "p") and tag != "PUNCT" for relation, tag in words]


def words_of(tree: Tree) -> list[str]:
    """The words as keys of a file of word vectors."""
    return [word.lower() for word in tree.parsed.words]


def pieces_of(tree: Tree) -> list[tuple[int, ...]]:
    """The words as tuples of token ids, as keys of mean embeddings."""
    assert tree.encoded is not None
    pieces: list[list[int]] = [[] for _ in tree.parsed.words]
    for token, word in zip(tree.encoded.source.ids, tree.encoded.source.words, strict=True):
        if word >= 0:
            pieces[word].append(token)
    return [tuple(of_word) for of_word in pieces]


@dataclass(frozen=True)
class Trees:
    """A batch of sentences of similar length.

    governors  [sentence, word]: index of the true governor among the candidates (0 is the root, 1 + i is word i); -1
               in padding
    scored     [sentence, word]: whether the word counts in the score; punctuation does not
    words      [sentence, word]: indices of rows of the word vectors
    encoded    the tokens of each sentence
    numbers    indices of the sentences in the list that the batches were made from
    """

    governors: Tensor
    scored: Tensor
    words: Tensor
    encoded: tuple[Encoded, ...] = ()
    numbers: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.governors)

    @property
    def present(self) -> Tensor:
        """[sentence, word]: False in padding."""
        return self.governors >= 0

    @property
    def candidates(self) -> Tensor:
        """[sentence, candidate]: True for the root and the words, False in padding."""
        return nn.functional.pad(self.present, (1, 0), value=True)


def make_batches(
    sentences: list[Tree],
    vectors: WordVectors,
    keys: Callable[[Tree], Sequence[Hashable]],
    heads: int,
    seed: int,
) -> list[Trees]:
    """Batches of sentences of similar length, so that there is little padding.

    keys  function that returns the keys of a sentence's words in the word vectors
    seed  random seed for the order of sentences of equal length
    """
    shuffled = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    order = sorted(shuffled, key=lambda i: len(sentences[i].parsed.words), reverse=True)
    batches = []
    start = 0
    while start < len(order):
        positions = SPECIAL + len(sentences[order[start]].parsed.words)
        stop = start + max(1, min(SENTENCES, CELLS // (heads * positions**2)))
        numbers = order[start:stop]
        trees = [sentences[i] for i in numbers]
        governors = [[1 + governor for governor in tree.parsed.governors] for tree in trees]
        batches.append(
            Trees(
                governors=_pad(governors, -1),
                scored=_pad([list(map(int, _is_scored(tree))) for tree in trees], 0).bool(),
                words=_pad([vectors.rows(keys(tree)) for tree in trees], 0),
                encoded=tuple(tree.encoded for tree in trees if tree.encoded is not None),
                numbers=tuple(numbers),
            )
        )
        start = stop
    return batches


def _pad(rows: list[list[int]], value: int) -> Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
