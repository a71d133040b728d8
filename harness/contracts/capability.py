"""What an environment can do, how, and if not, why."""

from dataclasses import dataclass

YES = "yes"
WEAKER = "weaker"
NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """Whether something can be done here.

    Attributes:
        level: "yes", "weaker" (by a mechanism that is named, and that is less than the real thing) or "no".
        how: The mechanism.
        why: What is missing, and what to do about it; for "weaker" and "no".
    """

    level: str
    how: str = ""
    why: str = ""

    @property
    def is_there(self) -> bool:
        """Whether it can be done at all."""
        return self.level != NO

    def line(self) -> str:
        """Returns it as one line of text."""
        parts = [self.level]
        if self.how:
            parts.append(self.how)
        if self.why:
            parts.append(self.why)
        return ": ".join(parts[:2]) + (f" ({parts[2]})" if len(parts) > 2 else "")
