"""Examples of a study as the page opens them: the text that the model read, and the token in it that looks.

A study shows the words around the two in question and keeps the text (docs/study.md). Of studies that do not keep it,
and of texts that are too long to be asked, the text is put together from the words that are shown.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headscope.analysis.token_maps import one_input
from headscope.errors import HeadscopeError
from headscope.explorer.cheap_heads import head_in
from headscope.heads import Head
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens
from headscope.report.head_cards import called, roles_by_head, short, words_of
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


class CorpusExamples:
    """The examples of each head of a study. They are tokenized: ask in the thread in which the model runs."""

    def __init__(self, study: Study, model: AttentionModel) -> None:
        self.model = model
        self._roles = roles_by_head(study)
        self._rows: dict[Head, list[dict[Any, Any]]] = {}
        table = study.tables.get("examples")
        for row in [] if table is None else table.to_dict("records"):
            self._rows.setdefault(head_in(row), []).append(row)

    def of(self, head: Head, max_length: int | None = None) -> list[dict[str, Any]]:
        """Those of one head, the main role's first. What shows several roles is told once, with all of them."""
        order = [role.name for role in self._roles.get((head.stack, head.layer, head.head), [])]
        rank = {name: place for place, name in enumerate(order)}
        found: dict[object, dict[str, Any]] = {}
        rows = [
            row
            for row in self._rows.get(head, [])
            if called(row["role"]) in rank and words_of(row["words"])
        ]
        for row in sorted(rows, key=lambda row: rank[called(row["role"])]):
            name = (row["kind"], row["words"], row["query"], row["key"])
            told = found.get(name) or self._told(head, row, max_length)
            if (role := called(row["role"])) not in told["roles"]:
                told["roles"].append(role)
            found[name] = told
        return list(found.values())

    def _told(self, head: Head, row: dict[Any, Any], max_length: int | None) -> dict[str, Any]:
        expected = None if is_missing(row["expected"]) else int(row["expected"])
        shown = Shown(words_of(row["words"]), int(row["query"]), int(row["key"]), expected)
        opened = self._kept(head, row, shown, max_length) or self._put_together(
            head, shown, max_length
        )
        direction = plain(row["direction"], 20)
        return {
            "roles": [],
            "kind": plain(row["kind"], 20),
            "direction": direction,
            "words": [inert(word) for word in shown.words],
            "query": shown.query,
            "key": shown.key,
            "expected": shown.expected,
            "weight": short(row["weight"]),
            **opened,
        }

    def _kept(
        self, head: Head, row: dict[Any, Any], shown: Shown, max_length: int | None
    ) -> dict[str, Any] | None:
        """With the text that the study keeps; None where it does not, or where that cannot be asked."""
        texts, starts = (_list_in(row.get(name)) for name in ("text", "starts"))
        numbers = _numbers(shown.words, starts)
        sides = None if not texts or numbers is None else self._sides(head.stack, texts, max_length)
        if sides is None or numbers is None:
            return None
        query, key = sides
        tokens = [*self._written(query), *([] if key is query else [BETWEEN, *self._written(key)])]
        opened = {
            "text": texts[0],
            "second": texts[1] if len(texts) > 1 else None,
            "is_whole": True,
        }
        if all(
            n is None or (n < len(tokens) and tokens[n] == word)
            for n, word in zip(numbers, shown.words, strict=True)
        ):
            return {**opened, "token": numbers[shown.query], "level": "tokens"}
        number = numbers[shown.query]
        said = texts[1] if head.stack in ("cross", "decoder") and len(texts) > 1 else texts[0]
        token = None if number is None else self._token_of(query, said.split(), number)
        return {**opened, "token": token, "level": "words"}

    def _put_together(self, head: Head, shown: Shown, max_length: int | None) -> dict[str, Any]:
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
            words = [
                word
                for part in (parts[:1] if head.stack == "cross" else parts[:2])
                for word in part
            ]
            number = places.index(whole.query)
            token = self._token_of(sides[0], words, number) if number < len(words) else None
        second = texts[1] if len(texts) > 1 else None
        return {
            "text": texts[0],
            "second": second,
            "is_whole": False,
            "token": token,
            "level": "words",
        }

    def _sides(
        self, stack: str, texts: list[str], max_length: int | None
    ) -> tuple[Tokens, Tokens] | None:
        try:
            batch = one_input(
                self.model, texts[0], texts[1] if len(texts) > 1 else None, max_length=max_length
            )
        except HeadscopeError:  # too long, or a model that reads no pairs
            return None
        return batch.layout.sides(stack)

    def _written(self, tokens: Tokens) -> list[str]:
        """As examples.csv has them."""
        assert tokens.ids is not None
        tokenizer: Any = self.model.tokenizer
        ids = tokens.ids[0].tolist()
        names = tokenizer.convert_ids_to_tokens(ids)
        return [
            plain(tokenizer.decode([i]).strip() or str(token), 40)
            for i, token in zip(ids, names, strict=True)
        ]

    def _token_of(self, tokens: Tokens, words: list[str], number: int) -> int | None:
        """The first token of a word of the text, by how many letters come before it; else the nearest that is alike."""
        side = axis_of(self.model, tokens)
        first = {unit: token for token, unit in reversed(list(enumerate(side.units())))}
        labels = [
            (unit, _bare(label))
            for unit, label in enumerate(side.word_labels())
            if not side.unit_special()[unit]
        ]
        before, wanted = sum(len(_bare(word)) for word in words[:number]), _bare(words[number])
        found, passed = None, 0
        for place, (unit, label) in enumerate(labels):
            if passed <= before < passed + len(label) and (
                label.startswith(wanted) or wanted.startswith(label)
            ):
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
