"""The leader's work: append, make durable, serve fetches, commit, announce itself, resign.

Appends are collected for a moment (`controller.quorum.append.linger.ms`), written together and fsynced. Only
then are they served to other replicas and counted for the leader itself (RAFT-2, RAFT-7). Fetches that find
nothing new are parked until there is something new, or until they time out.

A parked fetch is also completed when only the high watermark moved, if its sender does not know it yet. Kafka
does that since fetches carry the follower's high watermark (KIP-1166, Kafka 4.1); before, and with the switch
`commit_wakes_metadata_fetch` off, a replica learns of a commit with the response after the next record or at the
end of its wait. Here the leader remembers which high watermark it sent to which replica, which needs no field in
the request.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from system_under_test.invariants import check_invariant
from system_under_test.log.verified import VerifiedBatches
from system_under_test.metadata.records import LeaderChangeRecord, MetadataRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import to_millis
from system_under_test.protocol.metadata_codec import encode_metadata_batch
from system_under_test.raft import messages
from system_under_test.raft.leadership import Leadership
from system_under_test.raft.link import Link
from system_under_test.raft.quorum import METADATA_MAX_BATCH_BYTES, NotLeaderError, Quorum
from system_under_test.raft.snapshot_service import serve_snapshot
from system_under_test.raft.state import NO_NODE, Leader, Resigned
from system_under_test.runtime import RequestContext

CHECK_QUORUM_FACTOR = 1.5
"""Number of fetch timeouts without fetches of a majority after which a leader resigns (RAFT-4)."""

Spawn = Callable[[Coroutine[Any, Any, None]], None]


@dataclass(slots=True, kw_only=True, eq=False)
class _ParkedFetch:
    """A fetch that waits for new records or a new high watermark."""

    future: "asyncio.Future[Any]"
    timer: asyncio.TimerHandle
    replica_id: int
    connection_id: int
    fetch_offset: int
    max_bytes: int


class LeaderDriver:
    """Does the work of a leader; idle in every other state.

    Args:
        spawn: Starts a task whose failure ends the node.
    """

    def __init__(self, quorum: Quorum, links: dict[int, Link], spawn: Spawn) -> None:
        self._quorum = quorum
        self._links = links
        self._spawn = spawn
        self._timings = quorum.config.timings
        self.leadership: Leadership | None = None
        self._next_offset = 0
        self._pending: list[bytes] = []
        self._linger: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._parked: dict[int, _ParkedFetch] = {}
        self._parked_count = 0
        self._announce_timer: asyncio.TimerHandle | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._check_due_s = 0.0

    # --- begin and end of a leadership -------------------------------------------------------------------

    def begin(self, epoch: int) -> None:
        """Begins a leadership: appends the LeaderChange record, announces the leader, starts the timers."""
        quorum = self._quorum
        start_offset = quorum.log.log_end_offset
        self.leadership = Leadership(
            node_id=quorum.node_id,
            voters=quorum.voters,
            epoch=epoch,
            epoch_start_offset=start_offset,
            rules=quorum.config.rules,
        )
        self._next_offset = start_offset
        record = LeaderChangeRecord(leader_id=quorum.node_id, voters=quorum.voters)
        self._queue([record])
        # Not delayed by the linger: a node that hears of this leader finds its record in the log.
        self._write_pending(self.leadership)
        self._start_drain()
        quorum.host.observer.mark("quorum-leader-elected", epoch=epoch, start_offset=start_offset)
        if len(quorum.voters) > 1:
            self._postpone_check()
            self._arm_check_timer()
            self._announce()

    def end(self) -> None:
        """Ends the leadership: drops appends that were not written, completes parked fetches with an error."""
        self.leadership = None
        self._pending.clear()
        self._is_draining = False
        for timer in (self._linger, self._announce_timer, self._check_timer):
            if timer is not None:
                timer.cancel()
        self._linger = self._announce_timer = self._check_timer = None
        parked, self._parked = self._parked, {}
        for fetch in parked.values():
            self._respond_to_parked(fetch, self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def resign(self, reason: str) -> bool:
        """Resigns and sends the other voters the order in which they should stand for election.

        Returns:
            False if this node does not lead; nothing happened then.
        """
        leadership = self.leadership
        state = self._quorum.state
        if leadership is None or not isinstance(state, Leader):
            return False
        successors = leadership.preferred_successors()
        self._quorum.host.observer.mark("quorum-resigned", epoch=state.epoch, reason=reason)
        self._quorum.transition(
            Resigned(epoch=state.epoch, node_id=self._quorum.node_id, voted_id=state.voted_id)
        )
        request = messages.build_end_quorum_epoch(
            self._quorum.config, epoch=state.epoch, successors=successors
        )
        for voter_id in successors:
            self._links[voter_id].send(
                request, self._timings.controller_quorum_request_timeout_ms, self._handle_response
            )
        return True

    # --- appending ---------------------------------------------------------------------------------------

    def next_offset(self) -> int:
        """Returns the offset that the next appended record gets."""
        return self._next_offset

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Accepts one atomic batch and returns the offset of its last record. See `RaftNode.append`."""
        if self.leadership is None:
            raise NotLeaderError("this node does not lead the metadata quorum")
        last_offset = self._queue(records)
        if self._linger is None and not self._is_draining:
            self._linger = asyncio.get_running_loop().call_later(
                self._timings.controller_quorum_append_linger_ms / 1000, self._start_drain
            )
        return last_offset

    def _queue(self, records: Sequence[MetadataRecord]) -> int:
        quorum = self._quorum
        batch = encode_metadata_batch(
            records,
            timestamp_ms=quorum.host.clock.wall_ms(),
            base_offset=self._next_offset,
            quorum_epoch=quorum.state.epoch,
        )
        if len(batch) > METADATA_MAX_BATCH_BYTES:
            raise ValueError(
                f"a metadata batch of {len(batch)} bytes exceeds the limit of {METADATA_MAX_BATCH_BYTES}"
            )
        self._pending.append(batch)
        self._next_offset += len(records)
        return self._next_offset - 1

    def _start_drain(self) -> None:
        self._linger = None
        if self.leadership is not None and not self._is_draining:
            self._is_draining = True
            self._spawn(self._drain(self.leadership))

    async def _drain(self, leadership: Leadership) -> None:
        while True:
            if self._pending:
                self._write_pending(leadership)
            await self._quorum.log.flush()
            if self.leadership is not leadership:
                # Deposed during the fsync. The records stay in the log until another leader truncates them.
                return
            self._advance_and_wake(leadership)
            if self.leadership is not leadership:
                return
            # Appends that arrived meanwhile have waited for a whole fsync; they do not linger as well.
            if not self._pending:
                self._is_draining = False
                return

    def _write_pending(self, leadership: Leadership) -> None:
        data = b"".join(self._pending)
        self._pending.clear()
        info = self._quorum.log.append_as_leader(VerifiedBatches.verify(data), leadership.epoch)
        check_invariant(
            info.last_offset + 1 == self._next_offset,
            "INV-8",
            "a metadata record is written at the offset that was promised",
            written_end=info.last_offset + 1,
            promised_end=self._next_offset,
        )

    # --- committing --------------------------------------------------------------------------------------

    def _advance_and_wake(self, leadership: Leadership) -> None:
        # [RAFT-2] A leader counts for itself, and serves to others, only what is durable.
        if leadership.advance(self._quorum.durable_end):
            # Followers first, because the own listener may take long, or append.
            self._wake_parked(leadership)
            self._quorum.commit_to(leadership.high_watermark)
        elif self._parked:
            self._wake_parked(leadership)

    def _wake_parked(self, leadership: Leadership) -> None:
        durable_end = self._quorum.durable_end
        woken = [
            number
            for number, fetch in self._parked.items()
            if fetch.fetch_offset < durable_end
            or not self._knows_commits(leadership, fetch.replica_id, fetch.connection_id)
        ]
        for number in woken:
            self._complete_parked(number)

    def _knows_commits(self, leadership: Leadership, replica_id: int, connection_id: int) -> bool:
        """Whether a replica need not be told about a commit now (RAFT-9)."""
        # RAFT-9: before KIP-1166 only new records end the wait of a fetch.
        if not self._quorum.config.features.commit_wakes_metadata_fetch:
            return True
        return leadership.knows_high_watermark(replica_id, connection_id)

    # --- serving fetches ---------------------------------------------------------------------------------

    def handle_fetch(self, request: Any, context: RequestContext) -> Any:
        """Serves a fetch of the metadata log. The order of the checks is Kafka's.

        Returns:
            The response, or its future while there is nothing new.
        """
        quorum = self._quorum
        if request.cluster_id is not None and request.cluster_id != quorum.config.cluster_id:
            return messages.build_fetch_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)
        wanted = messages.only_partition(request)
        if (
            wanted is None
            or wanted.fetch_offset < 0
            or wanted.last_fetched_epoch < 0
            or wanted.current_leader_epoch < 0
        ):
            return messages.build_fetch_refusal(ErrorCode.INVALID_REQUEST)
        epoch = quorum.state.epoch
        if wanted.current_leader_epoch != epoch:
            is_older = wanted.current_leader_epoch < epoch
            return self._refusal(
                ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        leadership = self.leadership
        if leadership is None:
            return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica_id = request.replica_state.replica_id
        if leadership.majority_fetched(replica_id):
            self._postpone_check()
        snapshot = quorum.snapshot_for(wanted.fetch_offset, wanted.last_fetched_epoch)
        if snapshot is not None:
            return messages.build_fetch_response(
                error=ErrorCode.NONE,
                epoch=epoch,
                leader_id=quorum.node_id,
                high_watermark=leadership.high_watermark,
                log_start_offset=quorum.log.log_start_offset,
                snapshot=snapshot,
            )
        diverging = self._divergence(wanted.fetch_offset, wanted.last_fetched_epoch)
        if diverging is not None:
            return messages.build_fetch_response(
                error=ErrorCode.NONE,
                epoch=epoch,
                leader_id=quorum.node_id,
                high_watermark=leadership.high_watermark,
                diverging=diverging,
            )
        leadership.record_fetch(replica_id, wanted.fetch_offset)
        leadership.note_progress(
            replica_id,
            wanted.fetch_offset,
            quorum.durable_end,
            quorum.host.clock.wall_ms(),
        )
        if leadership.advance(quorum.durable_end):
            self._wake_parked(leadership)
            quorum.commit_to(leadership.high_watermark)
            if self.leadership is not leadership:
                # The listener made this node resign.
                return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        max_bytes = min(wanted.partition_max_bytes, METADATA_MAX_BATCH_BYTES)
        wait_ms = to_millis(request.max_wait)
        if (
            wanted.fetch_offset < quorum.durable_end
            or wait_ms <= 0
            or request.min_bytes <= 0
            or not self._knows_commits(leadership, replica_id, context.connection_id)
        ):
            return self._data(
                leadership, replica_id, context.connection_id, wanted.fetch_offset, max_bytes
            )
        return self._park(
            replica_id=replica_id,
            connection_id=context.connection_id,
            fetch_offset=wanted.fetch_offset,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
        )

    def handle_fetch_snapshot(self, request: Any) -> Any:
        """Returns the response to a FetchSnapshotRequest, which counts as a fetch for RAFT-4."""
        leadership = self.leadership
        response = serve_snapshot(request, self._quorum, is_leader=leadership is not None)
        if (
            leadership is not None
            and response.topics
            and response.topics[0].partitions[0].error_code == ErrorCode.NONE
            and leadership.majority_fetched(request.replica_id)
        ):
            self._postpone_check()
        return response

    def _divergence(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        log = self._quorum.log
        found = log.end_offset_for_epoch(last_fetched_epoch)
        if found is None:
            # The replica knows a newer epoch than this log; no record of that epoch is in this log.
            position = self._quorum.log_position
            return (position.last_epoch, position.end_offset)
        if found[0] == last_fetched_epoch and found[1] >= fetch_offset:
            return None
        return found

    def _data(
        self,
        leadership: Leadership,
        replica_id: int,
        connection_id: int,
        fetch_offset: int,
        max_bytes: int,
    ) -> Any:
        quorum = self._quorum
        durable_end = quorum.durable_end
        records = b""
        if fetch_offset < durable_end:
            records = quorum.log.read(fetch_offset, max_bytes, durable_end)
        leadership.high_watermark_sent(replica_id, connection_id)
        return messages.build_fetch_response(
            error=ErrorCode.NONE,
            epoch=leadership.epoch,
            leader_id=quorum.node_id,
            high_watermark=leadership.high_watermark,
            log_start_offset=quorum.log.log_start_offset,
            records=records,
        )

    def _refusal(self, error: ErrorCode) -> Any:
        state = self._quorum.state
        return messages.build_fetch_response(
            error=error, epoch=state.epoch, leader_id=state.leader_id
        )

    def _park(
        self,
        *,
        replica_id: int,
        connection_id: int,
        fetch_offset: int,
        max_bytes: int,
        wait_ms: float,
    ) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        self._parked_count += 1
        number = self._parked_count
        fetch = _ParkedFetch(
            future=loop.create_future(),
            timer=loop.call_later(wait_ms / 1000, self._complete_parked, number),
            replica_id=replica_id,
            connection_id=connection_id,
            fetch_offset=fetch_offset,
            max_bytes=max_bytes,
        )
        self._parked[number] = fetch
        return fetch.future

    def _complete_parked(self, number: int) -> None:
        fetch = self._parked.pop(number, None)
        leadership = self.leadership
        if fetch is None or leadership is None:
            return
        response = self._data(
            leadership, fetch.replica_id, fetch.connection_id, fetch.fetch_offset, fetch.max_bytes
        )
        self._respond_to_parked(fetch, response)

    def _respond_to_parked(self, fetch: _ParkedFetch, response: Any) -> None:
        fetch.timer.cancel()
        if not fetch.future.done():
            fetch.future.set_result(response)

    # --- timers ------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        leadership = self.leadership
        if leadership is None:
            return
        for voter_id in self._quorum.voters:
            if voter_id != self._quorum.node_id:
                request = messages.build_begin_quorum_epoch(
                    self._quorum.config, voter_id=voter_id, epoch=leadership.epoch
                )
                self._links[voter_id].send(
                    request,
                    self._timings.controller_quorum_request_timeout_ms,
                    self._handle_response,
                )
        self._announce_timer = asyncio.get_running_loop().call_later(
            self._timings.controller_quorum_fetch_timeout_ms / 2000, self._announce
        )

    def _handle_response(self, response: Any) -> None:
        if response is not None:
            content = messages.read_response(response)
            if content.epoch != NO_NODE:
                self._quorum.hear(content.epoch, content.leader_id)

    def _postpone_check(self) -> None:
        timeout_s = self._timings.controller_quorum_fetch_timeout_ms * CHECK_QUORUM_FACTOR / 1000
        self._check_due_s = asyncio.get_running_loop().time() + timeout_s

    def _arm_check_timer(self) -> None:
        self._check_timer = asyncio.get_running_loop().call_at(
            self._check_due_s, self._check_quorum, self._check_due_s
        )

    def _check_quorum(self, was_due_s: float) -> None:
        # [RAFT-4] The timer is re-armed here and not at every fetch.
        self._check_timer = None
        if self._check_due_s > was_due_s:
            self._arm_check_timer()
        else:
            self.resign("no majority fetched in time")
