"""The schema of a study: tables with their columns and dtypes, names of statistics and roles, and the run record."""
