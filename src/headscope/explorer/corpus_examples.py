"""Examples of a study as the page opens them: the text that the model read, and the token in it that looks.

A study shows the words around the two in question and keeps the text (docs/study.md). Of studies that do not keep it,
and of texts that are too long to be asked, the text is put together from the words that are shown.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from typing import Any, NamedTuple

from headscope.analysis.token_maps import encode_input
from headscope.errors import HeadscopeError
from headscope.explorer.responses import Answer
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens
from headscope.report.head_cards import json_number, role_label, roles_by_head, words_of
from headscope.report.look.token_axis import axis_of, inert
from headscope.report.table_cells import is_missing
from headscope.report.text import plain
from headscope.study.study import Study

LEFT_OUT, BETWEEN = "…", "‖"  # as examples.csv has them


@dataclass(frozen=True)
class Shown:
    """What of an example is shown: words, and which of them looks, is looked at, and should have been."""

    words: list[str]
    query: int
    key: int
    expected: int | None

    def joined(self, continues: Sequence[bool]) -> Shown:
        """The same with pieces joined to words: each that continues a word goes to the one before it."""
        words: list[str] = []
        place = []
        for word, is_part in zip(self.words, continues, strict=True):
            if is_part and words:
                words[-1] += word.removeprefix("##")
            else:
                words.append(word)
            place.append(len(words) - 1)
        expected = None if self.expected is None else place[self.expected]
        return Shown(words, place[self.query], place[self.key], expected)


class Opened(NamedTuple):
    """The text of an example as the page opens it.

    is_whole  whether it is the text that the study keeps, rather than one put together from the words shown
    token     the token that looks, None where it is not found; level is what the page shows, tokens or words
    """

    text: str
    second: str | None
    is_whole: bool
    token: int | None
    level: str


class CorpusExamples:
    """The examples of each head of a study. They are tokenized: ask in the thread in which the model runs."""

    def __init__(self, study: Study, model: AttentionModel) -> None:
        self.model = model
        self._roles = roles_by_head(study)
        self._rows: dict[Head, list[dict[Any, Any]]] = {}
        table = study.tables.get("examples")
        for row in [] if table is None else table.to_dict("records"):
            self._rows.setdefault(Head.of_row(row), []).append(row)

    def of(self, head: Head, max_length: int | None = None) -> list[Answer]:
        """Those of one head, the main role's first. What shows several roles is told once, with all of them."""
        order = [role.name for role in self._roles.get(astuple(head), [])]
        rows = [(role_label(row["role"]), row) for row in self._rows.get(head, [])]
        rows = [(role, row) for role, row in rows if role in order and words_of(row["words"])]
        examples: dict[object, Answer] = {}
        roles: dict[object, list[str]] = {}
        for role, row in sorted(rows, key=lambda item: order.index(item[0])):
            name = (row["kind"], row["words"], row["query"], row["key"])
            if name not in examples:
                roles[name] = []
                examples[name] = {"roles": roles[name], **self._describe(head, row, max_length)}
            if role not in roles[name]:
                roles[name].append(role)
        return list(examples.values())

    def _describe(self, head: Head, row: dict[Any, Any], max_length: int | None) -> Answer:
        expected = None if is_missing(row["expected"]) else int(row["expected"])
        shown = Shown(words_of(row["words"]), int(row["query"]), int(row["key"]), expected)
        opened = self._kept(head, row, shown, max_length)
        opened = opened or self._put_together(head, shown, max_length)
        return {
            "kind": plain(row["kind"], 20),
            "direction": plain(row["direction"], 20),
            "words": [inert(word) for word in shown.words],
            "query": shown.query,
            "key": shown.key,
            "expected": shown.expected,
            "weight": json_number(row["weight"]),
            **opened._asdict(),
        }

    def _kept(
        self, head: Head, row: dict[Any, Any], shown: Shown, max_length: int | None
    ) -> Opened | None:
        """With the text that the study keeps; None where it does not, or where that cannot be asked."""
        texts, starts = (_list_in(row.get(name)) for name in ("text", "starts"))
        numbers = _numbers(shown.words, starts)
        sides = None if not texts or numbers is None else self._sides(head.stack, texts, max_length)
        if sides is None or numbers is None:
            return None
        query, key = sides
        tokens = [*self._written(query), *([] if key is query else [BETWEEN, *self._written(key)])]
        number, second = numbers[shown.query], texts[1] if len(texts) > 1 else None
        pairs = zip(numbers, shown.words, strict=True)
        if all(n is None or (n < len(tokens) and tokens[n] == word) for n, word in pairs):
            return Opened(texts[0], second, True, number, "tokens")
        said = second if head.stack in ("cross", "decoder") and second is not None else texts[0]
        token = None if number is None else self._token_of(query, said.split(), number)
        return Opened(texts[0], second, True, token, "words")

    def _put_together(self, head: Head, shown: Shown, max_length: int | None) -> Opened:
        """With a text of the words that are shown: pieces joined, special tokens and what was left out not in it."""
        tokenizer: Any = self.model.tokenizer
        continues = [word.startswith("##") and len(word) > 2 for word in shown.words]
        whole = shown.joined([False, *continues[1:]])
        special, separator = set(tokenizer.all_special_tokens), tokenizer.sep_token or BETWEEN
        parts: list[list[str]] = [[]]
        places: list[int] = []
        for place, word in enumerate(whole.words):
            if word in (separator, BETWEEN) and parts[-1]:
                parts.append([])
            elif word not in special and word not in (LEFT_OUT, BETWEEN):
                parts[-1].append(word.removeprefix("##"))
                places.append(place)
        texts = [" ".join(part) for part in parts if part] or [""]
        if head.stack == "cross":  # the one that looks comes first
            texts.reverse()
        sides = self._sides(head.stack, texts[:2], max_length) if texts[0] else None
        token = None
        if sides is not None and whole.query in places:
            words = list(chain.from_iterable(parts[: 1 if head.stack == "cross" else 2]))
            number = places.index(whole.query)
            token = self._token_of(sides[0], words, number) if number < len(words) else None
        return Opened(texts[0], texts[1] if len(texts) > 1 else None, False, token, "words")

    def _sides(
        self, stack: str, texts: list[str], max_length: int | None
    ) -> tuple[Tokens, Tokens] | None:
        second = texts[1] if len(texts) > 1 else None
        try:
            batch = encode_input(self.model, texts[0], second, max_length=max_length)
        except HeadscopeError:  # too long, or a model that reads no pairs
            return None
        return batch.layout.sides(stack)

    def _written(self, tokens: Tokens) -> list[str]:
        """As examples.csv has them."""
        assert tokens.ids is not None
        tokenizer: Any = self.model.tokenizer
        ids = tokens.ids[0].tolist()
        names = tokenizer.convert_ids_to_tokens(ids)
        pairs = zip(ids, names, strict=True)
        return [plain(tokenizer.decode([i]).strip() or str(token), 40) for i, token in pairs]

    def _token_of(self, tokens: Tokens, words: list[str], number: int) -> int | None:
        """The first token of a word of the text, by how many letters come before it; else the nearest that is alike."""
        side = axis_of(self.model, tokens)
        first = {unit: token for token, unit in reversed(list(enumerate(side.units())))}
        special = side.unit_special()
        labels = [(i, _bare(label)) for i, label in enumerate(side.word_labels()) if not special[i]]
        before, wanted = sum(len(_bare(word)) for word in words[:number]), _bare(words[number])
        found, passed = None, 0
        for place, (unit, label) in enumerate(labels):
            is_alike = label.startswith(wanted) or wanted.startswith(label)
            if passed <= before < passed + len(label) and is_alike:
                return first[unit]
            if label == wanted and (found is None or abs(place - number) < abs(found[0] - number)):
                found = place, unit
            passed += len(label)
        return None if found is None else first[found[1]]


def _bare(text: str) -> str:
    """Letters as tokenizers leave them: no case, accents or blanks."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(one for one in letters if not (one.isspace() or unicodedata.combining(one)))


def _list_in(text: object) -> list[Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _numbers(words: list[str], starts: list[Any]) -> list[int | None] | None:
    """Of each shown word its place in the whole; None for what stands where words were left out."""
    left = [one for one in starts if isinstance(one, int)]
    numbers: list[int | None] = []
    for word in words:
        before = numbers[-1] if numbers else None
        if before is not None and word != LEFT_OUT:
            numbers.append(before + 1)
        elif word == LEFT_OUT and (before is not None or not numbers):
            numbers.append(None)
        elif left:
            numbers.append(left.pop(0))
        else:
            return None
    return numbers if not left and len(starts) else None
