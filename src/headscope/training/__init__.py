"""Training a model on a task: a plain loop that can be stopped at any step and resumed to the same result."""
