"""The settings of the workload `transactions`: the keys of the table `[workload]` of an experiment."""

from dataclasses import dataclass

from harness.errors import UsageError

PROCESSES_MAX = 1000
RECORDS_MAX = 1000
PARTITIONS_MAX = 100
TRANSACTION_TIMEOUT_MAX_MS = 900_000
"""Kafka's default of transaction.max.timeout.ms."""
DELIVERY_TIMEOUT_REQUESTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsConfig:
    """Settings of the workload; rates are totals over all processes.

    Attributes:
        producers: How many processes send transactions.
        processors: How many processes consume, transform and produce: each transaction polls the records of one
            partition, sends one record for each, and commits the position of its consumer group. They consume the
            first half of the partitions, each of which has at most one, and send to the others.
        readers: How many consumers read with isolation.level=read_committed.
        uncommitted_readers: How many consumers read with isolation.level=read_uncommitted.
        transactions_per_s: Mean rate of transactions of producers and processors while operations are quick.
        polls_per_s: Mean rate of polls of readers, likewise.
        abort_share: Which share of the transactions is aborted on purpose.
        zombie_share: In which share of the transactions another producer takes the transactional id over, before
            the first one tries to commit.
        slow_share: In which share of the transactions of producers the application works between two sends, for
            up to twice the transaction timeout.
        short_lived_share: In which share of the transactions of producers the producer is a new one, which goes
            away afterwards. No other producer uses its transactional id. Of those that are not aborted, half stay
            open until the coordinator aborts them.
        partitions_per_transaction_max: To how many partitions a transaction may send; drawn for each.
        records_per_partition_max: How many records it may send to each of them; drawn for each.
        client: Which kind of client connects to the cluster: "native" or "confluent".
        transaction_timeout_ms: After which the coordinator aborts a transaction that has not ended.
        request_timeout_ms: How long a client waits for a response.
        connect_timeout_ms: How long a client waits for a connection.
        poll_max_bytes: Largest size of a fetch response.
        poll_max_wait_ms: How long a fetch at the log end waits for records.

    Raises:
        UsageError: A setting makes no sense.
    """

    producers: int = 3
    processors: int = 2
    readers: int = 2
    uncommitted_readers: int = 1
    transactions_per_s: float = 30.0
    polls_per_s: float = 40.0
    abort_share: float = 0.2
    zombie_share: float = 0.05
    slow_share: float = 0.0
    short_lived_share: float = 0.0
    partitions_per_transaction_max: int = 3
    records_per_partition_max: int = 3
    client: str = "native"
    transaction_timeout_ms: int = 10_000
    request_timeout_ms: int = 1500
    connect_timeout_ms: int = 300
    poll_max_bytes: int = 16384
    poll_max_wait_ms: int = 20

    def __post_init__(self) -> None:
        """Checks numbers."""
        _check_range("producers", self.producers, 1, PROCESSES_MAX)
        for name in ("processors", "readers", "uncommitted_readers"):
            _check_range(name, getattr(self, name), 0, PROCESSES_MAX)
        _check_range(
            "partitions_per_transaction_max", self.partitions_per_transaction_max, 1, PARTITIONS_MAX
        )
        _check_range("records_per_partition_max", self.records_per_partition_max, 1, RECORDS_MAX)
        _check_range("request_timeout_ms", self.request_timeout_ms, 1, TRANSACTION_TIMEOUT_MAX_MS)
        _check_range("connect_timeout_ms", self.connect_timeout_ms, 1, TRANSACTION_TIMEOUT_MAX_MS)
        # librdkafka refuses transactions that may end before one of their requests does.
        _check_range(
            "transaction_timeout_ms",
            self.transaction_timeout_ms,
            self.request_timeout_ms,
            TRANSACTION_TIMEOUT_MAX_MS,
        )
        _check_range("poll_max_bytes", self.poll_max_bytes, 1, 2**31 - 1)
        _check_range("poll_max_wait_ms", self.poll_max_wait_ms, 0, TRANSACTION_TIMEOUT_MAX_MS)
        for name in ("abort_share", "zombie_share", "slow_share", "short_lived_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"workload.{name} is {getattr(self, name)}; choose 0 to 1")
        for name in ("transactions_per_s", "polls_per_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"workload.{name} is {getattr(self, name)}; choose more than 0")

    @property
    def delivery_timeout_ms(self) -> int:
        """How long a producer repeats a request that failed for a reason that may pass."""
        return min(DELIVERY_TIMEOUT_REQUESTS * self.request_timeout_ms, self.transaction_timeout_ms)

    @property
    def left_open_ms(self) -> int:
        """After which a coordinator aborts transactions that no other producer takes over; 0 for none."""
        return self.transaction_timeout_ms if self.short_lived_share else 0

    @property
    def client_hosts(self) -> int:
        """Every process has its own client host."""
        return self.producers + self.processors + self.readers + self.uncommitted_readers


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"workload.{name} is {value}; choose {least} to {most}")
