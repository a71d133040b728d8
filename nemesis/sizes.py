"""The parameters of random faults, drawn so that values on both sides of every threshold occur.

Most are log-uniform, between a size that a cluster should not notice and the largest that is worth waiting for.
"""

from collections.abc import Sequence
from typing import Any, Protocol


class Stream(Protocol):
    """The part of a random stream that is used here."""

    def random(self) -> float:
        """Returns a float in [0, 1)."""
        ...


_LARGEST: dict[str, dict[str, tuple[int, int]]] = {
    "loss": {"percent": (3, 90)},
    "bandwidth": {"rate_kib_s": (1, 8)},
    "slow_cpu": {"percent": (1, 5)},
    "clock_strobe": {"ms": (20, 20_000), "period_ms": (10, 1000)},
    "slow_disk": {"ms": (5, 1500)},
}
"""Faults all of whose parameters are drawn log-uniformly between two ends."""


def draw_params(fault: str, stream: Stream) -> dict[str, Any]:
    """Draws the parameters of a fault; none for faults that only have targets."""
    if fault in _LARGEST:
        return {name: log_uniform(stream, *ends) for name, ends in _LARGEST[fault].items()}
    if fault == "delay":
        delay_ms = log_uniform(stream, 5, 2000)
        return {"ms": delay_ms, "jitter_ms": int(stream.random() * (delay_ms + 1))}
    if fault == "clock_step":
        return {"ms": _signed(stream, log_uniform(stream, 50, 300_000))}
    if fault == "clock_drift":
        # Beyond 500 ppm a clock is broken. Raft must be safe with broken clocks, too.
        return {"ppm": _signed(stream, log_uniform(stream, 100, 200_000))}
    if fault == "disk_full":
        return {"free_bytes": int(stream.random() * 2048) if stream.random() < 0.5 else 0}
    if fault == "io_error":
        operation = "fsync" if stream.random() < 0.5 else "all"
        return {"op": operation, "every": pick(stream, (1, 1, 2))}
    return {}


def log_uniform(stream: Stream, least: int, most: int) -> int:
    """Draws a whole number whose logarithm is uniform."""
    return min(most, int(least * (most / least) ** stream.random() + 0.5))


def pick(stream: Stream, items: Sequence[Any]) -> Any:
    """Draws one of several with equal probabilities."""
    return items[int(stream.random() * len(items))]


def _signed(stream: Stream, size: int) -> int:
    return size if stream.random() < 0.5 else -size
