"""headscope.look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.config.look import LookConfig
from headscope.config.option import fill
from headscope.config.shared import Reading, Run
from headscope.masks.open_model import open_model
from headscope.model.attention_model import AttentionModel
from headscope.report.look.look import look as look_at
from headscope.report.look.view import Look
from headscope.report.page_file import check_page_path, page_path


def look(
    model: AttentionModel | str | Path,
    first: str,
    second: str | None = None,
    config: LookConfig | None = None,
    *,
    reading: Reading | None = None,
    run: Run | None = None,
    **options: Any,
) -> Look:
    """Attention maps of all heads for one text or pair; for an encoder-decoder, a source and its target.

    Parameters
    ----------
    model
        A loaded model, or the name, directory or hub id of one.
    first, second
        The text, and a second text or the target of a translation. Input longer than `max_length` is refused.
    config, reading, run
        Options; see `LookConfig`, `Reading` and `Run`. `run.out` is the page to write, if any.
    **options
        Fields of these configs, instead of or in addition to them.

    Returns
    -------
    Look
        The maps; draws itself in a notebook, and `save(path)` writes a page.

    Examples
    --------
    >>> view = headscope.look("minilm", "The cat sat.")
    >>> headscope.look("minilm", "The cat sat.", lens="raw,norm", off="0.2").save("cat.html")  # doctest: +SKIP
    """
    config, reading, run = fill(
        "look", options, (LookConfig, config), (Reading, reading), (Run, run)
    )
    if run.out is not None:
        check_page_path(page_path(run.out))
    view = look_at(open_model(model, reading, run), first, second, config)
    if run.out is not None:
        view.save(run.out)
    return view
