"""Shrinks the failing runs of a campaign: how small they become, how long it takes, and how many occur for real.

    laststand compare --vary profile=kafka-4.0,kafka-4.1 --seeds 200 --keep-failing 60
    python -m benchmarks.bench_shrinks results/runs/compare-... --jobs 2
    python -m benchmarks.bench_shrinks results/runs/compare-... --jobs 2 --on docker --sample 10

Every stored run of the campaign is shrunk by `laststand shrink`, one after the other, into the folder `shrunk` of
the campaign. Times are of the wall clock and contain the start of the command. With `--on` the shrunk runs are
also played in that world. A run that was measured is not measured again: the rows are in `shrinks.jsonl` there.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROWS = "shrinks.jsonl"


def shrunk(run: Path, results: Path, *, jobs: int, on: str, attempts: int) -> dict[str, Any]:
    """Shrinks one run; returns a row."""
    command = [sys.executable, "-m", "harness.cli", "shrink", str(run), "--json", "--quiet"]
    command += ["--jobs", str(jobs), "--results", str(results)]
    if on:
        command += ["--on", on, "--attempts", str(attempts)]
    began_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began_s
    output = json.loads(done.stdout)
    return {
        "run": run.name,
        "on": on,
        "took_s": took_s,
        "exit_code": done.returncode,
        "error": output["error"],
        "faults": output.get("after", {}).get("faults"),
        "title": output.get("title", ""),
        "confirmed": output.get("elsewhere", {}).get("confirmed", 0),
        "attempts": output.get("elsewhere", {}).get("attempts", 0),
    }


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Returns lines about rows: those without a world about size and time, others about what was confirmed."""
    lines = []
    here = [row for row in rows if not row["on"]]
    if here:
        small = [row for row in here if row["exit_code"] == 1]
        faults = [row["faults"] for row in small]
        times = [row["took_s"] for row in here]
        lines.append(
            f"{len(small)} of {len(here)} runs shrunk to an invalid run with the same finding; "
            f"faults: median {statistics.median(faults or [0]):g}, most {max(faults, default=0)}; "
            f"seconds: median {statistics.median(times):.0f}, longest {max(times):.0f}"
        )
    for world in sorted({row["on"] for row in rows if row["on"]}):
        there = [row for row in rows if row["on"] == world]
        confirmed = [row for row in there if row["confirmed"]]
        attempts = sum(row["attempts"] for row in there)
        shown = sum(row["confirmed"] for row in there)
        lines.append(
            f"{world}: {len(confirmed)} of {len(there)} confirmed, in {shown} of {attempts} attempts"
        )
    return lines


def main() -> None:
    """Measures what is missing, and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaign", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--on", default="", choices=["", "docker", "local", "ssh"])
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--sample", type=int, help="draw so many of the runs (always the same)")
    options = parser.parse_args()
    results = options.campaign / "shrunk"
    results.mkdir(exist_ok=True)
    file = results / ROWS
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    runs = sorted(path.parent for path in options.campaign.glob("runs/*/*/run.json"))
    if options.sample:
        runs = random.Random(14).sample(runs, min(options.sample, len(runs)))
    known = {(row["run"], row["on"]) for row in rows}
    for run in runs:
        if (run.name, options.on) in known:
            continue
        row = shrunk(run, results, jobs=options.jobs, on=options.on, attempts=options.attempts)
        rows.append(row)
        with file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
