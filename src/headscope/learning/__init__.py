"""What is trained besides weights: gates on heads, attention masks."""
