"""Moves the wall clock of programs that do not read the skew file themselves."""
