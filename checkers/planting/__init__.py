"""Anomalies planted into copies of valid histories, for the self-test of the checkers; `table.py` lists them."""
