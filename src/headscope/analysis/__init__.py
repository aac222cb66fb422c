"""Analysis of what heads attend to: statistics over a corpus, roles, clusters, probes and comparisons."""
