"""Which earlier mention would a rule take, without any model? The baselines that coreference heads are held against.

nearest      the nearest earlier mention
head_match   the nearest with the same head word; without one there is no answer, which is wrong
rules        four sieves, the nearest mention of the first sieve that lets any through: the same words; the same head
             word; number, gender and person that agree; any (the rule system of Clark et al. 2019, after Lee et al.)

Number, gender and person come from closed lists of English words and from tags where there are any; what is not known
agrees with everything. Words are compared without regard to capitals.
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
    """None: not known."""

    number: str | None
    gender: str | None
    person: int | None

    def agree(self, other: _Features) -> bool:
        pairs = (
            (self.number, other.number),
            (self.gender, other.gender),
            (self.person, other.person),
        )
        return all(mine is None or its is None or mine == its for mine, its in pairs)


def choices_of(
    window: Window, mention: Mention, candidates: Sequence[Mention]
) -> dict[str, Mention | None]:
    """What each of RULES takes among these candidates for the antecedent; None where it has no answer."""
    by_nearness = sorted(candidates, key=lambda one: (one.head, one.start), reverse=True)
    return {
        "nearest": next(iter(by_nearness), None),
        "head_match": _first(by_nearness, _same_head(window, mention)),
        "rules": _sieved(window, mention, by_nearness),
    }


def _sieved(window: Window, mention: Mention, by_nearness: Sequence[Mention]) -> Mention | None:
    sieves = (_same_words, _same_head, _agreeing, _any)
    passed = (_first(by_nearness, sieve(window, mention)) for sieve in sieves)
    return next((one for one in passed if one is not None), None)


Sieve = Callable[[Mention], bool]


def _first(by_nearness: Sequence[Mention], passes: Sieve) -> Mention | None:
    return next((one for one in by_nearness if passes(one)), None)


def _same_words(window: Window, mention: Mention) -> Sieve:
    return lambda one: _words(window, one) == _words(window, mention)


def _same_head(window: Window, mention: Mention) -> Sieve:
    return lambda one: window.words[one.head].lower() == window.words[mention.head].lower()


def _agreeing(window: Window, mention: Mention) -> Sieve:
    features = _features(window, mention)
    return lambda one: features.agree(_features(window, one))


def _any(window: Window, mention: Mention) -> Sieve:
    return lambda one: True


def _words(window: Window, mention: Mention) -> list[str]:
    return [word.lower() for word in window.words[mention.start : mention.end]]


def _features(window: Window, mention: Mention) -> _Features:
    words = _words(window, mention)
    # Up to the head only: "the brother of the queen" is a man.
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
    return (
        "plural"
        if words[0] in _PLURAL_BEFORE_NOUN
        else "singular"
        if words[0] in _SINGULAR_BEFORE_NOUN
        else None
    )


def _gender(words: list[str]) -> str | None:
    """The head word's, else a title's before it: "her father" is a man, "Mrs. Bennet" a woman."""
    titles = words[:1] if len(words) > 1 and words[0] not in ("his", "her") else []
    for word in [words[-1], *titles]:
        for gender, known in (("male", _MALE), ("female", _FEMALE), ("thing", _THING)):
            if word in known:
                return gender
    return None
