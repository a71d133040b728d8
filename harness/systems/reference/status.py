"""Queries a running cluster of the reference system."""

from harness.systems.reference.wire_client import ask
from system_under_test.protocol.messages import metadata_request


def broker_count(address: str, timeout_s: float = 1.0) -> int:
    """Returns how many brokers the broker at an address reports to clients; 0 if it does not respond."""
    request = metadata_request.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    try:
        return len(ask(address, request, timeout_s=timeout_s).brokers)
    except (OSError, ValueError):
        return 0
