"""BART and encoder-decoders with the same structure: encoder, decoder and cross attention."""

from typing import Any

from headscope.model.families.family import Family


def layers(config: Any) -> dict[str, int]:
    """`Family.layers`: the number of sites of each stack."""
    return {
        "encoder": config.encoder_layers,
        "decoder": config.decoder_layers,
        "cross": config.decoder_layers,
    }


def stack(name: str, occurrence: int) -> str:
    """`Family.stack`: the stack of an attention module, by its name."""
    if name.endswith("encoder_attn"):
        return "cross"
    return "decoder" if "decoder." in name else "encoder"


BART = Family(
    model_types=("bart", "m2m_100", "marian", "mbart", "pegasus"), layers=layers, stack=stack
)
