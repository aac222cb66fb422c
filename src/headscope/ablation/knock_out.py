"""Effect of every head's attention over a few texts: value zeroing, and attention to some tokens removed."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from headscope.ablation.knock_out_scores import KnockOuts
from headscope.config.knock_out import KnockOutConfig
from headscope.config.option import recorded
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.data.batches import collate
from headscope.data.encode import Encoder
from headscope.errors import HeadscopeError
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.model.lenses import LENSES
from headscope.statistics import chosen
from headscope.study.inputs import Corpus
from headscope.study.run_record import build_record, check_same_model
from headscope.study.schema.record import RunRecord
from headscope.study.study import Study
from headscope.tables import to_frame


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
    statistics = chosen(names, LENSES["raw"])
    corpus = Corpus(data.corpus, data.texts, data.pairs, data.column, data.limit)
    model = open_model(model, reading, run)
    if existing is not None:
        check_same_model(model, existing, run.out or "study")
    model.canary()
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
    return study if existing is None else existing.joined(study)
