"""Sentences with their trees: read and checked before a model is loaded, then as batches for probes."""

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

SPECIAL = 2  # places before the words in a map: the classification token and the separator
SENTENCES, CELLS = 8, 4_000_000  # at most in one batch: sentences, and weights in their maps


@dataclass(frozen=True)
class Tree:
    """A sentence; `unit` is its fingerprint, `encoded` what the model reads of it."""

    parsed: ParsedSentence
    unit: int
    encoded: Encoded | None = None


@dataclass
class Treebanks:
    """Sentences to train on and to be scored on, read and checked before a model is loaded."""

    files: list[str | Path]
    test_files: list[str | Path]
    lenient: bool
    limit: int | None
    seed: int
    train: list[Tree] = field(default_factory=list)
    test: list[Tree] = field(default_factory=list)
    malformed: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    seen: int = 0  # sentences of the test files that are also trained on, and therefore left out

    def __post_init__(self) -> None:
        self.train = self._read(self.files, "train")
        if self.test_files:
            seen = {one.parsed.words for one in self.train}
            read = self._read(self.test_files, "test")
            self.test = [one for one in read if one.parsed.words not in seen]
            self.seen = len(read) - len(self.test)
        else:
            self.test = [one for one in self.train if is_reported(one.unit)]
            self.train = [one for one in self.train if not is_reported(one.unit)]
        self._check()

    def _read(self, files: list[str | Path], name: str) -> list[Tree]:
        malformed = self.malformed.setdefault(name, {})
        parsed = islice(read_treebank(files, lenient=self.lenient, counts=malformed), self.limit)
        return [Tree(one, fingerprint(" ".join(one.words), self.seed)) for one in parsed]

    def _check(self, why: str = "") -> None:
        for sentences, files, purpose in (
            (self.train, self.files, "train on"),
            (self.test, self.test_files or self.files, "be scored on"),
        ):
            if not any(
                _counts(one.parsed, i) for one in sentences for i in range(len(one.parsed.words))
            ):
                raise HeadscopeError(
                    f"no sentence with words (beside punctuation) is left to {purpose}{why}",
                    where=", ".join(map(str, files)) or "`treebank`",
                    expected="sentences in CoNLL-U that the model can read",
                    fix=None
                    if self.test_files
                    else "Give others with `test`: one file is cut into two halves",
                )

    def vocabulary(self) -> set[Hashable]:
        return {key for one in (*self.train, *self.test) for key in words_of(one)}

    def encode(self, model: AttentionModel, max_length: int | None) -> None:
        """Keep what the model can read whole: a truncated tree is another tree."""
        for name in ("train", "test"):
            encoder = Encoder(model, max_length=max_length, long="skip")
            sentences: list[Tree] = getattr(self, name)
            examples = [Example(one.parsed.words, where=one.parsed.where) for one in sentences]
            kept = [
                replace(sentences[one.index], encoded=one) for one in encoder.encode(examples, 0)
            ]
            encoder.unknown.warn()
            setattr(self, name, kept)
            self.counts[name] = encoder.counts
        left = {name: self.counts[name].skipped for name in ("train", "test")}
        why = ", ".join(
            f"{count} {reason}" for one in left.values() for reason, count in one.items()
        )
        self._check(f" ({why})" if why else "")

    def describe(self, name: str) -> Section:
        files = self.test_files if name == "test" and self.test_files else self.files
        return {
            "files": describe_files(files),
            "half": None if self.test_files else name,
            "malformed": self.malformed.get(name, {}),
            "also_trained_on": self.seen if name == "test" else 0,
            **asdict(self.counts[name]),
        }


def _counts(parsed: ParsedSentence, word: int) -> bool:
    return parsed.relations[word] not in ("punct", "p") and parsed.tags[word] != "PUNCT"


def words_of(tree: Tree) -> list[str]:
    """Each word as a file of word vectors is asked for it."""
    return [word.lower() for word in tree.parsed.words]


def pieces_of(tree: Tree) -> list[tuple[int, ...]]:
    """Each word as its pieces: what the mean of its embeddings follows from."""
    assert tree.encoded is not None
    pieces: list[list[int]] = [[] for _ in tree.parsed.words]
    for token, word in zip(tree.encoded.source.ids, tree.encoded.source.words, strict=True):
        if word >= 0:
            pieces[word].append(token)
    return [tuple(some) for some in pieces]


@dataclass(frozen=True)
class Trees:
    """Some sentences of about one length.

    governors  [sentence, word]: which candidate is right: 0 is the root, 1 + i word i; -1 where there is no word
    scored     [sentence, word]: whether it counts in the score; punctuation does not
    words      [sentence, word]: rows of the word vectors
    encoded    what the model reads
    numbers    which sentences these are
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
        return self.governors >= 0

    @property
    def candidates(self) -> Tensor:
        """[sentence, candidate]: the root, and the words a sentence has."""
        return nn.functional.pad(self.present, (1, 0), value=True)


def batched(
    sentences: list[Tree],
    vectors: WordVectors,
    keys: Callable[[Tree], Sequence[Hashable]],
    heads: int,
    seed: int,
) -> list[Trees]:
    """Batches of about one length, so that little padding is computed; which sentences meet is drawn by the seed."""
    drawn = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    order = sorted(drawn, key=lambda i: len(sentences[i].parsed.words), reverse=True)
    batches = []
    start = 0
    while start < len(order):
        places = SPECIAL + len(sentences[order[start]].parsed.words)
        stop = start + max(1, min(SENTENCES, CELLS // (heads * places**2)))
        numbers = order[start:stop]
        some = [sentences[i] for i in numbers]
        governors = [[1 + governor for governor in one.parsed.governors] for one in some]
        scored = [
            [int(_counts(one.parsed, i)) for i in range(len(one.parsed.words))] for one in some
        ]
        batches.append(
            Trees(
                governors=_padded(governors, -1),
                scored=_padded(scored, 0).bool(),
                words=_padded([vectors.rows(keys(one)) for one in some], 0),
                encoded=tuple(one.encoded for one in some if one.encoded is not None),
                numbers=tuple(numbers),
            )
        )
        start = stop
    return batches


def _padded(rows: list[list[int]], value: int) -> Tensor:
    return nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=value
    )
