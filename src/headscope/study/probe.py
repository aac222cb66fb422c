"""How much syntax is in the attention of all heads together? Parsers that see attention weights and little else.

For each word a probe scores every candidate for its governor: the words of the sentence, and the root. The model is
frozen; its maps between words, of every head and in both directions, are the channels (Clark et al. 2019, section 5):

attention-only       two weights a head: how much it counts that the dependent looks at the candidate, and that the
                     candidate looks at the dependent
attention-and-words  the same, but each weight follows from the two words: linear in their fixed word vectors
random-attention     attention-and-words on a twin with random weights that keeps the model's embeddings
distance-and-words   one hidden layer over the two word vectors and how far apart the words are; no attention
right-branching      the next word governs; the root governs the last one

The root's channels are `s` times the attention to and from the classification token plus `e` times that of the
separator, `s` and `e` learned; its pair of word vectors is zero. In a model that has neither, the root scores 0.
The score is UAS: the share of words, punctuation left out, whose governor (the root, too) scores highest. It is taken
on sentences that no probe has seen, with an interval from resampling them.

Word vectors are a file's, or the model's input embeddings averaged over a word's pieces. Either are centred, reduced
to their main directions over the words to train on, and scaled to a mean square of 1; unknown words are zero.
Not as published: batches instead of single sentences, and several passes over the sentences instead of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from headscope.data.batches import collate
from headscope.data.encode import Counts, Encoder
from headscope.data.encode import Sequence as Encoded
from headscope.data.examples import Example
from headscope.data.lines import read_lines
from headscope.data.treebank import Parsed, read_treebank
from headscope.errors import HeadscopeError
from headscope.heads import Head
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.model.tokens import Tokens
from headscope.model.twin import random_twin
from headscope.model.words import Pool, check_pool, word_attention
from headscope.statistics.resampling import ResampledSums, fingerprint, interval, is_reported
from headscope.study.record import describe_files, describe_model, versions
from headscope.study.sources import Files, listed
from headscope.study.study import SCHEMA

if TYPE_CHECKING:
    import pandas as pd

PROBES = ("right-branching", "distance-and-words", "random-attention", "attention-only", "attention-and-words")
COLUMNS = ("probe", "uas", "low", "high", "parameters", "count")
HIDDEN = 256  # of distance-and-words
SENTENCES, CELLS = 8, 4_000_000  # at most in one batch: sentences, and weights in their maps
NEAR = (0, -1, 1, -2, 2)  # offsets that distance-and-words is told of
EPOCHS = 6
SPECIAL = 2  # places before the words in a map: the classification token and the separator
FORM = "a word and its numbers with blanks between them, as word2vec and GloVe write them"

Maps = Callable[["Trees"], Tensor]  # [sentence, head, place, place] of a batch: SPECIAL places, then its words
Progress = Callable[[int, int], None]


@dataclass
class Probes:
    """What the probes found.

    table    one row a probe: probe, uas, low, high, parameters (learned), count (words scored)
    weights  attention-only, one row a head: its weight where the dependent looks (`dependent`) and where the
             governor does (`governor`)
    record   what is written as run.json
    """

    table: pd.DataFrame
    weights: pd.DataFrame
    record: dict[str, Any]

    def write(self, folder: Path) -> None:
        """probes.csv, probe_weights.csv and run.json."""
        for name, table in (("probes", self.table), ("probe_weights", self.weights)):
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.10g", lineterminator="\n")
        (folder / "run.json").write_text(json.dumps(self.record, indent=2, ensure_ascii=False) + "\n", "utf-8")


def probe(
    model: AttentionModel | str | Path | Callable[[], AttentionModel],
    treebank: Files,
    *,
    test: Files = (),
    vectors: str | Path | None = None,
    dimensions: int = 100,
    epochs: int = EPOCHS,
    lenient: bool = False,
    pool: Pool = "mean",
    max_length: int | None = None,
    limit: int | None = None,
    memory: int = 2**30,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Probes:
    """How well parsers find governors from the attention of one model, beside baselines.

    model       loaded; or what `load` takes, or a function that loads one: only done once the rest is seen to be right
    treebank    CoNLL-U files to train on
    test        others to be scored on; without them one half of `treebank` is, and the other trained on
    vectors     a file of word vectors (word2vec or GloVe, as text); by default the model's own input embeddings
    dimensions  of the word vectors, at most
    epochs      how often the probes see the sentences
    lenient     leave malformed sentences out, counted, instead of refusing the file
    pool        how the rows of a word's pieces become one: mean, first or max
    max_length  tokens a sentence may have; longer ones are left out and counted
    limit       only the first so many sentences of each
    memory      bytes for maps that are kept; others are computed anew in every epoch. Changes no result
    seed        of the halves, the order, the hidden layer, the resampling and the twin
    progress    told (sentences done, sentences in all), over all probes and epochs
    """
    for name, number in (("--limit", limit), ("--dimensions", dimensions), ("--epochs", epochs)):
        if number is not None and number < 1:
            raise HeadscopeError(f"{number} is too few", where=name, expected="1 or more")
    check_pool(pool)
    data = _Data(listed(treebank), listed(test), lenient, limit, seed)
    of_file = None if vectors is None else read_vectors(vectors, data.vocabulary())
    if not isinstance(model, AttentionModel):
        model = load(model) if isinstance(model, str | Path) else model()
    model.canary()
    data.encode(model, max_length)
    keys = _of_pieces if of_file is None else _of_words
    known = _embeddings(model, data) if of_file is None else of_file
    vectors_of = WordVectors(known, {key for one in data.train for key in keys(one)}, dimensions)
    heads = _heads(model)
    train, held_out = (_batched(some, vectors_of, keys, len(heads), seed) for some in (data.train, data.test))
    found, only = _run(model, heads, train, held_out, vectors_of, pool, epochs, memory, seed, progress)
    record = {
        "schema": SCHEMA,
        "versions": versions(),
        "model": describe_model(model),
        "train": data.describe("train"),
        "test": data.describe("test"),
        "vectors": {
            "files": [] if vectors is None else describe_files([vectors]),
            "dimensions": vectors_of.dimensions,
            "known": vectors_of.share(keys(one) for one in data.test),
        },
        "options": {"epochs": epochs, "pool": pool},
        "seed": seed,
    }
    return Probes(_table(found, data.test), _weights_table(heads, only), record)


def _run(
    model: AttentionModel,
    heads: list[Head],
    train: list[Trees],
    test: list[Trees],
    vectors: WordVectors,
    pool: Pool,
    epochs: int,
    memory: int,
    seed: int,
    progress: Progress,
) -> tuple[dict[str, Scored], AttentionOnly]:
    """Every probe, trained and scored; one after the other, so that one model's maps are kept at a time."""
    width = vectors.dimensions
    only, words, random = AttentionOnly(len(heads)), *(AttentionAndWords(len(heads), width) for _ in range(2))
    distance, branching = DistanceAndWords(width, seed), RightBranching()
    with_model = {"attention-only": only, "attention-and-words": words}
    sentences = sum(len(trees) for trees in train)
    steps = _Steps(3 * epochs * sentences, progress)
    found: dict[str, Scored] = {"right-branching": score({"": branching}, test, None, vectors)[""]}
    turns: list[tuple[dict[str, Probe], Callable[[], Maps | None]]] = [
        ({"distance-and-words": distance}, lambda: None),
        ({"random-attention": random}, lambda: WordMaps(_untrained(model, seed), heads, pool, memory)),
        ({**with_model}, lambda: WordMaps(model, heads, pool, memory)),
    ]
    for probes, open_maps in turns:
        maps = open_maps()
        fit(probes, train, maps, vectors, epochs=epochs, seed=seed, done=steps.add)
        if isinstance(maps, WordMaps):
            maps.forget()
        found |= score(probes, test, maps, vectors)
    return {name: found[name] for name in PROBES}, only


class _Steps:
    """Progress over several trainings."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def add(self, count: int) -> None:
        self.done += count
        self.progress(self.done, self.total)


# Sentences


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


@dataclass(frozen=True)
class _Sentence:
    parsed: Parsed
    unit: int
    encoded: Encoded | None = None


@dataclass
class _Data:
    """Sentences to train on and to be scored on, read and checked before a model is loaded."""

    files: list[str | Path]
    test_files: list[str | Path]
    lenient: bool
    limit: int | None
    seed: int
    train: list[_Sentence] = field(default_factory=list)
    test: list[_Sentence] = field(default_factory=list)
    malformed: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.train = self._read(self.files, "train")
        if self.test_files:
            self.test = self._read(self.test_files, "test")
        else:
            self.test = [one for one in self.train if is_reported(one.unit)]
            self.train = [one for one in self.train if not is_reported(one.unit)]
        self._check()

    def _read(self, files: list[str | Path], name: str) -> list[_Sentence]:
        malformed = self.malformed.setdefault(name, {})
        parsed = islice(read_treebank(files, lenient=self.lenient, counts=malformed), self.limit)
        return [_Sentence(one, fingerprint(" ".join(one.words), self.seed)) for one in parsed]

    def _check(self, why: str = "") -> None:
        for sentences, files, purpose in (
            (self.train, self.files, "train on"),
            (self.test, self.test_files or self.files, "be scored on"),
        ):
            if not any(_counts(one.parsed, i) for one in sentences for i in range(len(one.parsed.words))):
                raise HeadscopeError(
                    f"no sentence with words (beside punctuation) is left to {purpose}{why}",
                    where=", ".join(map(str, files)) or "--treebank",
                    expected="sentences in CoNLL-U that the model can read",
                    mend=None if self.test_files else "Give others with --test: one file is cut into two halves",
                )

    def vocabulary(self) -> set[Hashable]:
        return {key for one in (*self.train, *self.test) for key in _of_words(one)}

    def encode(self, model: AttentionModel, max_length: int | None) -> None:
        """Keep what the model can read whole: a truncated tree is another tree."""
        for name in ("train", "test"):
            encoder = Encoder(model, max_length=max_length, long="skip")
            sentences: list[_Sentence] = getattr(self, name)
            examples = [Example(one.parsed.words, where=one.parsed.where) for one in sentences]
            kept = [replace(sentences[one.index], encoded=one) for one in encoder.encode(examples, 0)]
            setattr(self, name, kept)
            self.counts[name] = encoder.counts
        left = {name: self.counts[name].skipped for name in ("train", "test")}
        why = ", ".join(f"{count} {reason}" for one in left.values() for reason, count in one.items())
        self._check(f" ({why})" if why else "")

    def describe(self, name: str) -> dict[str, Any]:
        files = self.test_files if name == "test" and self.test_files else self.files
        return {
            "files": describe_files(files),
            "half": None if self.test_files else name,
            "malformed": self.malformed.get(name, {}),
            **asdict(self.counts[name]),
        }


def _counts(parsed: Parsed, word: int) -> bool:
    return parsed.relations[word] not in ("punct", "p") and parsed.tags[word] != "PUNCT"


def _of_words(sentence: _Sentence) -> list[Hashable]:
    return [word.lower() for word in sentence.parsed.words]


def _of_pieces(sentence: _Sentence) -> list[Hashable]:
    """Each word as its pieces: what its vector follows from."""
    assert sentence.encoded is not None
    pieces: list[list[int]] = [[] for _ in sentence.parsed.words]
    for token, word in zip(sentence.encoded.source.ids, sentence.encoded.source.words, strict=True):
        if word >= 0:
            pieces[word].append(token)
    return [tuple(some) for some in pieces]


def _batched(
    sentences: list[_Sentence],
    vectors: WordVectors,
    keys: Callable[[_Sentence], list[Hashable]],
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
        scored = [[int(_counts(one.parsed, i)) for i in range(len(one.parsed.words))] for one in some]
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
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


# Word vectors


class WordVectors:
    """A fixed vector for each known word: row 0, of zeros, for all others."""

    def __init__(self, known: dict[Hashable, Tensor], trained: set[Hashable], dimensions: int) -> None:
        """`trained` are the words to train on: they alone decide on centre, directions and scale."""
        self._row = {key: 1 + i for i, key in enumerate(known)}
        table = torch.stack([torch.zeros_like(next(iter(known.values()))), *known.values()]).double()
        basis = table[sorted(self._row[key] for key in trained if key in self._row) or list(self._row.values())]
        centre = basis.mean(dim=0)
        if basis.shape[1] > dimensions:
            directions = torch.linalg.eigh((basis - centre).T @ (basis - centre))[1][:, -dimensions:]
        else:
            directions = torch.eye(basis.shape[1], dtype=torch.float64)
        table = (table - centre) @ directions
        scale = ((basis - centre) @ directions).square().mean().sqrt().clamp_min(1e-12)
        self.table = (table / scale).float()
        self.table[0] = 0.0

    @property
    def dimensions(self) -> int:
        return int(self.table.shape[1])

    def rows(self, keys: Iterable[Hashable]) -> list[int]:
        return [self._row.get(key, 0) for key in keys]

    def share(self, texts: Iterable[Iterable[Hashable]]) -> float:
        """Of the words of these texts, how many are known."""
        rows = [row for keys in texts for row in self.rows(keys)]
        return sum(row > 0 for row in rows) / len(rows)


def _embeddings(model: AttentionModel, data: _Data) -> dict[Hashable, Tensor]:
    """The mean input embedding of a word's pieces, for each word as it is cut."""
    table = model.model.get_input_embeddings().weight.detach().float().cpu()
    keys = dict.fromkeys(key for one in (*data.train, *data.test) for key in _of_pieces(one))
    return {key: table[list(key)].mean(dim=0) for key in keys}  # type: ignore[call-overload]


def read_vectors(path: str | Path, wanted: set[Hashable]) -> dict[Hashable, Tensor]:
    """The vectors of the wanted words (in lower case; the file's first spelling of one counts)."""
    found: dict[Hashable, Tensor] = {}
    size = None
    for number, line in read_lines(path):
        cells = line.strip().split(" ")
        if number == 1 and len(cells) == 2 and all(cell.isdigit() for cell in cells):
            size = int(cells[1])
            continue
        size = len(cells) - 1 if size is None else size
        word = _word_before(cells, size, f"{path}:{number}")
        if word.lower() in wanted and word.lower() not in found:
            found[word.lower()] = torch.tensor(_numbers(cells[-size:], f"{path}:{number}"))
    if not found:
        raise HeadscopeError("it has a vector for none of the treebank's words", where=path, expected=FORM)
    return found


def _word_before(cells: list[str], size: int, where: str) -> str:
    """What stands before the numbers; GloVe has words with blanks in them."""
    extra = cells[1 : len(cells) - size]
    if size < 1 or len(cells) <= size or any(_is_number(cell) for cell in extra):
        count = len(cells) - 1
        what = f"{count} number{'' if count == 1 else 's'} after the word"
        raise HeadscopeError(what, where=where, expected=f"{size}, as line 1 has it" if size > 0 else FORM)
    return " ".join(cells[: len(cells) - size])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: list[str], where: str) -> list[float]:
    for cell in cells:
        if not _is_number(cell) or not np.isfinite(float(cell)):
            raise HeadscopeError(f'"{cell}" is not a number', where=where, expected=FORM)
    return [float(cell) for cell in cells]


# Maps


def _heads(model: AttentionModel) -> list[Head]:
    """Those of the stack that reads the sentence."""
    stacks = [head.stack for head in model.heads]
    stack = "encoder" if "encoder" in stacks else "decoder"
    return [head for head in model.heads if head.stack == stack]


class WordMaps:
    """The maps of a batch: computed by a pass of the model, and kept in float16 as long as there is room.

    Batches are always the same and always rounded, so that what is kept changes no result.
    """

    def __init__(self, model: AttentionModel, heads: list[Head], pool: Pool = "mean", memory: int = 0) -> None:
        self.model, self.heads, self.pool, self.room = model, heads, pool, memory
        self._first = {site: i for i, site in reversed(list(enumerate(head.site for head in heads)))}
        self._kept: dict[int, Tensor] = {}

    def __call__(self, trees: Trees) -> Tensor:
        kept = self._kept.get(id(trees))
        if kept is None:
            kept = self._computed(trees)
            if kept.nbytes <= self.room:
                self.room -= kept.nbytes
                self._kept[id(trees)] = kept
        return kept.float()

    def forget(self) -> None:
        """Free the room, and keep no more."""
        self._kept, self.room = {}, 0

    def _computed(self, trees: Trees) -> Tensor:
        places = SPECIAL + trees.governors.shape[1]
        maps = torch.zeros(len(trees), len(self.heads), places, places, dtype=torch.float16)

        def observe(attention: Attention) -> None:
            if attention.site not in self._first:
                return
            first = self._first[attention.site]
            tokens = _with_special(attention.query)
            weights = word_attention(Attention(attention.site, attention.weights, tokens, tokens), self.pool).weights
            size = weights.shape[-1]
            maps[attention.rows, first : first + weights.shape[1], :size, :size] = weights.half().cpu()

        self.model.check_evaluating()
        with self.model.watched(observe), torch.inference_mode():
            self.model(collate(self.model, list(trees.encoded)))
        if not maps.isfinite().all():
            raise HeadscopeError(
                "its attention is not finite", where=self.model.name, mend="Load it with dtype float32 (--dtype)"
            )
        return maps


def _with_special(tokens: Tokens) -> Tokens:
    """The classification token as word 0, the separator as word 1, and all words after them."""
    assert tokens.words is not None
    words = torch.where(tokens.words >= 0, tokens.words + SPECIAL, -1)
    words = words.masked_fill(tokens.classification, 0).masked_fill(tokens.separator, 1)
    return replace(tokens, words=words)


def _untrained(model: AttentionModel, seed: int) -> AttentionModel:
    """A twin with random weights that keeps the embeddings of tokens, positions and segments."""
    twin = random_twin(model, seed)
    own = dict(model.model.named_modules())
    with torch.no_grad():
        for name, drawn in twin.model.named_modules():
            # Relative positions are looked up inside attention: they are of what is drawn anew.
            if isinstance(drawn, nn.Embedding) and "rel" not in name:
                drawn.weight.copy_(own[name].weight)
    return twin


# Probes: scores [sentence, word, candidate], the root first


def _channels(maps: Tensor) -> Tensor:
    """[sentence, channel, word, place]: each head where the word looks at a place, then where the place looks at it."""
    return torch.cat([maps[:, :, SPECIAL:], maps.transpose(2, 3)[:, :, SPECIAL:]], dim=1)


def _with_root(of_special: Tensor, of_words: Tensor, root: Tensor) -> Tensor:
    """What the two special tokens score, mixed into the root's score, before that of the words."""
    return torch.cat([(of_special * root).sum(dim=-1, keepdim=True), of_words], dim=-1)


class Probe(nn.Module):
    """What scores candidates. `rates`: of Adam at the start, by parameter; they fall to nothing in a line."""

    rates: ClassVar[dict[str, float]] = {}

    def optimizer(self) -> torch.optim.Optimizer:
        named = self.named_parameters()
        return torch.optim.Adam([{"params": [one], "lr": self.rates[name]} for name, one in named])


class AttentionOnly(Probe):
    rates = {"weight": 0.1, "root": 0.1}  # a factor on shares must become large

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * heads))
        self.root = nn.Parameter(torch.ones(SPECIAL))

    def forward(self, trees: Trees, maps: Tensor, vectors: Tensor) -> Tensor:
        scores = torch.einsum("k,skjc->sjc", self.weight, _channels(maps))
        return _with_root(scores[..., :SPECIAL], scores[..., SPECIAL:], self.root)


class AttentionAndWords(Probe):
    rates = {"bias": 0.1, "governor": 0.005, "dependent": 0.005, "root": 0.1}

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * heads))
        self.governor = nn.Parameter(torch.zeros(width, 2 * heads))
        self.dependent = nn.Parameter(torch.zeros(width, 2 * heads))
        self.root = nn.Parameter(torch.ones(SPECIAL))

    def forward(self, trees: Trees, maps: Tensor, vectors: Tensor) -> Tensor:
        channels = _channels(maps)
        of_special = torch.einsum("k,skjc->sjc", self.bias, channels[..., :SPECIAL])
        of_governor = (vectors @ self.governor).transpose(1, 2)[:, :, None, :]
        of_dependent = (vectors @ self.dependent + self.bias).transpose(1, 2)[..., None]
        of_words = ((of_governor + of_dependent) * channels[..., SPECIAL:]).sum(dim=1)
        return _with_root(of_special, of_words, self.root)


class DistanceAndWords(Probe):
    rates = dict.fromkeys(("governor", "dependent", "distance", "bias", "out"), 0.003)

    def __init__(self, width: int, seed: int = 0) -> None:
        super().__init__()
        chance = torch.Generator().manual_seed(seed)
        inputs = 2 * width + 3 + len(NEAR)

        def drawn(rows: int, *columns: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, *columns, generator=chance) / (inputs if columns else HIDDEN) ** 0.5)

        self.governor, self.dependent = drawn(width, HIDDEN), drawn(width, HIDDEN)
        self.distance = drawn(3 + len(NEAR), HIDDEN)
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        self.out = drawn(HIDDEN)

    def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
        pairs = (vectors @ self.governor)[:, None] + (vectors @ self.dependent)[:, :, None]
        pairs = nn.functional.pad(pairs, (0, 0, 1, 0))  # the root's pair of vectors is zero
        hidden = torch.tanh(pairs + distance_features(trees) @ self.distance + self.bias)
        return hidden @ self.out


def distance_features(trees: Trees) -> Tensor:
    """[sentence, word, candidate, 8]: how far ahead and how far behind in the sentence, five offsets, the root."""
    size = trees.governors.shape[1]
    offset = (torch.arange(size)[None] - torch.arange(size)[:, None])[None]  # [1, word, candidate]
    share = offset / trees.present.sum(dim=1)[:, None, None]
    features = [share.clamp_min(0), (-share).clamp_min(0)]
    features += [(offset == near).float().expand_as(share) for near in NEAR]
    features.append(torch.zeros_like(share))
    words = torch.stack(features, dim=-1)
    root = nn.functional.one_hot(torch.tensor(words.shape[-1] - 1), words.shape[-1]).to(words)
    return torch.cat([root.expand(len(trees), size, 1, -1), words], dim=2)


class RightBranching(Probe):
    def forward(self, trees: Trees, maps: Tensor | None, vectors: Tensor) -> Tensor:
        size = trees.governors.shape[1]
        following = torch.arange(size) + 2  # candidates: 0 is the root, 1 + i word i
        last = trees.present.sum(dim=1, keepdim=True) - 1
        chosen = torch.where(torch.arange(size) < last, following, 0)
        return nn.functional.one_hot(chosen, size + 2)[..., : size + 1].float()


def fit(
    probes: dict[str, Probe],
    batches: Sequence[Trees],
    maps: Maps | None,
    vectors: WordVectors,
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """Train probes that see the same maps, side by side: cross entropy over candidates, Adam, every word counting."""
    optimizers = [probe.optimizer() for probe in probes.values()]
    steps = epochs * len(batches)
    falls = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: 1 - step / steps) for one in optimizers]
    chance = np.random.default_rng(seed)
    for _ in range(epochs):
        for number in chance.permutation(len(batches)):
            trees = batches[number]
            seen, known = None if maps is None else maps(trees), vectors.table[trees.words]
            for probe, optimizer, fall in zip(probes.values(), optimizers, falls, strict=True):
                scores = _masked(probe(trees, seen, known), trees)
                loss = nn.functional.cross_entropy(scores[trees.present], trees.governors[trees.present])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                fall.step()
            done(len(trees))


def _masked(scores: Tensor, trees: Trees) -> Tensor:
    """Without the candidates that a sentence does not have."""
    return scores.masked_fill(~trees.candidates[:, None], -torch.inf)


@dataclass(frozen=True)
class Scored:
    """What a probe got right, by the number of the sentence; and how much it has learned."""

    right: dict[int, float]
    words: dict[int, int]
    parameters: int


@torch.no_grad()
def score(
    probes: dict[str, Probe], batches: Sequence[Trees], maps: Maps | None, vectors: WordVectors
) -> dict[str, Scored]:
    """How many governors each probe finds in each sentence; candidates that score the same share the credit."""
    found = {
        name: Scored({}, {}, sum(parameter.numel() for parameter in one.parameters())) for name, one in probes.items()
    }
    for trees in batches:
        seen, known = None if maps is None else maps(trees), vectors.table[trees.words]
        words = trees.scored.sum(dim=1).tolist()
        for name, one in probes.items():
            scores = _masked(one(trees, seen, known), trees)
            best = scores == scores.amax(dim=-1, keepdim=True)
            credit = best / best.sum(dim=-1, keepdim=True)
            right = credit.gather(2, trees.governors.clamp_min(0)[..., None])[..., 0] * trees.scored
            found[name].right.update(zip(trees.numbers, right.double().sum(dim=1).tolist(), strict=True))
            found[name].words.update(zip(trees.numbers, words, strict=True))
    return found


def _table(found: dict[str, Scored], test: list[_Sentence]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for name, one in found.items():
        sums = ResampledSums((2,))
        values = np.array([(one.right[i], one.words[i]) for i in range(len(test))], dtype=np.float64)
        sums.add([sentence.unit for sentence in test], values)
        with np.errstate(invalid="ignore"):
            low, high = interval(sums.replicates[:, 0] / sums.replicates[:, 1])
        right, count = sums.total
        rows.append((name, right / count, float(low), float(high), one.parameters, int(count)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _weights_table(heads: list[Head], only: AttentionOnly) -> pd.DataFrame:
    import pandas as pd

    of_dependent, of_governor = only.weight.detach().double().reshape(2, -1).tolist()
    rows = [
        (head.stack, head.layer, head.head, dependent, governor)
        for head, dependent, governor in zip(heads, of_dependent, of_governor, strict=True)
    ]
    return pd.DataFrame(rows, columns=["stack", "layer", "head", "dependent", "governor"])
