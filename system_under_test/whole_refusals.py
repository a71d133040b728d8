"""The responses by which a node refuses a whole request, for faults that refuse messages."""

from collections.abc import Callable, Mapping
from typing import Any

from system_under_test.controller.heartbeats import refused_heartbeat
from system_under_test.controller.isr_changes import alter_partition_response_of
from system_under_test.protocol.entities import fetch_response_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.refusals import REFUSABLE, refused

_REFUSALS: Mapping[str, Callable[[Any, ErrorCode], Any]] = {
    "AlterPartitionRequest": lambda _, error: alter_partition_response_of(error),
    "BrokerHeartbeatRequest": lambda _, error: refused_heartbeat(error),
    "FetchRequest": lambda _, error: fetch_response_of(error, ()),
    **{kind.__name__: refused for kind in REFUSABLE},
}

WHOLLY_REFUSABLE: tuple[str, ...] = tuple(_REFUSALS)
"""Class names of the requests that can be refused as a whole."""


def refusal(request: Any, error: ErrorCode) -> Any:
    """Returns the response that refuses all of a request; None if there is no such response."""
    refuse = _REFUSALS.get(type(request).__name__)
    return None if refuse is None else refuse(request, error)
