"""What the kernel knows of replicas' logs is what a replay of every row gives."""

import random

import numpy as np
import pytest

from checkers.kernels.leader_terms import Records
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.replica_logs import Moment, ReplicaLogs
from tests.anomalies.runs import replica, table
from tests.property.naive_replica_logs import NaiveLogs, Row

LOGS = 180
BROKERS = (1, 2, 3)


def random_rows(rng: random.Random) -> list[Row]:
    """Returns rows of replicas that lead, follow, copy, cut and restart at random; some rows are in one moment."""
    ends = dict.fromkeys(BROKERS, 0)
    roles = dict.fromkeys(BROKERS, "follower")
    epochs = dict.fromkeys(BROKERS, 0)
    rows, now, epoch = [], 0, 0
    reported: dict[int, int] = {}
    """The largest log end that the leader of each epoch reported."""
    is_whole = rng.random() < 0.9
    """Whether followers copy only what leaders reported."""
    for _ in range(rng.randint(1, 25)):
        now += rng.choice((0, 1, 2))
        b = rng.choice(BROKERS)
        cause = rng.choice(
            ("append", "append", "replicate", "replicate", "role", "truncate", "load", "down")
        )
        if cause == "role":
            if rng.random() < 0.5:
                epoch += rng.choice((0, 1, 2))
                roles[b] = "leader"
            else:
                roles[b] = "follower"
            epochs[b] = rng.randint(epochs[b], epoch)
            epochs[b] = epoch if roles[b] == "leader" else epochs[b]
        elif cause == "down":
            roles[b] = "offline"
        elif cause == "truncate":
            # A log that was cut while its process was down does not grow again before it is loaded.
            ends[b] = ends[b] if roles[b] == "offline" else rng.randint(0, ends[b])
        elif cause == "load":
            roles[b] = "follower"
            ends[b] = max(0, ends[b] + rng.choice((-1, 0, 2)))
        elif cause == "append" and roles[b] == "leader":
            ends[b] += rng.choice((0, 1, 3))
        else:
            cause = "replicate"
            epochs[b] = rng.choice((epochs[b], max(epochs[b], epoch)))
            more = rng.choice((0, 1, 2))
            if is_whole:
                more = min(more, max(reported.get(epochs[b], 0) - ends[b], 0))
            ends[b] += more
        end = -1 if rng.random() < 0.05 else ends[b]
        if roles[b] == "leader":
            reported[epochs[b]] = max(end, reported.get(epochs[b], end))
        mark = rng.randint(0, max(ends[b], 0))
        rows.append(replica(now, b, end, hw=mark, epoch=epochs[b], role=roles[b], cause=cause))
    return rows


def one(value: int) -> np.ndarray:
    return np.array([value], dtype=np.int64)


@pytest.mark.parametrize("part", range(12))
def test_the_kernel_agrees_with_a_replay(part: int) -> None:
    for number in range(part * LOGS // 12, (part + 1) * LOGS // 12):
        rng = random.Random(f"logs/{number}")
        rows = random_rows(rng)
        if rng.random() < 0.3:
            # Somebody looks now and then and does not see when a leader appends.
            for row in rows:
                row["cause"] = "observed" if row["cause"] == "append" else row["cause"]
        logs, naive = ReplicaLogs(table("replica_states", rows)), NaiveLogs(rows)
        cuts = [(c.at_ns, c.epoch, c.broker, c.end_offset, c.end_before) for c in logs.self_cuts]
        assert sorted(cuts) == naive.self_cuts()
        assert bool(logs) == bool(naive.replicas)
        assert logs.last_leader == (naive.reigns[-1].broker if naive.reigns else -1)
        for _ in range(60):
            compare(rng, logs, naive, rows[-1]["at_ns"])


def compare(rng: random.Random, logs: ReplicaLogs, naive: NaiveLogs, end_ns: int) -> None:
    """Asks both for the same random things."""
    b, offset = rng.choice((1, 2, 3, 4)), rng.randint(0, 9)
    at, since = sorted((rng.randint(-1, end_ns + 1), rng.randint(-1, end_ns + 1)))[::-1]
    epochs = sorted((rng.randint(0, 5), rng.randint(0, 5)))
    low, high = rng.choice(((-1, ANY_EPOCH), (epochs[0], epochs[0]), tuple(epochs)))
    record = (one(offset), one(low), one(high))
    assert logs.end_at(b, at) == naive.end_at(b, at)
    election = Moment(broker=b, at_ns=at, epoch=rng.randint(0, 5))
    wanted = Records(offset=record[0], low_epoch=record[1], high_epoch=record[2], by_ns=one(since))
    lacks, has = (
        bool(known[0])
        for known in (logs.lacks(election, wanted), logs.certainly_has(election, wanted))
    )
    assert logs.has_all_changes == naive.has_all_changes
    if naive.has_all_changes:
        assert lacks == naive.lacks(b, at, election.epoch, offset, low, high)
        assert has == naive.certainly_has(b, at, election.epoch, offset, low, high, since)
    else:
        assert lacks == naive.lacks_later(b, at, election.epoch, offset, low, high)
        assert has == naive.had_before_and_after(b, at, offset, low, high)
    writes = naive.writes_at(offset)
    assert logs.terms.writes_at(offset) == writes
    writers = [epoch for epoch, at_ns in writes if since <= at_ns <= at]
    hint = rng.choice((-1, *epochs))
    found = tuple(
        int(x[0]) for x in logs.terms.writers(one(offset), one(since), one(at), one(hint))
    )
    known = writers if naive.has_all_changes else []
    several = (min(known), max(known)) if known else (ANY_EPOCH, -1)
    assert found == ((hint, hint) if hint in known else several)
    starts = [rng.randint(0, end_ns + 1) for _ in range(rng.choice((0, 1, 2)))]
    started_ns = np.array(starts, dtype=np.int64)
    assert logs.was_down(b, since, at, started_ns) == naive.was_down(b, since, at, starts)
    assert logs.terms.written(since, at) == naive.written(since, at)
    term = rng.randint(-1, 5)
    assert int(logs.terms.written_in_terms(one(term), one(offset))[0]) == naive.written_in_term(
        term, offset
    )
    last_ns = int(logs.terms.last_written_ns(one(hint), one(offset), one(at))[0])
    assert last_ns == naive.last_written_ns(hint, offset, at)
    may_have_had = bool(logs.terms.may_have_had(one(hint), one(offset))[0])
    assert may_have_had == naive.may_have_had(hint, offset)
    for written, seen in ((since, since), (at, at), (since, at)):
        passed = logs.terms.passed(*record, one(since), one(written), one(seen))
        found = (passed.perhaps_ns, passed.at_ns, passed.epoch)
        expected = naive.passed(offset, low, high, since, written, seen)
        assert tuple(int(x[0]) for x in found) == expected
    by = rng.choice((-1, *epochs))
    served = logs.terms.served(one(offset), one(since), one(at), one(by))
    assert tuple(int(x[0]) for x in served) == naive.served(offset, since, at, by)
