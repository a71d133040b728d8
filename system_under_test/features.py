"""The feature levels of a node, from its profile and its copy of the metadata."""

from system_under_test.config import Features
from system_under_test.metadata.image import (
    ELR_FEATURE,
    GROUP_FEATURE,
    METADATA_VERSION_FEATURE,
    TRANSACTION_FEATURE,
    ClusterImage,
)
from system_under_test.protocol.feature_levels import FeatureLevels
from system_under_test.protocol.releases import RELEASES

ELR_LEVELS = (0, 1)
GROUP_LEVELS = (0, 1)
TRANSACTION_LEVELS = (0, 2)


def levels_of(features: Features, image: ClusterImage) -> FeatureLevels:
    """Returns what ApiVersions reports.

    Only features that change something here are supported: `metadata.version`, and from 4.0 on
    `eligible.leader.replicas.version`, `group.version` and `transaction.version`. Kafka has others, for other
    kinds of groups and changes of the voters.
    """
    release = RELEASES[features.profile]
    supported = {
        METADATA_VERSION_FEATURE: (release.oldest_metadata_version, features.metadata_version)
    }
    if release.has_elr:
        supported[ELR_FEATURE] = ELR_LEVELS
    if features.has_group_version:
        supported[GROUP_FEATURE] = GROUP_LEVELS
    if features.transaction_version:
        supported[TRANSACTION_FEATURE] = TRANSACTION_LEVELS
    finalized = {name: level for name, level in image.features.items() if name in supported}
    return FeatureLevels(
        supported=supported, finalized=finalized, epoch=image.last_offset if finalized else -1
    )
