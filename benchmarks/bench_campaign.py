"""How much processor time a campaign spends outside of the simulation.

`python -m benchmarks.bench_campaign --runs 200`

A swarm of the built-in experiment runs as a user would run it. Its processor time (`getrusage` of the command
and of everything that it started) is compared with the sum of `cpu_s` of its rows, which is that of the
simulations alone. The rest is starting Python and Arrow, judging, storing failing runs, passing rows, and the
result with its page.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

OUTSIDE_MAX = 0.15
"""Share of processor time outside of the simulation."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--profile", default="kafka-4.1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = ["swarm", "--seeds", str(arguments.runs), "--results", folder, "--quiet"]
        words += ["--profile", arguments.profile, "--no-spark"]
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli", *words], stdout=subprocess.DEVNULL, check=False
        )
        (path,) = Path(folder).glob("*/rows.jsonl")
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    simulated_s = sum(row["cpu_s"] for row in rows)
    outside = 1 - simulated_s / cpu_s
    print(
        json.dumps(
            {
                "exit_code": done.returncode,
                "runs": len(rows),
                "failing": sum(row["verdict"] == "invalid" for row in rows),
                "cpu_s": round(cpu_s, 1),
                "simulated_s": round(simulated_s, 1),
                "outside": round(outside, 3),
                "target": OUTSIDE_MAX,
            }
        )
    )
    return 0 if outside <= OUTSIDE_MAX and len(rows) == arguments.runs else 1


if __name__ == "__main__":
    sys.exit(main())
