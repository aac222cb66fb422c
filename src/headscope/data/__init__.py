"""Files to batches: text, pairs, jsonl; the batch plan; words and pieces."""
