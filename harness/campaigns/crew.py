"""What runs the requests of a campaign: worker processes of this machine, or a Spark job.

Both take requests while they have room and return rows as runs end, so the engine does not distinguish them. A
worker of this machine has one request at a time. Spark has one task per core at a time, each with as many
requests as take about half a minute: fewer would pay the start of the task's worker process too often, more
would return rows too late and lose too much when the campaign is interrupted.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from checkers.spark import JobStream, SparkOptions
from harness.errors import HarnessFailure
from harness.runs.code_version import code_version

WORKER_MODULE = "harness.campaigns.worker"
WORKERS_LOG = "workers.log"
SPARK_LOG = "spark.log"
TASK_S = 30.0
"""Work of one Spark task: its worker process takes a second to start, so that is 3 % of the task."""
RUN_S_GUESS = 7.5
"""Assumed duration of a run until one has ended. It is long, so that the first rows come soon."""
STOP_LIMIT_S = 60.0
"""A real run that was interrupted removes its nodes within seconds."""

Request = dict[str, Any]
Row = dict[str, Any]


class Member(Protocol):
    """Part of a crew: runs requests somewhere.

    Attributes:
        is_busy: Whether rows are expected from it.
        runs_real: Whether it runs requests for real environments; otherwise simulated ones.
        uses_cores: Whether it keeps a core of this machine busy.
    """

    is_busy: bool
    runs_real: bool
    uses_cores: bool

    @property
    def room(self) -> int:
        """How many batches it can take now."""

    def batch_size(self, remaining: int) -> int:
        """Returns how many requests the next batch should have; `remaining` is how many are left in all."""

    def send(self, batch: Sequence[Request]) -> None:
        """Starts to run a batch."""

    def fileno(self) -> int:
        """Returns the descriptor that becomes readable when rows arrive."""

    def receive(self) -> list[Row]:
        """Returns the rows that arrived."""

    def stop(self) -> None:
        """Ends it, with everything that it started."""


class LocalWorker:
    """One worker process of this machine. Mutable.

    Args:
        log: Where its standard error goes.
        runs_real: It runs in real environments, and needs time to remove what a run made when it is stopped.
    """

    def __init__(self, log: IO[bytes], *, runs_real: bool = False) -> None:
        self.is_busy = False
        self.runs_real = runs_real
        self.uses_cores = not runs_real
        self._log_path = log.name
        self._received = b""
        # A group of its own: control-C in a terminal reaches the driver alone, which then stops the workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", WORKER_MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            process_group=0,
        )

    @property
    def room(self) -> int:
        """One request at a time, so that no worker has a queue while another one is idle."""
        return 0 if self.is_busy else 1

    def batch_size(self, remaining: int) -> int:
        """One."""
        return 1

    def send(self, batch: Sequence[Request]) -> None:
        """Sends one request."""
        assert self._process.stdin is not None
        self.is_busy = True
        try:
            for request in batch:
                self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._died()

    def fileno(self) -> int:
        """Its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def receive(self) -> list[Row]:
        """Returns the row, once all of it has arrived."""
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            self._died()
        *lines, self._received = (self._received + chunk).split(b"\n")
        if lines:
            self.is_busy = False
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        """Ends the process; a real run first removes what it made."""
        if self.runs_real:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        self._process.wait()

    def _died(self) -> None:
        code = self._process.wait()
        raise HarnessFailure(f"a worker process ended with code {code} (see {self._log_path})")


class SparkMember:
    """A Spark job that takes batches of requests as tasks. Mutable: it learns how long a run takes.

    Args:
        spark: Where the job runs.
        directory: The campaign's directory, for the log.
    """

    def __init__(self, spark: SparkOptions, directory: Path) -> None:
        self.is_busy = True  # until it has reported its cores
        self.runs_real = False
        self.uses_cores = False  # those of its master; the caller chooses the master
        self._cores = 0
        self._in_flight = 0
        self._runs = 0
        self._wall_s = 0.0
        self._log_path = directory / SPARK_LOG
        self._stream = JobStream(
            "distribute",
            {
                "worker": WORKER_MODULE,
                "code": code_version(),
                "master": spark.master,
                "conf": dict(spark.conf),
            },
            log_path=self._log_path,
        )

    @property
    def room(self) -> int:
        """One task per core."""
        return max(self._cores - self._in_flight, 0)

    def batch_size(self, remaining: int) -> int:
        """Returns how many runs take half a minute, but no more than a fair share of what is left."""
        run_s = self._wall_s / self._runs if self._runs else RUN_S_GUESS
        fair = ceil(remaining / max(self._cores, 1))
        return max(min(int(TASK_S / max(run_s, 0.001)), fair), 1)

    def send(self, batch: Sequence[Request]) -> None:
        """Starts a task."""
        self._in_flight += 1
        self.is_busy = True
        self._stream.send({"requests": list(batch)})

    def fileno(self) -> int:
        """The standard output of the job's process."""
        return self._stream.fileno()

    def receive(self) -> list[Row]:
        """Returns the rows of the tasks that ended."""
        rows: list[Row] = []
        for message in self._stream.receive():
            if "failure" in message:
                raise HarnessFailure(f"{message['failure']} (see {self._log_path})")
            self._cores = message["cores"]
            if "rows" in message:
                self._in_flight -= 1
                rows += (json.loads(line) for line in message["rows"])
        for row in rows:
            if "skipped" not in row and not row["error"]:
                self._runs += 1
                self._wall_s += row["wall_s"]
        self.is_busy = self._in_flight > 0 or not self._cores
        return rows

    def stop(self) -> None:
        """Ends the job, its Java process and its workers."""
        self._stream.stop()


class Crew:
    """The members that run a campaign's requests. A context manager: its end stops all of them.

    A run in a real environment needs a core that no simulated run uses, or its clocks and timeouts show the load
    of this machine instead of faults. With one core only, real and simulated runs take turns.

    Args:
        members: The members.
        cores: How many cores of this machine they may keep busy.
    """

    def __init__(self, members: Sequence[Member], cores: int) -> None:
        self.members = tuple(members)
        self._cores = cores
        self._first = 0
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.fileno(), selectors.EVENT_READ, member)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._selector.close()
        # A real run takes seconds to remove what it made; the others need not run on meanwhile.
        for member in sorted(self.members, key=lambda member: member.runs_real):
            member.stop()

    @property
    def is_busy(self) -> bool:
        """Whether rows are expected."""
        return any(member.is_busy for member in self.members)

    def in_turn(self) -> tuple[Member, ...]:
        """Returns the members, each time beginning with another one."""
        self._first = (self._first + 1) % len(self.members) if self.members else 0
        return self.members[self._first :] + self.members[: self._first]

    def has_core_for(self, member: Member, *, more_real: bool) -> bool:
        """Returns whether a member may start a run now.

        Args:
            member: The member.
            more_real: Whether there are more requests for real environments.
        """
        busy = sum(one.is_busy for one in self.members if one.uses_cores)
        is_real_busy = any(one.is_busy for one in self.members if one.runs_real)
        if member.runs_real:
            return busy <= max(self._cores - 1, 0)
        if not member.uses_cores:
            return True
        if self._cores == 1:
            return not is_real_busy
        return busy < self._cores - (is_real_busy or more_real)

    def ready(self, limit_s: float) -> list[Member]:
        """Waits until rows arrive, at most this long, and returns the members that have some."""
        return [key.data for key, _ in self._selector.select(limit_s)]


def local_crew(directory: Path, workers: int, *, runs_real: bool = False) -> Crew:
    """Starts worker processes of this machine."""
    with (directory / WORKERS_LOG).open("ab") as log:
        members = [LocalWorker(log, runs_real=runs_real) for _ in range(workers)]
        return Crew(members, workers)


def spark_crew(directory: Path, spark: SparkOptions) -> Crew:
    """Starts a Spark job."""
    return Crew([SparkMember(spark, directory)], 0)


def night_crew(
    directory: Path, jobs: int, spark: SparkOptions | None, *, simulated: bool, real: bool
) -> Crew:
    """Starts the crew of a night: worker processes or a Spark job, and a process for real runs, as needed."""
    with (directory / WORKERS_LOG).open("ab") as log:
        members: list[Member] = [LocalWorker(log, runs_real=True)] if real else []
        if simulated and spark is not None:
            members.append(SparkMember(spark, directory))
        elif simulated:
            members += [LocalWorker(log) for _ in range(jobs)]
    return Crew(members, jobs)
