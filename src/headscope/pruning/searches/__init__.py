"""Search methods: paths through sets of removed heads, from none to many. One per file; files need no registration.

A file has a function `paths(selection, config, seed)`. It returns one iterator per run of the search; a random search
has several runs. An iterator yields a state for every number of removed heads: the best set of this size that the
search has found. The caller stops iterating when its target is reached.

`TAKES_BY = True` says that the search uses the importance of the option `by`. The name of the file is the name of the
search; `config/names` lists the files without importing them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from headscope.config.search import SearchConfig
from headscope.pruning.subset_evaluator import SubsetEvaluator, SubsetState


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    """The paths of the search `config.search`: one iterator over states per run."""
    search = import_module(f"{__name__}.{config.search.replace('-', '_')}")
    result: list[Iterator[SubsetState]] = search.paths(selection, config, seed)
    return result
