"""Directories of sentence-transformers models, written by hand in the formats of its versions; tiny, random weights.

embedding(folder, pooling="cls", normalize=True)        # a BERT as versions before 5.4 save it
embedding(folder, pooling="lasttoken", kind=GPT2Model)  # a decoder
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import BertModel, GPT2Config, GPT2Model, PreTrainedModel

from headscope.data.batches import collate
from headscope.model.attention_model import AttentionModel
from headscope.tasks.pooling import encode_texts
from tiny import excited
from worded import LONGEST, WORDS, random_bert, tokenizer

BOOLEANS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
}
TEXTS = [
    "the old cat sat on the mat .",
    "a dog ran",
    "who is kind ?",
    "the red house is cold , the dog is warm .",
]
TEXTS += [
    "cat",
    "the cat saw a dog on the mat and ran , the dog sat . the house is old and red and warm . is it fine ?",
]


def embedding(
    folder: Path,
    pooling: str = "mean",
    *,
    normalize: bool = True,
    dense: str | None = None,
    new: bool = False,
    kind: type[PreTrainedModel] = BertModel,
    length: int | None = None,
    include_prompt: bool = True,
    prompts: dict[str, Any] | None = None,
    at: str = "",
    seed: int = 0,
) -> Path:
    """A model that pools in this way, as sentence-transformers names it. at: where its transformer is."""
    names = [
        "Transformer",
        "Pooling",
        *(["Dense"] if dense else []),
        *(["Normalize"] if normalize else []),
    ]
    paths = [at, *(f"{i}_{name}" for i, name in enumerate(names) if i)]
    transformer = folder / at
    random_decoder(seed).save_pretrained(transformer) if kind is GPT2Model else random_bert(
        kind, seed
    ).save_pretrained(transformer)
    tokenizer(ends=kind is GPT2Model).save_pretrained(transformer)
    kinds = [NEW[name] if new else f"sentence_transformers.models.{name}" for name in names]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": one}
        for i, (path, one) in enumerate(zip(paths, kinds, strict=True))
    ]
    write(folder / "modules.json", modules)
    stated: dict[str, Any] = {"word_embedding_dimension": 16}
    if new:
        stated = {"embedding_dimension": 16, "pooling_mode": pooling}
    else:
        stated |= {name: mode == pooling for mode, name in BOOLEANS.items()}
    write(folder / "1_Pooling" / "config.json", {**stated, "include_prompt": include_prompt})
    if dense:
        settings = {
            "in_features": 16,
            "out_features": 6,
            "bias": True,
            "activation_function": dense,
        }
        write(folder / "2_Dense" / "config.json", settings)
        noise = torch.Generator().manual_seed(seed)
        weights = {
            "linear.weight": torch.randn(6, 16, generator=noise),
            "linear.bias": torch.randn(6, generator=noise),
        }
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    if length is not None:
        write(
            transformer / "sentence_bert_config.json",
            {"max_seq_length": length, "do_lower_case": False},
        )
    if prompts is not None:
        write(folder / "config_sentence_transformers.json", prompts)
    return folder


def random_decoder(seed: int = 0) -> PreTrainedModel:
    config = GPT2Config(
        vocab_size=len(WORDS),
        n_positions=LONGEST,
        n_embd=16,
        n_layer=2,
        n_head=2,
        pad_token_id=0,
        eos_token_id=3,
    )
    return excited(GPT2Model(config).eval(), seed)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")


def vectors_of(model: AttentionModel, texts: list[str], role: str | None = None) -> torch.Tensor:
    """[text, width]: as tasks prepare and pool them, before they are scaled to length 1; one padded batch."""
    result, _, skipped = encode_texts(model, [(text, "", role) for text in texts], None)
    batch = collate(model, [sequence for sequence in result if sequence is not None])
    with torch.inference_mode():
        states = model(batch)[0]
        return model.reading.vectors(states, batch.inputs["attention_mask"], torch.tensor(skipped))
