"""Pruning of heads: searches, plans, the cost in performance, the gain in time, repair and recovery."""
