"""What takes the metrics of nodes while a run lasts."""

from collections.abc import Collection, Mapping
from typing import Protocol


class MetricsSink(Protocol):
    """Takes values by series, in the notation of Prometheus. Times are nanoseconds since the start of the run."""

    def changed(
        self, node: str, at_ns: int, values: Mapping[str, float], gone: Collection[str]
    ) -> None:
        """Takes values of a node that changed since the last call, and series that no longer exist."""
        ...

    def went_down(self, node: str, at_ns: int) -> None:
        """Notes that a node is down; when it is up again it reports all values."""
        ...
