"""Effect of every head's attention, by taking parts of it away: averages over a few texts, one row a head.

value-zeroing          how far the states at the layer's output turn (1 − cosine) when a token's values are zero in this
                       head, summed over tokens, mean over those that turn
STATISTIC@value-zeroing  a statistic of the head's map of value zeroing, rows as shares
knock-out              how far the last states turn when this head sees none of the chosen tokens (special ones, say):
                       their weight goes to others
knock-out-gone         the same, the weight being gone
knock-out-random, knock-out-random-gone  as many other tokens instead, by chance: what any knock-out of this size does
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.config.knock_out import KnockOutConfig
from headscope.config.option import recorded
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.errors import HeadscopeError
from headscope.heads import Head, Site
from headscope.masks.open_model import open_model
from headscope.model.attention import Attention
from headscope.model.attention_model import AttentionModel
from headscope.model.edits import Edit
from headscope.model.knockout import mask_edges, select_tokens
from headscope.model.lenses import LENSES
from headscope.model.one_input import OneInput
from headscope.model.tokens import Batch
from headscope.model.value_zeroing import (
    ROW_TOKENS,
    distance_to_first,
    lengths_of,
    normalize_rows,
    record_last_states,
    repeat_batch,
    stacks_of,
    zero_values,
)
from headscope.statistics import Statistic, select_statistics
from headscope.study.inputs import Corpus
from headscope.study.run_record import build_record, check_same_model
from headscope.study.schema.names import through_lens
from headscope.study.schema.record import RunRecord
from headscope.study.study import Study
from headscope.tables import Moments, Row, rows_of, to_frame

LENS = "value-zeroing"
FORMS = ("knock-out", "knock-out-gone", "knock-out-random", "knock-out-random-gone")


def knock_out(
    model: AttentionModel | str | Path,
    config: KnockOutConfig,
    data: TextData,
    reading: Reading,
    run: Run,
    *,
    existing: Study | None = None,
) -> Study:
    """Value zeroing and knock-outs of every head, averaged over texts: rows of heads.csv.

    A text is run once for every head and token, so a few texts take long.

    existing  a study of the same model, to which the result is added
    """
    started = time.perf_counter()
    names = None if config.statistics is None else list(config.statistics)
    statistics = select_statistics(names, LENSES["raw"])
    corpus = Corpus(data.corpus, data.texts, data.pairs, data.column, data.limit)
    model = open_model(model, reading, run)
    if existing is not None:
        check_same_model(model, existing, run.out or "study")
    model.self_check()
    encoder = Encoder(model, max_length=data.max_length)
    scores = KnockOuts(model, config.to, statistics, run.seed)
    for index, example in enumerate(corpus):
        for sequence in encoder.encode([example], start=index):
            scores.add(collate(model, [sequence]))
        run.progress(index + 1, corpus.total)
    encoder.unknown.warn()
    if not scores.inputs:
        raise HeadscopeError(
            "none of the texts could be used", where=corpus.name, expected="texts with tokens"
        )
    sections: RunRecord = {
        "knock_out": {
            "config": recorded(config, data, reading, run),
            **corpus.describe(),
            "to": config.to,
            "texts": scores.inputs,
            **asdict(encoder.counts),
        },
        "durations": {"knock_out": round(time.perf_counter() - started, 3)},
    }
    record = build_record(model, sections, command=run.typed or None, seed=run.seed)
    study = Study(to_frame(scores.rows()), record=record)
    return study if existing is None else existing.merge(study)


@dataclass(frozen=True)
class KnockOutCut:
    """One row's knock-out: a head, and the keys [key] that it does not see."""

    form: str
    head: Head
    keys: Tensor

    @property
    def renormalises(self) -> bool:
        return not self.form.endswith("-gone")


class _Cuts(Edit):
    """Row 0 of a batch is left as it is, each other row has one cut."""

    def __init__(self, cuts: list[KnockOutCut]) -> None:
        self.cuts = cuts
        self._at: dict[tuple[Site, bool], list[tuple[int, KnockOutCut]]] = {}
        for row, cut in enumerate(cuts, start=1):
            self._at.setdefault((cut.head.site, cut.renormalises), []).append((row, cut))

    def changes_scores(self, site: Site) -> bool:
        return (site, True) in self._at

    def changes_weights(self, site: Site) -> bool:
        return (site, False) in self._at

    def scores(self, site: Site, scores: Tensor) -> Tensor:
        return mask_edges(scores, self._edges(site, scores, True))[0]

    def weights(self, site: Site, weights: Tensor) -> Tensor:
        return weights.masked_fill(self._edges(site, weights, False), 0.0)

    def _edges(self, site: Site, cells: Tensor, renormalises: bool) -> Tensor:
        edges = torch.zeros_like(cells, dtype=torch.bool)
        for row, cut in self._at[site, renormalises]:
            edges[row, site.index_of(cut.head.head)] = cut.keys.to(cells.device)
        return edges


@dataclass
class KnockOuts:
    """Sums over inputs; `add` takes one at a time.

    to          the class of tokens that knock-outs hide
    statistics  what is asked of the maps of value zeroing
    """

    model: AttentionModel
    to: str
    statistics: list[Statistic]
    seed: int = 0
    inputs: int = 0
    moments: dict[str, Moments] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        """One input, without padding."""
        found = {form: np.full(len(self.model.heads), np.nan) for form in (LENS, *FORMS)}
        places = {head: at for at, head in enumerate(self.model.heads)}
        self._zero_values(batch, found[LENS], places)
        chance = np.random.default_rng((self.seed, self.inputs))
        for stack in stacks_of(self.model, batch):
            cuts = self._cuts(batch, stack, chance)
            for cut, turned in zip(cuts, self._turned(batch, stack, cuts), strict=True):
                found[cut.form][places[cut.head]] = turned
        for form, values in found.items():
            self.moments.setdefault(form, Moments((len(places),))).add(values[None])
        self.inputs += 1

    def rows(self) -> list[Row]:
        asked = [
            replace(row, statistic=through_lens(row.statistic, LENS))
            for one in self.statistics
            for row in one.table()
        ]
        return [
            row
            for form, one in self.moments.items()
            for row in rows_of(self.model.heads, form, one)
        ] + asked

    def _zero_values(
        self, batch: Batch, found: NDArray[np.float64], places: dict[Head, int]
    ) -> None:
        raw = OneInput(self.model, batch).weights
        for stack, sites in zero_values(self.model, batch, by_head=True).items():
            sides = batch.layout.sides(stack)
            assert sides is not None
            for site, turned in sites.items():
                for head, cells in zip(site.heads(len(turned)), turned, strict=True):
                    found[places[head]] = cells.sum(axis=-1).mean()
                attention = Attention(site, torch.from_numpy(raw[site])[None], *sides)
                seen = attention.through(LENS, torch.from_numpy(normalize_rows(turned))[None])
                seen.row_totals = torch.from_numpy(turned.sum(axis=-1))[None]
                for statistic in self.statistics:
                    statistic.update(seen)

    def _cuts(self, batch: Batch, stack: str, chance: np.random.Generator) -> list[KnockOutCut]:
        """Every form for every head of the stack; none where the text has no such token, or too few others."""
        sides = batch.layout.sides(stack)
        assert sides is not None
        chosen = select_tokens(self.to, sides[1])[0]
        others = (~chosen).nonzero()[:, 0].numpy()
        count = int(chosen.sum())
        heads = [head for head in self.model.heads if head.stack == stack]
        found = []
        for head in heads if count else ():
            found += [KnockOutCut(form, head, chosen) for form in FORMS[:2]]
            if len(others) > count:
                drawn = torch.zeros_like(chosen)
                drawn[chance.choice(others, count, replace=False)] = True
                found += [KnockOutCut(form, head, drawn) for form in FORMS[2:]]
        return found

    def _turned(self, batch: Batch, stack: str, cuts: Iterable[KnockOutCut]) -> list[float]:
        """How far each cut turns the last states, mean over tokens."""
        room = max(1, ROW_TOKENS // max(lengths_of(batch)) - 1)
        waiting = list(cuts)
        found: list[float] = []
        for start in range(0, len(waiting), room):
            now = waiting[start : start + room]
            with (
                torch.inference_mode(),
                self.model.edited(_Cuts(now)),
                record_last_states(self.model, stack) as states,
            ):
                self.model(repeat_batch(batch, 1 + len(now)))
            found += distance_to_first(states[0]).mean(axis=1).tolist()
        return found
