"""Input data: reads texts, pairs, tables, treebanks and coreference from files, tokenizes them and makes batches."""
