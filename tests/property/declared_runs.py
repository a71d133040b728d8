"""Random runs of a correct broker with every combination of what a run may declare, and what verdicts may say.

`python -m tests.property.declared_runs --first 0 --count 10000` judges that many runs and prints each wrong
verdict; `--show N` prints one run.

The broker (`declared_broker`) is correct, so no verdict may be INVALID. The same run is judged a second time
without its committed metadata: then nothing excuses what an unclean election removed, and no verdict may be VALID
if a record is gone that clients know of. UNKNOWN is never wrong here: clients see too little.
"""

import argparse
import sys
from collections.abc import Iterator

from checkers.kernels.compose import judge_run
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.property.declared_simulation import DeclaredRun, Simulation

CHECKER_FAILED = "checker failed"


def run_of(number: int) -> DeclaredRun:
    return Simulation(number).run()


def is_failure(verdict: Verdict) -> bool:
    return any(CHECKER_FAILED in reason for reason in verdict.reasons)


def forbidden(verdict: Verdict) -> list[str]:
    return sorted({a.id for a in verdict.anomalies if a.judgement == Judgement.FORBIDDEN})


def objections(declared: DeclaredRun) -> Iterator[str]:
    """Yields what is wrong with the verdicts on a run."""
    verdict = judge_run(declared.tables(), declared.context)
    if verdict.validity == Validity.INVALID:
        yield f"invalid, but the broker is correct: {forbidden(verdict)}"
    if is_failure(verdict):
        yield f"a checker failed: {verdict.reasons}"
    if lost := declared.lost():
        verdict = judge_run(declared.tables(with_metadata=False), declared.context)
        if verdict.validity == Validity.VALID:
            yield f"valid, but (value, offset) are lost without an excuse: {lost}"
        if is_failure(verdict):
            yield f"a checker failed without metadata: {verdict.reasons}"


def wrong_verdicts(first: int, count: int) -> Iterator[tuple[int, str]]:
    """Yields the number of each run with a wrong verdict, and what is wrong."""
    for number in range(first, first + count):
        for wrong in objections(run_of(number)):
            yield number, wrong


def show(number: int) -> None:
    """Prints one run."""
    declared = run_of(number)
    print(declared.declaration)
    for call in declared.calls:
        print(" ", call)
    for row in declared.states:
        flag = " FLAGGED" if row["flagged"] else ""
        print(f"  {row['at_ns']}: leader {row['leader']} epoch {row['leader_epoch']}{flag}")
    print(
        [(record.offset, record.send.value) for record in declared.log], declared.log_start_offset
    )
    print(sorted(declared.effects), "lost:", declared.lost())
    for with_metadata in (True, False):
        verdict = judge_run(declared.tables(with_metadata=with_metadata), declared.context)
        print(verdict.validity, *verdict.reasons, sep="\n  ")
        for anomaly in verdict.anomalies:
            print("   ", anomaly.id, anomaly.judgement, anomaly.sentence)
    print(*objections(declared) or ("as it should be",), sep="\n")


def main() -> int:
    """Judges many runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--show", type=int)
    arguments = parser.parse_args()
    if arguments.show is not None:
        show(arguments.show)
        return 0
    count = 0
    for number, wrong in wrong_verdicts(arguments.first, arguments.count):
        print(f"{number}: {wrong}", flush=True)
        count += 1
    print(f"{arguments.count} runs from {arguments.first}: {count} wrong verdicts")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
