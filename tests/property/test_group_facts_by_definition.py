"""What the events of consumer groups show, event by event from the definitions."""

import random
from typing import Any

import numpy as np
import pytest

from checkers.kernels.consumer_group import (
    GroupFacts,
    Records,
    Regression,
    SecondOwner,
    group_facts,
    records_of,
)
from tests.anomalies.runs import table
from tests.property.test_findings_by_definition import history_of, records_table

HISTORIES = 300
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


def by_definition(group: str, events: list[Event]) -> GroupFacts:
    mine = sorted((e for e in events if e["group"] == group), key=lambda e: e["event_index"])
    acked = [e for e in mine if e["event"] == "commit-acknowledged"]
    return GroupFacts(
        group=group,
        members=np.unique([e["process"] for e in mine]),
        committed=max([-1, *(e["offset"] for e in proofs(mine))]),
        regressions=tuple(regressions(mine)),
        assignments=sum(e["event"] == "assigned" for e in mine),
        commits=len(acked),
        second_owners=tuple(second_owners(mine)),
    )


def proofs(mine: list[Event]) -> list[Event]:
    """Returns the events that prove that an offset is committed."""
    kinds = ("commit-acknowledged", "committed-seen")
    return [e for e in mine if e["event"] in kinds and (e["event"] == kinds[0] or e["offset"] >= 0)]


def regressions(mine: list[Event]) -> list[Regression]:
    found = []
    requests = {e["event_index"] for e in mine if e["event"] == "committed-asked"}
    for seen in (e for e in mine if e["event"] == "committed-seen"):
        before = [e["offset"] for e in proofs(mine) if e["event_index"] < seen["refers_to"]]
        acknowledged = max(before, default=-1) if seen["refers_to"] in requests else -1
        if acknowledged < 0 or seen["offset"] >= acknowledged:
            continue
        same = [
            e["event"]
            for e in mine
            if e["offset"] == seen["offset"] and e["event_index"] < seen["event_index"]
        ]
        if same.count("commit-sent") > same.count("commit-acknowledged"):
            continue
        if may_be_last(seen, mine):
            continue
        first = next(e for e in proofs(mine) if e["offset"] == acknowledged)
        sent = [
            e["at_ns"]
            for e in mine
            if (e["event"], e["offset"]) == ("commit-sent", acknowledged)
            and e["event_index"] < first["event_index"]
        ]
        found.append(
            Regression(
                acknowledged=acknowledged,
                seen=seen["offset"],
                sent_ns=min(sent, default=0),
                acknowledged_ns=first["at_ns"],
                seen_ns=seen["at_ns"],
                was_reported=first["event"] == "committed-seen",
            )
        )
    return found


def may_be_last(seen: Event, mine: list[Event]) -> bool:
    """Whether an acknowledged commit of the reported offset may have been applied after every larger one."""
    began = [e["event_index"] for e in mine if may_prove_larger(e, seen)]
    larger_since = max(since(mine, index) for index in began)
    return any(
        e["event"] == "commit-acknowledged"
        and e["offset"] == seen["offset"]
        and larger_since < e["event_index"] < seen["event_index"]
        for e in mine
    )


def may_prove_larger(proof: Event, seen: Event) -> bool:
    is_proof = proof["event"] in ("commit-acknowledged", "committed-seen")
    is_before = proof["event_index"] < seen["refers_to"]
    return bool(
        is_proof and is_before and proof["offset"] > seen["offset"] and proof["offset"] >= 0
    )


def since(mine: list[Event], index: int) -> int:
    """Returns the first event after which what a proof shows may have been committed."""
    proof = next(e for e in mine if e["event_index"] == index)
    if proof["event"] == "committed-seen":
        return int(proof["refers_to"]) if proof["refers_to"] >= 0 else index
    same = [e for e in mine if e["offset"] == proof["offset"]]
    sent = [e["event_index"] for e in same if e["event"] == "commit-sent"]
    acked = [e["event_index"] for e in same if e["event"] == "commit-acknowledged"]
    number = acked.index(index)
    return min(index, sent[number]) if number < len(sent) else index


def second_owners(mine: list[Event]) -> list[SecondOwner]:
    found: list[SecondOwner] = []
    owner: dict[int, tuple[int, int]] = {}
    largest = -1
    for event in (e for e in mine if e["event"] == "assigned"):
        number, member = event["generation"], event["process"]
        largest = max(largest, number)
        if number < 0 or number < largest:
            continue
        first, first_ns = owner.setdefault(number, (member, event["at_ns"]))
        is_known = any((one.generation, one.second) == (number, member) for one in found)
        if first != member and not is_known:
            second = SecondOwner(
                generation=number,
                first=first,
                second=member,
                first_ns=first_ns,
                second_ns=event["at_ns"],
            )
            found.append(second)
    return found


@pytest.mark.parametrize("part", range(3))
def test_groups_are_what_their_events_say(part: int) -> None:
    for number in range(part * HISTORIES // 3, (part + 1) * HISTORIES // 3):
        events = random_events(random.Random(f"groups/{number}"))
        expected = [by_definition(group, events) for group in sorted({e["group"] for e in events})]
        assert repr(list(group_facts(table("group_events", events)))) == repr(expected)


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
