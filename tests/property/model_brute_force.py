"""Compares the model checker with an exhaustive judge: `python -m tests.property.model_brute_force`.

`--histories 100000 --seed 1` takes about ten minutes. Every history has a seed of its own, so that `--from 50000`
continues a comparison that was interrupted, and the seed of a disagreement repeats it alone.
"""

import argparse
import random
import sys
import time

from checkers.models import Operation, check_model, find_model
from harness.contracts.verdict import Validity
from tests.property.model_histories import OBJECTS, is_linearizable, small_history

NAMES = tuple(OBJECTS)


def history(seed: int, number: int) -> tuple[str, list[Operation]]:
    """Returns the model and the operations of one history of the comparison."""
    rng = random.Random(f"{seed}/{number}")
    name = NAMES[number % len(NAMES)]
    return name, small_history(rng, name)


def disagreement(seed: int, number: int) -> tuple[str, bool]:
    """Returns the disagreement about one history, empty if there is none, and whether it is linearizable."""
    name, operations = history(seed, number)
    expected = is_linearizable(name, operations)
    result = check_model(operations, find_model(name), time_limit_s=None)
    if result.validity == (Validity.VALID if expected else Validity.INVALID):
        return "", expected
    lines = [f"history {number}, seed {seed}: {name} is {result.validity}, expected {expected}"]
    lines += [
        f"  [{one.invoked_ns}, {one.completed_ns}] {one.text()} ({one.output!r})"
        for one in operations
    ]
    return "\n".join(lines), expected


def main(arguments: list[str] | None = None) -> int:
    """Compares, and prints the first disagreement."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.model_brute_force")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--models", nargs="*", choices=NAMES, default=NAMES)
    options = parser.parse_args(arguments)
    began = output = time.monotonic()
    valid = count = 0
    for number in range(options.first, options.histories):
        if NAMES[number % len(NAMES)] not in options.models:
            continue
        count += 1
        found, expected = disagreement(options.seed, number)
        valid += expected
        if found:
            print(found)
            return 1
        if time.monotonic() - output > 10:
            output = time.monotonic()
            print(f"{number + 1} of {options.histories}", file=sys.stderr, flush=True)
    print(
        f"{count} histories, {valid} of them linearizable, no disagreement "
        f"({time.monotonic() - began:.0f} s, seed {options.seed})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
