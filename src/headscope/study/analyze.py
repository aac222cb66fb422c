"""analyze, the verb: one pass of a model over texts, and a study of what its heads did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from headscope.data.batches import batches
from headscope.data.encode import Encoder, Long, check_long
from headscope.data.examples import Example, examples_of, read_examples
from headscope.data.lines import can_be_read_again
from headscope.errors import HeadscopeError
from headscope.model.attention_model import AttentionModel
from headscope.model.load import load
from headscope.statistics import chosen, stream
from headscope.study.record import describe_files, describe_model, versions
from headscope.study.study import SCHEMA, Study
from headscope.tables import to_frame

Progress = Callable[[int, int], None]


class _Source:
    """The examples, read through once beforehand: how many there are, and whether any line is bad."""

    def __init__(
        self,
        corpus: str | Path | Iterable[str | Path],
        texts: Iterable[str | tuple[str, str]],
        pairs: bool,
        fields: tuple[str, ...] | None,
        limit: int | None,
    ) -> None:
        if isinstance(corpus, str | Path):
            corpus = [corpus]
        self.files, self.pairs, self.fields, self.limit = list(corpus), pairs, fields, limit
        given = examples_of(texts)
        self.name = ", ".join(map(str, self.files)) or "corpus"
        if self.files and given:
            raise HeadscopeError("give files or texts, not both", where="corpus, texts")
        self._given: list[Example] | None = None  # None: in files, to be read as often as needed
        if not self.files:
            self._given = given[:limit]
            self.pairs = any(example.second is not None for example in given)
            if pairs and given and not self.pairs:
                raise HeadscopeError(
                    "single texts", where="texts", expected="pairs: (first, second), as pairs=True says"
                )
        elif not all(can_be_read_again(file) for file in self.files):
            self._given = list(islice(read_examples(self.files, pairs=pairs, fields=fields), limit))
        self.total = sum(1 for _ in self)
        if not self.total:
            raise HeadscopeError(
                "no text in it" if self.files else "no text was given",
                where=self.name,
                expected="lines that are not blank and not comments (# …)" if self.files else "corpus=[…] or texts=[…]",
            )

    def __iter__(self) -> Iterator[Example]:
        if self._given is not None:
            return iter(self._given)
        return islice(read_examples(self.files, pairs=self.pairs, fields=self.fields), self.limit)

    def describe(self) -> dict[str, Any]:
        return {"files": describe_files(self.files), "pairs": self.pairs, "limit": self.limit}


def analyze(
    model: AttentionModel | str | Path | Callable[[], AttentionModel],
    *,
    corpus: str | Path | Iterable[str | Path] = (),
    texts: Iterable[str | tuple[str, str]] = (),
    pairs: bool = False,
    fields: tuple[str, ...] | None = None,
    statistics: Iterable[str] | None = None,
    max_length: int | None = None,
    long: Long = "truncate",
    batch_size: int = 32,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Study:
    """What every head does over a corpus: the surface statistics, with intervals.

    model       loaded; or what `load` takes, or a function that loads one: only done once the rest is seen to be right
    corpus      files of text (one a line), tab-separated pairs, or jsonl; texts: given directly instead
    pairs       the files hold pairs of texts; for an encoder-decoder, a source and its target
    fields      the fields of jsonl to read: text, or a and b for pairs, unless said
    statistics  names from the glossary; all by default
    max_length  tokens a sequence may have; by default what the model can read, at most 512
    long        what to do with longer ones: truncate, window, skip or error
    limit       only the first so many examples
    progress    told (examples done, examples in all) after every batch
    """
    import pandas as pd

    started = time.perf_counter()
    for name, number in (("--batch-size", batch_size), ("--limit", limit)):
        if number is not None and number < 1:
            raise HeadscopeError(f"{number} is too few", where=name, expected="1 or more")
    check_long(long)
    asked = chosen([statistics] if isinstance(statistics, str) else None if statistics is None else list(statistics))
    source = _Source(corpus, texts, pairs, fields, limit)
    if not isinstance(model, AttentionModel):
        model = load(model) if isinstance(model, str | Path) else model()
    model.canary()
    loaded = time.perf_counter()
    encoder = Encoder(model, max_length=max_length, long=long)
    done = 0
    for batch in stream(model, batches(encoder, source, batch_size=batch_size), asked):
        done += len(batch)
        progress(done, max(source.total, done))
    if not encoder.counts.used:
        why = ", ".join(f"{count} {reason}" for reason, count in encoder.counts.skipped.items())
        raise HeadscopeError(
            f"none of the {encoder.counts.read} texts could be used ({why})",
            where=source.name,
            expected=f"texts of 1 to {encoder.max_length} tokens",
        )
    finished = time.perf_counter()
    record = {
        "schema": SCHEMA,
        "versions": versions(),
        "model": describe_model(model),
        "data": source.describe() | asdict(encoder.counts) | {"max_length": encoder.max_length, "long": long},
        "options": {"statistics": [name for one in asked for name in one.names], "batch_size": batch_size},
        "seed": seed,
        "lens": "raw",
        "durations": {"load": round(loaded - started, 3), "pass": round(finished - loaded, 3)},
    }
    heads = to_frame(row for one in asked for row in one.table())
    maps = {name: array for one in asked for name, array in one.maps().items()}
    tables = {name: pd.DataFrame(rows) for one in asked for name, rows in one.tables().items()}
    return Study(heads, maps, record, tables)
