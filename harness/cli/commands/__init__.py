"""One module per command: `add_parser` defines its options, and the function beside it runs it.

Every command loads all of these modules to build the parser. Their own imports are therefore cheap; a module that
loads Arrow, NumPy, Spark or Docker is imported inside the function that needs it.
"""
