"""What the events of consumer groups show, event by event from the definitions."""

import random
from typing import Any

import numpy as np
import pytest

from checkers.kernels.consumer_group import (
    GroupFacts,
    Records,
    SecondOwner,
    group_facts,
    records_of,
)
from tests.anomalies.runs import table
from tests.property.test_findings_by_definition import history_of, records_table

HISTORIES = 600
INFINITY = float("inf")
Event = dict[str, Any]


def random_events(rng: random.Random) -> list[Event]:
    """Returns events of two groups; many commits are acknowledged late, and many offsets are small."""
    events: list[Event] = []
    for index in range(rng.randint(0, 16)):
        event = rng.choice(
            ("assigned", "revoked", "commit-sent", "commit-acknowledged", "committed-asked")
        )
        requests = [e["event_index"] for e in events if e["event"] == "committed-asked"]
        refers_to = -1
        if requests and rng.random() < 0.4:
            event, refers_to = "committed-seen", rng.choice((*requests, index - 1))
        events.append(
            {
                "event_index": index,
                "at_ns": 10 * index,
                "group": rng.choice(("g", "g", "h")),
                "process": rng.choice((1, 2, 3)),
                "topic": "t",
                "partition": 0,
                "event": event,
                "offset": rng.choice((-1, 0, 1, 2, 3)),
                "generation": rng.choice((-1, 0, 1, 1, 2)),
                "refers_to": refers_to,
            }
        )
    rng.shuffle(events)
    return events


Found = dict[str, Any]


def by_definition(group: str, events: list[Event]) -> Found:
    mine = sorted((e for e in events if e["group"] == group), key=lambda e: e["event_index"])
    reports = [e for e in mine if e["event"] == "committed-seen"]
    return {
        "group": group,
        "members": sorted({e["process"] for e in mine}),
        "committed": max([-1, *(p["offset"] for p in proofs(mine))]),
        "regressions": {
            e["event_index"]: found for e in reports if (found := contradicted_by(e, mine))
        },
        "unsent": [
            e["event_index"]
            for e in reports
            if e["offset"] >= 0 and not commits(mine, e["offset"], e["event_index"])
        ],
        "assignments": sum(e["event"] == "assigned" for e in mine),
        "commits": sum(e["event"] == "commit-acknowledged" for e in mine),
        "second_owners": second_owners(mine),
    }


def by_kernel(facts: GroupFacts) -> Found:
    """Returns the same of the kernel's facts."""
    register = facts.register
    return {
        "group": facts.group,
        "members": facts.members.tolist(),
        "committed": facts.committed,
        "regressions": {
            each.seen: register.proofs.end[register.contradicted_by(each)].tolist()
            for each in facts.regressions
        },
        "unsent": [each.seen for each in facts.unsent],
        "assignments": facts.assignments,
        "commits": facts.commits,
        "second_owners": list(facts.second_owners),
    }


def commits(mine: list[Event], offset: int, before: int) -> list[tuple[float, float]]:
    """Returns when commits of an offset began and ended that were sent before an event."""
    found = []
    for process in {e["process"] for e in mine}:
        same = [e for e in mine if (e["process"], e["offset"]) == (process, offset)]
        sent = [e["event_index"] for e in same if e["event"] == "commit-sent"]
        for ack in (e["event_index"] for e in same if e["event"] == "commit-acknowledged"):
            mine_before = [each for each in sent if each < ack]
            begin = max(mine_before, default=-1.0)
            sent = [each for each in sent if each != begin]
            found.append((begin, float(ack)))
        found += [(float(each), INFINITY) for each in sent]
    return [each for each in found if each[0] < before]


def proofs(mine: list[Event]) -> list[dict[str, Any]]:
    """Returns what proves that offsets are committed, in the order of the proofs' ends."""
    found = []
    requests = {e["event_index"] for e in mine if e["event"] == "committed-asked"}
    for e in mine:
        offset, index = e["offset"], e["event_index"]
        is_report = e["event"] == "committed-seen"
        if offset < 0 or not (is_report or e["event"] == "commit-acknowledged"):
            continue
        if is_report:
            begin = float(e["refers_to"]) if e["refers_to"] in requests else -1.0
        else:
            (begin,) = (b for b, end in commits(mine, offset, index) if end == index)
        every = commits(mine, offset, len(mine) * 100)
        begin = min(index, max(begin, min((b for b, _ in every), default=-1.0)))
        found.append({"offset": offset, "begin": begin, "end": index, "is_report": is_report})
    return found


def in_effect(mine: list[Event], offset: int, before: int) -> float | None:
    """Returns when every commit of an offset that was sent before an event had taken effect; None without any."""
    of_it = commits(mine, offset, before)
    if not of_it:
        return None
    shown = [p["end"] for p in proofs(mine) if p["is_report"] and p["offset"] == offset]
    last = max(end for _, end in of_it)
    return min([last, *shown]) if len(of_it) == 1 else last


def contradicted_by(report: Event, mine: list[Event]) -> list[int]:
    """Returns the ends of the proofs that a report contradicts."""
    asked, seen, offset = report["refers_to"], report["event_index"], report["offset"]
    if not any((e["event"], e["event_index"]) == ("committed-asked", asked) for e in mine):
        return []
    last = in_effect(mine, offset, seen) if offset >= 0 else None
    found = []
    for proof in proofs(mine):
        if proof["end"] < asked:
            if last is None:
                is_against = proof["offset"] > offset
            else:
                is_against = proof["offset"] != offset and proof["begin"] > last
        else:
            other = in_effect(mine, proof["offset"], proof["end"])
            is_against = (
                proof["is_report"]
                and proof["end"] < seen
                and proof["offset"] != offset
                and last is not None
                and other is not None
                and proof["begin"] > last
                and other < asked
            )
        if is_against:
            found.append(proof["end"])
    return found


def second_owners(mine: list[Event]) -> list[SecondOwner]:
    found = []
    assigned = [e for e in mine if e["event"] == "assigned" and e["generation"] >= 0]
    committed = min((p["end"] for p in proofs(mine)), default=INFINITY)
    for number, second in enumerate(assigned):
        same = [e for e in assigned[:number] if e["generation"] == second["generation"]]
        for member in dict.fromkeys(e["process"] for e in same):
            if member == second["process"]:
                continue
            first = [e for e in same if e["process"] == member][-1]
            between = assigned[assigned.index(first) + 1 : number + 1]
            found.append(
                SecondOwner(
                    generation=second["generation"],
                    first=member,
                    second=second["process"],
                    first_ns=first["at_ns"],
                    second_ns=second["at_ns"],
                    may_be_another_group=(
                        second["generation"] == 1 and second["event_index"] <= committed
                    )
                    or any(
                        e["event_index"] <= committed
                        and any(
                            other["generation"] > e["generation"]
                            for other in assigned[: assigned.index(e)]
                        )
                        for e in between
                    ),
                )
            )
    return found


@pytest.mark.parametrize("part", range(3))
def test_groups_are_what_their_events_say(part: int) -> None:
    for number in range(part * HISTORIES // 3, (part + 1) * HISTORIES // 3):
        events = random_events(random.Random(f"groups/{number}"))
        expected = [by_definition(group, events) for group in sorted({e["group"] for e in events})]
        found = [by_kernel(facts) for facts in group_facts(table("group_events", events))]
        assert found == expected


def pairs(records: Records) -> list[tuple[int, int, int]]:
    columns = (records.offset.tolist(), records.value.tolist(), records.op.tolist())
    return list(zip(*columns, strict=True))


def test_records_are_distinct_and_those_of_others_can_be_left_out() -> None:
    for number in range(300):
        rng = random.Random(f"delivered/{number}")
        calls, _ = history_of(number)
        read = records_table(calls)
        start = rng.choice((0, 0, 1))
        ops = [rng.sample(range(14), 7) for _ in range(2)]
        found = [
            records_of(read, np.array(some, dtype=np.int64), log_start_offset=start) for some in ops
        ]
        expected: list[dict[tuple[int, int], int]] = [
            {
                (offset, value): min(c.op for c in mine if (offset, value) in c.records)
                for call in mine
                for offset, value in call.records
                if offset >= start
            }
            for some in ops
            for mine in [[call for call in calls if call.op in some]]
        ]
        for records, by_pair in zip(found, expected, strict=True):
            assert pairs(records) == [(o, v, op) for (o, v), op in sorted(by_pair.items())]
        left = [
            (o, v, op) for (o, v), op in sorted(expected[0].items()) if (o, v) not in expected[1]
        ]
        assert pairs(found[0].without(found[1])) == left
