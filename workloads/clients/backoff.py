"""How long a native client waits before it tries again: exponentially longer, with jitter."""

from harness.contracts.host import RandomStream

MULTIPLIER = 2
JITTER = 0.2
"""Kafka's clients wait up to a fifth less or more, so that clients that failed together do not return together."""


def backoff_ms(attempts: int, *, first_ms: float, most_ms: float, random: RandomStream) -> float:
    """Returns how long to wait, in milliseconds.

    Args:
        attempts: How many attempts failed in a row before the one that failed last.
        first_ms: After the first failure, before jitter.
        most_ms: The longest wait.
        random: Where the jitter is drawn from.

    Source:
        Kafka's ExponentialBackoff (KIP-144, KIP-580).
    """
    # The wait is bounded, so the exponent may be as well; larger ones do not fit into a float.
    grown_ms = min(first_ms * float(MULTIPLIER ** min(attempts, 30)), most_ms)
    return min(grown_ms * (1 - JITTER + 2 * JITTER * random.random()), most_ms)
