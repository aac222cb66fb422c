"""Relevance: how much of what a model says came through each head, token and layer."""
