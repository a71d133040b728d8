"""How long the kernels for transactions take on synthetic list-append histories.

`python -m benchmarks.bench_transactions --micro-operations 100000 1000000`
"""

import argparse
import json
import sys
import time

import numpy as np

from checkers.kernels.history import ABSENT
from checkers.kernels.transactions.check import check_list_append
from checkers.kernels.transactions.columns import READ, WRITE, Transactions

OPS_PER_TRANSACTION = 3
KEYS_IN_USE = 10
VALUES_PER_KEY = 100
CONCURRENT = 20


def valid_history(micro_operations: int, seed: int = 1) -> Transactions:
    """Returns transactions that ran one after the other, while their clients overlapped.

    Half of the micro-operations append, half read. A key is used until it holds `VALUES_PER_KEY` values, then a
    new one takes its place.
    """
    rng = np.random.default_rng(seed)
    count = micro_operations // OPS_PER_TRANSACTION
    total = count * OPS_PER_TRANSACTION
    is_write = rng.random(total) < 0.5
    slot = rng.integers(0, KEYS_IN_USE, total)
    length = np.empty(total, dtype=np.int64)
    key = np.empty(total, dtype=np.int64)
    for number in range(KEYS_IN_USE):
        mine = np.flatnonzero(slot == number)
        appends = np.cumsum(is_write[mine])
        generation = np.maximum(appends - is_write[mine], 0) // VALUES_PER_KEY
        key[mine] = generation * KEYS_IN_USE + number
        length[mine] = appends - generation * VALUES_PER_KEY
    op_count = np.where(is_write, 1, length)
    begin = np.cumsum(op_count) - op_count
    place = np.arange(int(op_count.sum())) - np.repeat(begin, op_count)
    value = np.where(np.repeat(is_write, op_count), np.repeat(length, op_count), place + 1)
    moment = (np.arange(count) + CONCURRENT) * 1000
    process = np.arange(count) % (3 * CONCURRENT)
    invoked = moment - rng.integers(0, CONCURRENT * 1000, count)
    return Transactions(
        id=np.arange(count),
        process=process,
        invoked_ns=invoked,
        completed_ns=moment + rng.integers(1, CONCURRENT * 1000, count),
        commit_invoked_ns=invoked,
        ended_event=np.full(count, ABSENT),
        session=process,
        group=np.full(count, ABSENT),
        is_final=np.zeros(count, dtype=np.bool_),
        outcome=np.zeros(count, dtype=np.int8),
        op_transaction=np.repeat(np.arange(count), OPS_PER_TRANSACTION),
        op_number=np.tile(np.arange(OPS_PER_TRANSACTION), count),
        op_kind=np.where(is_write, WRITE, READ).astype(np.int8),
        op_key=key,
        op_is_known=np.ones(total, dtype=np.bool_),
        op_count=op_count,
        element_value=value,
        element_offset=np.full(len(value), ABSENT),
        key_names=tuple(str(name) for name in range(int(key.max(initial=0)) + 1)),
    )


def shortened(t: Transactions, count: np.ndarray) -> Transactions:
    """Returns the history with reads that return fewer values.

    Args:
        t: The history.
        count: How many elements every micro-operation has left.
    """
    begin = np.cumsum(count) - count
    kept = np.arange(int(count.sum())) + np.repeat(t.op_start[:-1] - begin, count)
    columns = {name: getattr(t, name) for name in Transactions.__slots__}
    columns |= {
        "op_count": count,
        "element_value": t.element_value[kept],
        "element_offset": t.element_offset[kept],
    }
    return Transactions(**columns)


def histories(micro_operations: int) -> dict[str, Transactions]:
    """Returns what is measured, by name."""
    valid = valid_history(micro_operations)
    long = np.flatnonzero((valid.op_kind == READ) & (valid.op_count > VALUES_PER_KEY // 2))
    one = valid.op_count.copy()
    one[long[len(long) // 2]] -= 5
    rng = np.random.default_rng(2)
    share = np.where(valid.op_kind == READ, rng.random(len(one)), 1.0)
    return {
        "valid": valid,
        "one stale read": shortened(valid, one),
        "stale reads everywhere": shortened(valid, (valid.op_count * share).astype(np.int64)),
    }


def main() -> int:
    """Prints one line of JSON per history."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--micro-operations", type=int, nargs="+", default=[100_000, 1_000_000])
    arguments = parser.parse_args()
    for size in arguments.micro_operations:
        for name, history in histories(size).items():
            start = time.process_time()
            report = check_list_append(history)
            row = {
                "history": name,
                "micro_operations": len(history.op_kind),
                "values": len(history.element_value),
                "cpu_s": round(time.process_time() - start, 2),
                "found": [finding.id for finding in report.findings],
                "transactions_in_cycles": report.coverage["transactions_in_cycles"],
                "unknown": len(report.unknown_reasons),
            }
            print(json.dumps(row), flush=True)
            if (name == "valid") != (not report.findings):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
