"""knock_out, the verb: what every head's attention does, by taking parts of it away, over a few texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from headscope.ablation.knock_out_scores import KnockOuts
from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.data.examples import Column
from headscope.errors import HeadscopeError, check_whole, choices, names_in
from headscope.model.attention_model import AttentionModel
from headscope.model.knockout import TOKENS
from headscope.model.lenses import LENSES
from headscope.model.load import as_model
from headscope.statistics import chosen
from headscope.study.inputs import Corpus, Files
from headscope.study.run_record import build_record
from headscope.study.study import Study
from headscope.tables import to_frame

Progress = Callable[[int, int], None]


def knock_out(
    model: AttentionModel | str | Path | Callable[[], AttentionModel],
    texts: Iterable[str | tuple[str, str]] = (),
    *,
    corpus: Files = (),
    pairs: bool = False,
    column: Column = None,
    to: str = "special",
    statistics: Iterable[str] | None = None,
    limit: int | None = 16,
    max_length: int | None = None,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Study:
    """Value zeroing and knock-outs of every head, averaged over texts: rows of heads.csv.

    A text is run once for every head and token, so that a few texts are a lot of work: 16 by default.
    to          the tokens that heads do not see: special, classification, separator, punctuation, content
    statistics  of the maps of value zeroing; all that make sense of shares by default
    """
    started = time.perf_counter()
    check_whole("limit", limit)
    if limit is not None and limit < 1:
        raise HeadscopeError(f"{limit} is too few", where="`limit`", expected="1 or more")
    classes = [name for name in TOKENS if name != "all"]
    if to not in classes:
        raise HeadscopeError(
            f'"{to}" is no class of tokens', where="`to`", expected=choices(to, classes)
        )
    names = None if statistics is None else names_in(statistics, "statistics")
    asked = chosen(names, LENSES["raw"])
    plain = Corpus(corpus, texts, pairs, column, limit)
    model = as_model(model)
    model.canary()
    encoder = Encoder(model, max_length=max_length)
    found = KnockOuts(model, to, asked, seed)
    for index, example in enumerate(plain):
        for sequence in encoder.encode([example], start=index):
            found.add(collate(model, [sequence]))
        progress(index + 1, plain.total)
    encoder.unknown.warn()
    if not found.inputs:
        raise HeadscopeError(
            "none of the texts could be used", where=plain.name, expected="texts with tokens"
        )
    counts = {"to": to, "texts": found.inputs, **asdict(encoder.counts)}
    seconds = round(time.perf_counter() - started, 3)
    record = build_record(
        model,
        {"knock_out": plain.describe() | counts, "durations": {"knock_out": seconds}},
        seed=seed,
    )
    return Study(to_frame(found.rows()), record=record)
