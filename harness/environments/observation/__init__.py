"""Turns what nodes report into history rows and committed metadata."""
