"""Adapters of the systems under test, one package each."""
