"""Names, ranges and requirements of options. Imports neither torch nor a registry, so that checks answer at once."""
