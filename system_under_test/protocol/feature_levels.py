"""Feature levels as ApiVersions reports them (KIP-584): what a node supports, and what is in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from system_under_test.protocol.messages import api_versions_response

UNKNOWN_EPOCH = -1
LEVEL_ZERO_SINCE = 4
"""First version of ApiVersions in which a smallest level of 0 is reported: older clients cannot read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevels:
    """Feature levels of one node.

    Attributes:
        supported: Smallest and largest level by name.
        finalized: Levels in force by name; a feature at level 0 is not in force.
        epoch: Offset of the metadata that say so, -1 if there are none yet.
    """

    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized: Mapping[str, int] = field(default_factory=dict)
    epoch: int = UNKNOWN_EPOCH

    def fields(self, version: int) -> dict[str, Any]:
        """Returns the fields of an ApiVersionsResponse in a version of the wire."""
        return {
            "supported_features": tuple(
                api_versions_response.SupportedFeatureKey(
                    name=name, min_version=low, max_version=high
                )
                for name, (low, high) in sorted(self.supported.items())
                if low > 0 or version >= LEVEL_ZERO_SINCE
            ),
            "finalized_features_epoch": self.epoch,
            "finalized_features": tuple(
                api_versions_response.FinalizedFeatureKey(
                    name=name, max_version_level=level, min_version_level=level
                )
                for name, level in sorted(self.finalized.items())
                if level > 0
            ),
        }


NO_LEVELS = FeatureLevels()
