"""Small random histories, an exhaustive judge for them, and the slow comparison with the kernel.

`python -m tests.property.brute_force --histories 1000000 --seed 1` compares the kernel with the judge and prints
the first history on which they differ.

The judge knows nothing of offsets as places or of facts: it tries every order of operations that the clock allows
and runs them on the sequential log.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from checkers.kernels.linearizability import Options, check_tables
from harness.history.schema import END_OFFSETS_SEEN, OPERATIONS, RECORDS_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation of a small history; `res` None means that it never completed.

    `op` is also the value an append writes. `records` are (offset, value) pairs.
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
        "leader_epoch": [-1] * count,
        "final": [call.final for call in calls],
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
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "value": value,
            "status": (statuses or {}).get(offset, "ok"),
            "process": process_of.get(value, 0),
            "sequence": value,
            "key": "",
            "leader_epoch": 0,
        }
        for call in calls
        for offset, value in call.records
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


def kernel_accepts(calls: list[Call], *, sparse: bool = False) -> bool:
    """Returns whether the kernel finds the history linearizable."""
    report = check_tables(
        operations_table(calls), records_table(calls), ends_table(calls), Options(sparse=sparse)
    )
    return report.is_linearizable


# --- the exhaustive judge ---

Log = tuple[tuple[int, int], ...]


def judge_accepts(calls: list[Call], *, sparse: bool = False) -> bool:
    """Returns whether some order of the operations is legal, by trying all that the clock allows."""
    live = [call for call in calls if call.outcome != "fail"]
    highest = max(
        [0]
        + [call.offset for call in live if call.offset is not None]
        + [call.end for call in live if call.end is not None]
        + [offset for call in live for offset, _ in call.records]
    )
    before = [sum(1 << j for j, y in enumerate(live) if _precedes(y, x)) for x in live]
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
            for log_after, end_after in _effects(call, log, end, highest, sparse):
                if search(done | 1 << i, log_after, end_after):
                    return True
        dead.add((done, log, end))
        return False

    return search(0, (), 0)


def _precedes(y: Call, x: Call) -> bool:
    return y.outcome == "ok" and y.res is not None and y.res < x.inv


def _effects(
    call: Call, log: Log, end: int, highest: int, sparse: bool
) -> Iterator[tuple[Log, int]]:
    """Yields every state of the log after one operation that returned what it did."""
    if call.kind == "append":
        # Beyond everything that was mentioned the next offset is as good as any.
        for offset in range(end, max(highest + 1, end) + 1) if sparse else (end,):
            if call.outcome != "ok" or call.offset is None or call.offset == offset:
                yield (*log, (offset, call.op)), offset + 1
        return
    if call.outcome != "ok":
        yield log, end
        return
    reported = call.offset if call.kind == "latest" else call.end
    if call.records:
        last = call.records[-1][0]
        position = call.position
        if tuple(pair for pair in log if position <= pair[0] <= last) != call.records:
            return
    if reported is None:
        yield log, end
    elif reported == end or (sparse and reported > end):
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
        base = Call(op=op, kind="append", process=op, inv=inv, res=res)
        if rng.random() < 0.5:
            call = _random_append(rng, base, end)
            if call.outcome == "ok" or (call.outcome == "info" and rng.random() < 0.6):
                log, end = (*log, (end, op)), end + 1
        else:
            call = _random_observation(rng, base, log, end)
        calls.append(call)
    for _ in range(rng.choice((0, 1, 2, 3, 4, 6))):
        at = rng.randrange(count)
        calls[at] = _mutated(rng, calls[at], calls)
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


def _random_observation(rng: random.Random, base: Call, log: Log, end: int) -> Call:
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


def _mutated(rng: random.Random, call: Call, calls: list[Call]) -> Call:
    change = rng.randint(0, 6)
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
    if change == 5 and call.kind == "append":
        outcome = rng.choice(("ok", "info", "fail"))
        return replace(call, outcome=outcome, offset=call.offset if outcome == "ok" else None)
    return call


def _replaced(records: Log, at: int, by: Log) -> Log:
    return (*records[:at], *by, *records[at + 1 :])


def disagreements(histories: int, seed: int) -> Iterator[tuple[int, bool, list[Call], bool, bool]]:
    """Yields (number, sparse, history, kernel, judge) wherever kernel and judge differ."""
    rng = random.Random(seed)
    for number in range(histories):
        sparse = rng.random() < 0.4
        calls = random_history(rng, sparse=sparse)
        kernel, judge = kernel_accepts(calls, sparse=sparse), judge_accepts(calls, sparse=sparse)
        if kernel != judge:
            yield number, sparse, calls, kernel, judge


def main() -> int:
    """Runs the slow comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for number, sparse, calls, kernel, judge in disagreements(arguments.histories, arguments.seed):
        print(f"history {number} (sparse={sparse}): kernel: {kernel}, exhaustive search: {judge}")
        for call in sorted(calls, key=lambda call: call.op):
            print(f"  {call}")
        return 1
    print(f"{arguments.histories} histories, no disagreement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
