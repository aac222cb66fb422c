"""Relevance: how much of a model's output came through each head, token and layer."""
