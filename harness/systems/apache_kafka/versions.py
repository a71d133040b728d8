"""The versions of Apache Kafka that can be tested, and what follows from a version.

Of the releases before 3.9 the last patch release is supported, from 3.9 on every release: older ones are
tested to compare behaviour, newer ones also to find the release in which a bug came or went.

Source: the pages "Java Version" and "Compatibility" of each release's documentation; KIP-750 and KIP-1013
(Java), KIP-966 (eligible leader replicas), KAFKA-15583 (high watermark below min ISR), KIP-903 (broker
epochs).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.contracts.system import Promises
from harness.errors import UsageError
from harness.names import unknown_name

NAME = "apache-kafka"
ELR_FEATURE = "eligible.leader.replicas.version"
_FORM = re.compile(r"(\d+)\.(\d+)\.(\d+)", re.ASCII)
_PROFILES_BEFORE_ELR = {4: "kafka-3.4", 5: "kafka-3.4", 6: "kafka-3.6"}
"""Profile by minor version of 3.x; 3.5 still bumps the leader epoch when the ISR shrinks, as 3.4 does."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A release of Apache Kafka."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def has_elr(self) -> bool:
        """Whether it knows the feature "eligible leader replicas"."""
        return self.major >= 4

    @property
    def has_controller_endpoints(self) -> bool:
        """Whether controllers tell their addresses, and accept `advertised.listeners` (KIP-853)."""
        return (self.major, self.minor) >= (3, 9)

    @property
    def uses_log4j2(self) -> bool:
        """Whether it logs through Log4j 2, as 4.0 and newer do, and not through reload4j."""
        return self.major >= 4


SUPPORTED: tuple[Version, ...] = tuple(
    Version(*numbers)
    for numbers in (
        (3, 4, 1),
        (3, 5, 2),
        (3, 6, 2),
        (3, 7, 2),
        (3, 8, 1),
        (3, 9, 0),
        (3, 9, 1),
        (3, 9, 2),
        (4, 0, 0),
        (4, 0, 1),
        (4, 0, 2),
        (4, 1, 0),
        (4, 1, 1),
        (4, 1, 2),
        (4, 2, 0),
        (4, 2, 1),
        (4, 3, 0),
        (4, 3, 1),
        (4, 4, 0),
    )
)
"""Every supported version, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRange:
    """Java versions (feature releases) with which a version of Kafka works, both ends included."""

    lowest: int
    highest: int

    def __contains__(self, major: object) -> bool:
        return isinstance(major, int) and self.lowest <= major <= self.highest

    def __str__(self) -> str:
        return f"Java {self.lowest} to {self.highest}"


def parse_version(text: str) -> Version:
    """Returns a supported version.

    Raises:
        UsageError: The text is not one; the sentence suggests one and lists all.
    """
    found = _FORM.fullmatch(text)
    version = Version(*(int(part) for part in found.groups())) if found else None
    if version not in SUPPORTED:
        raise UsageError(
            unknown_name("supported version of Apache Kafka", text, map(str, SUPPORTED))
        )
    return version


def java_range(version: Version) -> JavaRange:
    """Returns the Java versions with which a broker of this version works.

    The lowest is what the release requires. The highest is the newest with which the release works according
    to its documentation, "best effort" included.
    """
    if version.major >= 4:
        return JavaRange(lowest=17, highest=25)
    return JavaRange(lowest=11, highest=25 if version.minor == 9 else 21)


def feature_levels(version: Version, chosen: Mapping[str, int] | None = None) -> Mapping[str, int]:
    """Returns the feature levels of a new cluster that matter for what it promises.

    Args:
        version: Of all nodes.
        chosen: Levels that differ from the version's own defaults.

    Returns:
        The level by feature; empty before 4.0, which has no such feature.

    Raises:
        UsageError: The version does not have a feature, or not at this level.
    """
    levels = {ELR_FEATURE: 0 if version.minor == 0 else 1} if version.has_elr else {}
    for name, level in (chosen or {}).items():
        if name not in levels:
            known = ", ".join(levels) or "none"
            raise UsageError(
                f"Apache Kafka {version} has no feature {name!r} to choose (known: {known})"
            )
        if level not in (0, 1) or isinstance(level, bool):
            raise UsageError(f"{name} is {level!r}; Apache Kafka {version} supports 0 and 1")
        levels[name] = level
    return MappingProxyType(levels)


def elr_level(version: Version, *, is_on: bool) -> Mapping[str, int]:
    """Returns the feature level that switches eligible leader replicas on or off.

    Raises:
        UsageError: The version has none.
    """
    if not version.has_elr:
        raise UsageError(
            f"Apache Kafka {version} has no eligible leader replicas (KIP-966); choose a version from 4.0.0 on"
        )
    return {ELR_FEATURE: int(is_on)}


def elr_on(levels: Mapping[str, int]) -> bool:
    """Whether eligible leader replicas (KIP-966) are in use at these feature levels."""
    return levels.get(ELR_FEATURE, 0) > 0


def has_min_isr_gate(version: Version) -> bool:
    """Whether the high watermark moves only while the ISR has min ISR members (HW-1)."""
    return (version.major, version.minor) >= (3, 7)


def profile_name(version: Version, levels: Mapping[str, int]) -> str:
    """Returns the profile of the reference system that behaves like this version at these feature levels."""
    if version.major == 3:
        return _PROFILES_BEFORE_ELR.get(version.minor, "kafka-3.9")
    if not elr_on(levels):
        return "kafka-4.0"
    # 4.0 with the feature switched on behaves like 4.1, where it is on by default.
    return f"kafka-4.{max(version.minor, 1)}"


def promises(version: Version, levels: Mapping[str, int]) -> Promises:
    """Returns what a cluster of this version promises at these feature levels."""
    if elr_on(levels):
        return Promises(elr_on=True, outcome_family="elr-on")
    family = "elr-off" if has_min_isr_gate(version) else "elr-off-no-gate"
    return Promises(elr_on=False, outcome_family=family)
