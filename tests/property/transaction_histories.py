"""Random small histories of transactions, legal or not, and the slow comparison of the kernels with the oracle.

`python -m tests.property.transaction_histories lists --histories 100000 --seed 1` prints the first history on
which they differ. `--first N` continues an earlier run at history N: every history has its own seed.
"""

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import replace

from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import (
    Append,
    CommitOffset,
    MicroOperation,
    Poll,
    Read,
    Transaction,
    transactions_of,
)
from checkers.kernels.transactions.isolation import breaks
from tests.property import transaction_log_oracle as log_oracle
from tests.property import transaction_oracle as oracle

History = list[Transaction]

PROGRESS_EVERY = 5000


def random_lists(rng: random.Random) -> History:
    """Returns a history of up to four transactions on lists, and sometimes one that reads every key at the end."""
    keys = "xyz"[: rng.choice((1, 2, 2, 3))]
    plans = _plans(rng, keys)
    run = rng.choice((_serial, _interleaved, _from_snapshots))
    results = run(rng, plans)
    outcomes = [rng.choice(("committed",) * 6 + ("unknown", "aborted")) for _ in plans]
    history = [
        Transaction(id=row, ops=tuple(ops), outcome=outcome)
        for row, (ops, outcome) in enumerate(zip(results, outcomes, strict=True))
    ]
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        history = _mutated(rng, history)
    history = _timed(rng, history)
    if rng.random() < 0.5:
        history.append(_closing_read(history, keys))
    rng.shuffle(history)
    return history


def _plans(rng: random.Random, keys: str) -> list[list[tuple[str, str, int]]]:
    """Returns (kind, key, value) of the micro-operations of every transaction."""
    value = 0
    plans = []
    for _ in range(rng.randint(1, 4)):
        plan = []
        for _ in range(rng.randint(1, 3)):
            value += 1
            plan.append((rng.choice(("append", "read")), rng.choice(keys), value))
        plans.append(plan)
    return plans


def _serial(
    rng: random.Random, plans: list[list[tuple[str, str, int]]]
) -> list[list[MicroOperation]]:
    order = list(range(len(plans)))
    rng.shuffle(order)
    return _executed(plans, [row for row in order for _ in plans[row]])


def _interleaved(
    rng: random.Random, plans: list[list[tuple[str, str, int]]]
) -> list[list[MicroOperation]]:
    turns = [row for row, plan in enumerate(plans) for _ in plan]
    rng.shuffle(turns)
    return _executed(plans, turns)


def _from_snapshots(
    rng: random.Random, plans: list[list[tuple[str, str, int]]]
) -> list[list[MicroOperation]]:
    """Runs transactions that read what earlier ones had committed at some moment, and their own appends."""
    states: list[dict[str, tuple[int, ...]]] = [{}]
    results: list[list[MicroOperation]] = []
    for plan in plans:
        own = dict(rng.choice(states[-3:]))
        committed = dict(states[-1])
        result: list[MicroOperation] = []
        for kind, key, value in plan:
            if kind == "append":
                own[key] = (*own.get(key, ()), value)
                committed[key] = (*committed.get(key, ()), value)
                result.append(Append(key, value))
            else:
                result.append(Read(key, own.get(key, ())))
        states.append(committed)
        results.append(result)
    return results


def _executed(
    plans: list[list[tuple[str, str, int]]], turns: list[int]
) -> list[list[MicroOperation]]:
    lists: dict[str, tuple[int, ...]] = {}
    results: list[list[MicroOperation]] = [[] for _ in plans]
    for row in turns:
        kind, key, value = plans[row][len(results[row])]
        if kind == "append":
            lists[key] = (*lists.get(key, ()), value)
            results[row].append(Append(key, value))
        else:
            results[row].append(Read(key, lists.get(key, ())))
    return results


def _mutated(rng: random.Random, history: History) -> History:
    """Returns a history in which one read returned something else, or one outcome differs."""
    row = rng.randrange(len(history))
    transaction = history[row]
    at = rng.randrange(len(transaction.ops))
    op = transaction.ops[at]
    if isinstance(op, Read) and op.values is not None:
        values = list(op.values)
        change = rng.random()
        if change < 0.5 and values:
            del values[rng.randrange(len(values)) if rng.random() < 0.3 else -1]
        elif change < 0.7 and len(values) > 1:
            one, other = rng.sample(range(len(values)), 2)
            values[one], values[other] = values[other], values[one]
        elif change < 0.95:
            written = [
                x.value
                for t in history
                for x in t.ops
                if isinstance(x, Append) and x.key == op.key and x.value not in values
            ]
            values += rng.sample(written, min(len(written), 1))
        else:
            values.append(rng.choice((99, *values)))
        changed = Read(op.key, tuple(values)) if rng.random() < 0.95 else Read(op.key, None)
        ops = (*transaction.ops[:at], changed, *transaction.ops[at + 1 :])
        return [*history[:row], replace(transaction, ops=ops), *history[row + 1 :]]
    outcome = rng.choice(("committed", "unknown", "aborted"))
    return [*history[:row], replace(transaction, outcome=outcome), *history[row + 1 :]]


def _timed(rng: random.Random, history: History) -> History:
    """Returns the history with times and processes; the transactions of one process do not overlap."""
    span = rng.choice((2, 6, 30))
    free_at = {process: 0 for process in range(rng.randint(1, 4))}
    timed = []
    for moment, transaction in enumerate(history):
        process = rng.choice(sorted(free_at))
        invoked = max(free_at[process], moment * 5 + rng.randint(-span, span) + 40)
        completed = invoked + rng.randint(0, span)
        free_at[process] = completed + rng.randint(0, 2)
        is_open = transaction.outcome == "unknown" and rng.random() < 0.5
        timed.append(
            replace(
                transaction,
                process=process,
                invoked_ns=invoked,
                completed_ns=None if is_open else completed,
            )
        )
        if transaction.outcome == "unknown":
            # Its process ends with it.
            del free_at[process]
            free_at[max([process, *free_at]) + 10] = 0
    return timed


def _closing_read(history: History, keys: str) -> Transaction:
    """Returns a transaction that reads the longest version of every key, last of all."""
    end = max([t.completed_ns or 0 for t in history] + [t.invoked_ns for t in history])
    longest = {key: () for key in keys}
    for transaction in history:
        for op in transaction.ops:
            if isinstance(op, Read) and op.values and len(op.values) > len(longest[str(op.key)]):
                longest[str(op.key)] = op.values
    missing = {
        key: tuple(
            op.value
            for t in history
            if t.outcome == "committed"
            for op in t.ops
            if isinstance(op, Append) and op.key == key and op.value not in longest[key]
        )
        for key in keys
    }
    return Transaction(
        id=len(history),
        process=900,
        ops=tuple(Read(key, (*longest[key], *missing[key])) for key in keys),
        invoked_ns=end + 10,
        completed_ns=end + 20,
    )


LEVELS_BY_EXECUTION = (
    (0, "serializable"),
    (1, "strong-session-serializable"),
    (2, "strong-serializable"),
)


def list_differences(history: History) -> list[str]:
    """Returns in which points kernel and oracle differ about a history of lists; empty if they agree."""
    report = check_list_append(transactions_of(history))
    ids = {finding.id for finding in report.findings}
    differences = []

    def compare(what: str, expected: object, found: object) -> None:
        if expected != found:
            differences.append(f"{what}: oracle {expected}, kernel {found}")

    for strength, level in LEVELS_BY_EXECUTION:
        holds = not any(breaks(identifier, level) for identifier in ids)
        compare(level, oracle.is_serializable(history, strength), holds)
    versions = oracle.versions_of(history)
    is_contradictory = bool(ids & {"incompatible-order", "duplicate-elements", "phantom-value"})
    compare("reads contradict each other", versions.is_broken, is_contradictory)
    if not versions.is_broken:
        for level, with_reads in (("read-uncommitted", False), ("read-committed", True)):
            promised = check_list_append(transactions_of(history), promise=level)
            holds = not any(breaks(finding.id, level) for finding in promised.findings)
            compare(level, oracle.is_read_committed(history, with_reads=with_reads), holds)
        edges = oracle.list_edges_by_definition(history) | oracle.order_edges(history)
        expected = oracle.cycles_by_enumeration(edges, circular_reads=False)
        bases = tuple(oracle.CYCLES)
        compare("cycles", sorted(expected), sorted(x for x in ids if x.startswith(bases)))
    return differences


# --- logs ---


def random_logs(rng: random.Random) -> History:
    """Returns a history of up to four transactions on two partitions, and sometimes closing reads."""
    keys = "ab"[: rng.choice((1, 2, 2))]
    count = rng.randint(1, 4)
    outcomes = [rng.choice(("committed",) * 6 + ("unknown", "aborted")) for _ in range(count)]
    logs: dict[str, list[tuple[str, int, int]]] = {key: [] for key in keys}
    sender: dict[tuple[str, int], int] = {}
    end = dict.fromkeys(keys, 0)
    done: set[int] = set()
    hides_open = rng.random() < 0.6
    position: dict[tuple[int, str], int] = {}
    ops: list[list[MicroOperation]] = [[] for _ in range(count)]
    plan = [row for row in range(count) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.5:
        rng.shuffle(plan)
    for at, row in enumerate(plan):
        key = rng.choice(keys)
        kind = rng.random()
        if kind < 0.5:
            end[key] += rng.choice((0, 0, 0, 1))
            value = at + 1
            logs[key].append((key, end[key], value))
            sender[key, value] = row
            ops[row].append(Append(key, value, end[key] if rng.random() < 0.8 else None))
            end[key] += 1
        elif kind < 0.9:
            start = position.get((row, key), rng.choice((0, 0, end[key])))
            visible = [
                record
                for record in logs[key]
                if record[1] >= start
                and (
                    not hides_open
                    or (
                        sender[key, record[2]] in done
                        and outcomes[sender[key, record[2]]] != "aborted"
                    )
                )
            ][: rng.randint(1, 3)]
            if visible:
                position[row, key] = visible[-1][1] + 1
            ops[row].append(Poll(tuple(visible)))
        else:
            ops[row].append(CommitOffset(key, position.get((row, key), rng.randint(0, end[key]))))
        if row not in plan[at + 1 :]:
            done.add(row)
    history = [
        Transaction(
            id=row, ops=tuple(ops[row]), outcome=outcomes[row], group=rng.choice((None, 1, 1))
        )
        for row in range(count)
    ]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        history = _mutated_log(rng, history)
    history = _timed(rng, history)
    history = [_with_commit_time(rng, transaction) for transaction in history]
    if rng.random() < 0.5:
        history.append(_closing_polls(rng, history, logs))
    rng.shuffle(history)
    return history


def _with_commit_time(rng: random.Random, transaction: Transaction) -> Transaction:
    limit = transaction.invoked_ns + 9
    if transaction.completed_ns is not None:
        limit = transaction.completed_ns
    at = rng.randint(transaction.invoked_ns, limit)
    session = rng.choice((None, 50, 50, 50, -1))
    return replace(transaction, commit_invoked_ns=rng.choice((None, at)), session=session)


def _closing_polls(
    rng: random.Random, history: History, logs: dict[str, list[tuple[str, int, int]]]
) -> Transaction:
    end = max([t.completed_ns or 0 for t in history] + [t.invoked_ns for t in history])
    aborted = {
        (op.key, op.value)
        for t in history
        if t.outcome == "aborted"
        for op in t.ops
        if isinstance(op, Append)
    }
    records = [
        record
        for log in logs.values()
        for record in log
        if (record[0], record[2]) not in aborted and rng.random() < 0.95
    ]
    start = end + rng.choice((10, 10, -5))
    return Transaction(
        id=len(history),
        process=900,
        ops=(Poll(tuple(records)),),
        invoked_ns=max(start, 0),
        completed_ns=max(start, 0) + 10,
        is_final=True,
    )


def _mutated_log(rng: random.Random, history: History) -> History:
    row = rng.randrange(len(history))
    transaction = history[row]
    at = rng.randrange(len(transaction.ops))
    op: MicroOperation = transaction.ops[at]
    if isinstance(op, Poll) and op.records:
        records = list(op.records)
        change = rng.random()
        place = rng.randrange(len(records))
        key, offset, value = records[place]
        if change < 0.3:
            del records[place]
        elif change < 0.5:
            rng.shuffle(records)
        elif change < 0.7:
            records[place] = (key, offset + rng.choice((-1, 1)), value)
        elif change < 0.9:
            records[place] = (key, offset, rng.choice((1, 2, 3, 99)))
        else:
            records.append(records[place])
        op = Poll(tuple(records))
    elif isinstance(op, Append) and op.offset is not None:
        op = replace(op, offset=op.offset + rng.choice((-1, 1, 2)))
    else:
        outcome = rng.choice(("committed", "unknown", "aborted"))
        changed = replace(transaction, outcome=outcome)
        return [*history[:row], changed, *history[row + 1 :]]
    ops = (*transaction.ops[:at], op, *transaction.ops[at + 1 :])
    return [*history[:row], replace(transaction, ops=ops), *history[row + 1 :]]


def log_differences(history: History) -> list[str]:
    """Returns in which points kernel and oracle differ about a history of logs; empty if they agree."""
    differences = []
    for promise, is_read_committed in (
        ("kafka-read-committed", True),
        ("kafka-read-uncommitted", False),
    ):
        report = check_log_transactions(transactions_of(history), promise=promise)
        found = {finding.id: finding.count for finding in report.findings}
        expected = log_oracle.anomalies(history, is_read_committed=is_read_committed)
        cycles = tuple(oracle.CYCLES)
        counted = {name: count for name, count in found.items() if not name.startswith(cycles)}
        if counted != expected.counts:
            differences.append(f"{promise}: oracle {expected.counts}, kernel {counted}")
        found_cycles = sorted(name for name in found if name.startswith(cycles))
        if found_cycles != sorted(expected.cycles):
            differences.append(
                f"{promise}: cycles: oracle {sorted(expected.cycles)}, kernel {found_cycles}"
            )
    return differences


KINDS: dict[str, tuple[Callable[[random.Random], History], Callable[[History], list[str]]]] = {
    "lists": (random_lists, list_differences),
    "logs": (random_logs, log_differences),
}


def history_of(kind: str, seed: int, number: int) -> History:
    """Returns one of the histories of a seed."""
    return KINDS[kind][0](random.Random(f"{kind}/{seed}/{number}"))


def main() -> int:
    """Runs the slow comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for number in range(arguments.first, arguments.histories):
        history = history_of(arguments.kind, arguments.seed, number)
        differences = KINDS[arguments.kind][1](history)
        if differences:
            print(f"history {number}:")
            for transaction in sorted(history, key=lambda t: t.id):
                print(f"  {transaction}")
            print("\n".join(differences))
            return 1
        if (number + 1) % PROGRESS_EVERY == 0:
            print(f"{number + 1} histories; continue with --first {number + 1}", flush=True)
    print(f"{arguments.histories} histories, no disagreement")
    return 0


if __name__ == "__main__":
    sys.exit(main())
