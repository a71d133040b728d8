"""Exit codes, an interface (Jepsen's set)."""

VALID = 0
INVALID = 1
UNKNOWN = 2
USAGE = 254
FAILURE = 255
"""The harness failed or was interrupted, or could not obtain all requested values."""
