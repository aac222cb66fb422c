"""Find the directory of a model from its spec: a zoo name, a directory, or a hub id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from headscope.errors import HeadscopeError, choices, reason
from headscope.model import zoo
from headscope.model.module_files import transformer_folder

# Old short names on the hub: `bert-base-uncased` stands for `google-bert/bert-base-uncased`. Supported families only.
_OWNERS = {
    "google-bert": """
        bert-base-uncased bert-base-cased bert-large-uncased bert-large-cased
        bert-base-multilingual-uncased bert-base-multilingual-cased bert-base-chinese
        bert-base-german-cased bert-base-german-dbmdz-cased bert-base-german-dbmdz-uncased
        bert-large-uncased-whole-word-masking bert-large-cased-whole-word-masking
        bert-large-uncased-whole-word-masking-finetuned-squad
        bert-large-cased-whole-word-masking-finetuned-squad bert-base-cased-finetuned-mrpc
    """,
    "distilbert": """
        distilbert-base-uncased distilbert-base-cased distilbert-base-german-cased
        distilbert-base-multilingual-cased distilbert-base-uncased-distilled-squad
        distilbert-base-cased-distilled-squad distilbert-base-uncased-finetuned-sst-2-english
        distilroberta-base distilgpt2
    """,
    "FacebookAI": """
        roberta-base roberta-large roberta-large-mnli xlm-roberta-base xlm-roberta-large
        xlm-roberta-large-finetuned-conll02-dutch xlm-roberta-large-finetuned-conll02-spanish
        xlm-roberta-large-finetuned-conll03-english xlm-roberta-large-finetuned-conll03-german
    """,
    "openai-community": "gpt2 gpt2-medium gpt2-large gpt2-xl roberta-base-openai-detector "
    "roberta-large-openai-detector",
    "albert": """
        albert-base-v1 albert-base-v2 albert-large-v1 albert-large-v2 albert-xlarge-v1 albert-xlarge-v2
        albert-xxlarge-v1 albert-xxlarge-v2
    """,
    "google-t5": "t5-small t5-base t5-large t5-3b t5-11b",
    "xlnet": "xlnet-base-cased xlnet-large-cased",
    "almanach": "camembert-base",
}
HUB_IDS = {name: f"{owner}/{name}" for owner, names in _OWNERS.items() for name in names.split()}
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "LICEN*", "NOTICE*", "COPYING*")


def find_folder(
    spec: str | Path, revision: str | None = None, say: Callable[[str], None] = lambda line: None
) -> tuple[Path, str, str | None]:
    """(directory, name, revision) of the model that a spec names; downloaded if necessary and allowed.

    A zoo name or an existing directory takes precedence over a short name on the hub (`bert-base-uncased`).
    """
    folder, name, revision = read_spec(spec, revision)
    if folder is not None:
        return folder, name, None
    if name not in zoo.MODELS:
        return _from_hub(name, str(spec).partition("@")[0], revision, say), name, revision
    if (cached := zoo.find(name)) is None:
        return zoo.fetch(name, say), name, None
    # Checked on every load, because damaged weights would give wrong results; hashing 100 MB takes 0.2 seconds.
    if zoo.is_damaged(name):
        zoo.verify(name)  # raises the error that names the damaged file
    return cached, name, None


def read_spec(spec: str | Path, revision: str | None = None) -> tuple[Path | None, str, str | None]:
    """(directory or None, name or hub id, revision) of a spec, without downloading anything.

    Raises if the spec is neither a directory, nor a zoo name, nor the form of a hub id.
    """
    text = str(spec)
    folder = Path(os.path.expanduser(text))  # noqa: PTH111 - Path.expanduser raises for an unknown user
    is_named = isinstance(spec, str) and text in zoo.MODELS
    if is_named or (text and os.path.isdir(folder)):  # noqa: PTH112 - Path.is_dir raises for a name too long
        if revision is not None:
            what = "a named model" if is_named else "a directory"
            raise HeadscopeError(
                f'"{text}" is {what}', where=f'`revision` "{revision}"', expected="a hub id with it"
            )
        if is_named:
            return None, text, None
        if not (transformer_folder(folder) / "config.json").is_file():
            raise HeadscopeError(
                "no config.json here",
                where=folder,
                expected="the directory of a transformers model",
                fix="Give the directory that save_pretrained wrote, or a name (headscope models)",
            )
        return folder, text, None
    typed, _, tail = text.partition("@")
    if (
        isinstance(spec, Path)
        or os.path.exists(folder)  # noqa: PTH110
        or not (typed in HUB_IDS or _HUB_ID.fullmatch(typed))
    ):
        raise _no_model(text, folder)
    if revision and tail and revision != tail:
        raise HeadscopeError(
            f'"{text}" names another revision',
            where=f'`revision` "{revision}"',
            expected="one of them",
        )
    return None, _hub_id(typed), revision or tail or None


def _no_model(text: str, folder: Path) -> HeadscopeError:
    """The error for a spec that does not name a model."""
    if os.path.exists(folder) and text:  # noqa: PTH110 - Path.exists raises for a name that is too long
        return HeadscopeError(
            "this is a file",
            where=text,
            expected="the directory of a transformers model",
            fix="Give the directory it is in",
        )
    if os.sep in text:
        fix = "Check the path; a hub id has the form org/name, and headscope models lists the named models"
        return HeadscopeError("there is no such directory", where=text, fix=fix)
    return HeadscopeError(
        f'no model "{text}"',
        expected="a directory, a hub id such as google-bert/bert-base-uncased, or one of "
        + choices(text.partition("@")[0], zoo.MODELS),
        fix="headscope models describes the named ones",
    )


def _hub_id(typed: str) -> str:
    """The hub id of a short name, unless the model is in the local cache under that name; other texts unchanged."""
    if typed not in HUB_IDS:
        return typed
    from huggingface_hub import try_to_load_from_cache

    is_cached = {
        name: isinstance(try_to_load_from_cache(name, "config.json"), str)
        for name in (typed, HUB_IDS[typed])
    }
    return typed if is_cached[typed] and not is_cached[HUB_IDS[typed]] else HUB_IDS[typed]


def _from_hub(
    identifier: str, typed: str, revision: str | None, say: Callable[[str], None]
) -> Path:
    """The directory of a hub model in the cache of huggingface_hub, downloaded if necessary.

    Pickled weights are only downloaded if there are no safetensors.
    """
    from huggingface_hub import snapshot_download

    switches = (
        os.environ.get(name, "").upper() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )
    offline = any(switch in ("1", "TRUE", "YES", "ON") for switch in switches)
    if not offline:
        name = "" if typed == identifier else f" for {identifier}"
        say(f"{typed}: no such directory here, asking the hub{name}")
    try:
        for patterns in (_FILES, ("pytorch_model*.bin*",)):
            folder = Path(
                snapshot_download(
                    identifier,
                    revision=revision,
                    allow_patterns=list(patterns),
                    local_files_only=offline,
                )
            )
            if list(transformer_folder(folder).glob("*.safetensors")):
                break
        if not (transformer_folder(folder) / "config.json").is_file():
            raise FileNotFoundError("it has no config.json")
        return folder
    except Exception as cause:
        # huggingface_hub raises a dozen unrelated exceptions for "not found" and "no network".
        at = f" at revision {revision}" if revision else ""
        why = "it is not in the local cache and HF_HUB_OFFLINE is set" if offline else reason(cause)
        model = "of this name" if typed == identifier else identifier
        raise HeadscopeError(
            f'there is no directory "{typed}", and the hub\'s model {model} cannot be had{at}: {why}',
            fix="Check the name and the network, or give a directory or a named model (headscope models)",
        ) from cause
