"""Convert the files of a zoo model into a directory that transformers can load without pickles.

Each step changes a directory of verified files in place, and returns a sentence about the change for headscope.json.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import HeadscopeError
from headscope.model.zoo.pins import ZooModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}


def convert(model: ZooModel, directory: Path) -> list[str]:
    """Run the conversions that a model needs; returns one sentence per conversion."""
    done = []
    if model.config_changes:
        done.append(change_config(directory, model.config_changes))
    if model.pickled_as:
        with _quiet_transformers():
            done.append(unpickle(directory, model.pickled_as))
    if model.gguf:
        with _quiet_transformers():
            done.append(dequantise(directory, model.gguf))
    if model.smiles_rule:
        done.append(build_smiles_tokenizer(directory, model.smiles_rule))
    return done


def change_config(directory: Path, changes: dict[str, object]) -> str:
    """Set fields of config.json."""
    path = directory / "config.json"
    config = {**json.loads(path.read_text("utf-8")), **changes}
    path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    return f"config.json: set {', '.join(changes)}"


def unpickle(directory: Path, class_name: str) -> str:
    """Convert pytorch_model.bin into model.safetensors, by loading it with its transformers class and saving it.

    Only config.json and the weights are copied from what transformers saves. It also writes a generation config, which
    would replace the original one.
    """
    import torch
    import transformers

    pickle = directory / "pytorch_model.bin"
    model_class = getattr(transformers, class_name)
    config = model_class.config_class.from_pretrained(directory)
    state = torch.load(pickle, weights_only=True, map_location="cpu")
    loaded, report = model_class.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True
    )
    if report["missing_keys"] or report["mismatched_keys"]:
        mismatched = sorted(map(str, report["mismatched_keys"]))
        missing = sorted(report["missing_keys"]) + mismatched
        raise HeadscopeError(
            f"transformers {transformers.__version__} finds no weights for {missing[0]} in {class_name}",
            fix="Use a version of transformers that headscope names in its requirements",
        )
    _save_weights(loaded, directory)
    pickle.unlink()
    dropped = sorted({key.rsplit(".", 1)[0] for key in report["unexpected_keys"]})
    without = f", without {', '.join(dropped)}" if dropped else ""
    return f"pytorch_model.bin: read as {class_name}, written as model.safetensors{without}"


def dequantise(directory: Path, name: str) -> str:
    """Convert a GGUF file into model.safetensors in float32, config.json and tokenizer.json.

    The float32 weights are exactly the quantised values. Precision that was lost by quantisation is not restored.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with redirect_stderr(io.StringIO()):  # hides a progress bar that has no setting in transformers
        loaded = AutoModelForCausalLM.from_pretrained(
            directory, gguf_file=name, dtype=torch.float32, local_files_only=True
        )
    config = loaded.config.to_dict()
    config.pop("quantization_config", None)
    # transformers does not save a model that was loaded from GGUF, so the weights are copied into a new model.
    model = type(loaded)(type(loaded.config).from_dict(config))
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    tokenizer = AutoTokenizer.from_pretrained(directory, gguf_file=name, local_files_only=True)
    tokenizer.model_max_length = model.config.max_position_embeddings
    _save_weights(model, directory)
    tokenizer.save_pretrained(directory)
    (directory / name).unlink()
    return f"{name}: dequantised, written as model.safetensors (float32)"


def build_smiles_tokenizer(directory: Path, rule: str) -> str:
    """Build a fast tokenizer from vocab.txt (one token per line) and a regular expression for tokens."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary = directory / "vocab.txt"
    ids = {token: number for number, token in enumerate(vocabulary.read_text("utf-8").splitlines())}
    tokenizer = Tokenizer(WordLevel(ids, unk_token=SPECIAL_TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = Split(Regex(rule), behavior="isolated")
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **SPECIAL_TOKENS
    )
    fast.save_pretrained(directory)
    vocabulary.unlink()  # otherwise the tokenizer class of the family would read it
    return "vocab.txt: built into tokenizer.json with the package's token rule"


def _save_weights(model: PreTrainedModel, directory: Path) -> None:
    """Write config.json and model.safetensors, but no generation config."""
    from safetensors import SafetensorError

    saved = directory / "saved"
    try:
        model.save_pretrained(saved)
    except SafetensorError as cause:  # safetensors reports a full disk as an error of its own
        raise OSError(str(cause)) from cause
    # safetensors creates a file that only its owner can read.
    shutil.copymode(saved / "config.json", saved / "model.safetensors")
    for name in ("config.json", "model.safetensors"):
        (saved / name).replace(directory / name)
    shutil.rmtree(saved)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """While open, transformers shows no progress bars and loading reports."""
    from transformers.utils import logging

    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
