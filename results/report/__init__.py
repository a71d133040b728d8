"""The report of one run, and of a comparison."""
