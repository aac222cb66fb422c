"""Training a model on a task: a plain loop that can be stopped at any step and goes on to the same result."""
