"""Hostile bytes: mutated frames for nodes, mutated segment files for recovery. `python -m tests.fuzz --help`."""
