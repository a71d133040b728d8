"""Runs all benchmarks and prints their tables: `python -m benchmarks`.

Every benchmark runs in its own process, so that none inherits the memory and the caches of another.
"""

import subprocess
import sys

BENCHMARKS = (
    "bench_loop",
    "bench_scenario",
    "bench_monitors",
    "bench_campaign",
    "check",
    "bench_transactions",
    "bench_models",
    "wire",
    "bench_messages",
    "bench_faults",
)


def main() -> int:
    """Runs them in order; returns 1 if one of them failed."""
    failed = []
    for name in BENCHMARKS:
        module = f"benchmarks.{name}"
        print(f"# {name}", flush=True)
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            failed.append(name)
        print(flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
