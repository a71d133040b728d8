"""Lets `python -m harness.cli` do what `laststand` does."""

from harness.cli.main import console

console()
