"""One member of the metadata quorum: a voter (controller) or an observer (broker).

Theory of operation. `Quorum` holds the state, the log and the commit position. Three drivers do the work:
`Elections` (timeouts and votes), `LeaderDriver` (append, commit, serve) and `Fetcher` (fetch and truncate).
Every change of state goes through `Quorum.transition`, which makes it durable and then calls `_entered` here,
which informs the drivers. Everything runs on the node's event loop. The only awaits are for fsyncs and
responses, and the state is examined again after each of them.

`SnapshotWriter` writes snapshots from the listener's image. Every start delivers the newest snapshot and then the
log behind it.

Out of scope: dynamic voters (KIP-853).

Source:
    KIP-595, KIP-630, KIP-996; Kafka's `KafkaRaftClient`. Rules RAFT-1 to RAFT-8.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from system_under_test.config import NodeConfig
from system_under_test.metadata.records import MetadataRecord
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    begin_quorum_epoch_request,
    describe_quorum_request,
    vote_request,
)
from system_under_test.raft import messages
from system_under_test.raft.describe import describe_quorum
from system_under_test.raft.elections import Elections
from system_under_test.raft.fetcher import Fetcher
from system_under_test.raft.leader import LeaderDriver
from system_under_test.raft.link import Link
from system_under_test.raft.quorum import (
    NotLeaderError,
    Quorum,
    QuorumStateError,
    RaftListener,
)
from system_under_test.raft.snapshot_writer import SnapshotWriter
from system_under_test.raft.snapshots import SnapshotError
from system_under_test.raft.state import NO_NODE, Follower, Leader, Resigned, State, contradicts
from system_under_test.runtime import Host, RequestContext

__all__ = ["NotLeaderError", "QuorumStateError", "RaftListener", "RaftNode", "SnapshotError"]


class RaftNode:
    """A voter if the configuration lists this node among the voters, otherwise an observer."""

    def __init__(self, host: Host, config: NodeConfig, listener: RaftListener) -> None:
        self._config = config
        self._quorum = Quorum(host, config, listener, self._entered, self._delivered)
        self._snapshot_writer = SnapshotWriter(self._quorum, self._spawn)
        self._addresses = {voter.node_id: voter.address for voter in config.voters}
        others = [voter for voter in config.voters if voter.node_id != config.node_id]
        # Two connections to every other voter: a parked fetch must not delay a vote.
        self._links = {v.node_id: Link(host, v.address, config.timings) for v in others}
        self._fetch_links = {v.node_id: Link(host, v.address, config.timings) for v in others}
        self._elections = Elections(self._quorum, self._links)
        self._leader = LeaderDriver(self._quorum, self._links, self._spawn)
        self._fetcher = Fetcher(
            self._quorum, self._fetch_links, self._spawn, self._elections.fetch_succeeded
        )
        # A dictionary, not a set: cancellation follows the order of creation.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_running = False
        self._succeeded: asyncio.Future[None] | None = None

    # --- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Loads the log and the quorum state, and takes part in the quorum from then on.

        Raises:
            QuorumStateError: The quorum-state file is damaged.
            SnapshotError: The newest snapshot is damaged.
        """
        self._snapshot_writer.start()
        self._quorum.open_log()
        if self._quorum.is_voter and self._config.rules("RAFT-2"):
            # [RAFT-2] After a kill the page cache may hold records that were appended but not fsynced. The next
            # fetch tells the leader that this voter has them.
            await self._quorum.log.flush()
        self._is_running = True
        self._quorum.load_state()
        self._fetcher.start()

    async def stop(self) -> None:
        """Stops the node; a leader resigns first, and stays for a moment to vote for its successor."""
        if not self._is_running:
            return
        if self._leader.resign("shutdown") and len(self._quorum.voters) > 1:
            await self._wait_for_successor()
        self._is_running = False
        self._elections.stop()
        self._leader.end()
        for task in list(self._tasks):
            task.cancel()
        for link in (*self._links.values(), *self._fetch_links.values()):
            link.close()
        await self._quorum.log.flush()
        self._quorum.log.close()

    # --- inspection ------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """Identifier of this node."""
        return self._quorum.node_id

    @property
    def is_voter(self) -> bool:
        """Whether the configuration lists this node among the voters."""
        return self._quorum.is_voter

    @property
    def epoch(self) -> int:
        """The current quorum epoch."""
        return self._quorum.state.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch, -1 when unknown."""
        return self._quorum.state.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self._leader.leadership is not None

    @property
    def state(self) -> State:
        """The state, for monitors and tests."""
        return self._quorum.state

    @property
    def high_watermark(self) -> int:
        """End of what is committed, -1 when unknown.

        A new leader does not know it until a record of its own epoch is committed (RAFT-7).
        """
        leadership = self._leader.leadership
        return self._quorum.committed_end if leadership is None else leadership.high_watermark

    @property
    def log_end_offset(self) -> int:
        """End offset of the own log."""
        return self._quorum.log.log_end_offset if self._is_running else 0

    @property
    def epoch_start_offset(self) -> int:
        """Offset of the LeaderChange record of the own leadership, -1 if this node does not lead."""
        leadership = self._leader.leadership
        return NO_NODE if leadership is None else leadership.epoch_start_offset

    def leader_address(self) -> str | None:
        """Returns the leader's address, None when the leader is unknown."""
        return self._addresses.get(self.leader_id)

    def deliver_local_log(self) -> None:
        """Delivers the own log as if all of it were committed; for a broker with LIFE-1 switched off."""
        self._quorum.commit_to(self.log_end_offset)

    # --- the leader's interface ------------------------------------------------------------------------

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Accepts records as one atomic batch; they are written and fsynced a moment later.

        Returns:
            The offset of the last record. It is committed when `on_commit` delivers it, and may be lost without
            further notice if this node stops leading first.

        Raises:
            NotLeaderError: This node does not lead.
            ValueError: The batch is empty, too large, or cannot be encoded.
        """
        return self._leader.append(records)

    def next_offset(self) -> int:
        """Returns the offset that the next appended record will get."""
        return self._leader.next_offset() if self.is_leader else self.log_end_offset

    def resign(self, reason: str) -> None:
        """Gives up the leadership; does nothing if this node does not lead."""
        self._leader.resign(reason)

    # --- requests --------------------------------------------------------------------------------------

    def handles(self, message: Any) -> bool:
        """Whether a request is for the metadata quorum."""
        return isinstance(
            message,
            (
                messages.QUORUM_REQUESTS,
                messages.FETCH_SNAPSHOT_REQUEST,
                describe_quorum_request.DescribeQuorumRequest,
            ),
        ) or messages.is_metadata_fetch(message)

    def handle_request(self, message: Any, context: RequestContext) -> Any:
        """Returns the response to a quorum request, or its future for a parked fetch."""
        if isinstance(message, describe_quorum_request.DescribeQuorumRequest):
            return self._describe(message)
        if not self._is_running:
            return self._not_available(message)
        if isinstance(message, messages.FETCH_SNAPSHOT_REQUEST):
            return self._leader.handle_fetch_snapshot(message)
        if not isinstance(message, messages.QUORUM_REQUESTS):
            return self._leader.handle_fetch(message, context)
        if isinstance(message, vote_request.VoteRequest):
            return self._elections.handle_vote(message)
        return self._handle_epoch_message(message)

    def _describe(self, request: Any) -> Any:
        return describe_quorum(
            request,
            self._config,
            self._leader.leadership,
            leader_id=self.leader_id,
            epoch=self.epoch,
            own_end_offset=self._quorum.durable_end,
            now_ms=self._quorum.host.clock.wall_ms(),
        )

    def _not_available(self, message: Any) -> Any:
        error = ErrorCode.BROKER_NOT_AVAILABLE
        if isinstance(message, messages.QUORUM_REQUESTS):
            return messages.build_response(
                message,
                error=ErrorCode.NONE,
                epoch=NO_NODE,
                leader_id=NO_NODE,
                request_error=error,
            )
        if isinstance(message, messages.FETCH_SNAPSHOT_REQUEST):
            return messages.build_fetch_snapshot_refusal(error)
        return messages.build_fetch_refusal(error)

    def _handle_epoch_message(self, request: Any) -> Any:
        """Returns the response to BeginQuorumEpoch and EndQuorumEpoch, which the leader of an epoch sends."""
        is_begin = isinstance(request, begin_quorum_epoch_request.BeginQuorumEpochRequest)
        named = messages.only_partition(request)
        refusal = ErrorCode.NONE
        if request.cluster_id is not None and request.cluster_id != self._config.cluster_id:
            refusal = ErrorCode.INCONSISTENT_CLUSTER_ID
        elif named is None or named.leader_epoch < 0 or named.leader_id not in self._addresses:
            refusal = ErrorCode.INVALID_REQUEST
        if named is None or refusal != ErrorCode.NONE:
            return self._respond(request, ErrorCode.NONE, refusal)
        if named.leader_epoch < self.epoch:
            return self._respond(request, ErrorCode.FENCED_LEADER_EPOCH)
        if is_begin and request.voter_id not in (NO_NODE, self.node_id):
            return self._respond(request, ErrorCode.INVALID_VOTER_KEY)
        if contradicts(self._quorum.state, named.leader_epoch, named.leader_id):
            # INV-8 is broken if a voter sent this. But the sender is not authenticated, so its message must not
            # stop a node.
            self._quorum.host.observer.mark(
                "quorum-epoch-with-two-leaders",
                epoch=named.leader_epoch,
                known_leader=self.leader_id,
                named_leader=named.leader_id,
            )
            return self._respond(request, ErrorCode.INVALID_REQUEST)
        self._quorum.hear(named.leader_epoch, named.leader_id)
        state = self._quorum.state
        if not is_begin and isinstance(state, Follower) and state.leader_id == named.leader_id:
            candidates = [replica.candidate_id for replica in named.preferred_candidates]
            if self.node_id in candidates:
                self._elections.shorten_fetch_timeout(candidates.index(self.node_id))
        return self._respond(request, ErrorCode.NONE)

    def _respond(
        self, request: Any, error: ErrorCode, request_error: ErrorCode = ErrorCode.NONE
    ) -> Any:
        return messages.build_response(
            request,
            error=error,
            epoch=self.epoch,
            leader_id=self.leader_id,
            request_error=request_error,
        )

    # --- internals -------------------------------------------------------------------------------------

    async def _wait_for_successor(self) -> None:
        # As in Kafka's graceful shutdown: a successor needs this node's pre-vote, because the other followers
        # still consider their leader alive. If no successor comes in time, the timeouts of the others decide.
        loop = asyncio.get_running_loop()
        self._succeeded = loop.create_future()
        timeout_s = self._config.timings.controller_quorum_request_timeout_ms / 1000
        timer = loop.call_later(timeout_s, self._end_wait_for_successor)
        await self._succeeded
        timer.cancel()

    def _end_wait_for_successor(self) -> None:
        if self._succeeded is not None and not self._succeeded.done():
            self._succeeded.set_result(None)

    def _entered(self, old: State, new: State) -> None:
        if isinstance(old, Resigned):
            self._end_wait_for_successor()
        if isinstance(old, Leader):
            self._leader.end()
        if isinstance(new, Leader):
            self._leader.begin(new.epoch)
        self._fetcher.state_changed()
        self._elections.entered(old, new)

    def _delivered(self, size_bytes: int) -> None:
        self._snapshot_writer.delivered(size_bytes)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Raised in a callback, the error reaches the loop's exception handler, which ends the process, as
            # for an error in any other callback.
            raise error
