"""Llama and decoders with the same structure: rotary positions, and several query heads that share one KV head.

A head of headscope is a query head. Query heads that share a KV head still have different attention weights.
"""

from headscope.model.families.family import Family, decoder, decoder_layers

LLAMA = Family(
    model_types=("llama", "mistral", "qwen2", "qwen3"), layers=decoder_layers, stack=decoder
)
