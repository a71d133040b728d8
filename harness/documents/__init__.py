"""The generated documents of this repository: `python -m harness.documents` writes them.

Each module makes the text of one document from the code that it describes. Nothing imports this package but its
tests.
"""
