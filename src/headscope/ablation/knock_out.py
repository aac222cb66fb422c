"""Value zeroing and attention knock-out of every head, averaged over a few texts.

Effects are measured by how far hidden states turn: 1 − cosine of a state with and without the change.

value-zeroing            the values of one token are set to zero in this head. Turn of the states at the layer's output,
                         summed over the zeroed tokens, mean over the states
STATISTIC@value-zeroing  a statistic of the head's value-zeroing map, whose rows are divided by their sums
knock-out                the head cannot attend to a class of tokens, e.g. special tokens; its rows are renormalised.
                         Turn of the last layer's states
knock-out-gone           the same without renormalisation
knock-out-random         control for knock-out: the same number of other tokens, chosen at random
knock-out-random-gone    control for knock-out-gone
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headscope.config.ablate_edges import AblateEdgesConfig
from headscope.config.option import record_options
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
from headscope.model.load import ModelSource
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
    model: ModelSource,
    config: AblateEdgesConfig,
    data: TextData,
    reading: Reading,
    run: Run,
    *,
    existing: Study | None = None,
) -> Study:
    """Value zeroing and knock-outs of every head, averaged over texts: rows of heads.csv.

    This is slow: every text is run once for every head and token.

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
            "config": record_options(config, data, reading, run),
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
    """A knock-out in one row of a batch: the form, the head, and a mask [key] of the keys it cannot attend to."""

    form: str
    head: Head
    keys: Tensor

    @property
    def renormalises(self) -> bool:
        return not self.form.endswith("-gone")


class _Cuts(Edit):
    """Applies one knock-out to each row of a batch except the first, which stays intact."""

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
    """Sums of the effects over texts, which are added one at a time.

    to          the class of tokens that heads cannot attend to
    statistics  statistics of the value-zeroing maps
    inputs      number of texts so far
    """

    model: AttentionModel
    to: str
    statistics: list[Statistic]
    seed: int = 0
    inputs: int = 0
    moments: dict[str, Moments] = field(default_factory=dict)

    def add(self, batch: Batch) -> None:
        """Add one text, without padding."""
        values = {form: np.full(len(self.model.heads), np.nan) for form in (LENS, *FORMS)}
        index = {head: i for i, head in enumerate(self.model.heads)}
        self._zero_values(batch, values[LENS], index)
        rng = np.random.default_rng((self.seed, self.inputs))
        for stack in stacks_of(self.model, batch):
            cuts = self._cuts(batch, stack, rng)
            for cut, distance in zip(cuts, self._distances(batch, stack, cuts), strict=True):
                values[cut.form][index[cut.head]] = distance
        for form, by_head in values.items():
            self.moments.setdefault(form, Moments((len(index),))).add(by_head[None])
        self.inputs += 1

    def rows(self) -> list[Row]:
        rows = []
        for form, moments in self.moments.items():
            rows += rows_of(self.model.heads, form, moments)
        for statistic in self.statistics:
            for row in statistic.table():
                rows.append(replace(row, statistic=through_lens(row.statistic, LENS)))
        return rows

    def _zero_values(
        self, batch: Batch, values: NDArray[np.float64], index: dict[Head, int]
    ) -> None:
        """Zero the values of each token in each head: fills `values` [head] and updates the statistics."""
        raw = OneInput(self.model, batch).weights
        for stack, sites in zero_values(self.model, batch, by_head=True).items():
            sides = batch.layout.sides(stack)
            assert sides is not None
            for site, distances in sites.items():  # [head, query, key]
                for head, by_cell in zip(site.heads(len(distances)), distances, strict=True):
                    values[index[head]] = by_cell.sum(axis=-1).mean()
                attention = Attention(site, torch.from_numpy(raw[site])[None], *sides)
                lens_map = attention.through(
                    LENS, torch.from_numpy(normalize_rows(distances))[None]
                )
                lens_map.row_totals = torch.from_numpy(distances.sum(axis=-1))[None]
                for statistic in self.statistics:
                    statistic.update(lens_map)

    def _cuts(self, batch: Batch, stack: str, rng: np.random.Generator) -> list[KnockOutCut]:
        """Every form of knock-out for every head of the stack.

        The list is empty if the text has no token of the class. It has no controls if there are too few other tokens.
        """
        sides = batch.layout.sides(stack)
        assert sides is not None
        chosen = select_tokens(self.to, sides[1])[0]
        others = (~chosen).nonzero()[:, 0].numpy()
        count = int(chosen.sum())
        heads = [head for head in self.model.heads if head.stack == stack]
        cuts = []
        for head in heads if count else ():
            cuts += [KnockOutCut(form, head, chosen) for form in FORMS[:2]]
            if len(others) > count:
                control = torch.zeros_like(chosen)
                control[rng.choice(others, count, replace=False)] = True
                cuts += [KnockOutCut(form, head, control) for form in FORMS[2:]]
        return cuts

    def _distances(self, batch: Batch, stack: str, cuts: list[KnockOutCut]) -> list[float]:
        """For each cut, 1 − cosine of the last layer's states with and without it, mean over tokens."""
        size = max(1, ROW_TOKENS // max(lengths_of(batch)) - 1)  # one row is the intact text
        result: list[float] = []
        for start in range(0, len(cuts), size):
            batch_cuts = cuts[start : start + size]
            with (
                torch.inference_mode(),
                self.model.edited(_Cuts(batch_cuts)),
                record_last_states(self.model, stack) as states,
            ):
                self.model(repeat_batch(batch, 1 + len(batch_cuts)))
            result += distance_to_first(states[0]).mean(axis=1).tolist()
        return result
