"""T5: unscaled scores plus a learned bias of relative positions, kept in the first block of each stack."""

from typing import Any

from headscope.model.families.family import Family


def layers(config: Any) -> dict[str, int]:
    return {"encoder": config.num_layers, "decoder": config.num_decoder_layers, "cross": config.num_decoder_layers}


def stack(name: str, occurrence: int) -> str:
    if name.endswith("EncDecAttention"):
        return "cross"
    return "decoder" if "decoder." in name else "encoder"


T5 = Family(model_types=("mt5", "t5"), layers=layers, stack=stack)
