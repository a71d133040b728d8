"""Makes a simulated world for the reference system.

The simulation does not know the system that runs in it. This module passes it what it needs: the codec of Kafka's
messages, and the exception that ends a process at once.
"""

from typing import Any

from harness.contracts.violation import Violation
from harness.simulation.timeline import Failure
from harness.simulation.weather import CALM, Weather
from harness.simulation.world import World
from system_under_test.invariants import InvariantViolation
from system_under_test.protocol import messages


class KafkaCodec:
    """Encodes Kafka messages; implements `harness.simulation.wire_check.MessageCodec`."""

    def covers(self, message_type: type[Any]) -> bool:
        """Whether a type is a Kafka message."""
        return message_type.__module__.startswith("kio.")

    def encode(self, message: Any) -> bytes:
        """Encodes a message body."""
        return messages.encode(message)

    def decode(self, message_type: type[Any], data: bytes) -> Any:
        """Decodes a message body.

        Raises:
            ValueError: The bytes are not such a message, or bytes are left over.
        """
        return messages.decode(message_type, data)


def reference_world(
    seed: int, *, weather: Weather = CALM, sim_wire: bool = False, wire_sample: float = 0.01
) -> World:
    """Returns an empty world in which nodes of the reference system can run.

    Args:
        seed: Determines every random draw.
        weather: The irregularities of the run.
        sim_wire: Whether every message goes through the codec.
        wire_sample: Otherwise, the share of the messages that does.
    """
    return World(
        seed,
        weather=weather,
        codec=KafkaCodec(),
        fatal_errors=(InvariantViolation,),
        sim_wire=sim_wire,
        wire_sample=wire_sample,
    )


def violation_of(failure: Failure) -> Violation:
    """Returns a failure of the simulated world as a row of the record."""
    where = f"{failure.node}: " if failure.node else ""
    error = failure.error
    is_invariant = isinstance(error, InvariantViolation)
    return Violation(
        at_ns=failure.at_ns,
        node=failure.node or "",
        invariant=error.invariant_id if isinstance(error, InvariantViolation) else "",
        sentence=f"{where}{error}" if is_invariant else f"{where}{type(error).__name__}: {error}",
    )
