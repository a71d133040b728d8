"""`metrics.jsonl`: the metrics of the nodes of a real run, as they changed.

    {"at_ns": 5000000, "node": "b1", "values": {"kafka_server_replicamanager_leadercount": 3, ...}, "gone": []}
    {"at_ns": 9000000, "node": "b1", "down": true}

The first line of a node has all its values, every later one those that changed, and which series are gone. A line
is written with one call, so a run that is killed leaves whole lines. The verdict does not depend on them.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TextIO


class MetricsFile:
    """Writes the file. Mutable; it is made with the first line, so that a run without metrics has none.

    Args:
        path: Where.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._reporting: set[str] = set()

    def changed(
        self, node: str, at_ns: int, values: Mapping[str, float], gone: Collection[str]
    ) -> None:
        """Writes values of a node that changed.

        Args:
            node: Its name.
            at_ns: Nanoseconds since the start of the run.
            values: By series, in the notation of Prometheus.
            gone: Series that no longer exist.
        """
        self._reporting.add(node)
        self._write({"at_ns": at_ns, "node": node, "values": dict(values), "gone": list(gone)})

    def went_down(self, node: str, at_ns: int) -> None:
        """Writes that a node is down, if it has reported anything since it was last up."""
        if node in self._reporting:
            self._reporting.remove(node)
            self._write({"at_ns": at_ns, "node": node, "down": True})

    def close(self) -> None:
        """Closes the file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = open(self._path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
