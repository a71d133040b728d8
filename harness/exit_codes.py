"""Exit codes, an interface (Jepsen's set)."""

VALID = 0
INVALID = 1
UNKNOWN = 2
USAGE = 254
FAILURE = 255
"""The harness failed, or could not learn what it was asked for: no answer about the system, or not a whole one."""
