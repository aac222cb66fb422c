"""Where in the data can one see a head do its job, and where does it fail to?

Three typical and three counter examples for every head with a role, from a second pass over a few texts. An example
is one row of attention with the place of its largest weight. It is typical if that is where the role's rule wants it,
and a counter example if it is elsewhere; of each kind those with the largest weights are kept, one a text. Roles that
speak of tokens (previous token, separators …) are shown with tokens, and only content tokens look; roles that speak of
words (relations, antecedents, rare words) with words, special tokens left out.

These are the clearest cases, not usual ones: how often the rule holds is in roles.csv.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headscope.data.batches import batches
from headscope.data.coreference import Window
from headscope.data.encode import Encoder
from headscope.data.examples import Example
from headscope.data.frequency import Frequencies, words_in
from headscope.data.sentences import Sentence
from headscope.heads import Head, Site
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Tokens
from headscope.model.words import word_attention

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from headscope.study.study import Study

COLUMNS = (
    "stack",
    "layer",
    "head",
    "role",
    "direction",
    "kind",
    "words",
    "query",
    "key",
    "weight",
    "expected",
    "arcs",
)
EACH = 3
MOST = 200
FEWEST_WORDS, MOST_WORDS = 4, 30  # a sentence one can take in at a glance
REACH = 8  # words shown around the two in question, where a text is longer than that
COMMON = 500  # as in rare_words: a word among the 500 most frequent is not rare
FEW_PLACES = 3  # where the rule wants the maximum; with more of them no one can be called the right one
BETWEEN = "‖"  # stands between two texts of a cross attention


def examples_of(
    model: AttentionModel,
    study: Study,
    *,
    sentences: Sequence[Sentence] = (),
    texts: Iterable[Example] = (),
    windows: Sequence[Window] = (),
    frequencies: Frequencies | None = None,
    max_length: int | None = None,
    batch_size: int = 16,
    most: int = MOST,
) -> pd.DataFrame:
    """Examples for the roles in study.tables["roles"], from at most `most` of each kind of data.

    sentences    for relations, and for rare words; also for tokens where there are no texts
    texts        for roles that speak of tokens
    windows      of documents with mentions, for coreferential heads
    frequencies  for rare words
    """
    import pandas as pd

    asked = _asked(study)
    found = _Found()
    chosen = _readable(sentences)[:most]
    plain = list(islice(texts, most))
    documents = list(windows[:most])
    spoken = [text for example in plain if (text := _as_words(example))]
    among_words: list[tuple[list[Example], Callable[[int, Site], _Questions]]] = [
        ([one.example() for one in chosen], _of_sentences(chosen, asked, frequencies, model)),
        ([one.example for one in documents], _of_windows(documents, asked)),
        ([] if chosen else [Example(text) for text in spoken], _of_rare_words(spoken, asked, frequencies)),
    ]
    for examples, questions in among_words:
        _read(model, examples, _ByWords(asked, found, examples, questions), max_length, batch_size)
    tokens = plain or [one.example() for one in chosen] or [one.example for one in documents]
    _read(model, tokens, _ByTokens(asked, found, model), max_length, batch_size)
    return pd.DataFrame(list(found.rows()), columns=list(COLUMNS))


def _readable(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Those of a handy length; all of them where none is."""
    return [one for one in sentences if FEWEST_WORDS <= len(one.words) <= MOST_WORDS] or list(sentences)


def _as_words(example: Example) -> tuple[str, ...]:
    return words_in(example.first) if isinstance(example.first, str) else example.first


# What is asked of which heads


@dataclass(frozen=True)
class _Role:
    """A role of some heads; a relation has a name and a direction."""

    name: str
    relation: str = ""
    direction: str = ""


Asked = dict[Site, dict[_Role, list[int]]]  # the heads of each site that have a role


def _asked(study: Study) -> Asked:
    asked: Asked = {}
    for role, head in _roles(study):
        heads = asked.setdefault(head.site, {}).setdefault(role, [])
        if head.head not in heads:
            heads.append(head.head)
    return asked


def _roles(study: Study) -> Iterator[tuple[_Role, Head]]:
    directions = _directions(study)
    for one in study.tables["roles"].to_dict("records"):
        head = Head(str(one["stack"]), int(one["layer"]), int(one["head"]))
        relation = str(one["role"]).removeprefix("syntactic: ")
        yield _Role(str(one["role"]), *directions.get((head, relation), ("", ""))), head


def _directions(study: Study) -> dict[tuple[Head, str], tuple[str, str]]:
    """The relation and its direction that a head shows best."""
    table = study.tables.get("relation_heads")
    if table is None:
        return {}
    above = table[table["is_above"]].sort_values("accuracy")
    return {
        (Head(row["stack"], int(row["layer"]), int(row["head"])), row["relation"]): (row["relation"], row["direction"])
        for row in above.to_dict("records")
    }


# Questions: where a row's largest weight should be


@dataclass(frozen=True)
class _Question:
    """right, allowed [query, key]: where the rule wants the maximum, and among what it is taken.

    by_column  the maximum is over the words that look, not over those looked at
    is_broad   the rule holds where no weight is large
    """

    right: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    by_column: bool = False
    is_broad: bool = False


_Questions = dict[_Role, _Question]


def _of_sentences(
    sentences: list[Sentence], asked: Asked, frequencies: Frequencies | None, model: AttentionModel
) -> Callable[[int, Site], _Questions]:
    has_encoder = any(site.stack == "encoder" for site in model.sites)

    def questions(number: int, site: Site) -> _Questions:
        sentence = sentences[number]
        found = _rare(sentence.words, asked.get(site, {}), frequencies) if sentence.between == "words" else {}
        joined = {"words": "encoder" if has_encoder else "decoder", "target": "decoder", "across": "cross"}
        if joined[sentence.between] == site.stack:
            for role in asked.get(site, {}):
                if role.relation and sentence.pairs.get(role.relation):
                    found[role] = _related(sentence, role)
        return found if site.stack in (joined["words"], joined[sentence.between]) else {}

    return questions


def _related(sentence: Sentence, role: _Role) -> _Question:
    source, target = len(sentence.words), len(sentence.target or ())
    shape = {"words": (source, source), "target": (target, target), "across": (target, source)}[sentence.between]
    right = np.zeros(shape, dtype=bool)
    for query, key in sentence.pairs[role.relation]:
        right[query, key] = True
    if sentence.between == "across":
        return _Question(right, np.ones_like(right), by_column=role.direction == "received")
    np.fill_diagonal(right, False)
    allowed = ~np.eye(len(right), dtype=bool)
    # `governor` and `received` both speak of what the governor gives to its dependent.
    return _Question(right if role.direction == "dependent" else right.T, allowed, role.direction == "received")


def _of_windows(windows: list[Window], asked: Asked) -> Callable[[int, Site], _Questions]:
    def questions(number: int, site: Site) -> _Questions:
        roles = [role for role in asked.get(site, {}) if role.name == "coreferential"]
        return {role: _referring(windows[number]) for role in roles}

    return questions


def _referring(window: Window) -> _Question:
    right = np.zeros((len(window.words), len(window.words)), dtype=bool)
    allowed = np.zeros_like(right)
    for mention in window.mentions:
        for earlier in window.mentions:
            if earlier.end <= mention.start and earlier.head != mention.head:
                allowed[mention.head, earlier.head] = True
                right[mention.head, earlier.head] |= earlier.entity == mention.entity
    return _Question(right, allowed)


def _of_rare_words(
    texts: list[tuple[str, ...]], asked: Asked, frequencies: Frequencies | None
) -> Callable[[int, Site], _Questions]:
    return lambda number, site: _rare(texts[number], asked.get(site, {}), frequencies)


def _rare(words: tuple[str, ...], roles: Iterable[_Role], frequencies: Frequencies | None) -> _Questions:
    """The two rarest words, where the rarest is not a common one."""
    named = [role for role in roles if role.name == "rare words"]
    if not named or frequencies is None:
        return {}
    counted = np.array([frequencies.is_counted(word) for word in words], dtype=bool)
    ranks = np.array([frequencies.rank(word) if is_word else -1 for word, is_word in zip(words, counted, strict=True)])
    different = {word.lower(): int(rank) for word, rank in zip(words, ranks, strict=True) if rank >= 0}
    rarest = sorted(different.values(), reverse=True)
    if not rarest or rarest[0] < COMMON:
        return {}
    targets = counted & (ranks >= rarest[min(1, len(rarest) - 1)])
    rows = counted & ~targets
    allowed = counted[None] & ~np.eye(len(words), dtype=bool)
    return {role: _Question(rows[:, None] & targets, rows[:, None] & allowed) for role in named}


def _token_question(role: str, query: Tokens, key: Tokens, row: int) -> _Question | None:
    """For a role that speaks of tokens, of the sequence `row`."""
    rows = query.content[row].cpu().numpy()
    keys = key.content[row].cpu().numpy()
    shape = (len(rows), len(keys))
    everywhere = np.broadcast_to(rows[:, None], shape)
    if role in MARKED:
        marked = getattr(key, MARKED[role])[row].cpu().numpy()
        return _Question(rows[:, None] & marked, everywhere)
    if role == "broad":
        return _Question(everywhere, everywhere, is_broad=True)
    offset = OFFSETS.get(role)
    if offset is None and role.startswith("positional "):
        offset = int(role.removeprefix("positional "))
        everywhere = rows[:, None] & keys
    if offset is not None and query is key:
        return _Question(np.eye(len(rows), k=offset, dtype=bool) & everywhere, everywhere)
    if role == "block" and query.segments is not None and query is key:
        segments = query.segments[row].cpu().numpy()
        return _Question((segments[:, None] == segments) & everywhere, everywhere)
    return None


MARKED = {
    "classification token": "classification",
    "separators": "separator",
    "special tokens": "special",
    "punctuation": "punctuation",
    "confident": "content",
}
OFFSETS = {"previous token": -1, "next token": 1, "itself": 0}


# The second pass


class _ByWords:
    """Attention between words, asked what `questions` says of each example and site."""

    def __init__(
        self, asked: Asked, found: _Found, examples: list[Example], questions: Callable[[int, Site], _Questions]
    ) -> None:
        self.asked, self.found, self.examples, self.questions = asked, found, examples, questions

    def __call__(self, attention: Attention) -> None:
        site = attention.site
        heads = self.asked.get(site, {})
        posed = [self.questions(number, site) if heads else {} for number in attention.examples]
        if not any(posed):
            return
        weights = word_attention(attention).weights.float().cpu().numpy()
        for row, (number, questions) in enumerate(zip(attention.examples, posed, strict=True)):
            labels = _sides(self.examples[number], site.stack)
            for role, question in questions.items():
                queries, keys = question.right.shape
                for head in heads[role]:
                    cells = weights[row, head, :queries, :keys]
                    self.found.look(Head(site.stack, site.layer, head), role, question, cells, labels, number)


def _sides(example: Example, stack: str) -> tuple[list[str], list[str]]:
    """The words that look and those looked at; the same list where it is one text."""
    source, target = ([] if text is None or isinstance(text, str) else list(text) for text in _both(example))
    if stack == "cross":
        return target, source
    one = target if stack == "decoder" and target else source
    return one, one


def _both(example: Example) -> tuple[Any, Any]:
    return example.first, example.second


class _ByTokens:
    """Attention between tokens, for the roles that speak of them."""

    def __init__(self, asked: Asked, found: _Found, model: AttentionModel) -> None:
        self.asked, self.found, self.model = asked, found, model

    def __call__(self, attention: Attention) -> None:
        roles = [role for role in self.asked.get(attention.site, {}) if not role.relation]
        if not roles:
            return
        weights = attention.weights.float().cpu().numpy()
        for row, number in enumerate(attention.examples):
            labels = self._labels(attention, row)
            for role in roles:
                question = _token_question(role.name, attention.query, attention.key, row)
                for head in self.asked[attention.site][role] if question is not None else ():
                    place = Head(attention.site.stack, attention.site.layer, head)
                    self.found.look(place, role, question, weights[row, head], labels, number)  # type: ignore[arg-type]

    def _labels(self, attention: Attention, row: int) -> tuple[list[str], list[str]]:
        query = self._written(attention.query, row)
        return query, query if attention.within_one_text else self._written(attention.key, row)

    def _written(self, tokens: Tokens, row: int) -> list[str]:
        assert tokens.ids is not None
        tokenizer: Any = self.model.tokenizer
        ids = tokens.ids[row].tolist()
        raw = tokenizer.convert_ids_to_tokens(ids)
        return [tokenizer.decode([i]).strip() or str(token) for i, token in zip(ids, raw, strict=True)]


def _read(
    model: AttentionModel, examples: list[Example], look: _ByWords | _ByTokens, max_length: int | None, batch_size: int
) -> None:
    """Run the model over the examples; `look` is shown the attention, with the numbers of the examples."""
    if not examples:
        return
    encoder = Encoder(model, max_length=max_length, long="skip" if isinstance(look, _ByWords) else "truncate")
    for batch in batches(encoder, examples, batch_size=batch_size):
        indices = batch.indices

        def observe(attention: Attention, indices: tuple[int, ...] = indices) -> None:
            attention.examples = indices[attention.rows]
            look(attention)

        with model.watched(observe), torch.inference_mode():
            model(batch)


# What is kept


@dataclass(order=True)
class _Case:
    """One row of attention and where its maximum is; the larger the rank, the clearer."""

    rank: float
    earlier: int  # of equally clear ones the earlier example is kept
    query: int = field(compare=False)
    key: int = field(compare=False)
    weight: float = field(compare=False)
    expected: int | None = field(compare=False)
    arcs: list[tuple[int, int, float]] = field(compare=False)
    labels: tuple[list[str], list[str]] = field(compare=False)
    is_mirrored: bool = field(compare=False, default=False)  # the word expected is then one that looks

    def mirrored(self) -> _Case:
        """The same with the two sides exchanged: what was found along a column, as a row looks."""
        arcs = [(key, query, weight) for query, key, weight in self.arcs]
        return replace(self, query=self.key, key=self.query, arcs=arcs, is_mirrored=True)


class _Found:
    """The clearest cases of each head, role and kind, one an example."""

    def __init__(self) -> None:
        self._cases: dict[tuple[Head, _Role, str], list[_Case]] = {}

    def look(
        self,
        head: Head,
        role: _Role,
        question: _Question,
        weights: NDArray[np.float32],
        labels: tuple[list[str], list[str]],
        number: int,
    ) -> None:
        """weights [query, key] of one example."""
        right, allowed = question.right, question.allowed
        if question.by_column:
            weights, right, allowed = weights.T, right.T, allowed.T
        rows: NDArray[np.bool_] = np.any(right, axis=1)
        if not rows.any():
            return
        masked = np.where(allowed, weights, -1.0)
        tops = masked.argmax(axis=1)
        largest = masked[np.arange(len(tops)), tops]
        holds = right[np.arange(len(tops)), tops]
        for kind, ranks in _ranks(question, rows, holds, largest, weights):
            best = int(ranks.argmax())
            if not math.isfinite(ranks[best]):
                continue
            is_one_place = not holds[best] and right[best].sum() <= FEW_PLACES
            wanted = int(np.where(right[best], weights[best], -1.0).argmax()) if is_one_place else None
            arcs = [(i, int(tops[i]), float(largest[i])) for i in range(len(tops)) if largest[i] > 0]
            case = _Case(float(ranks[best]), -number, best, int(tops[best]), float(largest[best]), wanted, arcs, labels)
            self._keep(head, role, kind, case.mirrored() if question.by_column else case)

    def _keep(self, head: Head, role: _Role, kind: str, case: _Case) -> None:
        cases = self._cases.setdefault((head, role, kind), [])
        if len(cases) < EACH:
            heapq.heappush(cases, case)
        else:
            heapq.heappushpop(cases, case)

    def rows(self) -> Iterator[dict[str, Any]]:
        for (head, role, kind), cases in sorted(self._cases.items(), key=lambda item: _order(*item[0])):
            for case in sorted(cases, reverse=True):
                place = {"stack": head.stack, "layer": head.layer, "head": head.head}
                yield place | {"role": role.name, "direction": role.direction, "kind": kind} | _shown(case)


def _order(head: Head, role: _Role, kind: str) -> tuple[object, ...]:
    return head, role.name, role.direction, kind == "counter"


def _ranks(
    question: _Question,
    rows: NDArray[np.bool_],
    holds: NDArray[np.bool_],
    largest: NDArray[np.float32],
    weights: NDArray[np.float32],
) -> list[tuple[str, NDArray[np.float64]]]:
    """How clear each row is as a typical and as a counter example; -inf where it is none."""
    if question.is_broad:
        entropy = -(weights * np.log(np.maximum(weights, np.finfo(np.float32).tiny))).sum(axis=1)
        return [("typical", np.where(rows, entropy, -np.inf)), ("counter", np.where(rows, largest, -np.inf))]
    return [
        ("typical", np.where(rows & holds, largest, -np.inf)),
        ("counter", np.where(rows & ~holds & (largest > 0), largest, -np.inf)),
    ]


def _shown(case: _Case) -> dict[str, Any]:
    """The words around the two in question, with their new numbers; two texts one behind the other."""
    queries, keys = case.labels
    shift = 0 if queries is keys else len(queries) + 1
    words = queries if queries is keys else [*queries, BETWEEN, *keys]
    query, key = case.query, case.key + shift
    expected = None if case.expected is None else case.expected + (0 if case.is_mirrored else shift)
    kept = _stretch(len(words), [place for place in (query, key, expected) if place is not None])
    new = {old: i for i, old in enumerate(kept) if old >= 0}
    arcs = [(new.get(q), new.get(k + shift), round(w, 3)) for q, k, w in case.arcs]
    return {
        "words": json.dumps([words[i] if i >= 0 else "…" for i in kept], ensure_ascii=False),
        "query": new[query],
        "key": new[key],
        "weight": case.weight,
        "expected": np.nan if expected is None else new[expected],
        "arcs": json.dumps([arc for arc in arcs if None not in arc]),
    }


def _stretch(count: int, places: list[int]) -> list[int]:
    """The numbers of the words to show; -1 stands for some that are left out."""
    if count <= MOST_WORDS + 2:  # special tokens at both ends
        return list(range(count))
    near = [i for i in range(count) if any(abs(i - place) <= REACH for place in places)]
    shown: list[int] = [-1] if near[0] > 0 else []
    for before, i in zip([near[0] - 1, *near], near, strict=False):
        shown += [-1, i] if i > before + 1 else [i]
    return [*shown, -1] if near[-1] < count - 1 else shown
