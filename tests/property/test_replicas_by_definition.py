"""High watermarks that went back, and log ends that did: row by row from the definitions."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.replicas import (
    LeaderStates,
    LoweredHighWatermark,
    SeenRegression,
    registrations,
    restarts_of,
    seen_regressions,
)
from tests.anomalies.runs import broker, replica, table
from tests.property.brute_force import Call, ends_table, operations_table

CASES = 400
Row = dict[str, Any]


def random_states(rng: random.Random) -> tuple[list[Row], list[Row]]:
    """Returns rows of `replica_states`, in order of time, and of `broker_states`, in any order."""
    states, now = [], 0
    for _ in range(rng.randint(0, 12)):
        now += rng.choice((0, 1, 2))
        down = rng.random() < 0.1
        states.append(
            replica(
                now,
                rng.choice((1, 2)),
                9,
                hw=rng.choice((-1, 0, 1, 2, 3)),
                epoch=rng.choice((0, 0, 1)),
                role="offline" if down else rng.choice(("leader", "leader", "leader", "follower")),
                cause="down"
                if down
                else rng.choice(("append", "append", "append", "load", "role")),
            )
        )
    changes = [
        broker(rng.randint(0, now), rng.choice((1, 2, 3)), rng.choice(("registered", "fenced")))
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    return states, changes


def is_restart(row: Row) -> bool:
    return row["role"] == "offline" or row["cause"] in ("down", "load")


def lowered(states: list[Row], changes: list[Row], error: int) -> list[LoweredHighWatermark]:
    found = []
    highest: dict[tuple[int, int, int], int] = {}
    restarts = {1: 0, 2: 0}
    lives = []
    for row in states:
        b, mark = row["broker"], int(row["high_watermark"])
        restarts[b] += is_restart(row)
        mine = [c for c in changes if c["broker"] == b and c["change"] == "registered"]
        registered = sum(c["at_ns"] <= row["at_ns"] for c in mine)
        # A registration may have been before or after a state that the clocks do not tell from it.
        is_near = any(row["at_ns"] - error < c["at_ns"] <= row["at_ns"] + error for c in mine)
        if row["role"] != "leader" or is_near:
            continue
        # The sum tells lives apart: neither count ever falls.
        lives.append((row["at_ns"], mark, (b, row["leader_epoch"], restarts[b] + registered), row))
    # At one moment the smaller of two high watermarks was there first.
    for _, mark, leader, row in sorted(lives, key=lambda life: life[:2]):
        if mark < highest.get(leader, -1):
            found.append(
                LoweredHighWatermark(
                    node=row["node"],
                    leader_epoch=row["leader_epoch"],
                    before=highest[leader],
                    after=mark,
                    at_ns=row["at_ns"],
                )
            )
        highest[leader] = max(mark, highest.get(leader, -1))
    return found


@pytest.mark.parametrize("part", range(4))
def test_high_watermarks_that_went_back_in_one_life_of_a_leader(part: int) -> None:
    for number in range(part * CASES // 4, (part + 1) * CASES // 4):
        rng = random.Random(f"marks/{number}")
        states, changes = random_states(rng)
        registered = registrations(table("broker_states", changes))
        error = rng.choice((0, 0, 1, 2))
        follower = LeaderStates(registered, error)
        moments = [row["at_ns"] for row in states]
        cut = moments.index(rng.choice(moments)) if moments else 0
        for piece in (states[:cut], states[cut:]):
            follower.follow(table("replica_states", piece))
        key = repr
        assert sorted(follower.lowered, key=key) == sorted(lowered(states, changes, error), key=key)
        restarted: dict[str, list[int]] = {}
        for change in changes:
            if change["change"] == "registered":
                restarted.setdefault(f"b{change['broker']}", []).append(change["at_ns"])
        for row in states:
            if is_restart(row):
                restarted.setdefault(row["node"], []).append(row["at_ns"])
        found = restarts_of(table("replica_states", states), registered)
        assert {node: times.tolist() for node, times in found.items()} == {
            node: sorted(times) for node, times in restarted.items()
        }


def random_observations(rng: random.Random) -> tuple[list[Call], pa.Table]:
    calls = []
    for op in range(rng.randint(0, 9)):
        inv = rng.randint(0, 20)
        res = inv + rng.randint(1, 6)
        kind = rng.choice(("latest", "poll"))
        call = Call(op=op, kind=kind, process=op, inv=inv, res=res)
        end = rng.randint(0, 3)
        calls.append(replace(call, offset=end) if kind == "latest" else replace(call, end=end))
    seen = ends_table(calls).to_pylist()
    for row in seen:
        row |= {
            "node": rng.choice(("b1", "b1", "b2", "")),
            "leader_epoch": rng.choice((-1, 0, 0, 1)),
        }
    calls = [replace(c, outcome="info", res=None) if rng.random() < 0.1 else c for c in calls]
    rng.shuffle(calls)
    rng.shuffle(seen)
    return calls, pa.Table.from_pylist(seen, schema=ends_table([]).schema)


def regressions(
    calls: list[Call], seen: pa.Table, restarts: dict[str, list[int]], error: int
) -> list[SeenRegression]:
    by_op = {call.op: call for call in calls}
    lives = []
    for row in seen.to_pylist():
        call = by_op[row["op_index"]]
        if call.outcome != "ok" or row["leader_epoch"] < 0 or not row["node"]:
            continue
        assert call.res is not None
        times = restarts.get(row["node"], [])
        life = sum(at < call.inv - error for at in times)
        if not any(call.inv - error <= at <= call.res + error for at in times):
            lives.append(((row["node"], row["leader_epoch"], life), row["end_offset"], call))
    found = []
    for leader, end, call in lives:
        before = [
            (other_end, other)
            for other_leader, other_end, other in lives
            if other_leader == leader and (other.res or 0) + error < call.inv
        ]
        largest = max((other_end for other_end, _ in before), default=-1)
        if end < largest:
            first = min((o for e, o in before if e == largest), key=lambda o: o.res or 0)
            found.append(
                SeenRegression(
                    node=leader[0],
                    leader_epoch=leader[1],
                    first=first.op,
                    first_end=largest,
                    second=call.op,
                    second_end=end,
                    gap_ns=call.inv - (first.res or 0) - error,
                )
            )
    return sorted(found, key=lambda each: each.second)


@pytest.mark.parametrize("part", range(4))
def test_log_ends_of_one_leader_that_went_back(part: int) -> None:
    for number in range(part * CASES // 4, (part + 1) * CASES // 4):
        rng = random.Random(f"ends/{number}")
        calls, seen = random_observations(rng)
        restarts = {"b1": sorted(rng.sample(range(25), rng.choice((0, 1, 2))))}
        error = rng.choice((0, 2))
        found = seen_regressions(
            operations_table(calls),
            seen,
            {node: np.array(times, dtype=np.int64) for node, times in restarts.items()},
            clock_error_ns=error,
        )
        expected = regressions(calls, seen, restarts, error)
        # Of several operations that ended at one moment with the largest end, any may be named.
        unnamed = [replace(each, first=-1) for each in found]
        assert unnamed == [replace(each, first=-1) for each in expected]
        done = {call.op: call.res for call in calls}
        assert [done[each.first] for each in found] == [done[each.first] for each in expected]
