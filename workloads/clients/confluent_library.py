"""The package confluent-kafka as all modules that use it need it: settings, and names of errors."""

from typing import Any

from kio.schema.errors import ErrorCode

from harness.contracts.client import OFFSET_OUT_OF_RANGE
from harness.errors import UsageError
from harness.history.op import Completion, Outcome

try:
    import confluent_kafka
except ImportError:
    confluent_kafka = None

MISSING = "the client 'confluent' needs confluent-kafka, which is not installed: pip install laststand[wire]"
SETUP_TIMEOUT_MIN_MS = 1_000
"""The smallest `socket.connection.setup.timeout.ms` that librdkafka takes."""


def common_settings(
    bootstrap: tuple[str, ...], *, request_timeout_ms: int, connect_timeout_ms: int
) -> dict[str, Any]:
    """Returns the librdkafka settings that producers and consumers share; every timeout is explicit."""
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "client.id": "laststand",
        "enable.metrics.push": False,
        "socket.timeout.ms": max(request_timeout_ms, 10),
        "socket.connection.setup.timeout.ms": max(connect_timeout_ms, SETUP_TIMEOUT_MIN_MS),
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 200,
        "topic.metadata.refresh.fast.interval.ms": 50,
        "log_level": 0,
    }


def library() -> Any:
    """Returns the package confluent_kafka.

    Raises:
        UsageError: It is not installed.
    """
    if confluent_kafka is None:
        raise UsageError(MISSING)
    return confluent_kafka


def error_name(code: int, name: str, text: str) -> str:
    """Returns the word for an error in a history.

    With `auto.offset.reset=error` librdkafka hides the reason for the reset in the text of the error; a truncation
    must not look like a mere reset.
    """
    if code < 0 and "truncation" in text.lower():
        return "LOG_TRUNCATION"
    if code < 0 and "offset out of range" in text.lower():
        return OFFSET_OUT_OF_RANGE
    if code >= 0:
        try:
            return str(ErrorCode(code).name).upper()
        except ValueError:
            return name
    return name


def code_and_name(error: Any) -> tuple[int | None, str]:
    """Returns Kafka's code (None for errors of the client itself) and a word for the error."""
    word = error_name(error.code(), error.name(), error.str())
    if error.code() >= 0:
        return error.code(), word
    is_out_of_range = word == OFFSET_OUT_OF_RANGE
    return (int(ErrorCode.offset_out_of_range) if is_out_of_range else None), word


def ended(outcome: Outcome, code: int | None, error: str) -> Completion:
    """Returns the completion of an operation that failed."""
    return Completion(outcome=outcome, error_code=code, error=error)
