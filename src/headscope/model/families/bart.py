"""BART and the translation models built like it: three stacks."""

from typing import Any

from headscope.model.families.family import Family


def layers(config: Any) -> dict[str, int]:
    return {
        "encoder": config.encoder_layers,
        "decoder": config.decoder_layers,
        "cross": config.decoder_layers,
    }


def stack(name: str, occurrence: int) -> str:
    if name.endswith("encoder_attn"):
        return "cross"
    return "decoder" if "decoder." in name else "encoder"


BART = Family(
    model_types=("bart", "m2m_100", "marian", "mbart", "pegasus"), layers=layers, stack=stack
)
