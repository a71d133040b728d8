"""Small random histories, an exhaustive judge for them, and the slow comparison with the kernel.

`python -m tests.property.brute_force --histories 1000000 --seed 1` compares the kernel with the judge and prints
the first history on which they differ; `--first` continues where another call ended.

The judge knows nothing of offsets as places or of facts: it tries every order of operations that the clock allows
and runs them on the sequential log.

Some histories are of logs that start beyond 0 in the end. Below that start records may have been removed at any
time, so a poll may return any of those that it should return, and an append may leave offsets free.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.kernels.linearizability import (
    NOT_ABOUT_THE_LOG,
    Options,
    PartitionReport,
    check_tables,
)
from harness.history.schema import END_OFFSETS_SEEN, OPERATIONS, RECORDS_READ

PROGRESS = 10_000
"""After how many histories the slow comparison says how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation of a small history; `res` None means that it never completed.

    `op` is also the value an append writes. `records` are (offset, value) pairs, `stamps` the epochs on their
    batches; `epoch` is that of the response. Epochs are -1 where they are unknown.
    """

    op: int
    kind: str
    process: int
    inv: int
    res: int | None
    outcome: str = "ok"
    offset: int | None = None
    acks: int = -1
    position: int = -1
    records: tuple[tuple[int, int], ...] = ()
    end: int | None = None
    final: bool = False
    epoch: int = -1
    stamps: tuple[int, ...] = ()
    batch: int | None = None


def operations_table(calls: list[Call], topic: str = "t", partition: int = 0) -> pa.Table:
    """Returns the calls as the stored table."""
    count = len(calls)
    columns: dict[str, list[object]] = {
        "op_index": [call.op for call in calls],
        "process": [call.process for call in calls],
        "kind": [call.kind for call in calls],
        "topic": [topic] * count,
        "partition": [partition] * count,
        "invoked_ns": [call.inv for call in calls],
        "completed_ns": [call.res for call in calls],
        "outcome": [call.outcome for call in calls],
        "acks": [call.acks if call.kind == "append" else 0 for call in calls],
        "sequence": [call.op if call.kind == "append" else -1 for call in calls],
        "key": [""] * count,
        "position": [call.position for call in calls],
        "offset": [call.offset for call in calls],
        "record_count": [len(call.records) for call in calls],
        "end_offset": [call.end for call in calls],
        "error_code": [None if call.outcome == "info" else 0 for call in calls],
        "error": ["" if call.outcome == "ok" else "timeout" for call in calls],
        "node": ["b1"] * count,
        "leader_epoch": [call.epoch for call in calls],
        "final": [call.final for call in calls],
        "batch": pa.array([call.batch for call in calls], pa.int64()),
    }
    return pa.table(columns, schema=OPERATIONS)


def records_table(
    calls: list[Call], topic: str = "t", partition: int = 0, statuses: dict[int, str] | None = None
) -> pa.Table:
    """Returns what the calls read as the stored table; `statuses` names the offsets that are not ok."""
    process_of = {call.op: call.process for call in calls if call.kind == "append"}
    rows = [
        {
            "op_index": call.op,
            "index_in_poll": index,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "value": value,
            "status": (statuses or {}).get(offset, "ok"),
            "process": process_of.get(value, 0),
            "sequence": value,
            "key": "",
            "leader_epoch": call.stamps[index] if call.stamps else -1,
        }
        for call in calls
        for index, (offset, value) in enumerate(call.records)
    ]
    return pa.Table.from_pylist(rows, schema=RECORDS_READ)


def ends_table(calls: list[Call], topic: str = "t", partition: int = 0) -> pa.Table:
    """Returns the log ends the calls saw as the stored table."""
    rows = [
        {
            "op_index": call.op,
            "topic": topic,
            "partition": partition,
            "end_offset": call.offset if call.kind == "latest" else call.end,
            "source": "list_offsets" if call.kind == "latest" else "fetch",
            "node": "b1",
            "leader_epoch": -1,
        }
        for call in calls
        if call.outcome == "ok"
        and (
            (call.kind == "latest" and call.offset is not None)
            or (call.kind == "poll" and call.end is not None)
        )
    ]
    return pa.Table.from_pylist(rows, schema=END_OFFSETS_SEEN)


def kernel_accepts(calls: list[Call], *, sparse: bool = False, start: int = 0) -> bool:
    """Returns whether the kernel finds the history linearizable."""
    return _kernel_report(calls, sparse=sparse, start=start).is_linearizable


def _kernel_report(calls: list[Call], *, sparse: bool, start: int) -> PartitionReport:
    options = Options(sparse=sparse, log_start_offset=start)
    return check_tables(operations_table(calls), records_table(calls), ends_table(calls), options)


# --- the exhaustive judge ---

Log = tuple[tuple[int, int], ...]


def judge_accepts(
    calls: list[Call], *, sparse: bool = False, start: int = 0, level: str = "fresh"
) -> bool:
    """Returns whether some order of the operations is legal, by trying all that the level allows.

    Args:
        calls: The history.
        sparse: Whether offsets may be missing.
        start: Where the log starts in the end.
        level: "fresh": all orders that fit the clock; "order": likewise, but a log end may be stale;
            "integrity": any order, if all clients agree on one sequence.
    """
    live = [_as_it_counts(call) for call in calls if call.outcome != "fail"]
    highest = max(
        [0]
        + [call.offset for call in live if call.offset is not None]
        + [call.end for call in live if call.end is not None]
        + [offset for call in live for offset, _ in call.records]
    )
    timed = level != "integrity"
    before = [sum(1 << j for j, y in enumerate(live) if timed and precedes(y, x)) for x in live]
    optional = sum(
        1 << i for i, call in enumerate(live) if call.kind == "append" and call.outcome == "info"
    )
    everything = (1 << len(live)) - 1
    dead: set[tuple[int, Log, int]] = set()

    def search(done: int, log: Log, end: int) -> bool:
        if (everything & ~done & ~optional) == 0:
            return True
        if (done, log, end) in dead:
            return False
        for i, call in enumerate(live):
            # An append of unknown outcome precedes nothing, so it may come at any time, or never.
            if done >> i & 1 or before[i] & ~done:
                continue
            for log_after, end_after in effects(
                call, log, end, highest, sparse=sparse, start=start, may_be_stale=level != "fresh"
            ):
                if search(done | 1 << i, log_after, end_after):
                    return True
        dead.add((done, log, end))
        return False

    return search(0, (), 0)


def _as_it_counts(call: Call) -> Call:
    """Returns an append that required no acknowledgement as what it is, one of unknown outcome."""
    is_silent = call.kind == "append" and call.acks == 0
    return replace(call, outcome="info", res=None, offset=None) if is_silent else call


def precedes(y: Call, x: Call) -> bool:
    """Returns whether `y` succeeded before `x` was invoked."""
    return y.outcome == "ok" and y.res is not None and y.res < x.inv


def effects(
    call: Call,
    log: Log,
    end: int,
    highest: int,
    *,
    sparse: bool = False,
    start: int = 0,
    may_be_stale: bool = False,
) -> Iterator[tuple[Log, int]]:
    """Yields every state of the log after one operation that returned what it did."""
    if call.kind == "append":
        # Beyond everything that was mentioned the next offset is as good as any.
        furthest = max(highest + 1, end) if sparse else max(start, end)
        for offset in range(end, furthest + 1):
            if call.offset is None or call.offset == offset:
                yield (*log, (offset, call.op)), offset + 1
        return
    if call.outcome != "ok":
        yield log, end
        return
    reported = call.offset if call.kind == "latest" else call.end
    if call.records:
        last = call.records[-1][0]
        position = call.position
        there = (pair for pair in log if position <= pair[0] <= last)
        returned = tuple(pair for pair in there if pair[0] >= start or pair in call.records)
        if returned != call.records:
            return
    if reported is None:
        yield log, end
    elif may_be_stale and reported <= end:
        # As old as it may be, it does not contradict the records that came with it.
        if not call.records or reported > call.records[-1][0]:
            yield log, end
    elif reported == end or (reported > end and (sparse or reported <= start)):
        yield log, reported


# --- random histories ---


def random_history(rng: random.Random, *, sparse: bool = False) -> list[Call]:
    """Returns a history of 2 to 8 operations: a legal run, mutated or not."""
    count = rng.randint(2, 8)
    span = rng.choice((2, 6, 20))
    moments = sorted(rng.sample(range(10, 10 + 8 * count), count))
    calls: list[Call] = []
    log: Log = ()
    end = 0
    for op, moment in enumerate(moments):
        if sparse and rng.random() < 0.2:
            end += rng.randint(1, 2)
        inv, res = moment - rng.randint(1, span), moment + rng.randint(1, span)
        acks = rng.choice((-1, -1, 1))
        base = Call(op=op, kind="append", process=op, inv=inv, res=res, acks=acks)
        if rng.random() < 0.5:
            call = _random_append(rng, base, end)
            if call.outcome == "ok" or (call.outcome == "info" and rng.random() < 0.6):
                log, end = (*log, (end, op)), end + 1
        else:
            call = random_observation(rng, base, log, end)
        calls.append(call)
    for _ in range(rng.choice((0, 1, 2, 3, 4, 6))):
        at = rng.randrange(count)
        calls[at] = mutated(rng, calls[at], calls)
    rng.shuffle(calls)
    return calls


def _random_append(rng: random.Random, base: Call, end: int) -> Call:
    kind = rng.random()
    if kind < 0.55:
        return replace(base, offset=end)
    if kind < 0.7:
        return base
    if kind < 0.92:
        return replace(base, outcome="info", res=rng.choice((None, base.res)))
    return replace(base, outcome="fail")


def random_observation(rng: random.Random, base: Call, log: Log, end: int) -> Call:
    """Returns a poll or a request for the log end with what a log shows."""
    kind = rng.random()
    if kind < 0.3 or not log:
        if rng.random() < 0.3:
            # An empty fetch that carried the log end, or an empty poll without information.
            return replace(base, kind="poll", position=end, end=rng.choice((end, None)))
        return replace(base, kind="latest", offset=end)
    position = rng.randint(0, log[-1][0])
    there = [pair for pair in log if pair[0] >= position]
    records = tuple(there[: rng.choice((1, len(there)))])
    reported = end if rng.random() < 0.4 else None
    return replace(base, kind="poll", position=position, records=records, end=reported)


def mutated(rng: random.Random, call: Call, calls: list[Call]) -> Call:
    """Returns an operation with another time, offset, record or outcome, or itself."""
    change = rng.randint(0, 7)
    shift = rng.choice((-2, -1, 1, 2))
    if change == 0:
        inv = call.inv + 4 * shift
        return replace(call, inv=inv, res=max(inv + 1, call.res) if call.res is not None else None)
    if change == 1 and call.res is not None:
        return replace(call, res=max(call.inv + 1, call.res + 4 * shift))
    if change == 2 and call.offset is not None:
        return replace(call, offset=max(0, call.offset + shift))
    if change == 3 and call.records:
        at = rng.randrange(len(call.records))
        offset, _ = call.records[at]
        value = rng.choice((*(other.op for other in calls), 99))
        return replace(call, records=_replaced(call.records, at, ((offset, value),)))
    if change == 6 and call.records:
        if len(call.records) > 1 and rng.random() < 0.6:
            return replace(
                call, records=_replaced(call.records, rng.randrange(len(call.records)), ())
            )
        return replace(call, position=rng.randint(0, call.records[0][0]))
    if change == 4 and call.end is not None:
        return replace(call, end=max(0, call.end + shift))
    if change == 7 and len(call.records) > 1:
        return replace(call, records=tuple(rng.sample(call.records, len(call.records))))
    if change == 5 and call.kind == "append":
        outcome = rng.choice(("ok", "info", "fail"))
        return replace(call, outcome=outcome, offset=call.offset if outcome == "ok" else None)
    return call


def _replaced(records: Log, at: int, by: Log) -> Log:
    return (*records[:at], *by, *records[at + 1 :])


LEVELS = ("integrity", "order", "fresh")


def differences(calls: list[Call], *, sparse: bool, start: int = 0) -> list[str]:
    """Returns where the kernel's findings and the judge differ, level by level.

    Every level is compared twice: with everything that was acknowledged, and *firm*, with what must hold although
    records that were acknowledged with acks=1 and never read may be lost.
    """
    report = _kernel_report(calls, sparse=sparse, start=start)
    findings = [found for found in report.findings if found.id not in NOT_ABOUT_THE_LOG]
    if judge_accepts(calls, sparse=sparse, start=start):
        # What is legal at all is legal at every level, and if records may be lost.
        return [f"the kernel found {found.id}, which is not there" for found in findings]
    differ = []
    for name, history in (("all", calls), ("firm", _with_weak_appends_open(calls))):
        for place, level in enumerate(LEVELS):
            broken = [
                found.id
                for found in findings
                if ANOMALIES[found.id].level in LEVELS[: place + 1]
                and (name == "all" or not found.weak.all())
            ]
            accepts = judge_accepts(history, sparse=sparse, start=start, level=level)
            if (broken and accepts) or not (broken or accepts or _is_lenient(name, calls)):
                differ.append(
                    f"{name}, {level}: the kernel found {broken}, the search did not agree"
                )
    return differ


def _is_lenient(name: str, calls: list[Call]) -> bool:
    """Whether the kernel may be lenient: an append without an offset may be where a lost record was."""
    return name == "firm" and any(
        call.kind == "append" and call.outcome == "ok" and call.offset is None for call in calls
    )


def _with_weak_appends_open(calls: list[Call]) -> list[Call]:
    """Returns the history in which weak appends are at their offset or nowhere, at any time."""
    read = {value for call in calls for _, value in call.records}
    return [
        replace(call, outcome="info", res=None)
        if call.kind == "append" and call.outcome == "ok" and call.acks == 1 and call.op not in read
        else call
        for call in calls
    ]


def numbered_history(seed: int, number: int) -> tuple[list[Call], bool, int]:
    """Returns one history of a seed, whether its log is sparse, and its start; each number has its own stream."""
    rng = random.Random(f"{seed}/{number}")
    sparse = rng.random() < 0.4
    start = rng.choice((0, 0, 0, 1, 2, 3, 6))
    # Below its start a log may look sparse.
    calls = random_history(rng, sparse=sparse or (start > 0 and rng.random() < 0.5))
    silent = rng.choice((0.0, 0.0, 0.3))
    return (
        [
            replace(call, acks=0, offset=None)
            if call.kind == "append" and call.outcome == "ok" and rng.random() < silent
            else call
            for call in calls
        ],
        sparse,
        start,
    )


def disagreements(first: int, count: int, seed: int) -> Iterator[tuple[int, list[Call], list[str]]]:
    """Yields (number, history, differences) wherever kernel and judge differ."""
    for number in range(first, first + count):
        calls, sparse, start = numbered_history(seed, number)
        if differ := differences(calls, sparse=sparse, start=start):
            yield number, calls, [f"sparse={sparse}, start={start}", *differ]


def main() -> int:
    """Runs the slow comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--histories", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    stop = arguments.first + arguments.histories
    for first in range(arguments.first, stop, PROGRESS):
        count = min(PROGRESS, stop - first)
        for number, calls, differ in disagreements(first, count, arguments.seed):
            print(f"history {number}: {'; '.join(differ)}")
            for call in sorted(calls, key=lambda call: call.op):
                print(f"  {call}")
            return 1
        print(
            f"{first + count} histories, no disagreement; go on with --first {first + count}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
