"""What a campaign shows for the profile of an arm whose seeds draw their profiles."""

from collections.abc import Iterable

DRAWN = "drawn"
"""Stands for the profile of an arm in which every seed draws it."""


def draws_profile(space: Iterable[str]) -> bool:
    """Returns whether a space with these keys draws the profile, or feature levels, which replace it."""
    return any(key.partition(".")[0] in ("profile", "features") for key in space)
