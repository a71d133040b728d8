"""Faults that could never have an effect, whatever a run does: an experiment with one is refused."""

from harness.contracts.cluster import HARNESS_HOST
from harness.errors import UsageError
from nemesis.fault import MESSAGES, Fault
from nemesis.targets import CLIENT
from workloads.append import APPEND

DUPLICATE_MESSAGES = "duplicate_messages"
ONLY_FROM_CLIENTS = frozenset(
    {
        "AddOffsetsToTxn",
        "ConsumerGroupDescribe",
        "ConsumerGroupHeartbeat",
        "DescribeGroups",
        "EndTxn",
        "FindCoordinator",
        "Heartbeat",
        "InitProducerId",
        "JoinGroup",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetDelete",
        "OffsetFetch",
        "Produce",
        "SyncGroup",
        "TxnOffsetCommit",
    }
)
"""Requests that no server sends. Brokers forward administrative ones, and followers send ListOffsets."""

OF_TRANSACTIONS = ("late-markers", "late-batch", "marker-in-another-transaction")
"""Templates whose faults wait for transaction markers, which no broker writes without transactions."""
WITHOUT_TRANSACTIONS = (APPEND.name, "consumer-group")
"""The built-in workloads that have none; what other packages provide may have some."""


def check_copies(fault: Fault) -> None:
    """Refuses copies of requests of clients, which are never made.

    A client that sends a request once may rely on one effect, so a copy would make every system look wrong.

    Raises:
        UsageError: The fault duplicates requests that only clients send.
    """
    pattern = fault.messages
    if fault.fault != DUPLICATE_MESSAGES or pattern is None:
        return
    sender = pattern.qualifiers.get("from", "")
    is_client = sender in (CLIENT, HARNESS_HOST) or sender.startswith(f"{CLIENT}-")
    if is_client or pattern.name in ONLY_FROM_CLIENTS:
        raise UsageError(
            f"messages is {fault.params[MESSAGES]!r}, but requests of clients are never duplicated, because "
            "a client expects one effect of one request; name requests of nodes, such as "
            '"Fetch from follower to leader"'
        )


def check_transactions(template: str, workload: str) -> None:
    """Refuses a template about transactions if clients have none.

    Raises:
        UsageError: The workload has no transactions.
    """
    if template in OF_TRANSACTIONS and workload in WITHOUT_TRANSACTIONS:
        raise UsageError(
            f"the template {template!r} is about transactions, and the workload {workload!r} has none; "
            'leave it out of nemesis.templates, or set workload.name to "transactions"'
        )
