"""A crew without processes: rows are made up, so that a campaign of thousands of runs takes a second."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from harness.campaigns.crew import Crew
from harness.campaigns.worker import failed_row

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


def made_up_row(request: dict[str, Any], lost: int = 0, **values: Any) -> dict[str, Any]:
    """A row of a run that lost this many records."""
    row = failed_row(request, "")
    row.update(verdict="invalid" if lost else "valid", unexcused_lost_records=lost, reasons=[])
    if lost:
        row["reasons"] = [f"{lost} records are lost"]
        row["anomalies"] = [{"id": "lost-acked-write", "count": lost, "judgement": "forbidden"}]
    return {**row, **values}


class FakeMember:
    """Answers requests at once, a batch at a time, the last one of a batch first.

    Args:
        answer: Returns the row of a request, None for none.
        size: Requests in a batch.
        runs_real: It takes requests for real environments.
    """

    def __init__(self, answer: Answer, size: int = 1, *, runs_real: bool = False) -> None:
        self.runs_real = runs_real
        self.uses_cores = not runs_real
        self.requests: list[dict[str, Any]] = []
        self.is_stopped = False
        self._answer = answer
        self._size = size
        self._waiting: list[dict[str, Any]] = []
        self._reading, self._writing = os.pipe()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    @property
    def room(self) -> int:
        return 0 if self._waiting else 1

    def batch_size(self, remaining: int) -> int:
        return min(self._size, remaining)

    def send(self, batch: Sequence[dict[str, Any]]) -> None:
        self.requests += batch
        self._waiting = list(batch)
        os.write(self._writing, b".")

    def fileno(self) -> int:
        return self._reading

    def receive(self) -> list[dict[str, Any]]:
        os.read(self._reading, 1)
        rows = [row for row in map(self._answer, reversed(self._waiting)) if row is not None]
        self._waiting = []
        return rows

    def receive_nothing(self) -> None:
        """Forgets what it was sent."""
        os.read(self._reading, 1)
        self._waiting = []

    def stop(self) -> None:
        self.is_stopped = True
        os.close(self._reading)
        os.close(self._writing)


def fake_crew(answer: Answer, *, members: int = 1, size: int = 1) -> Crew:
    """A crew of such members."""
    return Crew([FakeMember(answer, size) for _ in range(members)], members)
