"""One member of the metadata quorum: a voter (controller) or an observer (broker).

Theory of operation. `Quorum` holds the state, the log and the commit position. Three drivers do the work:
`Elections` (timeouts and votes), `LeaderDriver` (append, commit, serve) and `Fetcher` (pull and truncate).
Every change of state goes through `Quorum.transition`, which makes it durable and then calls `_entered`
here, which tells the drivers. Everything runs on the node's event loop; the only awaits are those for
fsyncs and responses, and after each the state is examined again.

Out of scope: snapshots (RAFT-8) and dynamic voters (KIP-853). The log is kept from offset 0, and every start
replays it.

Source:
    KIP-595, KIP-996; Kafka's `KafkaRaftClient`. Rules RAFT-1 to RAFT-7 of the protocol note.
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
from system_under_test.raft.state import NOBODY, Follower, Leader, Resigned, State, contradicts
from system_under_test.runtime import Host, RequestContext

__all__ = ["NotLeaderError", "QuorumStateError", "RaftListener", "RaftNode"]


class RaftNode:
    """A voter if the configuration names this node among the voters, else an observer."""

    def __init__(self, host: Host, config: NodeConfig, listener: RaftListener) -> None:
        self._config = config
        self._quorum = Quorum(host, config, listener, self._entered)
        self._addresses = {voter.node_id: voter.address for voter in config.voters}
        others = [voter for voter in config.voters if voter.node_id != config.node_id]
        # Two connections to every other voter: a parked fetch must not hold up a vote.
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

    # --- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Loads the log and the quorum state, and takes part. Returns when it does.

        Raises:
            QuorumStateError: The quorum-state file is damaged.
        """
        self._quorum.open_log()
        if self._quorum.is_voter and self._config.rules("RAFT-2"):
            # After a kill the page cache may hold records that were appended but not yet fsynced. The next
            # fetch will claim them.
            await self._quorum.log.flush()
        self._is_running = True
        self._quorum.take_up_state()
        self._fetcher.start()

    async def stop(self) -> None:
        """Stops; a leader resigns first, and stays for a moment to vote for its successor."""
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
    def epoch(self) -> int:
        """The quorum epoch this node is in."""
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
        """The state, for oracles and tests."""
        return self._quorum.state

    @property
    def high_watermark(self) -> int:
        """End offset of what is committed, -1 when unknown.

        A new leader does not know it until a record of its own epoch is committed (17.5).
        """
        leadership = self._leader.leadership
        return self._quorum.committed_end if leadership is None else leadership.high_watermark

    @property
    def log_end_offset(self) -> int:
        """End offset of the own log."""
        return self._quorum.log.log_end_offset if self._is_running else 0

    @property
    def epoch_start_offset(self) -> int:
        """Offset of the LeaderChange record of the own leadership, -1 when this is no leader."""
        leadership = self._leader.leadership
        return NOBODY if leadership is None else leadership.epoch_start_offset

    def leader_address(self) -> str | None:
        """Returns where the leader listens, None when it is unknown."""
        return self._addresses.get(self.leader_id)

    def deliver_local_log(self) -> None:
        """Delivers the own log as if all of it were committed: what a broker without LIFE-1 acts on."""
        self._quorum.commit_to(self.log_end_offset)

    # --- the leader's interface ------------------------------------------------------------------------

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Takes records as one atomic batch; they are written and fsynced a moment later.

        Returns:
            The offset of the last record. It is committed when `on_commit` delivers it, and lost without
            further notice when this node stops leading first.

        Raises:
            NotLeaderError: This node does not lead.
            ValueError: The batch is empty, too large, or cannot be encoded.
        """
        return self._leader.append(records)

    def next_offset(self) -> int:
        """Returns the offset that the next appended record will get."""
        return self._leader.next_offset() if self.is_leader else self.log_end_offset

    def resign(self, reason: str) -> None:
        """Gives up the leadership; does nothing if this is no leader."""
        self._leader.resign(reason)

    # --- requests --------------------------------------------------------------------------------------

    def handles(self, message: Any) -> bool:
        """Whether a request is for the metadata quorum."""
        return isinstance(
            message, (messages.QUORUM_REQUESTS, describe_quorum_request.DescribeQuorumRequest)
        ) or messages.is_metadata_fetch(message)

    def handle_request(self, message: Any, context: RequestContext) -> Any:
        """Answers a quorum request: a response, or a future of one for a parked fetch."""
        if isinstance(message, describe_quorum_request.DescribeQuorumRequest):
            return self._describe(message)
        if not self._is_running:
            return self._not_available(message)
        if not isinstance(message, messages.QUORUM_REQUESTS):
            return self._leader.handle_fetch(message, context)
        if isinstance(message, vote_request.VoteRequest):
            return self._elections.handle_vote(message)
        return self._handle_leaders_word(message)

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
            return messages.build_answer(
                message,
                error=ErrorCode.NONE,
                epoch=NOBODY,
                leader_id=NOBODY,
                request_error=error,
            )
        return messages.build_fetch_refusal(error)

    def _handle_leaders_word(self, request: Any) -> Any:
        """Answers BeginQuorumEpoch and EndQuorumEpoch, both said by the leader of an epoch."""
        is_begin = isinstance(request, begin_quorum_epoch_request.BeginQuorumEpochRequest)
        said = messages.only_partition(request)
        refusal = ErrorCode.NONE
        if request.cluster_id is not None and request.cluster_id != self._config.cluster_id:
            refusal = ErrorCode.INCONSISTENT_CLUSTER_ID
        elif said is None or said.leader_epoch < 0 or said.leader_id not in self._addresses:
            refusal = ErrorCode.INVALID_REQUEST
        if said is None or refusal != ErrorCode.NONE:
            return self._answer(request, ErrorCode.NONE, refusal)
        if said.leader_epoch < self.epoch:
            return self._answer(request, ErrorCode.FENCED_LEADER_EPOCH)
        if is_begin and request.voter_id not in (NOBODY, self.node_id):
            return self._answer(request, ErrorCode.INVALID_VOTER_KEY)
        if contradicts(self._quorum.state, said.leader_epoch, said.leader_id):
            # INV-8 is broken if a voter says so. But who asks proves nothing here, and a stranger ends no node.
            self._quorum.host.observer.mark(
                "quorum-epoch-with-two-leaders",
                epoch=said.leader_epoch,
                known_leader=self.leader_id,
                named_leader=said.leader_id,
            )
            return self._answer(request, ErrorCode.INVALID_REQUEST)
        self._quorum.hear(said.leader_epoch, said.leader_id)
        state = self._quorum.state
        if not is_begin and isinstance(state, Follower) and state.leader_id == said.leader_id:
            candidates = [replica.candidate_id for replica in said.preferred_candidates]
            if self.node_id in candidates:
                self._elections.shorten_fetch_timeout(candidates.index(self.node_id))
        return self._answer(request, ErrorCode.NONE)

    def _answer(
        self, request: Any, error: ErrorCode, request_error: ErrorCode = ErrorCode.NONE
    ) -> Any:
        return messages.build_answer(
            request,
            error=error,
            epoch=self.epoch,
            leader_id=self.leader_id,
            request_error=request_error,
        )

    # --- the inside ------------------------------------------------------------------------------------

    async def _wait_for_successor(self) -> None:
        # As Kafka's graceful shutdown: with pre-votes the successor needs this node's, because the other
        # followers still believe in their leader. It may not come; then the others have their timeouts.
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

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # Raised in a callback of the loop, it reaches the loop's exception handler, which ends the
            # process, as for an error in any other callback.
            raise error
