"""The follower's work: fetch from the leader, append, make durable, learn what is committed.

A leader that no longer has the records, or cannot compare the logs, names a snapshot instead. Then the task
fetches that snapshot part by part, and continues from its end.

One task, one outstanding fetch. A voter fetches only while it follows a leader. An observer (a broker) takes no
part in elections, so it queries one voter after the other until it learns of a leader: a voter that does not
lead responds with an error that names the leader it knows.

The task only waits for its own futures, so a change of state ends every wait at once.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.record_batch import CorruptBatchError
from system_under_test.raft import messages
from system_under_test.raft.link import Link
from system_under_test.raft.quorum import METADATA_MAX_BATCH_BYTES, Quorum
from system_under_test.raft.snapshot_download import SnapshotDownload
from system_under_test.raft.state import Follower

_INTERRUPTED = object()
"""Result of a wait that a change of state ended."""

ONE_BATCH = 1
"""Smallest size limit of a fetch: the response is then one batch, whatever its size."""


class Fetcher:
    """Pulls the metadata log from the leader.

    Args:
        links: To all other voters; for fetches only.
        spawn: Starts a task whose failure ends the node.
        fetch_succeeded: Called after every successful fetch.
    """

    def __init__(
        self,
        quorum: Quorum,
        links: dict[int, Link],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        fetch_succeeded: Callable[[], None],
    ) -> None:
        self._quorum = quorum
        self._links = links
        self._spawn = spawn
        self._fetch_succeeded = fetch_succeeded
        self._timings = quorum.config.timings
        self._other_voters = tuple(links)
        self._next_voter = 0
        self._doubts_leader = False
        self._target: int | None = None
        self._waiter: asyncio.Future[Any] | None = None
        self._download: SnapshotDownload | None = None

    def start(self) -> None:
        """Starts fetching."""
        if not self._other_voters:
            return
        # Brokers that start together do not all query the same voter.
        self._next_voter = self._quorum.host.random.stream("raft").randrange(
            0, len(self._other_voters)
        )
        self._spawn(self._run())

    def state_changed(self) -> None:
        """Ends the current wait. A fetch in flight is abandoned: it may be parked at a deposed leader."""
        self._doubts_leader = False
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(_INTERRUPTED)
            if self._target is not None:
                self._links[self._target].close()

    async def _run(self) -> None:
        while True:
            target = self._choose_target()
            if target is None:
                await self._wait(None)
                continue
            download = self._current_download(target)
            response = await self._send(
                target, self._fetch() if download is None else download.next_request()
            )
            if response is _INTERRUPTED:
                continue
            if response is None:
                self._doubts_leader = True
                await self._wait(self._links[target].retry_delay_s)
                continue
            is_good = (
                await self._process(target, response)
                if download is None
                else await self._process_part(download, response)
            )
            if not is_good:
                await self._wait(self._timings.controller_quorum_retry_backoff_ms / 1000)

    def _choose_target(self) -> int | None:
        state = self._quorum.state
        if isinstance(state, Follower) and (self._quorum.is_voter or not self._doubts_leader):
            return state.leader_id
        if self._quorum.is_voter:
            return None
        self._next_voter = (self._next_voter + 1) % len(self._other_voters)
        return self._other_voters[self._next_voter]

    async def _wait(self, delay_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Any] = loop.create_future()
        self._waiter = waiter
        timer = None if delay_s is None else loop.call_later(delay_s, _resolve, waiter, None)
        await waiter
        self._waiter = None
        if timer is not None:
            timer.cancel()

    def _current_download(self, target: int) -> SnapshotDownload | None:
        """Returns the download that the next request continues; drops one that another leader began."""
        download = self._download
        state = self._quorum.state
        if download is None or (download.epoch == state.epoch and target == state.leader_id):
            return download
        if download.epoch != state.epoch:
            self._end_download(download)
        return None

    def _end_download(self, download: SnapshotDownload) -> None:
        download.discard()
        self._download = None

    def _fetch(self) -> Any:
        max_bytes = METADATA_MAX_BATCH_BYTES
        if self._quorum.host.random.buggify("raft-fetch-one-batch"):
            max_bytes = ONE_BATCH
        return messages.build_fetch(
            self._quorum.config,
            epoch=self._quorum.state.epoch,
            log=self._quorum.log_position,
            max_bytes=max_bytes,
        )

    async def _send(self, target: int, request: Any) -> Any | None:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        self._target = target
        self._links[target].send(
            request,
            self._timings.controller_quorum_request_timeout_ms,
            partial(_resolve, waiter),
        )
        response = await waiter
        self._waiter = None
        self._target = None
        return response

    async def _process(self, target: int, response: Any) -> bool:
        """Handles a response; true when the next fetch may follow at once."""
        if response.error_code != ErrorCode.NONE or not response.responses:
            return False
        partition = response.responses[0].partitions[0]
        named = partition.current_leader
        quorum = self._quorum
        if quorum.hear(named.leader_epoch, named.leader_id):
            return True
        state = quorum.state
        if not isinstance(state, Follower) or named.leader_epoch != state.epoch:
            return False
        if partition.error_code != ErrorCode.NONE or target != state.leader_id:
            # A leader that responds that it does not lead has resigned. If another voter names the same leader,
            # that leader is tried again.
            self._doubts_leader = target == state.leader_id or named.leader_id != state.leader_id
            return False
        if not state.has_fetched:
            quorum.remember(replace(state, has_fetched=True))
        self._fetch_succeeded()
        if partition.snapshot_id.end_offset >= 0 and partition.snapshot_id.epoch >= 0:
            self._begin_download(partition.snapshot_id)
            return True
        diverging = partition.diverging_epoch
        if diverging.epoch >= 0:
            return self._truncate(diverging.epoch, diverging.end_offset)
        if partition.records:
            try:
                quorum.log.append_as_follower(partition.records)
            except CorruptBatchError as error:
                quorum.host.observer.mark("metadata-fetch-corrupt", error=str(error))
                return False
            # [RAFT-2] The next fetch tells the leader that this voter has the records. From then on they count
            # for a majority, and must survive a power cut. An observer does not count.
            if quorum.is_voter and quorum.config.rules("RAFT-2"):
                await quorum.log.flush()
                # The state may have changed meanwhile. The old leader's high watermark is still correct, but this
                # node may no longer be a follower.
                if quorum.state.epoch != state.epoch or not isinstance(quorum.state, Follower):
                    return True
        quorum.commit_to(partition.high_watermark)
        return True

    def _begin_download(self, named: Any) -> None:
        if self._download is not None:
            self._download.discard()
        snapshot_id = SnapshotId(end_offset=named.end_offset, epoch=named.epoch)
        self._download = SnapshotDownload(self._quorum, snapshot_id)
        self._quorum.host.observer.mark(
            "metadata-snapshot-wanted",
            end_offset=snapshot_id.end_offset,
            epoch=snapshot_id.epoch,
            log_end_offset=self._quorum.log.log_end_offset,
        )

    async def _process_part(self, download: SnapshotDownload, response: Any) -> bool:
        """Handles a part of a snapshot; true when the next request may follow at once."""
        if response.error_code != ErrorCode.NONE or not response.topics:
            return False
        part = response.topics[0].partitions[0]
        named = part.current_leader
        quorum = self._quorum
        if quorum.hear(named.leader_epoch, named.leader_id):
            return True
        state = quorum.state
        if not isinstance(state, Follower) or named.leader_epoch != state.epoch:
            return False
        if part.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            # The leader has deleted it. The next fetch learns of a newer one.
            self._end_download(download)
            self._fetch_succeeded()
            return False
        if part.error_code != ErrorCode.NONE:
            self._doubts_leader = named.leader_id != state.leader_id
            return False
        self._fetch_succeeded()
        if not download.add(part):
            self._end_download(download)
            return False
        if download.is_complete:
            self._download = None
            return await download.install()
        return True

    def _truncate(self, epoch: int, end_offset: int) -> bool:
        log = self._quorum.log
        found = log.end_offset_for_epoch(epoch)
        if found is None or found[0] == epoch:
            offset = end_offset if found is None else min(found[1], end_offset)
        else:
            # The epoch is unknown here: truncate to the end of the newest epoch below it, and fetch again.
            offset = found[1]
        if offset >= log.log_end_offset:
            return False
        self._quorum.truncate_to(offset)
        return True


def _resolve(waiter: "asyncio.Future[Any]", value: Any) -> None:
    if not waiter.done():
        waiter.set_result(value)
