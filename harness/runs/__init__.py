"""One run, from its experiment to its verdict."""
