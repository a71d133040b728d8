"""Whether a flagged election was lawful, step by step from the rules in `checkers.kernels.elections`."""

import random
from itertools import pairwise
from typing import Any

import pytest

from checkers.kernels.elections import Elections
from checkers.kernels.history import INF_NS
from tests.anomalies.runs import broker, fault, replica, state, table
from tests.parts import parts

CASES = 480
BROKERS = (1, 2, 3)
Row = dict[str, Any]


def random_run(rng: random.Random) -> tuple[list[Row], list[Row], list[Row]]:
    """Returns partition states, broker states and faults."""
    states: list[Row] = []
    min_isr, replicas = rng.choice((1, 2, 2)), [1, 2, 3]
    isr, elr = set(BROKERS), set[int]()
    for number in range(rng.randint(1, 6)):
        if number and rng.random() < 0.3:
            # The last-known leader is elected only if nobody is left.
            isr, elr = set(), set()
        elif number:
            gone = {b for b in isr if rng.random() < 0.5}
            isr = isr - gone or {rng.choice(BROKERS)}
            elr = {b for b in (elr | gone) - isr if rng.random() < 0.4}
        if rng.random() < 0.04:
            min_isr = 3 - min_isr
        if rng.random() < 0.04:
            replicas = [*replicas, 4]
        row = state(
            10 * number,
            rng.choice(BROKERS),
            sorted(isr),
            epoch=number,
            flagged=number > 0 and rng.random() < 0.5,
            elr=sorted(elr),
            last_known_elr=rng.choice(([], [], [], [rng.choice(BROKERS)])),
            min_isr=min_isr,
            replicas=replicas,
            metadata_offset=number,
        )
        states.append(row)
    brokers = []
    for number in range(rng.randint(1, 9)):
        changes = ("registered", "unregistered", "fenced", "unfenced")
        change = rng.choices(changes, (8, 1, 1, 2))[0]
        row = broker(rng.randint(0, 60), rng.choice(BROKERS), change, clean=rng.random() < 0.4)
        brokers.append(row | {"metadata_offset": number})
    faults = []
    for _ in range(rng.randint(0, 4)):
        node = f"b{rng.choice(BROKERS)}"
        at = rng.randint(0, 50)
        healed = rng.choice((None, at + rng.randint(0, 20)))
        row = fault(at, "cut", rng.choice(([node], [node], [])), healed=healed)
        kind = rng.choice(("unclean_end", "broken_disk", "cut_short", "none"))
        row |= {"unclean_end": kind == "unclean_end", "broken_disk": kind == "broken_disk"}
        row |= {"cut_short": [node] if kind == "cut_short" else ["b9"]}
        row |= {"elects_uncleanly": rng.choice(([], [], ["t-1"], ["t-0"], ["t-1", "t-0"]))}
        row |= {"completed_ns": rng.choice((at, at, at + 12, None))}
        row |= {"took_effect": rng.random() < 0.7}
        faults.append(row)
    return states, brokers, faults


NO, PERHAPS, YES = 0, 1, 2


def is_requested(states: list[Row], at: int, _: list[Row], faults: list[Row]) -> int:
    """Whether an administrator requested the election in a row.

    It is the first one since a request. If it is not, and all before it have no flag and were during the request,
    it may be.
    """
    elected = [
        row
        for before, row in zip([{"leader": -1}, *states], states, strict=False)
        if row["leader"] != before["leader"] or row["flagged"]
    ]
    found = NO
    for one in faults:
        if "t-0" not in one["elects_uncleanly"] or states[at]["at_ns"] < one["invoked_ns"]:
            continue
        end_ns = INF_NS if one["completed_ns"] is None else one["completed_ns"]
        before = [row for row in elected if one["invoked_ns"] <= row["at_ns"] < states[at]["at_ns"]]
        if not any(row["flagged"] or row["at_ns"] >= end_ns for row in before):
            found = max(found, PERHAPS if before else YES)
    return found


def is_lawful(states: list[Row], at: int, brokers: list[Row], faults: list[Row]) -> int:
    """Whether an election was lawful with ELR on and unclean elections off."""
    requested, allowed = (rule(states, at, brokers, faults) for rule in (is_requested, is_allowed))
    if requested == YES:
        return allowed
    # Perhaps the faults without a known effect had one.
    effective = [row | {"took_effect": True} for row in faults]
    found = YES if is_unavoidable(states, at, brokers, faults) else NO
    found = max(found, PERHAPS if is_unavoidable(states, at, brokers, effective) else NO)
    if not is_last_known(states, at, brokers):
        found = NO
    return min(allowed, max(requested, found))


def is_last_known(states: list[Row], at: int, brokers: list[Row]) -> bool:
    """Whether nobody was left in ISR and ELR, and the last-known leader was elected."""
    before, row = states[at - 1], states[at]
    if (before["replicas"], before["min_isr"]) != (row["replicas"], row["min_isr"]):
        return True
    for member in {*before["isr"], *before["elr"]} & {*row["replicas"]}:
        now = [
            change["change"] == "unregistered" or not change["clean"]
            for change in brokers
            if change["broker"] == member
            and change["at_ns"] == row["at_ns"]
            and change["change"] in ("registered", "unregistered")
        ]
        if not any(now):
            return False
    return before["last_known_elr"] in ([], [row["leader"]])


def is_allowed(states: list[Row], at: int, brokers: list[Row], faults: list[Row]) -> int:
    """Whether no member of ISR and ELR was active: it would be elected, even if unclean elections are allowed."""
    moment_ns = states[at]["at_ns"]
    active = []
    for member in {*states[at - 1]["isr"], *states[at - 1]["elr"]} & {*states[at]["replicas"]}:
        changes = [row for row in brokers if row["broker"] == member and row["at_ns"] <= moment_ns]
        before = [row["change"] for row in changes if row["at_ns"] < moment_ns]
        if len(before) == len(changes) and before[-1:] == ["unfenced"]:
            active.append(member)
    if not active:
        return YES
    # Their log directories may be offline.
    return PERHAPS if all(is_broken(b, moment_ns, brokers, faults) for b in active) else NO


def is_broken(b: int, moment_ns: int, brokers: list[Row], faults: list[Row]) -> bool:
    registered_ns = [
        row["at_ns"]
        for row in brokers
        if row["broker"] == b and row["change"] == "registered" and row["at_ns"] <= moment_ns
    ]
    return any(
        row["broken_disk"]
        and f"b{b}" in row["resolved"]
        and row["invoked_ns"] <= moment_ns
        and (row["healed_ns"] is None or all(row["healed_ns"] >= at_ns for at_ns in registered_ns))
        for row in faults
    )


def is_unavoidable(states: list[Row], at: int, brokers: list[Row], faults: list[Row]) -> bool:
    full = [row for row in states[:at] if len(row["isr"]) >= row["min_isr"]]
    if not full:
        return True
    span = states[states.index(full[-1]) : at + 1]
    if len({(row["min_isr"], tuple(row["replicas"])) for row in span}) > 1:
        return True
    left = set()
    for before, after in pairwise(span):
        for b in {*before["isr"], *before["elr"]} - {*after["isr"], *after["elr"]}:
            for change in brokers:
                in_time = span[0]["at_ns"] <= change["at_ns"] <= after["at_ns"]
                if change["broker"] == b and in_time and left_uncleanly(change, brokers, faults):
                    left.add(b)
    return len(left) >= span[0]["min_isr"]


def left_uncleanly(change: Row, brokers: list[Row], faults: list[Row]) -> bool:
    if change["change"] != "registered" or change["clean"]:
        return bool(change["change"] == "unregistered")
    since = max(
        (
            row["at_ns"]
            for row in brokers
            if row["broker"] == change["broker"]
            and row["change"] == "registered"
            and row["clean"]
            and row["metadata_offset"] < change["metadata_offset"]
        ),
        default=-INF_NS,
    )
    node = f"b{change['broker']}"
    return any(
        node in row["resolved"] and explains(row, node, since, change["at_ns"]) for row in faults
    )


def explains(row: Row, node: str, since_ns: int, to_ns: int) -> bool:
    if not (row["took_effect"] or node in row["cut_short"]):
        return False
    was_over = row["healed_ns"] is not None and row["healed_ns"] <= since_ns
    if row["broken_disk"] and row["invoked_ns"] <= to_ns and not was_over:
        return True
    ends_it = row["unclean_end"] or node in row["cut_short"]
    end_ns = INF_NS if row["completed_ns"] is None else row["completed_ns"]
    return bool(ends_it and row["invoked_ns"] <= to_ns and end_ns >= since_ns)


@pytest.mark.parametrize("part", parts(range(6), quick=2))
@pytest.mark.parametrize(
    ("elr_on", "unclean", "has_brokers"),
    [
        (True, False, True),
        (False, False, True),
        (True, True, True),
        (False, True, True),
        (True, False, False),
    ],
)
def test_a_flagged_election_is_lawful_as_the_configuration_says(
    part: int, elr_on: bool, unclean: bool, has_brokers: bool
) -> None:
    if unclean:
        rule, outcomes = is_allowed, {NO, PERHAPS, YES}
    elif not elr_on:
        rule, outcomes = (
            (
                lambda states, at, brokers, faults: min(
                    is_requested(states, at, brokers, faults),
                    is_allowed(states, at, brokers, faults),
                )
            ),
            {NO, PERHAPS, YES},
        )
    elif has_brokers:
        rule, outcomes = is_lawful, {NO, PERHAPS, YES}
    else:
        rule, outcomes = (lambda *_: YES), {YES}
    found = []
    for number in range(part * CASES // 6, (part + 1) * CASES // 6):
        rng = random.Random(f"lawful/{number}")
        states, brokers, faults = random_run(rng)
        brokers = brokers if has_brokers else []
        elections = Elections(
            table("partition_states", rng.sample(states, len(states))),
            table("replica_states", [replica(0, b, 0) for b in BROKERS if rng.random() < 0.5]),
            table("broker_states", rng.sample(brokers, len(brokers))),
            table("faults", faults),
            elr_on=elr_on,
            unclean_election_enabled=unclean,
        )
        lawful = {
            e.leader_epoch: YES if e.excuses else PERHAPS if e.may_excuse else NO
            for e in elections.elections
            if e.is_flagged
        }
        assert lawful == {
            row["leader_epoch"]: rule(states, at, brokers, faults)
            for at, row in enumerate(states)
            if row["flagged"]
        }, f"case {number}: {states} {brokers} {faults}"
        assert all(
            bool(e.reason) == (e.is_undecided or not e.is_lawful) for e in elections.elections
        )
        found += lawful.values()
    assert outcomes - {PERHAPS} <= {*found} <= outcomes
