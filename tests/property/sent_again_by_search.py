"""Small random histories of producers that send appends again, and an exhaustive judge for them.

`python -m tests.property.sent_again_by_search --histories 100000` compares the kernel with the judge and prints
the first history on which they differ; `--first` continues where another call ended.

An append that was acknowledged has a record from some moment between its invocation and its response on. It, and
an append of unknown outcome, may have further records, from any moment after its invocation on. The judge tries
every order of operations that the clock allows, with a further record of any append at each step.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import replace

from checkers.anomalies import ANOMALIES
from checkers.kernels.linearizability import NOT_ABOUT_THE_LOG, Options, check_tables
from tests.property import brute_force
from tests.property.brute_force import (
    LEVELS,
    Call,
    Log,
    ends_table,
    operations_table,
    records_table,
)

PROGRESS = 1_000
"""After how many histories the slow comparison says how far it is."""

NO_FINDINGS = NOT_ABOUT_THE_LOG | {"duplicate"}
"""A record at a second offset is what such producers may cause."""


def judge_accepts(calls: list[Call], *, level: str) -> bool:
    """Returns whether some order of the operations, and of further records, is legal.

    Args:
        calls: The history, without acks=1.
        level: As in `brute_force.judge_accepts`.
    """
    live = [call for call in calls if call.outcome != "fail"]
    shown = _shown(live)
    reported = [end for call in live for end in (call.offset, call.end) if end is not None]
    highest = max([0, *shown, *reported])
    timed = level != "integrity"
    before = [
        sum(1 << j for j, y in enumerate(live) if timed and brute_force.precedes(y, x))
        for x in live
    ]
    optional = sum(
        1 << i for i, call in enumerate(live) if call.kind == "append" and call.outcome == "info"
    )
    everything = (1 << len(live)) - 1
    dead: set[tuple[int, Log]] = set()

    def after(done: int, log: Log) -> Iterator[tuple[int, Log]]:
        end = len(log)
        for i, call in enumerate(live):
            if before[i] & ~done:
                continue
            if call.kind == "append" and end <= highest:
                # In one log, everybody is shown the same at an offset.
                if shown.get(end, {call.op}) == {call.op}:
                    longer = (*log, (end, call.op))
                    yield done, longer
                    if not done >> i & 1 and call.offset in (None, end):
                        yield done | 1 << i, longer
            elif not done >> i & 1:
                for longer, _ in brute_force.effects(
                    call, log, end, highest, may_be_stale=level != "fresh"
                ):
                    yield done | 1 << i, longer

    def search(done: int, log: Log) -> bool:
        if (everything & ~done & ~optional) == 0:
            return True
        if (done, log) in dead:
            return False
        dead.add((done, log))
        return any(search(*state) for state in after(done, log))

    return search(0, ())


def _shown(calls: list[Call]) -> dict[int, set[int]]:
    """Returns the values that reads and acknowledgements show at each offset."""
    shown: dict[int, set[int]] = {}
    for call in calls:
        acked = (
            [(call.offset, call.op)] if call.kind == "append" and call.offset is not None else []
        )
        for offset, value in (*call.records, *acked):
            shown.setdefault(offset, set()).add(value)
    return shown


def random_history(rng: random.Random) -> list[Call]:
    """Returns a history of 2 to 6 operations: a legal run with records that came again, mutated or not."""
    count = rng.randint(2, 6)
    span = rng.choice((2, 6, 20))
    calls: list[Call] = []
    log: list[int] = []
    for op, moment in enumerate(sorted(rng.sample(range(10, 10 + 8 * count), count))):
        inv, res = moment - rng.randint(1, span), moment + rng.randint(1, span)
        call = Call(op=op, kind="append", process=op, inv=inv, res=res)
        if rng.random() < 0.5:
            kind = rng.random()
            if kind < 0.4:
                call = replace(call, offset=len(log))
            elif kind > 0.8:
                call = replace(call, outcome="info", res=rng.choice((None, res)))
            if call.outcome == "ok" or rng.random() < 0.6:
                log.append(op)
            while log and rng.random() < 0.3:
                log.append(rng.choice(log))
        else:
            call = brute_force.random_observation(rng, call, tuple(enumerate(log)), len(log))
        calls.append(call)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at = rng.randrange(count)
        calls[at] = brute_force.mutated(rng, calls[at], calls)
    rng.shuffle(calls)
    return calls


def differences(calls: list[Call]) -> list[str]:
    """Returns where the kernel's findings and the judge differ, level by level."""
    options = Options(sent_twice=True, sent_again=True)
    report = check_tables(operations_table(calls), records_table(calls), ends_table(calls), options)
    findings = [found.id for found in report.findings if found.id not in NO_FINDINGS]
    differ = []
    for place, level in enumerate(LEVELS):
        broken = [name for name in findings if ANOMALIES[name].level in LEVELS[: place + 1]]
        if bool(broken) == judge_accepts(calls, level=level):
            differ.append(f"{level}: the kernel found {broken}, the search did not agree")
    return differ


def disagreements(first: int, count: int) -> Iterator[tuple[int, list[Call], list[str]]]:
    """Yields (number, history, differences) wherever kernel and judge differ."""
    for number in range(first, first + count):
        calls = random_history(random.Random(f"again/{number}"))
        if differ := differences(calls):
            yield number, calls, differ


def main() -> int:
    """Compares many histories; 1 if the kernel and the judge differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.sent_again_by_search")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    stop = options.first + options.histories
    for first in range(options.first, stop, PROGRESS):
        for number, calls, differ in disagreements(first, min(PROGRESS, stop - first)):
            print(f"history {number}:", *calls, *differ, sep="\n  ")
            return 1
        print(f"{min(first + PROGRESS, stop)} histories, no difference", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
