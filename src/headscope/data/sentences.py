"""Texts with relations between pairs of words, such as dependent and governor; a head may attend along a relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headscope.data.examples import Example
from headscope.errors import HeadscopeError

Between = Literal["words", "target", "across"]


@dataclass(frozen=True)
class Sentence:
    """A sentence with relations between pairs of words. A head shows a relation if it attends from one to the other.

    Parameters
    ----------
    words
        The text as words; for an encoder-decoder, the source text.
    pairs
        For each relation a list of (query word, key word), as indices from 0. A head shows the relation if the query
        word attends most to the key word.
    target
        The words of a translation, for an encoder-decoder.
    between
        Which words the pairs join. `"words"`: two of `words`; `"target"`: two of `target`; `"across"`: a word of
        `target` (query) and one of `words` (key).
    where
        File and line, for messages.

    Raises
    ------
    HeadscopeError
        If a pair names a word that does not exist.

    Examples
    --------
    >>> sentence = headscope.Sentence(("She", "sleeps"), {"subject": [(0, 1)]})
    >>> sentence.pairs["subject"]
    [(0, 1)]
    """

    words: tuple[str, ...]
    pairs: Mapping[str, Sequence[tuple[int, int]]]
    target: tuple[str, ...] | None = None
    between: Between = "words"
    where: str = ""

    def __post_init__(self) -> None:
        if self.between != "words" and self.target is None:
            what = "the pairs join words of a target that is missing"
            raise HeadscopeError(what, where=self.where or None)
        source, target = len(self.words), len(self.target or ())
        queries = source if self.between == "words" else target
        keys = target if self.between == "target" else source
        for relation, pairs in self.pairs.items():
            for query, key in pairs:
                if not (0 <= query < queries and 0 <= key < keys):
                    raise HeadscopeError(
                        f'relation "{relation}" joins words {query} and {key}',
                        where=self.where or None,
                        expected=f"0 to {queries - 1} and 0 to {keys - 1}",
                    )

    @property
    def text(self) -> str:
        """The text that identifies this sentence: it determines the split and the bootstrap weights."""
        return " ".join([*self.words, *(self.target or ())])

    def example(self) -> Example:
        return Example(self.words, self.target, self.where)
