"""Counts the unknown tokens of an input, and collects the pieces of text that they replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headscope.errors import note

if TYPE_CHECKING:
    from headscope.data.examples import Text
    from headscope.model.attention_model import AttentionModel

WARN_SHARE = 0.05  # text like the training data has less than 1 % unknown tokens, unsuitable files far more than 5 %
SHOWN_PIECES = 10  # number of pieces in the run record
LONGEST_PIECE = 24  # characters; a longer piece is cut off


@dataclass
class Unknown:
    """Number of content tokens (all but special ones) and of unknown ones, and the most frequent unknown pieces."""

    content: int = 0
    tokens: int = 0
    pieces: dict[str, int] = field(default_factory=dict)


class UnknownTokens:
    """Counts the unknown tokens of texts for one model, and warns once if there are many."""

    def __init__(self, model: AttentionModel, counts: Unknown) -> None:
        self.tokenizer, self.counts = model.tokenizer, counts
        self._id = _unknown_id(model)
        self._special = model.marks.special - {self._id}
        self._pieces: Counter[str] = Counter()
        self._where = ""  # the file of the first example
        self._warned_files = model.warned_inputs
        self._has_warned = False

    def add(self, ids: list[int], texts: Iterable[Text | None], where: str) -> None:
        """Count the tokens of these texts; `where` is their file and line."""
        self._where = self._where or where.rpartition(":")[0]
        self.counts.content += sum(token not in self._special for token in ids)
        if self._id is None or self._id not in ids:
            return
        self.counts.tokens += ids.count(self._id)
        for text in texts:
            self._pieces.update(self._pieces_of(text) if text is not None else ())
        self.counts.pieces = dict(self._pieces.most_common(SHOWN_PIECES))

    def warn(self) -> None:
        """Warn if more than WARN_SHARE of the content tokens so far are unknown; only once per model and file."""
        if (
            self._has_warned
            or self._where in self._warned_files
            or self.counts.tokens <= WARN_SHARE * self.counts.content
        ):
            return
        self._has_warned = True
        if self._where:
            self._warned_files.add(self._where)
        share = describe_unknown(self.counts.content, self.counts.tokens, self.counts.pieces)
        check = (
            "Check that the model was trained on such text, and that the file holds nothing else"
        )
        note(f"{self._where or 'texts'}: {share}. {check}")

    def _pieces_of(self, text: Text) -> list[str]:
        """The parts of a text that become the unknown token, in order."""
        tokenizer, is_text = self.tokenizer, isinstance(text, str)
        assert tokenizer is not None
        if not getattr(tokenizer, "is_fast", False):
            pieces = tokenizer.tokenize(text if is_text else " ".join(text))
            ids = tokenizer.convert_tokens_to_ids(pieces)
            pairs = zip(pieces, ids, strict=True)
            return [piece[:LONGEST_PIECE] for piece, token in pairs if token == self._id]
        options = {"add_special_tokens": False, "is_split_into_words": not is_text}
        encoding = tokenizer(text if is_text else list(text), verbose=False, **options)
        unknown = []
        for i, token in enumerate(encoding["input_ids"]):
            span = encoding.token_to_chars(i) if token == self._id else None
            if span is not None:
                source = text if isinstance(text, str) else text[encoding.token_to_word(i)]
                end = min(span.end, span.start + LONGEST_PIECE)
                unknown.append(source[span.start : end].strip())
        return unknown


def describe_unknown(content: int, tokens: int, pieces: Iterable[str]) -> str:
    """A text such as `38.2 % of 1200 tokens are unknown to the tokenizer (most often ">", "|")`."""
    listed = ", ".join(f'"{piece}"' for piece in list(pieces)[:5])
    most = f" (most often {listed})" if listed else ""
    return f"{100 * tokens / content:.1f} % of {content} tokens are unknown to the tokenizer{most}"


def _unknown_id(model: AttentionModel) -> int | None:
    """The unknown token's id; None if there is none or if it has a second meaning (in GPT-2: the end of a text)."""
    tokenizer = model.tokenizer
    assert tokenizer is not None
    others = {getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "cls")}
    unknown: int | None = tokenizer.unk_token_id
    return None if unknown in others else unknown
