"""One log directory of a broker: its checkpoints, its clean-shutdown marker, and the names of logs in it."""

from uuid import UUID

from system_under_test.config import NodeConfig
from system_under_test.log.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CleanShutdownMarker,
    MetaProperties,
    OffsetCheckpoint,
)
from system_under_test.log.errors import LogDirectoryError
from system_under_test.log.log import Log
from system_under_test.runtime import RandomStream, Storage

METADATA_TOPIC = "__cluster_metadata"
"""Its log is in the same directory but belongs to the quorum."""


class LogDirectory:
    """One log directory that was online when the broker started."""

    def __init__(self, storage: Storage, name: str, directory_id: UUID) -> None:
        self.name = name
        self.directory_id = directory_id
        self.marker = CleanShutdownMarker(storage, name)
        self.high_watermarks = OffsetCheckpoint(storage, f"{name}/{HIGH_WATERMARK_CHECKPOINT}")
        self.recovery_points = OffsetCheckpoint(storage, f"{name}/{RECOVERY_POINT_CHECKPOINT}")
        self.log_starts = OffsetCheckpoint(storage, f"{name}/{LOG_START_CHECKPOINT}")
        self.first_dirty = OffsetCheckpoint(storage, f"{name}/{CLEANER_CHECKPOINT}")
        self.had_clean_shutdown = self.marker.exists
        self.is_loaded = False
        self.is_online = True
        self.logs: dict[tuple[str, int], Log] = {}


def identify(storage: Storage, config: NodeConfig, name: str, random_stream: RandomStream) -> UUID:
    """Returns the id of a log directory; marks a new one as this node's, durably.

    Raises:
        LogDirectoryError: It belongs to another node or cluster, or is damaged.
        OSError: The disk failed.
    """
    found = MetaProperties.read(storage, name)
    if found is None:
        directory_id = UUID(int=random_stream.getrandbits(128), version=4)
        MetaProperties(
            cluster_id=config.cluster_id, node_id=config.node_id, directory_id=directory_id
        ).write(storage, name)
        return directory_id
    if (found.cluster_id, found.node_id) != (config.cluster_id, config.node_id):
        raise LogDirectoryError(
            f"directory {name} belongs to node {found.node_id} of cluster {found.cluster_id}, "
            f"and this is node {config.node_id} of cluster {config.cluster_id}; use another directory"
        )
    return found.directory_id


def log_path(directory: LogDirectory, key: tuple[str, int]) -> str:
    """Returns where the files of a log are."""
    return f"{directory.name}/{key[0]}-{key[1]}"


def parse_log_name(name: str) -> tuple[str, int] | None:
    """Returns topic and index of a log by the name of its directory, None if it is that of no partition log."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit():
        return None
    if topic == METADATA_TOPIC or digits != str(int(digits)):
        return None
    return topic, int(digits)
