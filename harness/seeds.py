"""The seed of a run: one number that decides everything an experiment leaves open."""

from harness.errors import UsageError

SEED_MAX = 2**63 - 1
"""Records carry the seed as their run id, in 64 bits; Parquet and JSON readers know signed integers best."""


def check_seed(seed: int) -> int:
    """Returns the seed if a run can have it.

    Raises:
        UsageError: It is negative or too large.
    """
    if not 0 <= seed <= SEED_MAX:
        raise UsageError(f"a seed is a whole number from 0 to 2**63 - 1, not {seed}")
    return seed
