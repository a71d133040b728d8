"""One run, from an experiment to a stored and judged result."""
