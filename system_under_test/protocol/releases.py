"""What each Kafka release announces in ApiVersions: the newest version of every API, and feature levels.

A profile stands for a release, and clients choose versions by this announcement. A node serves what its release
serves. Its own nodes are the exception: whatever the profile, they use one version of each API between them.

Source:
    `ApiKeys.latestVersion` and `Feature` in the last patch releases (for 3.4 and 4.2 what the schemas of other
    releases say).
"""

from collections.abc import Mapping
from dataclasses import dataclass

ABSENT = -1
_PROFILES = (
    "kafka-3.4",
    "kafka-3.6",
    "kafka-3.9",
    "kafka-4.0",
    "kafka-4.1",
    "kafka-4.2",
    "kafka-4.3",
    "kafka-4.4",
)
_NEWEST: Mapping[str, tuple[int, ...]] = {
    "Produce": (9, 9, 11, 12, 13, 13, 13, 13),
    "Fetch": (13, 15, 17, 17, 18, 18, 18, 18),
    "ListOffsets": (7, 8, 9, 10, 10, 11, 11, 11),
    "Metadata": (12, 12, 12, 13, 13, 13, 13, 13),
    "OffsetCommit": (8, 8, 9, 9, 9, 10, 10, 10),
    "OffsetFetch": (8, 8, 9, 9, 9, 10, 10, 10),
    "FindCoordinator": (4, 4, 6, 6, 6, 6, 6, 6),
    "DescribeGroups": (5, 5, 5, 6, 6, 6, 6, 6),
    "ListGroups": (4, 4, 5, 5, 5, 5, 5, 5),
    "ApiVersions": (3, 3, 4, 4, 4, 4, 4, 5),
    "InitProducerId": (4, 4, 5, 5, 5, 5, 5, 5),
    "AddPartitionsToTxn": (3, 4, 5, 5, 5, 5, 5, 5),
    "AddOffsetsToTxn": (3, 3, 4, 4, 4, 4, 4, 4),
    "EndTxn": (3, 3, 4, 5, 5, 5, 5, 5),
    "WriteTxnMarkers": (1, 1, 1, 1, 1, 2, 2, 2),
    "TxnOffsetCommit": (3, 3, 4, 5, 5, 5, 5, 5),
    "ListTransactions": (0, 0, 1, 1, 2, 2, 2, 2),
    "DescribeQuorum": (1, 1, 2, 2, 2, 2, 2, 2),
    "DescribeCluster": (0, 0, 1, 2, 2, 2, 2, 2),
    "ConsumerGroupHeartbeat": (ABSENT, ABSENT, 0, 1, 1, 1, 1, 1),
    "ConsumerGroupDescribe": (ABSENT, ABSENT, 0, 1, 1, 1, 1, 1),
    "DescribeTopicPartitions": (ABSENT, ABSENT, 0, 0, 0, 0, 0, 0),
}
"""The newest version by API and profile. An API that is missing here has had one newest version since 3.4."""

_OLDEST_METADATA_VERSION = (1, 1, 1, 7, 7, 7, 7, 7)
"""The smallest supported level of `metadata.version`: 3.0-IV1, since 4.0 3.3-IV3."""
_ELR_SINCE = 3
"""Place of the first profile that supports `eligible.leader.replicas.version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What a release announces.

    Attributes:
        newest: Newest version by name of the API, where it depends on the release.
        oldest_metadata_version: Smallest supported level of `metadata.version`.
        has_elr: Whether it supports the feature `eligible.leader.replicas.version`.
    """

    newest: Mapping[str, int]
    oldest_metadata_version: int
    has_elr: bool


RELEASES: Mapping[str, Release] = {
    profile: Release(
        newest={name: versions[place] for name, versions in _NEWEST.items()},
        oldest_metadata_version=_OLDEST_METADATA_VERSION[place],
        has_elr=place >= _ELR_SINCE,
    )
    for place, profile in enumerate(_PROFILES)
}
"""By profile."""


def oldest_release(name: str, version: int) -> str:
    """Returns the oldest release that serves a version of an API, for example "4.0"; "" if no known one does."""
    serving = (one for one in _PROFILES if RELEASES[one].newest.get(name, ABSENT) >= version)
    return next(serving, "").removeprefix("kafka-")
