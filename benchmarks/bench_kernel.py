"""How long the checker kernels take on valid synthetic histories.

`python -m benchmarks.bench_kernel --operations 1000000 10000000`
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

from checkers.kernels.compose import judge_run
from checkers.kernels.history import read_history
from checkers.kernels.linearizability import check_history
from checkers.synthetic import Shape, synthetic_tables
from harness.contracts.run_context import RunContext

TARGET_MS = {1_000_000: 100.0, 10_000_000: 1200.0}


def timed_ms(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Returns the median wall time and the least processor time of several calls after one that warms up.

    On a busy machine only the processor time measures the code.
    """
    work()
    wall, processor = [], []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        work()
        wall.append((time.perf_counter() - start) * 1e3)
        processor.append((time.process_time() - start_cpu) * 1e3)
    return {"wall": round(statistics.median(wall), 1), "cpu": round(min(processor), 1)}


def measure(
    operations: int, repeats: int, unknown_share: float, clients: int, final_read_records: int
) -> dict[str, object]:
    """Returns the times for one size."""
    shape = Shape(
        operations=operations,
        unknown_share=unknown_share,
        clients=clients,
        final_read_records=final_read_records,
    )
    tables = synthetic_tables(shape)
    parts = (tables["operations"], tables["records_read"], tables["end_offsets_seen"])
    history = read_history(*parts)
    report = check_history(history)
    if report.findings:
        raise SystemExit(f"the synthetic history is not valid: {[f.id for f in report.findings]}")
    context = RunContext()
    return {
        "operations": operations,
        "clients": clients,
        "unknown_share": unknown_share,
        "records_read": parts[1].num_rows,
        "arrow_to_arrays_ms": timed_ms(lambda: read_history(*parts), repeats),
        "kernel_ms": timed_ms(lambda: check_history(history), repeats),
        "judge_run_ms": timed_ms(lambda: judge_run(tables, context), repeats),
        "kernel_target_ms": TARGET_MS.get(operations),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--operations", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000]
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--unknown-share", type=float, default=0.02)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument(
        "--final-read-records",
        type=int,
        default=0,
        help="records per poll of a final full read; 0 for none",
    )
    arguments = parser.parse_args()
    for operations in arguments.operations:
        numbers = measure(
            operations,
            arguments.repeats,
            arguments.unknown_share,
            arguments.clients,
            arguments.final_read_records,
        )
        print(json.dumps(numbers), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
