"""Runs all benchmarks and prints their tables: `python -m benchmarks`.

Every benchmark runs in its own process, so that none inherits the memory and the caches of another. `bench_spark`
is skipped, with a note, when the Spark jobs are not installed with their benchmark.
"""

import importlib.util
import subprocess
import sys

BENCHMARKS = (
    "bench_loop",
    "bench_scenario",
    "bench_campaign",
    "bench_kernel",
    "bench_transactions",
    "bench_models",
    "bench_spark",
    "wire",
    "bench_faults",
)


def main() -> int:
    """Runs them in order; returns 1 if one of them failed."""
    failed = []
    for name in BENCHMARKS:
        module = f"benchmarks.{name}"
        if importlib.util.find_spec(module) is None:
            print(f"# {name}: skipped, not installed", flush=True)
            continue
        print(f"# {name}", flush=True)
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            failed.append(name)
        print(flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
