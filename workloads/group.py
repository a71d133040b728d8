"""What all members of a consumer group share, whichever client they use: settings, recorded events, offsets.

The rows of `group_events` are those of `harness.history.schema`. Members record the same rows whichever client
they use, so the same kernel judges all of them (`checkers.kernels.consumer_group`).
"""

from dataclasses import dataclass

from harness.contracts.recorder import Recorder

Key = tuple[str, int]
"""A topic and a partition."""

UNKNOWN_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWorkloadConfig:
    """Settings of a group.

    Attributes:
        group: Its name.
        members: How many there are at a time.
        static_members: How many of them have an instance id (KIP-345); native members only.
        mean_life_s: After which a member leaves or dies, on average; a new one takes its place.
        crash_share: How many of those ends are deaths, 0 to 1.
        session_timeout_ms, heartbeat_interval_ms: As in Kafka.
        assignor: `partition.assignment.strategy`; native members know "range" only.
        request_timeout_ms: For commits and other requests to the coordinator.
        connect_timeout_ms: After which a connection attempt is given up.
        poll_max_bytes, poll_max_wait_ms: As in Fetch; native members only.
    """

    group: str = "laststand-group"
    members: int = 3
    static_members: int = 0
    mean_life_s: float = 5.0
    crash_share: float = 0.3
    session_timeout_ms: int = 6000
    heartbeat_interval_ms: int = 500
    assignor: str = "range"
    request_timeout_ms: int = 5000
    connect_timeout_ms: int = 1000
    poll_max_bytes: int = 16384
    poll_max_wait_ms: int = 20


class CommittedOffsets:
    """The largest acknowledged commit of every partition. Mutable; used by one event loop."""

    def __init__(self) -> None:
        self._acknowledged: dict[Key, int] = {}

    def commit_acknowledged(self, key: Key, offset: int) -> None:
        """Notes that a commit was acknowledged."""
        self._acknowledged[key] = max(self.acknowledged(key), offset)

    def acknowledged(self, key: Key) -> int:
        """Returns the largest acknowledged commit by now, -1 for none."""
        return self._acknowledged.get(key, -1)


class MemberEvents:
    """Records what one member does and receives in the table `group_events`.

    Args:
        recorder: Where the rows go.
        committed: Shared by all members of the group.
        group: Name of the group.
        process: The member.
    """

    def __init__(
        self, recorder: Recorder, committed: CommittedOffsets, *, group: str, process: int
    ) -> None:
        self._recorder = recorder
        self._committed = committed
        self._group = group
        self._process = process

    def assigned(self, key: Key, offset: int, generation: int = UNKNOWN_GENERATION) -> None:
        """Records that the member got a partition in a generation, and where it starts."""
        self._note("assigned", key, offset, generation=generation)

    def revoked(self, key: Key) -> None:
        """Records that the member gave a partition up, or learned that it had lost it."""
        self._note("revoked", key)

    def commit_sent(self, key: Key, offset: int) -> None:
        """Records that the member commits an offset; to be called before the request can leave."""
        self._note("commit-sent", key, offset)

    def commit_acknowledged(self, key: Key, offset: int) -> None:
        """Records that the coordinator acknowledged a commit."""
        self._note("commit-acknowledged", key, offset)
        self._committed.commit_acknowledged(key, offset)

    def committed_asked(self, key: Key) -> int:
        """Records that the member requests the committed offset; returns what `committed_seen` refers to."""
        return self._note("committed-asked", key)

    def committed_seen(self, key: Key, offset: int, refers_to: int) -> None:
        """Records the committed offset in the coordinator's response; negative for none."""
        self._note("committed-seen", key, offset, refers_to=refers_to)

    def _note(
        self,
        event: str,
        key: Key,
        offset: int = -1,
        *,
        refers_to: int = -1,
        generation: int = UNKNOWN_GENERATION,
    ) -> int:
        return self._recorder.group_event(
            group=self._group,
            process=self._process,
            topic=key[0],
            partition=key[1],
            event=event,
            offset=offset,
            refers_to=refers_to,
            generation=generation,
        )
