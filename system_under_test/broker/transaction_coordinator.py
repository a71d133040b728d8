"""The transaction coordinator of a broker: for the transactional ids whose partition it leads.

How a transaction may change is in `transaction/transaction.py`, its stored records in `transaction_shard.py`,
the markers in `transaction_markers.py`, timeouts in `transaction_deadlines.py`. This module serves the
producers' requests.

A transaction ends in two steps. First its decision is stored, and when that is committed the producer gets its
response (TXN-6). Then every partition gets a marker, as often as necessary (TXN-8), and the end is stored. A new
coordinator continues where the old one stopped (TXN-7).

Source:
    KIP-98, KIP-360, KIP-890; Kafka's `TransactionCoordinator` and `TransactionStateManager`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from system_under_test.broker.internal_topics import InternalTopic
from system_under_test.broker.metadata_cache import OFFSETS_TOPIC, TRANSACTION_TOPIC, MetadataCache
from system_under_test.broker.offsets_log import led_partitions
from system_under_test.broker.replica_manager import ReplicaManager
from system_under_test.broker.tasks import TaskScope
from system_under_test.broker.transaction_deadlines import TransactionDeadlines
from system_under_test.broker.transaction_markers import MarkerSender
from system_under_test.broker.transaction_shard import Entry, TransactionShard
from system_under_test.config import NodeConfig
from system_under_test.group.records import offsets_partition
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    add_partitions_to_txns_request,
    end_txn_request,
    to_millis,
)
from system_under_test.runtime import Host, RequestContext
from system_under_test.transaction import responses
from system_under_test.transaction.transaction import (
    BUMPS_EPOCHS,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
    TransactionState,
    completed,
    decided,
    end_outcome,
    initialized,
    is_fenced,
    refusal,
    with_partitions,
)

EPOCHS_PER_TRANSACTION_SINCE = 5
"""The first version of EndTxn of clients with `transaction.version` 2 (KIP-890)."""
FENCED_SINCE = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""Since which version clients know PRODUCER_FENCED; others get INVALID_PRODUCER_EPOCH (KIP-588)."""


class TransactionCoordinator:
    """Serves the requests of transactional producers.

    Args:
        host: The node's interfaces to the outside.
        config: Settings, rules, timings.
        metadata: The leaders of the partitions, and the existing topics.
        replicas: The partitions of `__transaction_state` on this broker.
        topic: Creates `__transaction_state`.
        next_producer_id: Allocates a producer id; None if there is none for now.
        sender: Sends markers.
        scope: Runs the tasks.

    Attributes:
        shards: The partitions of `__transaction_state` that this broker leads, by index.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        topic: InternalTopic,
        *,
        next_producer_id: Callable[[], Awaitable[int | None]],
        sender: MarkerSender,
        scope: TaskScope,
    ) -> None:
        self.shards: dict[int, TransactionShard] = {}
        self._host = host
        self._config = config
        self._settings = config.transaction
        self._rules = config.rules
        self._metadata = metadata
        self._replicas = replicas
        self._topic = topic
        self._next_producer_id = next_producer_id
        self._sender = sender
        self._scope = scope
        self._deadlines = TransactionDeadlines(
            host, config, self.shards, abort=self._abort, scope=scope
        )
        self._is_stopped = False

    def services(self) -> dict[type, Callable[[Any, RequestContext], Any]]:
        """Returns the handler of every type of request, except for InitProducerId."""
        return {
            add_partitions_to_txn_request.AddPartitionsToTxnRequest: self._add_partitions,
            add_partitions_to_txns_request.AddPartitionsToTxnRequest: self.add_for_brokers,
            add_offsets_to_txn_request.AddOffsetsToTxnRequest: self._add_offsets,
            end_txn_request.EndTxnRequest: self._end,
        }

    # --- leadership ------------------------------------------------------------------------------------

    def roles_changed(self) -> None:
        """Loads and unloads transactional ids; called after every publish that changed replicas here."""
        if self._is_stopped:
            return
        led = dict(led_partitions(self._replicas.partitions, TRANSACTION_TOPIC))
        for index, shard in list(self.shards.items()):
            if index not in led or not shard.is_current:
                del self.shards[index]
        for index, partition in sorted(led.items()):
            if index not in self.shards:
                shard = self.shards[index] = TransactionShard(
                    self._host,
                    partition,
                    rules=self._rules,
                    value_version=int(self._config.features.transaction_version > 0),
                )
                self._scope.spawn(self._load(shard), f"load-transactions-{index}")
        if led:
            self._deadlines.start()

    def stop(self) -> None:
        """Forgets everything; nothing is loaded afterwards."""
        self._is_stopped = True
        self.shards.clear()
        self._deadlines.stop()

    async def _load(self, shard: TransactionShard) -> None:
        if not await shard.load():
            return
        self._host.observer.mark(
            "transactions-loaded", transactions=len(shard.entries), epoch=shard.leader_epoch
        )
        for entry in list(shard.entries.values()):
            # TXN-7: the previous coordinator may have sent the markers to some partitions only.
            if entry.transaction.state.is_decided:
                self._finish(shard, entry)

    def shard_of(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """Returns the loaded partition that holds a transactional id, or why there is none here."""
        count = self._topic.partition_count()
        if not count:
            return ErrorCode.NOT_COORDINATOR
        shard = self.shards.get(offsets_partition(transactional_id, count))
        if shard is None or not shard.is_current:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _entry_of(
        self, transactional_id: str
    ) -> tuple[TransactionShard, Entry] | tuple[ErrorCode, None]:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        shard = self.shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard, None
        entry = shard.entries.get(transactional_id)
        if entry is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        return shard, entry

    # --- InitProducerId --------------------------------------------------------------------------------

    def init_producer_id(self, request: Any, context: RequestContext) -> Any:
        """Serves an InitProducerIdRequest with a transactional id."""
        return self._later(self._initialize(request, context), "init-producer-id")

    async def _initialize(self, request: Any, context: RequestContext) -> Any:
        timeout_ms = int(to_millis(request.transaction_timeout))
        shard = self.shard_of(request.transactional_id)
        error: ErrorCode | None = None
        if not request.transactional_id or (request.producer_id == NO_PRODUCER_ID) != (
            request.producer_epoch == NO_EPOCH
        ):
            error = ErrorCode.INVALID_REQUEST
        elif isinstance(shard, ErrorCode):
            error = shard
        elif not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if error is not None or isinstance(shard, ErrorCode):
            return responses.init_producer_id(error or ErrorCode.NOT_COORDINATOR)
        entry = shard.entries.get(request.transactional_id)
        if entry is None:
            producer_id = await self._next_producer_id()
            if producer_id is None:
                return responses.init_producer_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            # Another request for the same id may have been served meanwhile.
            entry = shard.entries.setdefault(
                request.transactional_id,
                Entry(_unknown(request.transactional_id, producer_id, timeout_ms)),
            )
        outcome = await self._initialized(shard, entry, request, timeout_ms)
        if isinstance(outcome, ErrorCode):
            return responses.init_producer_id(_known(outcome, "InitProducerId", context))
        return responses.init_producer_id(
            ErrorCode.NONE, outcome.producer_id, outcome.producer_epoch
        )

    async def _initialized(
        self, shard: TransactionShard, entry: Entry, request: Any, timeout_ms: int
    ) -> Transaction | ErrorCode:
        found = entry.transaction
        if entry.is_changing or found.state.is_decided:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if found.state is TransactionState.ONGOING:
            if is_fenced(found, request.producer_id, request.producer_epoch):
                return ErrorCode.PRODUCER_FENCED
            # Of the producer before this one; the producer repeats its request until it has ended.
            error = await self._decide(shard, entry, is_commit=False, fences=True)
            return ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error
        entry.is_changing = True
        try:
            new_id = await self._next_producer_id() if found.is_epoch_exhausted else None
            made = initialized(
                found,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                timeout_ms=timeout_ms,
                new_producer_id=new_id,
                now_ms=self._host.clock.wall_ms(),
                rules=self._rules,
            )
            return made if isinstance(made, ErrorCode) else await self._store(shard, entry, made)
        finally:
            entry.is_changing = False

    async def _store(
        self, shard: TransactionShard, entry: Entry, made: Transaction
    ) -> Transaction | ErrorCode:
        """Stores the next state; it counts when it is committed."""
        error = await shard.store(made)
        if error is not ErrorCode.NONE:
            return error
        entry.transaction = made
        return made

    # --- adding partitions -----------------------------------------------------------------------------

    def _add_partitions(self, request: Any, context: RequestContext) -> Any:
        places = tuple(
            (topic.name, index)
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        )
        unknown = {one for one in places if not self._metadata.has_partition(*one)}
        if unknown:
            # All or nothing, as in Kafka.
            return responses.added_partitions(
                request,
                lambda *place: (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if place in unknown
                    else ErrorCode.OPERATION_NOT_ATTEMPTED
                ),
            )

        async def add() -> Any:
            error = await self._add(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                places,
                client_version=0,
            )
            known = _known(error, "AddPartitionsToTxn", context)
            return responses.added_partitions(request, lambda *_: known)

        return self._later(add(), "add-partitions")

    def add_for_brokers(self, request: Any, _context: RequestContext | None = None) -> Any:
        """Serves an AddPartitionsToTxnRequest of a partition's leader: verifies, or adds (KIP-890)."""

        async def add() -> Any:
            results = []
            for wanted in request.transactions:
                places = tuple(
                    (topic.name, index) for topic in wanted.topics for index in topic.partitions
                )
                if wanted.verify_only:
                    errors = self._verified(wanted, places)
                else:
                    error = await self._add(
                        wanted.transactional_id,
                        wanted.producer_id,
                        wanted.producer_epoch,
                        places,
                        client_version=BUMPS_EPOCHS,
                    )
                    errors = dict.fromkeys(places, error)
                results.append(responses.added_for_broker(wanted, errors))
            return responses.added_for_brokers(results)

        return self._later(add(), "add-partitions-for-brokers")

    def _verified(
        self, wanted: Any, places: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns for every partition whether it belongs to the producer's transaction."""
        shard, entry = self._entry_of(wanted.transactional_id)
        if entry is None or isinstance(shard, ErrorCode):
            error = shard if isinstance(shard, ErrorCode) else ErrorCode.NOT_COORDINATOR
            return dict.fromkeys(places, error)
        found = entry.transaction
        refused = refusal(found, wanted.producer_id, wanted.producer_epoch)
        if refused is None and found.state.is_decided:
            refused = ErrorCode.CONCURRENT_TRANSACTIONS
        if refused is not None:
            return dict.fromkeys(places, refused)
        inside = found.partitions if found.state is TransactionState.ONGOING else ()
        return {
            place: ErrorCode.NONE if place in inside else ErrorCode.TRANSACTION_ABORTABLE
            for place in places
        }

    def _add_offsets(self, request: Any, context: RequestContext) -> Any:
        async def add() -> Any:
            topic = self._metadata.image.topics_by_name.get(OFFSETS_TOPIC)
            if topic is None:
                return responses.added_offsets(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            count = len(self._metadata.image.partitions_of(topic.topic_id))
            place = (OFFSETS_TOPIC, offsets_partition(request.group_id, count))
            error = await self._add(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                (place,),
                client_version=0,
            )
            return responses.added_offsets(_known(error, "AddOffsetsToTxn", context))

        return self._later(add(), "add-offsets")

    async def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: tuple[TopicPartition, ...],
        *,
        client_version: int,
    ) -> ErrorCode:
        shard, entry = self._entry_of(transactional_id)
        if entry is None or isinstance(shard, ErrorCode):
            return shard if isinstance(shard, ErrorCode) else ErrorCode.NOT_COORDINATOR
        found = entry.transaction
        is_busy = entry.is_changing or found.state.is_decided
        # EndTxn may have returned another id, which counts when the transaction before is complete.
        if is_busy and self._config.features.transaction_version >= BUMPS_EPOCHS:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        refused = refusal(found, producer_id, producer_epoch)
        if refused is not None:
            return refused
        if is_busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if found.state is TransactionState.ONGOING and set(places) <= set(found.partitions):
            return ErrorCode.NONE
        entry.is_changing = True
        try:
            made = with_partitions(found, places, self._host.clock.wall_ms(), client_version)
            stored = await self._store(shard, entry, made)
        finally:
            entry.is_changing = False
        return stored if isinstance(stored, ErrorCode) else ErrorCode.NONE

    # --- ending ----------------------------------------------------------------------------------------

    def _end(self, request: Any, context: RequestContext) -> Any:
        bumps = self.gives_epochs(context.api_version, EPOCHS_PER_TRANSACTION_SINCE)
        level = BUMPS_EPOCHS if bumps else 0

        async def end() -> Any:
            shard, entry = self._entry_of(request.transactional_id)
            if entry is None or isinstance(shard, ErrorCode):
                error = shard if isinstance(shard, ErrorCode) else ErrorCode.NOT_COORDINATOR
                return responses.ended(error)
            if entry.is_changing:
                return responses.ended(ErrorCode.CONCURRENT_TRANSACTIONS)
            outcome = end_outcome(
                entry.transaction,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                is_commit=request.committed,
                client_version=level,
            )
            if outcome is None:
                outcome = await self._decide(
                    shard, entry, is_commit=request.committed, client_version=level
                )
            if outcome is not ErrorCode.NONE:
                return responses.ended(_known(outcome, "EndTxn", context))
            now = entry.transaction
            if not bumps:
                return responses.ended(ErrorCode.NONE)
            if now.next_producer_id != NO_PRODUCER_ID:
                return responses.ended(ErrorCode.NONE, now.next_producer_id, 0)
            return responses.ended(ErrorCode.NONE, now.producer_id, now.producer_epoch)

        return self._later(end(), "end-transaction")

    def gives_epochs(self, api_version: int, since: int) -> bool:
        """Whether a client's request follows `transaction.version` 2.

        Args:
            api_version: Of the request; -1 if it did not cross a wire, which is then the release's newest.
            since: The first version that does.
        """
        if self._config.features.transaction_version < BUMPS_EPOCHS:
            return False
        return api_version < 0 or api_version >= since

    async def _decide(
        self,
        shard: TransactionShard,
        entry: Entry,
        *,
        is_commit: bool,
        fences: bool = False,
        client_version: int | None = None,
    ) -> ErrorCode:
        """Stores the decision and lets the markers be sent.

        Args:
            shard: Where the transactional id is.
            entry: The transactional id; nothing else is changing it.
            is_commit: The decision.
            fences: Whether the producer itself is refused from then on.
            client_version: As in `decided`.
        """
        entry.is_changing = True
        try:
            found = entry.transaction
            bumps = client_version is not None and client_version >= BUMPS_EPOCHS
            next_id = NO_PRODUCER_ID
            if bumps and found.is_epoch_exhausted:
                allocated = await self._next_producer_id()
                if allocated is None:
                    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                next_id = allocated
            # TXN-9: without the rule a producer that was replaced, or was too slow, goes on with its epoch.
            bumps = bumps or (fences and self._rules("TXN-9") and found.producer_epoch < EPOCH_MAX)
            made = decided(
                found,
                is_commit=is_commit,
                now_ms=self._host.clock.wall_ms(),
                bumps_epoch=bumps,
                next_producer_id=next_id,
                client_version=client_version,
            )
            stored = await self._store(shard, entry, made)
        finally:
            entry.is_changing = False
        if isinstance(stored, ErrorCode):
            return stored
        self._finish(shard, entry)
        return ErrorCode.NONE

    def _finish(self, shard: TransactionShard, entry: Entry) -> None:
        self._scope.spawn(self._send_markers(shard, entry), "transaction-markers")

    async def _send_markers(self, shard: TransactionShard, entry: Entry) -> None:
        """Sends the markers of a decided transaction, then stores its end."""
        pause_s = self._config.timings.transaction_marker_retry_ms / 1000
        transaction = entry.transaction
        if not await self._sender.send(
            transaction, shard.leader_epoch, is_current=lambda: shard.is_current
        ):
            return
        made = completed(transaction, self._host.clock.wall_ms())
        while shard.is_current:
            error = await shard.store(made)
            if error is ErrorCode.NONE:
                entry.transaction = made
                return
            # The outcome may be unknown; storing the end twice changes nothing.
            await asyncio.sleep(pause_s)

    async def _abort(self, shard: TransactionShard, entry: Entry) -> None:
        await self._decide(shard, entry, is_commit=False, fences=True)

    def _later(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Future[Any]":
        """Runs the work for a request; returns the future of its response.

        A client that closes its connection cancels the future, but not the work.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            response = await work
            if not future.done():
                future.set_result(response)

        self._scope.spawn(run(), name)
        return future


def _unknown(transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
    """Returns a transactional id before its first producer; it is not stored like this."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        changed_ms=0,
    )


def _known(error: ErrorCode, api: str, context: RequestContext) -> ErrorCode:
    """Returns an error as the client's version knows it."""
    is_old = 0 <= context.api_version < FENCED_SINCE[api]
    if error is ErrorCode.PRODUCER_FENCED and is_old:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
