"""How much was compared with what, kept with the code: `python -m tests.evidence --help`."""
