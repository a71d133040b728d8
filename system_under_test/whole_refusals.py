"""The responses by which a node refuses a whole request, for faults that refuse messages."""

from collections.abc import Callable, Mapping
from typing import Any

from system_under_test.controller.heartbeats import refused_heartbeat
from system_under_test.controller.isr_changes import alter_partition_response_of
from system_under_test.protocol.apis import APIS
from system_under_test.protocol.empty_responses import can_refuse, empty_response
from system_under_test.protocol.entities import fetch_response_of
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.refusals import REFUSABLE, refused

_OWN: Mapping[str, Callable[[Any, ErrorCode], Any]] = {
    "AlterPartitionRequest": lambda _, error: alter_partition_response_of(error),
    "BrokerHeartbeatRequest": lambda _, error: refused_heartbeat(error),
    "FetchRequest": lambda _, error: fetch_response_of(error, ()),
    **{kind.__name__: refused for kind in REFUSABLE},
}
"""Where an empty response would not do, or would lack the error of each item."""


def _empty_refusal(response: type[Any]) -> Callable[[Any, ErrorCode], Any]:
    return lambda _, error: empty_response(response, error)


def _refusals() -> dict[type[Any], Callable[[Any, ErrorCode], Any]]:
    """Returns how to refuse the requests of each API that has a refusal in every version."""
    found: dict[type[Any], Callable[[Any, ErrorCode], Any]] = {}
    for api in APIS:
        for one in api.canonical:
            name = one.request.__name__
            if name in _OWN:
                found[one.request] = _OWN[name]
            elif all(can_refuse(other.response) for other in api.canonical):
                found[one.request] = _empty_refusal(one.response)
    return found


_REFUSALS = _refusals()

WHOLLY_REFUSABLE: tuple[str, ...] = tuple(sorted({kind.__name__ for kind in _REFUSALS}))
"""Class names of the requests that can be refused as a whole."""


def refusal(request: Any, error: ErrorCode) -> Any:
    """Returns the response that refuses all of a request; None if there is no such response."""
    refuse = _REFUSALS.get(type(request))
    return None if refuse is None else refuse(request, error)
