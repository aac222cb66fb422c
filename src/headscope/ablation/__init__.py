"""Importance of heads for a task: exact ablation, faster estimates, and the agreement of both."""
