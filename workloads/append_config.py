"""The settings of the workloads that append: the keys of the table `[workload]` of an experiment."""

from dataclasses import dataclass

from harness.contracts.client import ProducerSettings
from harness.contracts.run_context import BATCH_CHECKER, QUERY_CHECKER, SESSION_CHECKER
from harness.errors import UsageError
from harness.names import unknown_name

PROCESSES_MAX = 1000
FETCHES_MAX = 100
RECORD_BYTES_MAX = 1_000_000
"""Larger records are refused: Kafka's default limit of a batch is 1 MiB."""
BATCH_RECORDS_MAX = 1000
REQUEST_PARTITIONS_MAX = 100
RETRIES_MAX = 2**31 - 1
"""Kafka's default: only the delivery timeout ends the attempts."""
DELIVERY_TIMEOUT_REQUESTS = 4
NATIVE = "native"
ACKS = {"all": -1, "1": 1, "0": 0}
"""Acknowledgements as settings name them, and as the protocol does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendConfig:
    """Settings of the workload; rates are totals over all processes and partitions.

    Attributes:
        processes: How many processes work at the same time.
        appends_per_s: Mean rate of appends while operations are quick; a process that waits for a response falls
            behind and does not catch up.
        polls_per_s: Mean rate of polls, likewise.
        latests_per_s: Mean rate of requests for the log end, likewise.
        queries_per_s: Mean rate of questions about offsets, likewise: ListOffsets by timestamp, and
            OffsetForLeaderEpoch.
        acks: Drawn from for every append: "all", "1" or "0". A word that occurs twice is twice as likely.
        client: Which kind of client connects to the cluster: "native", "confluent", "java", or what another
            package provides. Only "native" runs in the simulation.
        request_timeout_ms: How long a client waits for a response; also the produce request's own timeout.
        connect_timeout_ms: How long a client waits for a connection.
        poll_max_bytes: Largest size of a fetch response.
        poll_max_wait_ms: How long a fetch at the log end waits for records.
        fetches_per_poll_max: How many fetches a poll may consist of; the number is drawn for every poll.
        follower_fetch_share: Which share of the fetches is sent to a follower instead of the leader (KIP-392);
            those of the final phase are sent to leaders.
        record_bytes_max: Values are padded up to this size, each to a size that is drawn; 0 for values that are as
            small as possible.
        records_per_batch_max: How many records a batch may have; the number is drawn for every batch.
        partitions_per_request_max: For how many partitions one append may have a batch; the number and the
            partitions are drawn for every append. Batches for one broker share a request.
        enable_idempotence: Whether appends with acks=all are those of an idempotent producer, which sends them
            again; those with acks 1 and 0 are sent once.
        retries: How often an idempotent producer sends a batch again at most.
        delivery_timeout_ms: After which an idempotent producer does not send a batch again; 0 for four times
            `request_timeout_ms`, the ratio of Kafka's defaults.
        retry_backoff_ms: How long it waits before it sends a batch again; longer every time.
        retry_backoff_max_ms: The longest wait.

    Raises:
        UsageError: A setting makes no sense.
    """

    processes: int = 6
    appends_per_s: float = 100.0
    polls_per_s: float = 100.0
    latests_per_s: float = 10.0
    queries_per_s: float = 0.0
    acks: tuple[str, ...] = ("all",)
    client: str = "native"
    request_timeout_ms: int = 1500
    connect_timeout_ms: int = 300
    poll_max_bytes: int = 16384
    poll_max_wait_ms: int = 20
    fetches_per_poll_max: int = 1
    follower_fetch_share: float = 0.0
    record_bytes_max: int = 0
    records_per_batch_max: int = 1
    partitions_per_request_max: int = 1
    enable_idempotence: bool = False
    retries: int = RETRIES_MAX
    delivery_timeout_ms: int = 0
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000

    def __post_init__(self) -> None:
        """Checks names and numbers."""
        for word in self.acks:
            if word not in ACKS:
                raise UsageError(unknown_name("acks", word, ACKS))
        if not self.acks:
            raise UsageError("workload.acks must name at least one of all, 1, 0")
        _check_range("processes", self.processes, PROCESSES_MAX)
        _check_range("request_timeout_ms", self.request_timeout_ms)
        _check_range("connect_timeout_ms", self.connect_timeout_ms)
        _check_range("poll_max_bytes", self.poll_max_bytes)
        _check_range("fetches_per_poll_max", self.fetches_per_poll_max, FETCHES_MAX)
        if not 0 <= self.record_bytes_max <= RECORD_BYTES_MAX:
            raise UsageError(
                f"workload.record_bytes_max is {self.record_bytes_max}; choose 0 to {RECORD_BYTES_MAX}"
            )
        if not 0 <= self.follower_fetch_share <= 1:
            raise UsageError(
                f"workload.follower_fetch_share is {self.follower_fetch_share}; choose 0 to 1"
            )
        if self.follower_fetch_share and self.client != NATIVE:
            raise UsageError(
                f"workload.follower_fetch_share needs the client {NATIVE!r}, not {self.client!r}"
            )
        self._check_producer()
        if self.queries_per_s and self.client != NATIVE:
            raise UsageError(
                f"workload.queries_per_s needs the client {NATIVE!r}, not {self.client!r}"
            )
        if self.queries_per_s < 0:
            raise UsageError(f"workload.queries_per_s is {self.queries_per_s}; choose 0 or more")
        rates = (self.appends_per_s, self.polls_per_s, self.latests_per_s)
        if min(rates) < 0 or sum(rates) <= 0:
            raise UsageError("workload: at least one of the rates must be greater than 0")

    def _check_producer(self) -> None:
        _check_range("records_per_batch_max", self.records_per_batch_max, BATCH_RECORDS_MAX)
        _check_range(
            "partitions_per_request_max", self.partitions_per_request_max, REQUEST_PARTITIONS_MAX
        )
        _check_range("retries", self.retries, RETRIES_MAX)
        _check_range("retry_backoff_ms", self.retry_backoff_ms)
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise UsageError(
                f"workload.retry_backoff_max_ms is {self.retry_backoff_max_ms}; choose {self.retry_backoff_ms}"
                " (retry_backoff_ms) or more"
            )
        if self.delivery_timeout_ms and self.delivery_timeout_ms < self.request_timeout_ms:
            raise UsageError(
                f"workload.delivery_timeout_ms is {self.delivery_timeout_ms}; choose {self.request_timeout_ms}"
                " (request_timeout_ms) or more, or 0 for four times that"
            )
        if self.record_bytes_max * self.records_per_batch_max > RECORD_BYTES_MAX:
            raise UsageError(
                f"workload.records_per_batch_max is {self.records_per_batch_max}, and a batch of that many records"
                f" of {self.record_bytes_max} bytes (record_bytes_max) is larger than {RECORD_BYTES_MAX} bytes;"
                " choose smaller ones"
            )
        if self.needs_producer and self.client != NATIVE:
            raise UsageError(
                "workload.enable_idempotence, records_per_batch_max and partitions_per_request_max need the client"
                f" {NATIVE!r}, not {self.client!r}"
            )

    @property
    def needs_producer(self) -> bool:
        """Whether an append is more than one record that is sent once."""
        return (
            self.enable_idempotence
            or self.records_per_batch_max > 1
            or self.partitions_per_request_max > 1
        )

    @property
    def checkers(self) -> tuple[str, ...]:
        """What judges batches, idempotent producers and questions about offsets, if there are any."""
        return (
            *((BATCH_CHECKER,) if self.records_per_batch_max > 1 else ()),
            *((SESSION_CHECKER,) if self.enable_idempotence else ()),
            *((QUERY_CHECKER,) if self.queries_per_s else ()),
        )

    @property
    def producer_settings(self) -> ProducerSettings:
        """How its producers send."""
        return ProducerSettings(
            enable_idempotence=self.enable_idempotence,
            retries=self.retries,
            delivery_timeout_ms=self.delivery_timeout_ms
            or DELIVERY_TIMEOUT_REQUESTS * self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
        )

    @property
    def client_hosts(self) -> int:
        """Every process has its own client host."""
        return self.processes


def _check_range(name: str, value: int, largest: int | None = None) -> None:
    if value < 1 or (largest is not None and value > largest):
        upper = "or more" if largest is None else f"to {largest}"
        raise UsageError(f"workload.{name} is {value}; choose 1 {upper}")
