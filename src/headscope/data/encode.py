"""Examples to token ids: special tokens, segments, words; what to do with input that is too long."""

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
DEFAULT_LENGTH = 512  # where neither model nor tokenizer has a limit


@dataclass(frozen=True)
class Side:
    """The tokens of one sequence. words: -1 for special tokens; segments: 0 or 1, the text a token is of."""

    ids: list[int]
    words: list[int]
    segments: list[int]
    token_types: list[int] | None = None


@dataclass(frozen=True)
class Sequence:
    """What the model reads for one example (or one window of it); `target` for an encoder-decoder."""

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
    """What became of the examples; ends up in the run record."""

    read: int = 0
    used: int = 0
    sequences: int = 0
    tokens: int = 0
    source_tokens: int = 0  # without those of targets
    shortest: int = 0  # source tokens of a sequence
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
        """Source tokens of a sequence, on average; 0 without sequences."""
        return self.source_tokens / self.sequences if self.sequences else 0.0


def check_long(long: str) -> None:
    if long not in get_args(Long):
        expected = choices(long, get_args(Long))
        raise HeadscopeError(
            f'"{long}" is not a way with long input', where="`long`", expected=expected
        )


class Encoder:
    """Turns examples into sequences for one model, counting what happens to them."""

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
        self._check_room(pair=False)
        self.counts = Counts()
        self.unknown = UnknownTokens(model, self.counts.unknown)

    def _check_room(self, *, pair: bool) -> None:
        least = self.tokenizer.num_special_tokens_to_add(pair=pair) + (2 if pair else 1)
        if self.max_length < least:
            what = f"{self.max_length} leaves no room for {'two texts' if pair else 'text'}"
            raise HeadscopeError(what, where="`max_length`", expected=f"{least} or more")

    def encode(self, examples: list[Example], start: int) -> Iterator[Sequence]:
        """The sequences of these examples, numbered from `start`."""
        for index, example in enumerate(examples, start=start):
            self.counts.read += 1
            made = self._sequences(index, example)
            if made:
                self.counts.used += 1
                ids: list[int] = []
                for sequence in made:
                    self.counts.add_lengths(*sequence.lengths)
                    ids += [token for side in sequence.sides for token in side.ids]
                self.unknown.add(ids, (example.first, example.second), example.where)
                yield from made

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
        """Whether the text became no tokens but those added around every text: zero-width characters do."""
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
                fix='Shorten it, or choose `long="truncate"`, window or skip',
            )
        if self.long == "window":
            return self._windows(index, example)
        self.counts.truncated += 1
        self._check_room(pair=example.second is not None and not self.model.is_encoder_decoder)
        if self.model.is_encoder_decoder:
            target = None if example.second is None else self._target(example.second, cut=True)
            return [Sequence(index, self._side(example.first, cut=True), target)]
        return [Sequence(index, self._side(example.first, example.second, cut=True))]

    def _windows(self, index: int, example: Example) -> list[Sequence]:
        if example.second is not None:
            what, fix = "a pair cannot be cut into windows", "Choose truncate or skip for pairs"
            raise HeadscopeError(what, where='`long="window"`', fix=fix)
        self.counts.windowed += 1
        if not isinstance(example.first, str):
            what, fix = (
                "a text given as words cannot be cut into windows",
                "Choose truncate or skip",
            )
            raise HeadscopeError(what, where='`long="window"`', fix=fix)
        pieces = self.tokenizer(example.first, add_special_tokens=False, verbose=False)["input_ids"]
        room = self.max_length - self.tokenizer.num_special_tokens_to_add(pair=False)
        whole = self._side(example.first)
        # By the ids, not by what is special: an unknown token is special too, and stands anywhere in a text.
        added = len(whole.ids) - len(pieces)
        first = next(i for i in range(added + 1) if whole.ids[i : i + len(pieces)] == pieces)
        last = first + len(pieces)
        windows = []
        for start in range(first, last, room):
            kept = [
                *range(first),
                *range(start, min(start + room, last)),
                *range(last, len(whole.ids)),
            ]
            parts = (whole.ids, whole.words, whole.segments, whole.token_types)
            picked = [None if part is None else [part[i] for i in kept] for part in parts]
            windows.append(Sequence(index, Side(*picked)))  # type: ignore[arg-type]
        return windows

    def _cut(self, cut: bool) -> dict[str, Any]:
        """Options of the tokenizer; verbose is its warning of long texts, which are counted here."""
        return {"truncation": cut, "max_length": self.max_length if cut else None, "verbose": False}

    def _side(self, first: Text, second: Text | None = None, *, cut: bool = False) -> Side:
        if not isinstance(first, str) and second is None:
            return self._side_of_words(first, cut=cut)
        given = [
            text if text is None or isinstance(text, str) else list(text)
            for text in (first, second)
        ]
        encoding = self.tokenizer(
            *given, is_split_into_words=not isinstance(first, str), **self._cut(cut)
        )
        return self._marked(encoding)

    def _side_of_words(
        self, words: tuple[str, ...], *, cut: bool = False, target: bool = False
    ) -> Side:
        """The words' pieces, each word's own; a slow tokenizer is asked word by word."""
        options = self._cut(cut)
        if getattr(self.tokenizer, "is_fast", False):
            given = {"text_target": list(words)} if target else {"text": list(words)}
            return self._marked(self.tokenizer(**given, is_split_into_words=True, **options))
        pieces = [self._pieces(word, target) for word in words]
        room = self.max_length - self.tokenizer.num_special_tokens_to_add(pair=False)
        flat = [(i, piece) for i, ids in enumerate(pieces) for piece in ids]
        flat = flat[:room] if cut else flat
        text = [piece for _, piece in flat]
        ids = self.tokenizer.build_inputs_with_special_tokens(text)
        # The added ones stand before or after all of the text: where the text begins is where it is found.
        start = next(i for i in range(len(ids) - len(text) + 1) if ids[i : i + len(text)] == text)
        of_words = [-1] * start + [i for i, _ in flat] + [-1] * (len(ids) - start - len(text))
        return Side(ids, of_words, [0] * len(ids))

    def _pieces(self, word: str, target: bool) -> list[int]:
        given = {"text_target": word} if target else {"text": word}
        encoding = self.tokenizer(**given, add_special_tokens=False, verbose=False)
        return list(encoding["input_ids"])

    def _target(self, text: Text, *, cut: bool = False) -> Side:
        """What the decoder reads when it is taught: its start token, then the target without its end."""
        if isinstance(text, str):
            labels = self._marked(self.tokenizer(text_target=text, **self._cut(cut)))
        else:
            labels = self._side_of_words(text, cut=cut, target=True)
        start = self.model.model.config.decoder_start_token_id
        return Side([start, *labels.ids[:-1]], [-1, *labels.words[:-1]], [0, *labels.segments[:-1]])

    def _marked(self, encoding: Any) -> Side:
        ids: list[int] = encoding["input_ids"]
        if getattr(self.tokenizer, "is_fast", False):
            words, segments = _words_and_segments(encoding.word_ids(0), encoding.sequence_ids(0))
        else:
            words = _words_from_marks(
                self.tokenizer.convert_ids_to_tokens(ids), ids, self.model.marks.special
            )
            segments = [0] * len(ids)
        return Side(ids, words, segments, encoding.get("token_type_ids"))


def _is_aligned(example: Example, source: Side, target: Side | None) -> bool:
    """Whether every word of a text given as words has tokens: characters that a tokenizer drops leave it without."""
    texts = (example.first, example.second)
    expected = [len(text) for text in texts if text is not None and not isinstance(text, str)]
    if target is None:
        return not expected or len({word for word in source.words if word >= 0}) == sum(expected)
    found = [len({word for word in side.words if word >= 0}) for side in (source, target)]
    # The decoder reads all but the last of the target's tokens, which is the end mark.
    return not expected or found == expected


def _check_unicode(example: Example) -> None:
    """Half a surrogate pair comes from bad escapes in JSON and from a shell that is not in UTF-8."""
    texts = [
        text if isinstance(text, str) else " ".join(text)
        for text in (example.first, example.second or "")
    ]
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as cause:
            what = f"character {cause.start + 1} is U+{ord(text[cause.start]):04X}, half of a surrogate pair"
            raise HeadscopeError(
                what, where=example.where or None, expected="Unicode text"
            ) from cause


def _words_and_segments(
    word_ids: list[int | None], sequence_ids: list[int | None]
) -> tuple[list[int], list[int]]:
    """Word numbers that go on over the second text; the text of each token (a special one: that before it)."""
    words, segments, last = [], [], 0
    second_starts = 1 + max(
        (w for w, s in zip(word_ids, sequence_ids, strict=True) if w is not None and s == 0),
        default=-1,
    )
    for word, segment in zip(word_ids, sequence_ids, strict=True):
        last = segment if segment is not None else last
        segments.append(last)
        words.append(
            -1 if word is None or segment is None else word + (second_starts if segment else 0)
        )
    return words, segments


def _words_from_marks(tokens: list[str], ids: list[int], special: frozenset[int]) -> list[int]:
    """Words of a SentencePiece tokenizer that does not tell: a piece with the mark ▁ begins one."""
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
    """How many tokens the model can read at most."""
    config = model.model.config
    limits = [
        getattr(config, "max_position_embeddings", None),
        getattr(model.tokenizer, "model_max_length", None),
    ]
    if limits[0]:
        limits[0] -= model.family.positions_lost(config)
    known = [int(limit) for limit in limits if limit and limit < 1e9]
    return min(known, default=1_000_000)
