"""How often and how fast the model checker decides histories of many processes.

`python -m benchmarks.bench_models --histories 50 --limit-s 10`; the limit is CPU time, because machines that run
benchmarks also run other programs.

Every model gets histories with 200 operations of 25 processes, of which 5 to 10 % are `info`: valid ones, and the
same with one result replaced. Processes are busy all the time, or pause for as long as an operation takes. A value
is one of five, one of thirty, or new for every operation.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter

from checkers.models import check_model, find_model
from tests.property.model_histories import OBJECTS, corrupted, large_history

DOMAINS = (5, 30, None)
WALL_FACTOR = 5
"""The checker's own limit is wall-clock time; a busy machine may be this much slower."""


def measure(name: str, domain: int | None, histories: int, limit_s: float) -> dict[str, object]:
    """Returns the verdicts and times for one model and one choice of values."""
    verdicts: Counter[str] = Counter()
    times_s = []
    for number in range(histories):
        rng = random.Random(f"{name}/{domain}/{number}")
        history = large_history(
            rng,
            name,
            info_share=rng.uniform(0.05, 0.1),
            think=rng.choice((0.0, 1.0)),
            domain=domain,
            keys=5,
        )
        for one in (history, corrupted(rng, name, history)):
            start = time.process_time()
            result = check_model(one, find_model(name), time_limit_s=WALL_FACTOR * limit_s)
            times_s.append(time.process_time() - start)
            verdicts["unknown" if times_s[-1] > limit_s else result.validity] += 1
    times_s.sort()
    return {
        "model": name,
        "values": "unique" if domain is None else domain,
        **{verdict: verdicts[verdict] for verdict in ("valid", "invalid", "unknown")},
        "median_s": round(times_s[len(times_s) // 2], 3),
        "p95_s": round(times_s[int(0.95 * len(times_s))], 3),
        "max_s": round(times_s[-1], 2),
    }


def main(arguments: list[str] | None = None) -> int:
    """Prints one JSON line per model and choice of values."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_models")
    parser.add_argument("--models", nargs="*", default=list(OBJECTS))
    parser.add_argument("--histories", type=int, default=10)
    parser.add_argument("--limit-s", type=float, default=10.0)
    options = parser.parse_args(arguments)
    for name in options.models:
        for domain in DOMAINS:
            row = measure(name, domain, options.histories, options.limit_s)
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
