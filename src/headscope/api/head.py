"""headscope.head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.analysis import analyze as analysis
from headscope.config.analyze import AnalyzeConfig
from headscope.config.head import BUNDLED_PAIRS, HeadConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.config.texts import TextData
from headscope.errors import HeadscopeError
from headscope.heads import Heads
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.report.head_summary import HeadSummary, one_head, summarise_head
from headscope.study.study import Study
from headscope.study.study_dir import study_folder


def head(
    source: Study | AttentionModel | str | Path,
    name: Heads,
    data: TextData | None = None,
    config: HeadConfig | None = None,
    *,
    run: Run | None = None,
    **options: Any,
) -> HeadSummary:
    """All results about one head: roles, relations, importance, examples, and its rank in every statistic.

    Parameters
    ----------
    source
        A study or its directory; or a model, for which a study is computed first.
    name
        The head: "3.2", "cross.3.2" or (3, 2).
    data
        Texts for a model; without them, bundled pairs of Wikipedia paragraphs are read.
    config, run
        Options; see `HeadConfig` and `Run`.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    HeadSummary
        Prints itself; `tables` holds its statistics with ranks, and its rows of all tables.

    Examples
    --------
    >>> headscope.head("minilm", "0.2")  # doctest: +SKIP
    >>> headscope.head("study", "3.7").tables["statistics"]  # doctest: +SKIP
    """
    slots = (HeadConfig, config), (TextData, data), (Run, run)
    config, data, run = fill("head", options, *slots)
    study = _study_of(source)
    if study is not None:
        _refuse_texts(data)
        return summarise_head(study, name)
    assert not isinstance(source, Study)
    model = open_model(source, Reading(), run)
    one_head(name, model.heads)
    study = analysis.analyze(model, AnalyzeConfig(), _texts(data), Reading(), run)
    return summarise_head(study, name)


def _study_of(source: Study | AttentionModel | str | Path) -> Study | None:
    """The study, if the source is a study or the directory of one; None for a model."""
    if isinstance(source, Study):
        return source
    if isinstance(source, AttentionModel) or not (study_folder(source) / "run.json").is_file():
        return None
    return Study(study_folder(source))


def _refuse_texts(data: TextData) -> None:
    if data != TextData() or data.texts or data.sentences:
        raise HeadscopeError(
            "a study has its own texts", where="SOURCE", fix="Pass a model, or leave the texts out"
        )


def _texts(data: TextData) -> TextData:
    """The texts of the caller; without any, pairs of the corpus that comes with headscope."""
    if data.corpus or data.texts or data.is_annotated:
        return data
    limit = data.limit or BUNDLED_PAIRS
    return replace(data, corpus=["wikipedia-pairs"], pairs=True, limit=limit)
