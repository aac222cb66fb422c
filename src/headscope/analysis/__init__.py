"""What heads attend to: statistics over a corpus, roles, clusters, probes, comparisons."""
