"""What each replica's log holds at the end of a run: the table `replica_batches`.

The high watermarks are those of the last `replica_states`, which are older than the logs or as old: what was below
them then is there now. A log that cannot be read is left out, because no verdict may depend on the reading.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.contracts.cluster import AddRow
from harness.contracts.system import LogReader, NodeFiles, System
from harness.history.schema import REPLICA_STATES

LOG_BYTES_MAX = 64 << 20
"""Of a longer log only the beginning is read."""

INTERNAL = "__"
"""How the names of topics begin that belong to the system itself; no client of a run reads their partitions."""

_COLUMN = {name: index for index, name in enumerate(REPLICA_STATES.names)}

FilesOf = Callable[[str], NodeFiles]
"""Returns the files of a node by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """A replica as it last reported itself."""

    node: str
    broker: int
    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int


class LastReplicaStates:
    """Passes history rows on, and keeps the last state of every replica. Mutable.

    Args:
        add_row: Takes history rows.
    """

    def __init__(self, add_row: AddRow) -> None:
        self._add_row = add_row
        self._last: dict[tuple[str, str, int], tuple[Any, ...]] = {}

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Takes one history row."""
        self._add_row(table, row)
        if table == "replica_states":
            key = (row[_COLUMN["node"]], row[_COLUMN["topic"]], row[_COLUMN["partition"]])
            self._last[key] = row

    def running(self) -> list[_Replica]:
        """Returns the replicas of the run's topics whose process runs and that know their logs, in order."""
        found = []
        for _, row in sorted(self._last.items()):
            state: Mapping[str, Any] = dict(zip(_COLUMN, row, strict=True))
            if state["topic"].startswith(INTERNAL) or state["role"] == "offline":
                continue
            if state["high_watermark"] > 0:
                names = _Replica.__dataclass_fields__
                found.append(_Replica(**{name: state[name] for name in names}))
        return found


def record_logs(
    system: System, states: LastReplicaStates, files_of: FilesOf, add_row: AddRow
) -> list[str]:
    """Reads the logs of the replicas and records their batches.

    Args:
        system: Only a system that is a `LogReader` can be read; of another one nothing is recorded.
        states: The replicas.
        files_of: Gives access to the files of a node.
        add_row: Takes history rows.

    Returns:
        The logs that could not be read, one sentence each.
    """
    if not isinstance(system, LogReader):
        return []
    unread = []
    for replica in states.running():
        try:
            batches = system.stored_batches(
                files_of(replica.node), replica.topic, replica.partition, bytes_max=LOG_BYTES_MAX
            )
        except OSError as error:
            unread.append(
                f"{replica.node}: the log of {replica.topic}-{replica.partition}: {error}"
            )
            continue
        end_offset = batches[-1].last_offset + 1 if batches else 0
        for base_offset, last_offset, leader_epoch, checksum in batches:
            add_row(
                "replica_batches",
                (
                    replica.node,
                    replica.broker,
                    replica.topic,
                    replica.partition,
                    base_offset,
                    last_offset,
                    leader_epoch,
                    checksum,
                    replica.log_start_offset,
                    replica.high_watermark,
                    end_offset,
                ),
            )
    return unread
