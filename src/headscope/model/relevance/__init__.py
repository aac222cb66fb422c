"""Layer-wise relevance propagation (LRP): how much of a model's output passed through each head, token and layer."""
