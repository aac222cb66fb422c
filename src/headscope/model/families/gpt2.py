"""GPT-2: a decoder in which one linear layer computes queries, keys and values."""

from headscope.model.families.family import Family, decoder, decoder_layers

GPT2 = Family(model_types=("gpt2",), layers=decoder_layers, stack=decoder)
