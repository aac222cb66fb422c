"""Tiny random models of every family, and padded batches for them: built in milliseconds, far from uniform.

    model = tiny("bert")                               # an AttentionModel with a made-up tokenizer
    batch = batch_for(model, examples("bert"))         # sequences of several lengths, padded on the right

A *case* is a family, or a family and how it is called: `xlnet/two-streams` gives targets to the query stream.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel

from headscope.heads import Site
from headscope.model.attention_model import AttentionModel
from headscope.model.tokens import Batch, layout_of

UNKNOWN, CLS, SEP, STOP, COMMA, DOTS, CONTENT = 2, 3, 4, 5, 6, 7, range(8, 40)
MARIAN_PADDING = 98

_BASE = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 220,
    "pad_token_id": 1,
    "bos_token_id": CLS,
    "eos_token_id": SEP,
}
_NARROW = {**_BASE, "embedding_size": 16}
_GROUPED = {**_BASE, "num_key_value_heads": 2, "head_dim": 8}
_THREE_STACKS = {  # the decoder has other heads than the encoder: mixing them up must show
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 220,
    "pad_token_id": 1,
    "bos_token_id": CLS,
    "eos_token_id": SEP,
    "decoder_start_token_id": SEP,
    "forced_eos_token_id": None,
    "encoder_layerdrop": 0.0,  # a dropped layer is a site not called, which is refused
    "decoder_layerdrop": 0.0,
}
_T5 = {  # heads x width is 24, not 32
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 1,
    "eos_token_id": SEP,
    "decoder_start_token_id": 1,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "albert": {**_NARROW, "num_hidden_groups": 1, "inner_group_num": 1},
    "bart": _THREE_STACKS,
    "bert": _BASE,
    "camembert": {**_BASE, "type_vocab_size": 1},
    "data2vec-text": {**_BASE, "type_vocab_size": 1},
    "deberta-v2": {
        **_BASE,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 16,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "distilbert": {
        "vocab_size": 99,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 64,
        "max_position_embeddings": 220,
        "pad_token_id": 1,
    },
    "electra": _NARROW,
    "ernie": _BASE,
    "esm": {
        **_BASE,
        "position_embedding_type": "rotary",
        "mask_token_id": 97,
        "token_dropout": True,
    },
    "gpt2": {
        "vocab_size": 99,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 220,
        "pad_token_id": 1,
        "bos_token_id": SEP,
        "eos_token_id": SEP,
    },
    "llama": _GROUPED,
    "m2m_100": _THREE_STACKS,
    "marian": {
        **_THREE_STACKS,
        "pad_token_id": MARIAN_PADDING,
        "decoder_start_token_id": MARIAN_PADDING,
        "bos_token_id": None,
    },
    "mbart": _THREE_STACKS,
    "mistral": {**_GROUPED, "sliding_window": 6},
    "mobilebert": {
        **_NARROW,
        "intra_bottleneck_size": 24,
        "true_hidden_size": 24,
        "use_bottleneck": True,
        "num_feedforward_networks": 2,
    },
    "modernbert": {
        **_BASE,
        "cls_token_id": CLS,
        "sep_token_id": SEP,
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
    },
    "mpnet": _BASE,
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu"},
    "pegasus": _THREE_STACKS,
    "qwen2": _GROUPED,
    "qwen3": _GROUPED,
    "roberta": {**_BASE, "type_vocab_size": 1},
    "t5": _T5,
    "vit": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 16,
        "patch_size": 4,
    },
    "xlm-roberta": {**_BASE, "type_vocab_size": 1},
    "xlnet": {
        "vocab_size": 99,
        "d_model": 32,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 64,
        "pad_token_id": 1,
        "bos_token_id": UNKNOWN,
        "eos_token_id": SEP,
    },
}
FAMILIES = tuple(CONFIGS)
CASES = (*FAMILIES, "xlnet/two-streams")
ENCODER_DECODERS = ("bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5")
DECODERS = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
TAPPED = ("deberta-v2", "mpnet", "xlnet")
WITHOUT_CLASSIFICATION = (*DECODERS, "m2m_100", "marian", "mt5", "pegasus", "t5", "vit")
# Families whose positions are counted from the first column unless position_ids say otherwise.
_POSITION_IDS = ("albert", "bert", "distilbert", "electra", "ernie", "gpt2", "mobilebert")
# Counted from the first column whatever one does: padding on the left is another input to them.
MOVED_BY_LEFT_PADDING = ("bart", "marian", "mbart", "pegasus")


def family_of_case(case: str) -> str:
    return case.partition("/")[0]


# Models


def tiny(family: str, seed: int = 0, *, head: type | None = None, **changes: Any) -> AttentionModel:
    """A model of this family with random weights, large enough that no row of attention is nearly uniform.

    head  an Auto class (AutoModelForCausalLM, say) instead of the bare model
    """
    config = AutoConfig.for_model(family, **{**CONFIGS[family], **changes})
    model = (head or AutoModel).from_config(config).eval()
    tokenizer: Any = None if family == "vit" else FakeTokenizer(family)
    return AttentionModel(excited(model, seed), tokenizer, name=f"tiny-{family}")


def excited(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """The same model with weights of a size that training gives, biases too: the usual start is nearly zero."""
    noise = torch.Generator().manual_seed(seed)
    # T5 does not scale its scores, MobileBERT does not normalise its states.
    size = {"t5": 0.15, "mt5": 0.15, "mobilebert": 0.15}.get(model.config.model_type, 0.25)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                large = (
                    4.0
                    if any(part in name for part in _LARGE.get(model.config.model_type, ()))
                    else 1.0
                )
                parameter.copy_(torch.randn(parameter.shape, generator=noise) * size * large)
            elif name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=noise) * 0.1)
        for module in (
            model.modules()
        ):  # MobileBERT mixes neighbours in: padding is the zero vector, as after training
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0.0
    return model


# What would be too small for its softmax otherwise: no norm stands between it and the scores.
_LARGE = {"marian": ("embed",), "mobilebert": (".query.", ".key."), "xlnet": ("embed",)}


@cache
def shared(family: str) -> AttentionModel:
    """One model for all tests that only look at it."""
    return tiny(family)


class FakeTokenizer:
    """What `Marks` asks a tokenizer, for ids that we chose."""

    def __init__(self, family: str) -> None:
        before = (
            "Ġ"
            if family in ("gpt2", "roberta", "bart")
            else "▁"
            if family in ("t5", "xlnet", "marian")
            else ""
        )
        self.pad_token_id = CONFIGS[family]["pad_token_id"]
        self.cls_token_id = None if family in WITHOUT_CLASSIFICATION else CLS
        self.sep_token_id = None if family in WITHOUT_CLASSIFICATION else SEP
        self.eos_token_id = SEP  # the separator of those that have no other
        self.all_special_ids = sorted(
            i for i in (UNKNOWN, self.pad_token_id, self.cls_token_id, SEP) if i is not None
        )
        self._vocabulary = {f"word{i}": i for i in CONTENT}
        self._vocabulary |= {
            f"{before}.": STOP,
            ",": COMMA,
            f"{before}..": DOTS,
        }  # ".." is not punctuation

    def get_vocab(self) -> dict[str, int]:
        return self._vocabulary


# Inputs


@dataclass(frozen=True)
class Example:
    """One sequence: token ids, or a pair of them, or an image. `predict`: positions the query stream stands at."""

    source: tuple[int, ...] = ()
    target: tuple[int, ...] | None = None
    predict: tuple[int, ...] | None = None
    image: Tensor | None = None


def text(
    family: str, chance: random.Random, length: int, first: int | None = None
) -> tuple[int, ...]:
    """A sequence of `length` ids with its special tokens where the family has them; `first`: the middle separator."""
    ids = [chance.choice(CONTENT) for _ in range(length)]
    for position, token in ((1, STOP), (3, COMMA), (4, DOTS)):
        if length > 6:
            ids[(chance.randrange(length) + position) % length] = token
    if first is not None:
        ids[first] = SEP
    if length > 1:
        ids[-1] = SEP
    if family not in WITHOUT_CLASSIFICATION:
        if family == "xlnet":  # text <sep> <cls>
            ids[-2 if length > 2 else 0], ids[-1] = SEP, CLS
        else:
            ids[0] = CLS
    return tuple(ids)


LENGTHS = ((9, 4), (9, 6), (5, None), (12, 3), (7, None), (1, None), (12, 3), (2, None))


def examples(
    case: str, seed: int = 0, lengths: Sequence[tuple[int, int | None]] = LENGTHS
) -> list[Example]:
    """A few sequences of several lengths: neighbours of one length with separators at other places, a single token."""
    chance = random.Random(seed)
    family = family_of_case(case)
    if family == "vit":
        noise = torch.Generator().manual_seed(seed)
        return [Example(image=torch.randn(3, 16, 16, generator=noise)) for _ in lengths]
    made = []
    for length, first in lengths:
        source = text(family, chance, length, first)
        target = predict = None
        if family in ENCODER_DECODERS:
            other = text(family, chance, max(length - chance.choice((0, 2, 2)), 1))
            target = (CONFIGS[family]["decoder_start_token_id"], *other)
        if case == "xlnet/two-streams":
            predict = tuple(sorted(chance.sample(range(length), min(length, 2))))
        made.append(Example(source, target, predict))
    return made


def batch_for(model: AttentionModel, chosen: Sequence[Example], side: str = "right") -> Batch:
    """The examples as one padded batch, with the layout that the inputs themselves tell."""
    inputs = inputs_for(model.model.config.model_type, chosen, side)
    inputs = {
        name: x.to(model.model.dtype) if x.is_floating_point() else x for name, x in inputs.items()
    }
    decoder_only = model.model.config.model_type in DECODERS
    return Batch(
        inputs, layout_of(inputs, model.marks, decoder_only=decoder_only), tuple(range(len(chosen)))
    )


def inputs_for(family: str, chosen: Sequence[Example], side: str = "right") -> dict[str, Tensor]:
    if family == "vit":
        return {
            "pixel_values": torch.stack(
                [example.image for example in chosen if example.image is not None]
            )
        }
    padding = CONFIGS[family]["pad_token_id"]
    ids, mask = _padded([example.source for example in chosen], padding, side)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if family in ENCODER_DECODERS:
        targets = [example.target for example in chosen if example.target is not None]
        inputs["decoder_input_ids"], inputs["decoder_attention_mask"] = _padded(
            targets, padding, side
        )
    if side == "left" and family in _POSITION_IDS:
        inputs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
    if chosen[0].predict is not None:
        inputs |= _two_streams(chosen, mask, side)
    return inputs


def _padded(rows: Sequence[Sequence[int]], padding: int, side: str) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    gaps = [[padding] * (longest - len(row)) for row in rows]
    zeros = [[0] * len(gap) for gap in gaps]
    pairs = zip(rows, gaps, zeros, strict=True)
    if side == "right":
        ids, mask = zip(
            *(([*row, *gap], [1] * len(row) + zero) for row, gap, zero in pairs), strict=True
        )
    else:
        ids, mask = zip(
            *(([*gap, *row], zero + [1] * len(row)) for row, gap, zero in pairs), strict=True
        )
    return torch.tensor(ids), torch.tensor(mask)


def _two_streams(chosen: Sequence[Example], mask: Tensor, side: str) -> dict[str, Tensor]:
    """Nobody sees the tokens to be predicted, and the query stream stands at them."""
    batch, length = mask.shape
    mapping = torch.zeros(batch, max(len(example.predict or ()) for example in chosen), length)
    hidden = torch.zeros(batch, length, length)
    for row, example in enumerate(chosen):
        shift = 0 if side == "right" else length - len(example.source)
        for i, position in enumerate(example.predict or ()):
            mapping[row, i, position + shift] = 1.0
            if len(example.source) > 2:  # a query with nothing left to see would look at padding
                hidden[row, :, position + shift] = 1.0
    return {"perm_mask": hidden, "target_mapping": mapping}


def in_double(model: AttentionModel) -> AttentionModel:
    """A copy in float64, where differences of order are 1e-12 (transformers' XLNet runs in float32 only)."""
    if model.model.config.model_type == "xlnet":
        return model
    return AttentionModel(copy.deepcopy(model.model).double(), model.tokenizer, name=model.name)


# What the library itself says


def eager_copy(model: AttentionModel) -> PreTrainedModel:
    """A copy of the transformers model underneath, with textbook attention."""
    duplicate = copy.deepcopy(model.model)
    if model.model.config.model_type not in TAPPED:
        duplicate.set_attn_implementation("eager")
    return duplicate


@torch.no_grad()
def library_attentions(model: AttentionModel, inputs: dict[str, Tensor]) -> dict[Site, Tensor]:
    """The weights [batch, head, query, key] of every site, from `output_attentions=True` under eager attention."""
    output = eager_copy(model)(**inputs, output_attentions=True)
    return attentions_in(output, model.model.config.model_type, inputs)


def attentions_in(output: Any, family: str, inputs: dict[str, Tensor]) -> dict[Site, Tensor]:
    """The weights [batch, head, query, key] of every site in what the library gave."""
    if family in ENCODER_DECODERS:
        stacks = {
            "encoder": output.encoder_attentions,
            "decoder": output.decoder_attentions,
            "cross": output.cross_attentions,
        }
    elif "target_mapping" in inputs:
        stacks = {
            stack: [layer[i] for layer in output.attentions]
            for i, stack in enumerate(("encoder", "query"))
        }
    else:
        stacks = {"decoder" if family in DECODERS else "encoder": output.attentions}
    return {
        Site(stack, n): weights
        for stack, layers in stacks.items()
        for n, weights in enumerate(layers)
    }


def real_sides(inputs: dict[str, Tensor], family: str, stack: str) -> tuple[Tensor, Tensor]:
    """Which queries and which keys [sequence, token] of a stack are real, read from the inputs by hand."""
    if "pixel_values" in inputs:
        everything = torch.ones(len(inputs["pixel_values"]), 17, dtype=torch.bool)
        return everything, everything
    source = inputs["attention_mask"].bool()
    if stack in ("encoder",) or family in DECODERS:
        return source, source
    if stack == "query":
        return inputs["target_mapping"].sum(dim=1) > 0, source
    target = inputs["decoder_attention_mask"].bool()
    return target, target if stack == "decoder" else source


def outputs(model: Any, inputs: Any) -> Tensor:
    """The model's main output [batch, token, width]."""
    result: Tensor = model(**inputs)[0]
    return result


def at_real_tokens(output: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """The rows [token, width] of an output that belong to real tokens."""
    if "pixel_values" in inputs:
        return output.flatten(0, 1)
    if "target_mapping" in inputs:
        return output[inputs["target_mapping"].sum(dim=2) > 0]
    mask = inputs.get("decoder_attention_mask", inputs["attention_mask"])
    return output[mask.bool()]
