"""What some cases of a kind showed."""

from dataclasses import dataclass, field

UNTESTED = "a fault took no effect, or nothing was acknowledged meanwhile"
"""Why a single run is unknown although a campaign of such runs is not (`harness.campaigns.effects`).

For example, the only link that was cut is one of a node without power, so no frame was held (seeds 4 and 56 of
`examples/short-power-cuts.toml`).
"""

AS_ON_DISKS = "invalid without ELR, with as many lost records as are missing on the disks"
"""Why a verdict counts as right although it is not valid: the release may lose records, and lost what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """What some cases of a kind showed.

    Attributes:
        wrong: A line for each case that is wrong.
        unknown: For each reason why verdicts are unknown, the number of cases; also those of a known finding, and
            those of `UNTESTED`, and those of `AS_ON_DISKS`, whose verdict is not unknown.
    """

    wrong: list[str] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
