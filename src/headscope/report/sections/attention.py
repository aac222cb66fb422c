"""Attention to special tokens and neighbours, and its breadth: by layer, and the heads that stand out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from headscope.report.drawing.layers import draw_layers
from headscope.report.drawing.study_figure import DataSource, StudyFigure
from headscope.report.finding import (
    MOST_NAMED,
    Finding,
    HeadEstimate,
    Headline,
    head_estimate,
    join_details,
    percent,
    percent_interval,
    short_number,
)
from headscope.report.section import Fact, Section
from headscope.report.shared_heads import HeadKey, count_text, head_key, head_of, is_shared
from headscope.report.study_access import (
    entry_of,
    stacks_of,
    stacks_with,
    uniform_shares,
    values_for,
)
from headscope.report.text import group_digits, plain
from headscope.study.lengths import mean_length

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.study.study import Study

SHARES = {
    "cls": "classification token",
    "sep": "separators",
    "first": "first token",
    "punctuation": '"." and ","',
    "special": "all special tokens",
}
ENTROPIES = {"entropy": "from all tokens", "cls-entropy": "from the classification token"}


class LayerFigure(StudyFigure):
    """Statistics by layer: a dot for each head, a line for the mean of a layer."""

    headings: ClassVar[Mapping[str, str]]
    unit: ClassVar[str]
    most: ClassVar[float | None] = None

    def draw(self, study: Study) -> Figure:
        names = self.source(study).names
        return draw_layers(study, names, self.headings, self.title, self.unit, most=self.most)


class LayerShares(LayerFigure):
    name = "layer-shares"
    title = "Attention to special tokens and punctuation, by layer"
    caption = (
        "Each dot is a head; the line joins the means of the layers. The y axis is the share of attention that "
        "goes to the kind of token in the title of the panel."
    )
    headings, statistics, unit, most = SHARES, tuple(SHARES), "share of attention", 1.0

    def source(self, study: Study) -> DataSource:
        """The statistics to draw. `first` is left out if there is a classification token, mostly the same token."""
        has_cls = bool(stacks_with(study, "cls"))
        names = tuple(name for name in self.statistics if name != "first" or not has_cls)
        return DataSource("heads", names)


class LayerEntropy(LayerFigure):
    name = "layer-entropy"
    title = "Entropy of attention, by layer"
    caption = (
        "Each dot is a head; the line joins the means of the layers. With entropy 0 a head attends to one token; "
        "with high entropy it spreads its attention over many tokens."
    )
    headings, statistics, unit = ENTROPIES, tuple(ENTROPIES), "entropy in nats"


Rule = Callable[["Study", str, str], Finding | None]


def _majority(statistic: str, target: str, topic: str) -> Rule:
    """A rule for the heads that give more than half of their attention to a target, or else the head with the most."""

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        heads = _largest_first(study, statistic, stack)
        most = next(iter(heads.values()), None)
        if most is None or most.value == 0:  # a causal stack cannot attend to later tokens
            return None
        above = {key: head for key, head in heads.items() if head.value > 0.5}
        times = most.times_uniform()
        interval = percent_interval(most.low, most.high)
        if not above:
            sentence = f"No head{where} gives more than half of its attention to {target}"
            headline = Headline(
                "gives",
                percent(most.value),
                f"of its attention to {target}, more than any other",
                "",
                most.head,
            )
            return Finding(
                statistic,
                sentence,
                (most,),
                is_clear=most.excludes(0.5),
                topic=topic,
                after=" (the largest share)",
                headline=replace(headline, detail=join_details(interval, times)),
                is_null=True,
            )
        best: dict[HeadKey, HeadEstimate] = {}  # each head once, at its strongest site
        for key, head in above.items():
            best.setdefault(head_of(study, key), head)
        is_one = len(best) == 1
        verb = "gives more than half of its" if is_one else "give more than half of their"
        each = ", at its strongest site" if is_one else ", each at its strongest site"
        at = each if is_shared(study, stack) else ""
        sentence = f"{count_text(study, above, heads)}{where} {verb} attention to {target}{at}"
        named, more = tuple(best.values())[:MOST_NAMED], max(len(best) - MOST_NAMED, 0)
        many = f"{count_text(study, above, heads)}{where} {verb} attention to {target}"
        headline = Headline(
            "gives",
            percent(most.value),
            f"of its attention to {target}",
            join_details(interval, times, many if len(above) > 1 else ""),
            most.head,
        )
        evidence = most.evidence(0.5)
        return Finding(statistic, sentence, named, more, topic=topic, headline=headline, **evidence)

    return rule


def _extreme(statistic: str, topic: str, words: tuple[str, str], *, least: bool = False) -> Rule:
    """A rule for the head with the largest or least value of a statistic, and the median.

    words  words before and after the number; a share is written as a percentage
    """

    def rule(study: Study, stack: str, where: str) -> Finding | None:
        heads = list(_largest_first(study, statistic, stack).values())
        if len(heads) < 2:
            return None
        after = (
            f"; median of the heads{where}: {short_number(median(head.value for head in heads))}"
        )
        named = (heads[-1] if least else heads[0],)
        is_share = statistic != "entropy"

        def write(number: float) -> str:
            return percent(number) if is_share else f"{number:.2f} nats"

        best, middle = named[0], median(head.value for head in heads)
        detail = f"median of the heads: {write(middle)}"
        headline = Headline(words[0], write(best.value), words[1], detail, best.head)
        return Finding(
            statistic,
            headline.sentence,
            named,
            topic=topic,
            after=after,
            headline=headline,
        )

    return rule


def _applies(study: Study, stack: str, statistic: str) -> bool:
    """Whether a finding about the statistic is meaningful for these texts.

    It is not if the first token is the classification token, which has a finding of its own, or for "." in languages
    without punctuation (SMILES).
    """
    if statistic == "punctuation":
        return entry_of(study.record, "model", "natural_language") is not False
    return statistic != "first" or stack not in stacks_with(study, "cls")


RULES: tuple[Rule, ...] = (
    _majority("previous", "the previous token", "positions"),
    _majority("next", "the next token", "positions"),
    _majority("cls", "the classification token", "special tokens"),
    _majority("sep", "separators", "special tokens"),
    _majority("first", "the first token", "special tokens"),
    _extreme(
        "punctuation",
        "punctuation",
        ("gives", 'of its attention to "." and ",", more than any other'),
    ),
    _extreme(
        "entropy",
        "breadth",
        ("is the most diffuse: the entropy of its attention is", ""),
    ),
    _extreme(
        "entropy",
        "breadth",
        ("is the least diffuse: the entropy of its attention is", ""),
        least=True,
    ),
    _extreme(
        "confidence-content",
        "breadth",
        ("is the most peaked: its largest weight on a content token is", "on average"),
    ),
)


def findings(study: Study) -> Iterator[Finding]:
    """Positional heads, sinks, the most diffuse and the most peaked head, stack by stack."""
    stacks = stacks_of(study)
    for stack in stacks:
        where = "" if len(stacks) == 1 else f" of the {plain(stack)} stack"
        yield from filter(None, (rule(study, stack, where) for rule in RULES))


def _largest_first(study: Study, statistic: str, stack: str) -> dict[HeadKey, HeadEstimate]:
    """The heads of a stack from the largest value down; ties in order of layer and head. Empty if it does not apply."""
    if not _applies(study, stack, statistic):
        return {}
    rows = values_for(study, statistic, stack)
    rows = rows.sort_values(["value", "layer", "head"], ascending=[False, True, True])
    uniform = uniform_shares(study, statistic, stack)
    heads = {}
    for row in rows.to_dict("records"):
        estimate, layer = head_estimate(study, row, "value"), row["layer"]
        heads[head_key(row)] = estimate._replace(uniform=uniform.get(layer, math.nan))
    return heads


def _fact(record: Mapping[str, Any]) -> str:
    used, tokens = (entry_of(record, "data", key) for key in ("used", "tokens"))
    kind = "pairs of texts" if entry_of(record, "data", "pairs") else "texts"
    lens = plain(record.get("lens") or "raw", 60).replace(",", ", ")
    many = f"{group_digits(used)} {kind}" if used is not None else kind
    through = "" if lens == "raw" else f", through the lenses {lens}"
    length = mean_length(record)
    each = f", {length:.0f} in each on average" if length is not None else ""
    size = f" ({group_digits(tokens)} tokens{each})" if tokens is not None else ""
    return f"attention over {many}{size}{through}"


SECTION = Section(
    figures={10: LayerShares, 22: LayerEntropy},
    findings={20: findings},
    facts={10: Fact("data", _fact)},
)
