"""Examples of a study, for opening in the explorer: the text, and the position of the query token in it.

A study keeps an excerpt around query and key and, usually, the full text (docs/reference/tables.md). If the full text
is missing or too long for the model, a text is rebuilt from the words of the excerpt.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import astuple
from itertools import chain
from typing import Any, NamedTuple

from headscope.analysis.token_maps import encode_input
from headscope.errors import HeadscopeError
from headscope.explorer.responses import JsonObject
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens
from headscope.report.head_cards import json_number, role_label, roles_by_head, words_of
from headscope.report.look.token_axis import axis_of, escape_controls
from headscope.report.study_access import records_of
from headscope.report.table_cells import is_missing
from headscope.report.text import plain
from headscope.study.study import Study

# Marks in the excerpts of examples.csv: words left out, and the border between two texts
LEFT_OUT, BETWEEN = "…", "‖"


class OpenedExample(NamedTuple):
    """The text of an example as the page opens it.

    is_whole  whether it is the full text from the study, rather than one rebuilt from the excerpt
    token     the position of the query token; None if it was not found
    level     the units that the page shows: tokens or words
    """

    text: str
    second: str | None
    is_whole: bool
    token: int | None
    level: str


class CorpusExamples:
    """The examples of each head of a study. It uses the tokenizer, so call it only in the model's thread."""

    def __init__(self, study: Study, model: AttentionModel, max_length: int | None) -> None:
        self.model, self.max_length = model, max_length
        self._roles = roles_by_head(study)
        self._rows: dict[Head, list[dict[Any, Any]]] = {}
        for row in records_of(study, "examples"):
            self._rows.setdefault(Head.of_row(row), []).append(row)

    def of(self, head: Head) -> list[JsonObject]:
        """The examples of one head, those of its main role first. An example of several roles is listed once."""
        order = [role.name for role in self._roles.get(astuple(head), [])]
        rows = [(role_label(row["role"]), row) for row in self._rows.get(head, [])]
        rows = [(role, row) for role, row in rows if role in order and words_of(row["words"])]
        examples: dict[object, JsonObject] = {}
        roles: dict[object, list[str]] = {}
        for role, row in sorted(rows, key=lambda item: order.index(item[0])):
            name = (row["kind"], row["words"], row["query"], row["key"])
            if name not in examples:
                roles[name] = []
                examples[name] = {"roles": roles[name], **self._describe(head, row)}
            if role not in roles[name]:
                roles[name].append(role)
        return list(examples.values())

    def _describe(self, head: Head, row: dict[Any, Any]) -> JsonObject:
        words, query = words_of(row["words"]), int(row["query"])
        opened = self._open_text(head, row, words, query) or self._rebuild(head, words, query)
        return {
            "kind": plain(row["kind"], 20),
            "direction": plain(row["direction"], 20),
            "words": [escape_controls(word) for word in words],
            "query": query,
            "key": int(row["key"]),
            "expected": None if is_missing(row["expected"]) else int(row["expected"]),
            "weight": json_number(row["weight"]),
            **opened._asdict(),
        }

    def _open_text(
        self, head: Head, row: dict[Any, Any], excerpt: list[str], query: int
    ) -> OpenedExample | None:
        """The full text from the study; None if the study has none, or if the model cannot read it."""
        texts, starts = (_parse_list(row.get(name)) for name in ("text", "starts"))
        numbers = _positions(excerpt, starts)
        sides = None if not texts or numbers is None else self._sides(head.stack, texts)
        if sides is None or numbers is None:
            return None
        side, other = sides
        tokens = self._decode(side) + ([] if other is side else [BETWEEN, *self._decode(other)])
        number, second = numbers[query], texts[1] if len(texts) > 1 else None
        pairs = zip(numbers, excerpt, strict=True)
        if all(n is None or (n < len(tokens) and tokens[n] == word) for n, word in pairs):
            return OpenedExample(texts[0], second, True, number, "tokens")
        text = second if head.stack in ("cross", "decoder") and second is not None else texts[0]
        token = None if number is None else self._find_token(side, text.split(), number)
        return OpenedExample(texts[0], second, True, token, "words")

    def _rebuild(self, head: Head, excerpt: list[str], query: int) -> OpenedExample:
        """A text from the words of the excerpt: word pieces joined, without special tokens and marks of omission."""
        tokenizer: Any = self.model.tokenizer
        words, query = _join_pieces(excerpt, query)
        special, separator = set(tokenizer.all_special_tokens), tokenizer.sep_token or BETWEEN
        parts: list[list[str]] = [[]]
        positions: list[int] = []  # of the words that are in the text
        for position, word in enumerate(words):
            if word in (separator, BETWEEN) and parts[-1]:
                parts.append([])
            elif word not in special and word not in (LEFT_OUT, BETWEEN):
                parts[-1].append(word.removeprefix("##"))
                positions.append(position)
        texts = [" ".join(part) for part in parts if part] or [""]
        is_cross = head.stack == "cross"
        if is_cross:  # the side of the query comes first
            texts.reverse()
        sides = self._sides(head.stack, texts[:2]) if texts[0] else None
        token = None
        if sides is not None and query in positions:
            readable = list(chain.from_iterable(parts[: 1 if is_cross else 2]))
            number = positions.index(query)
            token = self._find_token(sides[0], readable, number) if number < len(readable) else None
        second = texts[1] if len(texts) > 1 else None
        return OpenedExample(texts[0], second, False, token, "words")

    def _sides(self, stack: str, texts: list[str]) -> tuple[Tokens, Tokens] | None:
        second = texts[1] if len(texts) > 1 else None
        try:
            batch = encode_input(self.model, texts[0], second, max_length=self.max_length)
        except HeadscopeError:  # too long, or a model that reads no pairs
            return None
        return batch.layout.sides(stack)

    def _decode(self, tokens: Tokens) -> list[str]:
        """The tokens as they are written in examples.csv."""
        assert tokens.ids is not None
        tokenizer: Any = self.model.tokenizer
        ids = tokens.ids[0].tolist()
        pairs = zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
        return [plain(tokenizer.decode([i]).strip() or str(token), 40) for i, token in pairs]

    def _find_token(self, tokens: Tokens, words: list[str], number: int) -> int | None:
        """The first token of a word of the text; None if the word is not found.

        The word is located by the number of letters before it. If that fails, it is the nearest equal word.
        """
        axis = axis_of(self.model, tokens)
        first = {unit: token for token, unit in reversed(list(enumerate(axis.units())))}
        special = axis.unit_special()
        units = enumerate(axis.word_labels())
        labels = [(unit, _letters(label)) for unit, label in units if not special[unit]]
        before = len(_letters("".join(words[:number])))
        target = _letters(words[number])
        nearest, passed = None, 0
        for position, (unit, label) in enumerate(labels):
            is_alike = label.startswith(target) or target.startswith(label)
            if passed <= before < passed + len(label) and is_alike:
                return first[unit]
            distance = abs(position - number)
            if label == target and (nearest is None or distance < nearest[0]):
                nearest = distance, unit
            passed += len(label)
        return None if nearest is None else first[nearest[1]]


def _letters(text: str) -> str:
    """The text without case, accents and blanks, which tokenizers may change."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in folded if not (c.isspace() or unicodedata.combining(c)))


def _join_pieces(words: list[str], query: int) -> tuple[list[str], int]:
    """The words with pieces ("##ing") joined to the word before them, and the new position of the query."""
    joined: list[str] = []
    positions = []
    for word in words:
        if joined and word.startswith("##") and len(word) > 2:
            joined[-1] += word.removeprefix("##")
        else:
            joined.append(word)
        positions.append(len(joined) - 1)
    return joined, positions[query]


def _parse_list(text: object) -> list[Any]:
    """A list from JSON; empty for anything else."""
    try:
        value = json.loads(text) if isinstance(text, str) else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _positions(words: list[str], starts: list[Any]) -> list[int | None] | None:
    """For each word of the excerpt its position in the text; None for a mark of omission.

    starts  positions of the first word of each run of words. If they do not fit the words, None is returned
    """
    remaining = [start for start in starts if isinstance(start, int)]
    positions: list[int | None] = []
    for word in words:
        before = positions[-1] if positions else None
        if before is not None and word != LEFT_OUT:
            positions.append(before + 1)
        elif word == LEFT_OUT and (before is not None or not positions):
            positions.append(None)
        elif remaining:
            positions.append(remaining.pop(0))
        else:
            return None
    return positions if not remaining and len(starts) else None
