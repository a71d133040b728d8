"""The requests of transactions about a transactional id that no producer has, in every version.

What a producer gets in a transaction is shown by the tests with real clients.
"""

from collections.abc import Iterator
from typing import Any

from harness.conformance.probe import Case, Probe

TRANSACTIONAL_ID = "nobody"
TOPIC = "d"
_PRODUCER = {"transactional_id": TRANSACTIONAL_ID, "producer_id": 123456789, "producer_epoch": 0}
_TOPICS = [{"name": TOPIC, "partitions": [0]}]
_REQUESTS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "add_partitions_to_txn": (
        0,
        3,
        {**{f"v3_and_below_{key}": one for key, one in {**_PRODUCER, "topics": _TOPICS}.items()}},
    ),
    "add_offsets_to_txn": (0, 4, {**_PRODUCER, "group_id": "nobody"}),
    "end_txn": (0, 5, {**_PRODUCER, "committed": True}),
    "txn_offset_commit": (0, 5, {**_PRODUCER, "group_id": "nobody", "topics": []}),
    "write_txn_markers": (1, 2, {"markers": []}),
    "describe_transactions": (0, 0, {"transactional_ids": [TRANSACTIONAL_ID]}),
    "list_transactions": (0, 2, {"state_filters": ["Nonsense"], "producer_id_filters": []}),
}
"""First and last version, and the fields, by API."""
_OF_COORDINATORS = (
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "end_txn",
    "describe_transactions",
)
"""APIs that only the coordinator of the transactional id serves."""


def _case(api: str, version: int, values: dict[str, Any]) -> Case:
    def run(probe: Probe) -> None:
        # Which broker it is is a matter of chance, and another one responds NOT_COORDINATOR.
        to = probe.transaction_coordinator(TRANSACTIONAL_ID) if api in _OF_COORDINATORS else None
        probe.ask(api, version, values, to=to, drops_unknown=True)

    return Case(id=f"transactions/{api.replace('_', ' ')}, version {version}", run=run)


def cases() -> Iterator[Case]:
    """Yields the cases of this family."""
    for api, (first, last, values) in _REQUESTS.items():
        for version in range(first, last + 1):
            yield _case(api, version, values)
    for version in (4, 5):
        verified = {**_PRODUCER, "verify_only": True, "topics": _TOPICS}
        yield _case("add_partitions_to_txn", version, {"transactions": [verified]})
