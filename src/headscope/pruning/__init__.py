"""Which heads to cut, what that costs, what it gains, and what can be repaired without training."""
