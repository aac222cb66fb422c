"""Baselines for coreference heads: rules that choose the antecedent of a mention without a model.

nearest      the nearest earlier mention
head_match   the nearest earlier mention with the same head word; if there is none, the answer counts as wrong
rules        four tests in this order: the same words; the same head word; agreement in number, gender and person; any
             mention. The answer is the nearest mention that passes the first test that any mention passes (the rules
             of Clark et al. 2019, after Lee et al.)

Number, gender and person come from word lists for English, and from tags if there are any. An unknown feature agrees
with everything. Case is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headscope.data.coreference import Mention, Window, word_set

RULES = ("nearest", "head_match", "rules")

_FIRST = word_set("i me my mine myself we us our ours ourselves")
_SECOND = word_set("you your yours yourself yourselves thou thee thy thine thyself ye")
_SINGULAR = word_set(
    "i me my mine myself thou thee thy thine thyself yourself he him his himself she her hers herself it its itself "
    "this that oneself"
)
_SINGULAR_BEFORE_NOUN = word_set("a an each every another this that")
_PLURAL = word_set(
    "we us our ours ourselves yourselves they them their theirs themselves these those both all many several few "
    "men women people children folk gentlemen ladies boys girls"
)
_PLURAL_BEFORE_NOUN = word_set(
    "these those both all many several few two three four five six seven eight nine ten"
)
_MALE = word_set(
    "he him his himself mr mr. sir lord king prince duke count baron master father papa dad son brother uncle nephew "
    "grandfather husband man men boy boys gentleman gentlemen lad fellow monsieur widower emperor bishop priest"
)
_FEMALE = word_set(
    "she her hers herself mrs mrs. miss ms ms. madam madame mademoiselle lady ladies queen princess duchess countess "
    "baroness mistress mother mamma mama mum mom daughter sister aunt niece grandmother wife woman women girl girls "
    "maid widow empress nun"
)
_THING = word_set("it its itself")


@dataclass(frozen=True)
class _Features:
    """Number, gender and person of a mention; None if unknown."""

    number: str | None
    gender: str | None
    person: int | None

    def agree(self, other: _Features) -> bool:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(mine is None or its is None or mine == its for mine, its in pairs)


def choices_of(
    window: Window, mention: Mention, candidates: Sequence[Mention]
) -> dict[str, Mention | None]:
    """The antecedent that each rule in RULES chooses among these candidates; None if it chooses none."""
    by_nearness = sorted(candidates, key=lambda other: (other.head, other.start), reverse=True)
    head, words = window.words[mention.head].lower(), _words(window, mention)
    features = _features(window, mention)

    def nearest(passes: Callable[[Mention], bool]) -> Mention | None:
        return next((other for other in by_nearness if passes(other)), None)

    sieves: tuple[Callable[[Mention], bool], ...] = (
        lambda other: _words(window, other) == words,
        lambda other: window.words[other.head].lower() == head,
        lambda other: features.agree(_features(window, other)),
        lambda other: True,
    )
    passed = map(nearest, sieves)
    return {
        "nearest": nearest(sieves[3]),
        "head_match": nearest(sieves[1]),
        "rules": next((other for other in passed if other is not None), None),
    }


def _words(window: Window, mention: Mention) -> list[str]:
    return [word.lower() for word in window.words[mention.start : mention.end]]


def _features(window: Window, mention: Mention) -> _Features:
    words = _words(window, mention)
    # Words up to the head only: "the brother of the queen" is male.
    until_head = words[: mention.head - mention.start + 1]
    head = until_head[-1]
    tag = "" if window.tags is None else window.tags[mention.head]
    person = 1 if head in _FIRST else 2 if head in _SECOND else 3
    return _Features(_number(until_head, tag), _gender(until_head), person)


def _number(words: list[str], tag: str) -> str | None:
    if "and" in words or words[-1] in _PLURAL or tag in ("NNS", "NNPS"):
        return "plural"
    if words[-1] in _SINGULAR or tag in ("NN", "NNP"):
        return "singular"
    if words[0] in _PLURAL_BEFORE_NOUN:
        return "plural"
    return "singular" if words[0] in _SINGULAR_BEFORE_NOUN else None


def _gender(words: list[str]) -> str | None:
    """Gender of the head word, else of the first word (a title): "her father" is male, "Mrs. Bennet" female."""
    titles = words[:1] if len(words) > 1 and words[0] not in ("his", "her") else []
    for word in [words[-1], *titles]:
        for gender, listed_words in (("male", _MALE), ("female", _FEMALE), ("thing", _THING)):
            if word in listed_words:
                return gender
    return None
