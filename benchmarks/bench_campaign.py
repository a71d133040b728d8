"""How much processor time a campaign spends outside of the simulation, and how much memory its driver needs.

`python -m benchmarks.bench_campaign --runs 200`

A swarm of a built-in experiment runs as a user would run it. Its processor time (`getrusage` of the command and of
everything that it started) is compared with the sum of `cpu_s` of its rows, which is that of the simulations
alone. The rest is starting Python and Arrow, judging, storing failing runs, passing rows, and the result with its
page. How many runs an hour has is counted in wall time, with the start and the result.

The peak memory of the driver (`VmHWM` of the command itself, without its workers) is read when 10, 50 and 100 % of
the rows are written. It must not grow with the number of runs: between the first two readings the driver may only
remember where the rows are, a few hundred bytes for each.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUTSIDE_MAX = 0.15
"""Share of processor time outside of the simulation."""

SHARES = (0.1, 0.5, 1.0)
"""Parts of the runs after which the driver's memory is read."""

BYTES_PER_RUN_MAX = 1000
"""What the driver may need for a run that has ended: the position of its row. A row has about 1500 bytes in the
file and some 10,000 in memory."""

SLACK_MB = 4.0
"""Memory that the allocator may take without need."""

POLL_S = 0.1


def main() -> int:
    """Runs the campaign and prints one JSON object; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--experiment", help="an experiment file (default: the built-in one)")
    parser.add_argument("--profile", default="kafka-4.1")
    parser.add_argument("--jobs", type=int, help="worker processes (default: one per core)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = ["swarm", *([arguments.experiment] if arguments.experiment else [])]
        words += ["--seeds", str(arguments.runs), "--results", folder, "--quiet"]
        words += ["--profile", arguments.profile, "--no-spark"]
        words += ["--jobs", str(arguments.jobs)] if arguments.jobs else []
        began = time.monotonic()
        code, peaks_mb = _run(words, Path(folder), arguments.runs)
        wall_s = time.monotonic() - began
        rows = _Rows(Path(folder))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    outside = 1 - rows.simulated_s / cpu_s
    first_mb, last_mb = peaks_mb.get("10%", 0.0), peaks_mb.get("100%", 0.0)
    allowed_mb = SLACK_MB + 0.9 * arguments.runs * BYTES_PER_RUN_MAX / 2**20
    is_flat = 0 < last_mb <= first_mb + allowed_mb
    print(
        json.dumps(
            {
                "exit_code": code,
                "runs": rows.count,
                "failing": rows.failing,
                "runs_per_hour": round(3600 * rows.count / wall_s, -2),
                "cpu_s": round(cpu_s, 1),
                "simulated_s": round(rows.simulated_s, 1),
                "outside": round(outside, 3),
                "target": OUTSIDE_MAX,
                "driver_peak_mb": peaks_mb,
                "is_flat": is_flat,
            }
        )
    )
    return 0 if outside <= OUTSIDE_MAX and is_flat and rows.count == arguments.runs else 1


def _run(words: list[str], folder: Path, runs: int) -> tuple[int, dict[str, float]]:
    """Runs the command; returns its exit code, and the driver's peak memory after each share of the runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", *words], stdout=subprocess.DEVNULL
    )
    peaks_mb: dict[str, float] = {}
    waiting = list(SHARES)
    rows = _Lines()
    while process.poll() is None:
        done = rows.count_in(folder)
        peak_mb = _peak_mb(process.pid)
        while waiting and done >= waiting[0] * runs and peak_mb:
            peaks_mb[f"{100 * waiting.pop(0):.0f}%"] = peak_mb
        if not waiting and peak_mb:
            # Until the command ends: the result is part of it.
            peaks_mb["100%"] = peak_mb
        time.sleep(POLL_S)
    return process.wait(), peaks_mb


def _peak_mb(pid: int) -> float:
    """Returns the peak of the resident memory of a process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


class _Lines:
    """Counts the lines of the file of rows, reading only what was added. Mutable."""

    def __init__(self) -> None:
        self._count = 0
        self._end = 0

    def count_in(self, folder: Path) -> int:
        """Returns how many rows there are."""
        for path in folder.glob("*/rows.jsonl"):
            with path.open("rb") as file:
                file.seek(self._end)
                text = file.read()
            self._count += text.count(b"\n")
            self._end += len(text)
        return self._count


class _Rows:
    """The numbers of a campaign's rows.

    Args:
        folder: The run store.
    """

    def __init__(self, folder: Path) -> None:
        self.count = self.failing = 0
        self.simulated_s = 0.0
        (path,) = folder.glob("*/rows.jsonl")
        with path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                self.count += 1
                self.failing += row["verdict"] == "invalid"
                self.simulated_s += row["cpu_s"]


if __name__ == "__main__":
    sys.exit(main())
