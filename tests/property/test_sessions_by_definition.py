"""Sessions of idempotent producers, append by append from the definitions."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from checkers.kernels.linearizability import Options, check_tables
from checkers.kernels.lost_acked import final_log
from checkers.kernels.producer_sessions import check_gaps, check_session_order
from tests.property.brute_force import Call, ends_table, operations_table, records_table
from tests.property.findings_by_definition import Definitions, Instance
from tests.property.losses_by_definition import Declared, Losses
from tests.property.test_findings_by_definition import instances_of, loss_history_of

HISTORIES = 300


class Sessions:
    """What breaks the promises to sessions in one history; the log begins at offset 0."""

    def __init__(self, calls: list[Call]) -> None:
        self.known = Definitions(calls)
        self.losses = Losses(calls, Declared())
        self.appends = {op: c for op, c in sorted(self.known.appends.items()) if c.acks == -1}

    def out_of_sequence(self) -> Iterator[Instance]:
        places = [(op, call.offset) for op, call in self.known.acked.items()]
        places += list(self.known.revealed)
        final_polls = [poll for poll in self.known.polls if poll.final]
        stayed = {(value, offset) for poll in final_polls for offset, value in poll.records}
        for process in {call.process for call in self.appends.values()}:
            own = [
                (op, offset)
                for op, offset in places
                if op in self.appends and self.appends[op].process == process and offset is not None
            ]
            left = [place for place in own if place in stayed]
            pairs = {*pairwise(sorted(own)), *pairwise(sorted(left))}
            for (op, offset), (later, later_offset) in pairs:
                if op != later and later_offset <= offset:
                    yield Instance(
                        id="out-of-sequence",
                        first=op,
                        second=later,
                        offset=offset,
                        other=later_offset,
                        since_ns=self.appends[op].inv,
                        gap_ns=self.appends[later].inv - self.appends[op].inv,
                    )

    def gaps(self) -> Iterator[Instance]:
        if not self.losses.is_complete:
            return
        places = {op: call.offset or 0 for op, call in self.known.acked.items()}
        for op, offset in self.known.revealed:
            places[op] = min(places.get(op, offset), offset)
        for op, call in self.appends.items():
            if call.outcome != "info" or op in self.known.read_values:
                continue
            there = (
                later
                for later, other in self.appends.items()
                if later > op
                and other.process == call.process
                and later in places
                and later in self.losses.present
            )
            later = next(there, None)
            if later is not None:
                before = self._before(op, places)
                yield Instance(
                    id="producer-gap",
                    first=op,
                    second=later,
                    third=before,
                    other=places[later],
                    since_ns=self._session(op)[-1 if before >= 0 else 0].inv,
                    gap_ns=self.appends[later].inv - call.inv,
                )

    def _session(self, op: int) -> list[Call]:
        """Returns what the session of an append sent up to it."""
        process = self.appends[op].process
        return [one for one in self.appends.values() if one.op <= op and one.process == process]

    def _before(self, op: int, places: dict[int, int]) -> int:
        """Returns the last append of the session before another one that is in the log, -1 if none is."""
        there = (one.op for one in self._session(op) if one.op in places)
        return max((one for one in there if one in self.losses.present), default=-1)


@pytest.mark.parametrize("part", range(3))
def test_sessions_are_what_the_definitions_give(part: int) -> None:
    found = 0
    for number in range(part * HISTORIES // 3, (part + 1) * HISTORIES // 3):
        calls, _ = loss_history_of(number)
        report = check_tables(
            operations_table(calls), records_table(calls), ends_table(calls), Options()
        )
        history, facts = report.history, report.facts
        sessions = Sessions(calls)
        order = instances_of([check_session_order(history, facts)])
        gaps = instances_of([check_gaps(history, facts, final_log(history))])
        assert order == sorted(sessions.out_of_sequence()), f"history {number}: {calls}"
        assert gaps == sorted(sessions.gaps()), f"history {number}: {calls}"
        found += len(order) + len(gaps)
    assert found
