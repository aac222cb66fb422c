"""Training of models on tasks, with a loop that can be stopped at any step and resumed with the same result."""
