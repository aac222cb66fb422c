"""Search methods: paths through sets of removed heads, from none to many; one search per file, found by itself.

A file has a function `paths(selection, config, seed)`. It returns iterators over states, one for every number of
removed heads: the best set that the search knows. The caller stops when it has enough.
Several iterators are several runs. `TAKES_BY = True` says that the search goes by the importance of the option `by`.
The name of the file is the name of the search; `config/names` lists the files without importing them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from headscope.config.search import SearchConfig
from headscope.pruning.subset_evaluator import SubsetEvaluator, SubsetState


def paths(
    selection: SubsetEvaluator, config: SearchConfig, seed: int
) -> list[Iterator[SubsetState]]:
    """The paths of the search that the config names."""
    search = import_module(f"{__name__}.{config.search.replace('-', '_')}")
    result: list[Iterator[SubsetState]] = search.paths(selection, config, seed)
    return result
