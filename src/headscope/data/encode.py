"""Tokenizes examples: token ids with special tokens, segments and words. Long input is truncated, split or skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from headscope.config.checks import check_length
from headscope.data.examples import Example, Text
from headscope.data.unknown import Unknown, UnknownTokens
from headscope.errors import HeadscopeError, choices
from headscope.model.attention_model import AttentionModel

Long = Literal["truncate", "window", "skip", "error"]
DEFAULT_LENGTH = 512  # if neither model nor tokenizer has a limit


@dataclass(frozen=True)
class Side:
    """The tokens of one text or pair. words: word number of each token, -1 for special tokens; segments: 0 or 1."""

    ids: list[int]
    words: list[int]
    segments: list[int]
    token_types: list[int] | None = None


@dataclass(frozen=True)
class Sequence:
    """The input of the model for one example (or one window of it); `target` for an encoder-decoder."""

    index: int
    source: Side
    target: Side | None = None

    @property
    def sides(self) -> list[Side]:
        return [self.source] if self.target is None else [self.source, self.target]

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of source and target."""
        return len(self.source.ids), 0 if self.target is None else len(self.target.ids)


@dataclass
class Counts:
    """Counts of examples and tokens, for the run record."""

    read: int = 0
    used: int = 0
    sequences: int = 0
    tokens: int = 0
    source_tokens: int = 0  # without the tokens of targets
    shortest: int = 0  # source tokens of the shortest sequence
    longest: int = 0
    truncated: int = 0
    windowed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    unknown: Unknown = field(default_factory=Unknown)

    def skip(self, why: str) -> None:
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def add_lengths(self, source: int, target: int) -> None:
        """Count one sequence with these numbers of tokens."""
        self.shortest = min(self.shortest, source) if self.sequences else source
        self.longest = max(self.longest, source)
        self.sequences += 1
        self.source_tokens += source
        self.tokens += source + target

    @property
    def mean_length(self) -> float:
        """Mean number of source tokens per sequence; 0 without sequences."""
        return self.source_tokens / self.sequences if self.sequences else 0.0


def check_long(long: str) -> None:
    if long not in get_args(Long):
        what, expected = f'"{long}" is not a treatment of long input', choices(long, get_args(Long))
        raise HeadscopeError(what, where="`long_texts`", expected=expected)


class Encoder:
    """Turns examples into sequences for one model, and counts used, skipped and truncated ones."""

    def __init__(
        self, model: AttentionModel, *, max_length: int | None = None, long: Long = "truncate"
    ) -> None:
        if model.tokenizer is None:
            raise HeadscopeError(
                f"{model.name} has no tokenizer, so it cannot read text",
                fix="Watch it from Python: with model.watched(...)",
            )
        check_long(long)
        self.model, self.tokenizer, self.long = model, model.tokenizer, long
        self.limit = model_limit(model)
        self.max_length = min(self.limit, DEFAULT_LENGTH) if max_length is None else max_length
        check_length(self.max_length, self.limit, model.name)
        self._check_space(pair=False)
        self.counts = Counts()
        self.unknown = UnknownTokens(model, self.counts.unknown)

    def _check_space(self, *, pair: bool) -> None:
        least = self.tokenizer.num_special_tokens_to_add(pair=pair) + (2 if pair else 1)
        if self.max_length < least:
            what = f"{self.max_length} leaves no room for {'two texts' if pair else 'text'}"
            raise HeadscopeError(what, where="`max_length`", expected=f"{least} or more")

    def encode(self, examples: list[Example], start: int) -> Iterator[Sequence]:
        """The sequences of these examples, numbered from `start`."""
        for index, example in enumerate(examples, start=start):
            self.counts.read += 1
            sequences = self._sequences(index, example)
            if sequences:
                self.counts.used += 1
                ids: list[int] = []
                for sequence in sequences:
                    self.counts.add_lengths(*sequence.lengths)
                    ids += [token for side in sequence.sides for token in side.ids]
                self.unknown.add(ids, (example.first, example.second), example.where)
                yield from sequences

    def _sequences(self, index: int, example: Example) -> list[Sequence]:
        _check_unicode(example)
        target: Side | None = None
        if self.model.is_encoder_decoder:
            source = self._side(example.first)
            target = None if example.second is None else self._target(example.second)
        else:
            source = self._side(example.first, example.second)
        if any(self._is_empty(side, example) for side in (source, target) if side is not None):
            self.counts.skip("no tokens")
            return []
        if not _is_aligned(example, source, target):
            self.counts.skip("words without tokens of their own")
            return []
        sequence = Sequence(index, source, target)
        length = max(sequence.lengths)
        return [sequence] if length <= self.max_length else self._too_long(index, example, length)

    def _is_empty(self, side: Side, example: Example) -> bool:
        """Whether there are only added special tokens, as for a text of zero-width characters."""
        pair = example.second is not None and not self.model.is_encoder_decoder
        return len(side.ids) <= int(self.tokenizer.num_special_tokens_to_add(pair=pair))

    def _too_long(self, index: int, example: Example, length: int) -> list[Sequence]:
        if self.long == "skip":
            self.counts.skip("too long")
            return []
        if self.long == "error":
            raise HeadscopeError(
                f"{length} tokens",
                where=example.where or None,
                expected=f"at most {self.max_length}",
                fix='Shorten it, or choose `long_texts="truncate"`, window or skip',
            )
        if self.long == "window":
            return self._windows(index, example)
        self.counts.truncated += 1
        self._check_space(pair=example.second is not None and not self.model.is_encoder_decoder)
        if self.model.is_encoder_decoder:
            target = None if example.second is None else self._target(example.second, cut=True)
            return [Sequence(index, self._side(example.first, cut=True), target)]
        return [Sequence(index, self._side(example.first, example.second, cut=True))]

    def _windows(self, index: int, example: Example) -> list[Sequence]:
        if example.second is not None:
            what, fix = "a pair cannot be cut into windows", "Choose truncate or skip for pairs"
            raise HeadscopeError(what, where='`long_texts="window"`', fix=fix)
        self.counts.windowed += 1
        if not isinstance(example.first, str):
            what = "a text given as words cannot be cut into windows"
            raise HeadscopeError(what, where='`long_texts="window"`', fix="Choose truncate or skip")
        pieces = self.tokenizer(example.first, add_special_tokens=False, verbose=False)["input_ids"]
        space = self.max_length - self.tokenizer.num_special_tokens_to_add(pair=False)
        full = self._side(example.first)
        first = _find(pieces, full.ids)
        last = first + len(pieces)
        before, after = range(first), range(last, len(full.ids))
        columns = (full.ids, full.words, full.segments, full.token_types)
        windows = []
        for start in range(first, last, space):
            window = [*before, *range(start, min(start + space, last)), *after]
            picked = [None if column is None else [column[i] for i in window] for column in columns]
            windows.append(Sequence(index, Side(*picked)))  # type: ignore[arg-type]
        return windows

    def _options(self, cut: bool) -> dict[str, Any]:
        """Options of the tokenizer. `verbose=False` stops its warning about long texts, which are counted here."""
        return {"truncation": cut, "max_length": self.max_length if cut else None, "verbose": False}

    def _side(self, first: Text, second: Text | None = None, *, cut: bool = False) -> Side:
        if not isinstance(first, str) and second is None:
            return self._side_of_words(first, cut=cut)
        texts = [list(text) if isinstance(text, tuple) else text for text in (first, second)]
        is_split = not isinstance(first, str)
        return self._side_of(
            self.tokenizer(*texts, is_split_into_words=is_split, **self._options(cut))
        )

    def _side_of_words(
        self, words: tuple[str, ...], *, cut: bool = False, target: bool = False
    ) -> Side:
        """The tokens of a text given as words; a slow (Python) tokenizer is called word by word."""
        options, name = self._options(cut), "text_target" if target else "text"
        if getattr(self.tokenizer, "is_fast", False):
            return self._side_of(
                self.tokenizer(**{name: list(words)}, is_split_into_words=True, **options)
            )
        encodings = (
            self.tokenizer(**{name: word}, add_special_tokens=False, verbose=False)
            for word in words
        )
        pieces = [(i, piece) for i, text in enumerate(encodings) for piece in text["input_ids"]]
        space = self.max_length - self.tokenizer.num_special_tokens_to_add(pair=False)
        pieces = pieces[:space] if cut else pieces
        text = [piece for _, piece in pieces]
        ids = self.tokenizer.build_inputs_with_special_tokens(text)
        start = _find(text, ids)
        of_words = [-1] * start + [i for i, _ in pieces] + [-1] * (len(ids) - start - len(text))
        return Side(ids, of_words, [0] * len(ids))

    def _target(self, text: Text, *, cut: bool = False) -> Side:
        """The decoder's input under teacher forcing: the start token, then the target without its last token."""
        if isinstance(text, str):
            labels = self._side_of(self.tokenizer(text_target=text, **self._options(cut)))
        else:
            labels = self._side_of_words(text, cut=cut, target=True)
        start = self.model.model.config.decoder_start_token_id
        return Side([start, *labels.ids[:-1]], [-1, *labels.words[:-1]], [0, *labels.segments[:-1]])

    def _side_of(self, encoding: Any) -> Side:
        """The ids of an encoding, with their words and segments."""
        ids: list[int] = encoding["input_ids"]
        if getattr(self.tokenizer, "is_fast", False):
            words, segments = _words_and_segments(encoding.word_ids(0), encoding.sequence_ids(0))
        else:
            tokens = self.tokenizer.convert_ids_to_tokens(ids)
            words = _words_from_marks(tokens, ids, self.model.marks.special)
            segments = [0] * len(ids)
        return Side(ids, words, segments, encoding.get("token_type_ids"))


def _find(text: list[int], ids: list[int]) -> int:
    """The position in `ids` at which the text's own ids begin, after the special tokens in front.

    Found by comparing ids: looking for the first token that is not special would fail, because the unknown token is
    special, too, and may be anywhere in a text.
    """
    starts = range(len(ids) - len(text) + 1)
    return next(start for start in starts if ids[start : start + len(text)] == text)


def _is_aligned(example: Example, source: Side, target: Side | None) -> bool:
    """Whether every word of a text given as words has tokens. A tokenizer may drop all characters of a word."""
    texts = (example.first, example.second)
    expected = [len(text) for text in texts if text is not None and not isinstance(text, str)]
    if target is None:
        return not expected or len({word for word in source.words if word >= 0}) == sum(expected)
    counts = [len({word for word in side.words if word >= 0}) for side in (source, target)]
    # The decoder reads all tokens of the target but the last, which is the end token.
    return not expected or counts == expected


def _check_unicode(example: Example) -> None:
    """Raise an error for half a surrogate pair; it comes from bad escapes in JSON or a shell that is not in UTF-8."""
    for part in (example.first, example.second or ""):
        text = part if isinstance(part, str) else " ".join(part)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as cause:
            code = f"U+{ord(text[cause.start]):04X}"
            what = f"character {cause.start + 1} is {code}, half of a surrogate pair"
            where = example.where or None
            raise HeadscopeError(what, where=where, expected="Unicode text") from cause


def _words_and_segments(
    word_ids: list[int | None], sequence_ids: list[int | None]
) -> tuple[list[int], list[int]]:
    """Word numbers, continued in the second text, and segments; a special token has that of the token before it."""
    words, segments, last = [], [], 0
    pairs = list(zip(word_ids, sequence_ids, strict=True))
    first_words = [word for word, segment in pairs if word is not None and segment == 0]
    offsets = (0, 1 + max(first_words, default=-1))
    for word, segment in pairs:
        last = segment if segment is not None else last
        segments.append(last)
        words.append(-1 if word is None or segment is None else word + offsets[segment])
    return words, segments


def _words_from_marks(tokens: list[str], ids: list[int], special: frozenset[int]) -> list[int]:
    """Word numbers for a slow SentencePiece tokenizer: a piece that starts with ▁ begins a word."""
    words, word = [], -1
    for token, token_id in zip(tokens, ids, strict=True):
        if token_id in special:
            words.append(-1)
            continue
        if token.startswith("▁") or word < 0:
            word += 1
        words.append(word)
    return words


def model_limit(model: AttentionModel) -> int:
    """The maximum number of tokens that the model can read."""
    config = model.model.config
    limits = [
        getattr(config, "max_position_embeddings", None),
        getattr(model.tokenizer, "model_max_length", None),
    ]
    if limits[0]:
        limits[0] -= model.family.positions_lost(config)
    return min((int(limit) for limit in limits if limit and limit < 1e9), default=1_000_000)
