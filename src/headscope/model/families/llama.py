"""Llama and decoders built like it: rotary positions, and several query heads that share one key and value head.

Heads are query heads; each has weights of its own.
"""

from headscope.model.families.family import Family, decoder, decoder_layers

LLAMA = Family(
    model_types=("llama", "mistral", "qwen2", "qwen3"), layers=decoder_layers, stack=decoder
)
