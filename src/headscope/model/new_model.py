"""Untrained models: a model with random weights in a requested size, and the random-weight control of a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headscope.config.training import ModelSizes
from headscope.errors import HeadscopeError, reason
from headscope.model.attention_model import AttentionModel
from headscope.model.checkpoint import read_config, read_config_file
from headscope.model.families import family_of
from headscope.model.load import resolve_device, silence_transformers
from headscope.model.manifest import read_manifest
from headscope.model.resolve_spec import find_folder
from headscope.model.tokenizer import read_tokenizer_files
from headscope.model.weights import cast

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

# The names of each size in the configurations of different families; all names that a configuration has are set.
NAMES = {
    "layers": "num_hidden_layers n_layers n_layer num_layers num_decoder_layers encoder_layers decoder_layers",
    "heads_per_layer": "num_attention_heads n_heads n_head num_heads encoder_attention_heads decoder_attention_heads "
    "num_key_value_heads",
    "hidden": "hidden_size dim d_model n_embd",
    "intermediate": "intermediate_size hidden_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner",
}
WIDTHS = ("head_dim", "d_kv")  # width of one head
LAYER_TYPES = "layer_types"  # one entry per layer: attends to a window, or to all tokens
SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")


@dataclass(frozen=True)
class Source:
    """The configuration of a new model, and the directory of a model from which it was read, if there is one."""

    name: str
    config: PreTrainedConfig
    folder: Path | None = None

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer in the directory; raises without a directory."""
        if self.folder is None:
            raise HeadscopeError(
                "this configuration comes without a tokenizer",
                where=self.name,
                fix='Name one: `tokenizer="minilm"`, or `vocabulary=8000` to learn one from the texts',
            )
        with silence_transformers():
            return read_tokenizer_files(self.folder)


def read_source(
    spec: str | Path, revision: str | None = None, say: Callable[[str], None] = lambda line: None
) -> Source:
    """The configuration of a named model, a directory, a hub id, or a JSON file."""
    path = Path(spec)
    if path.suffix == ".json" and path.is_file():
        return Source(str(spec), _config(read_config_file(path), path))
    folder, name, _ = find_folder(spec, revision, say)
    if read_manifest(folder) is not None:
        fix = "Use the model that it was pruned from, with `layers` and `heads_per_layer`"
        raise HeadscopeError("a pruned model cannot be trained from scratch", where=name, fix=fix)
    return Source(name, _config(read_config(folder), folder / "config.json"), folder)


def _config(fields: dict[str, Any], path: Path) -> PreTrainedConfig:
    """The configuration object from the content of the file at `path`."""
    from transformers import AutoConfig

    family_of(fields["model_type"], where=path)
    try:
        with silence_transformers():
            return AutoConfig.for_model(**{**fields, "dtype": "float32"})
    except Exception as cause:
        # For wrong values, every configuration class raises other exceptions.
        what = f"no configuration can be made of it ({reason(cause)})"
        raise HeadscopeError(
            what, where=path, expected="a configuration as transformers writes it"
        ) from cause


def resize_config(config: PreTrainedConfig, sizes: ModelSizes) -> PreTrainedConfig:
    """A copy of the configuration with these sizes; raises if the family does not have one of them."""
    requested = {name: value for name, value in sizes.sizes().items() if value is not None}
    resized = copy.deepcopy(config)
    if not requested:
        return resized
    if "hidden" in requested:
        requested.setdefault("intermediate", 4 * requested["hidden"])
    own = config.to_dict()
    for name, value in requested.items():
        keys = [key for key in NAMES[name].split() if key in own]
        if not keys:
            raise HeadscopeError(f"{config.model_type} has no such size", where=f"`{name}`")
        for key in keys:
            setattr(resized, key, value)
    heads, hidden = (
        next(getattr(resized, key) for key in NAMES[name].split() if key in own)
        for name in ("heads_per_layer", "hidden")
    )
    if hidden % heads:
        raise HeadscopeError(
            f"the hidden size must be a multiple of the number of heads, got {hidden} and {heads}",
            where="`heads_per_layer`, `hidden`",
        )
    for key in WIDTHS:
        if own.get(key) is not None:
            setattr(resized, key, hidden // heads)
    if "layers" in requested and own.get(LAYER_TYPES):
        types = own[LAYER_TYPES]
        setattr(resized, LAYER_TYPES, [types[i % len(types)] for i in range(requested["layers"])])
    return resized


@dataclass(frozen=True)
class Architecture:
    """The architecture of a new model.

    model_class  the auto class of transformers for the task, such as AutoModelForMaskedLM
    labels       the classes of a classifier
    max_length   number of positions; None for that of the configuration
    """

    source: Source
    model_class: str
    sizes: ModelSizes = field(default_factory=ModelSizes)
    labels: Sequence[str] = ()
    max_length: int | None = None


def new_model(
    new: Architecture, tokenizer: PreTrainedTokenizerBase | None = None, device: str = "auto"
) -> AttentionModel:
    """A model with random weights, drawn with torch's global random numbers: the caller has to set the seed.

    tokenizer  replaces the tokenizer of the source; vocabulary size and special tokens are then set from it
    """
    import transformers

    source, model_class = new.source, new.model_class
    config = resize_config(source.config, new.sizes)
    is_own = tokenizer is None
    if tokenizer is None:
        tokenizer = source.tokenizer()
    else:
        _set_vocabulary(config, tokenizer)
    if new.max_length is not None:
        _set_max_length(config, tokenizer, new.max_length)
    if new.labels:
        config.id2label = dict(enumerate(new.labels))
        config.label2id = {name: i for i, name in enumerate(new.labels)}
    auto_class = getattr(transformers, model_class)
    if type(config) not in auto_class._model_mapping:
        raise HeadscopeError(
            f"{config.model_type} has no {model_class.removeprefix('AutoModelFor')}",
            where=source.name,
            expected="a family that transformers has it for, such as "
            + ("marian" if "Seq2Seq" in model_class else "bert"),
        )
    try:
        with silence_transformers():
            model = auto_class.from_config(config).float()
            folder = source.folder
            if is_own and folder is not None and (folder / "generation_config.json").is_file():
                # Text is generated with the settings of the source, such as its beam width.
                model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    except Exception as cause:  # as above
        what = f"no model can be built of this size ({reason(cause)})"
        raise HeadscopeError(
            what, where=source.name, expected="sizes that fit each other"
        ) from cause
    padding = getattr(model.get_input_embeddings(), "padding_idx", None)
    if padding is not None and padding != tokenizer.pad_token_id:
        raise HeadscopeError(
            f"{config.model_type} takes token {padding} for padding, the tokenizer token {tokenizer.pad_token_id}",
            where=source.name,
            fix="Take a tokenizer of its own kind",
        )
    return AttentionModel(model.to(resolve_device(device)).eval(), tokenizer, name=source.name)


def _set_vocabulary(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Set the number of embeddings and the special tokens to those of a tokenizer."""
    config.vocab_size = size = max(tokenizer.get_vocab().values()) + 1
    for name in SPECIAL_IDS:
        setattr(config, name, getattr(tokenizer, name, None))
    if config.is_encoder_decoder:
        config.decoder_start_token_id = tokenizer.pad_token_id
        if hasattr(config, "decoder_vocab_size"):
            config.decoder_vocab_size = size
        if hasattr(config, "forced_eos_token_id"):
            config.forced_eos_token_id = tokenizer.eos_token_id


def _set_max_length(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
    """Set the number of positions and the tokenizer's maximum length to that of training.

    Positions that training never reaches would stay random.
    """
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None:
        lost = family_of(config.model_type).positions_lost(config)
        if max_length > positions - lost:
            raise HeadscopeError(
                f"{max_length} tokens are more than there are positions",
                where="`max_length`",
                expected=f"at most {positions - lost}",
            )
        config.max_position_embeddings = max_length + lost
    tokenizer.model_max_length = max_length


def random_control(model: AttentionModel, seed: int = 0) -> AttentionModel:
    """The random-weight control of a model: the same architecture and tokenizer with random weights and embeddings."""
    # The state of torch's global random numbers is restored afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        untrained = type(model.model)(copy.deepcopy(model.model.config))
    cast(untrained, model.model.dtype)
    untrained = untrained.to(model.device).eval()
    name = f"{model.name} with random weights"
    control = AttentionModel(untrained, model.tokenizer, name=name, reading=model.reading)
    return control.edit_permanently(*model.permanent_edits)
