"""What each anomaly of a log is, instance by instance, from its definition: slow, and without arrays.

The exhaustive search (`brute_force.py`) decides whether a history is legal. This decides what has to be reported
about an illegal one: which operations show it, at which offsets, since when, and whether it rests on acks=1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from checkers.kernels.history import INF_NS
from tests.property.brute_force import Call

NO_TIME = -(2**62)


@dataclass(frozen=True, order=True, slots=True, kw_only=True)
class Instance:
    """One instance of one anomaly; see `checkers.kernels.findings.Finding` for the fields."""

    id: str
    first: int
    second: int = -1
    third: int = -1
    offset: int = -1
    other: int = -1
    since_ns: int = 0
    weak: bool = False
    gap_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An operation that shows that an offset existed when it completed, or did not yet when it was invoked."""

    kind: str
    op: int
    offset: int
    at: int
    weak: bool = False
    value: int = -1
    process: int


class Definitions:
    """The anomalies of a history whose records are readable."""

    def __init__(
        self,
        calls: list[Call],
        *,
        sparse: bool = False,
        clock_error_ns: int = 0,
        log_start_offset: int = 0,
    ) -> None:
        calls = [as_it_counts(call) for call in calls]
        self.sparse = sparse
        self.start = log_start_offset
        self.error = clock_error_ns
        self.appends = {call.op: call for call in calls if call.kind == "append"}
        self.polls = sorted((c for c in calls if c.kind == "poll"), key=lambda call: call.op)
        self.ends = [c for c in calls if c.kind == "latest" and c.offset is not None]
        self.acked = {
            op: call
            for op, call in sorted(self.appends.items())
            if call.outcome == "ok" and call.acks and call.offset is not None
        }
        self.readers: dict[tuple[int, int], Call] = {}
        """The poll with the smallest index that returned a value at an offset."""
        for poll in self.polls:
            for offset, value in poll.records:
                self.readers.setdefault((offset, value), poll)
        self.read_values = {value for _, value in self.readers}
        self.revealed = sorted(
            (value, offset)
            for offset, value in self.readers
            if value in self.appends
            and value not in self.acked
            and self.appends[value].outcome != "fail"
        )

    def is_weak(self, op: int) -> bool:
        return (
            self.acked[op].acks == 1 and op not in self.read_values if op in self.acked else False
        )

    def instances(self) -> list[Instance]:
        """Returns all but those about holes and appends without a place."""
        kinds: tuple[Callable[[], Iterator[Instance]], ...] = (
            self.real_time,
            self.values_of_one_offset,
            self.provenance,
            self.gaps,
            self.within_polls,
            self.swaps,
        )
        return sorted(instance for kind in kinds for instance in kind())

    # --- C6 ---

    def existed(self) -> Iterator[Known]:
        for op, call in self.acked.items():
            yield Known(
                kind="append",
                op=op,
                offset=call.offset or 0,
                at=_done(call),
                weak=self.is_weak(op),
                value=op,
                process=call.process,
            )
        for op, offset in self.revealed:
            if self.appends[op].outcome == "ok" and self.appends[op].acks:
                at, process = _done(self.appends[op]), self.appends[op].process
                yield Known(kind="append", op=op, offset=offset, at=at, value=op, process=process)
        for poll in self.polls:
            last, seen = _last(poll), {"op": poll.op, "at": _done(poll), "process": poll.process}
            # The end of the log that a poll reports shows more than its records.
            if poll.end is not None and poll.end > max(last + 1, 0):
                yield Known(kind="end", offset=poll.end - 1, **seen)
            elif last >= 0:
                yield Known(kind="read", offset=last, **seen)
            if poll.end is not None and 0 < poll.end < last + 1:
                yield Known(kind="end", offset=poll.end - 1, **seen)
        for call in self.ends:
            if call.offset:
                yield Known(
                    kind="end",
                    op=call.op,
                    offset=call.offset - 1,
                    at=_done(call),
                    process=call.process,
                )

    def absent(self) -> Iterator[tuple[str, Known]]:
        for op, call in self.acked.items():
            weak = self.is_weak(op)
            known = Known(
                kind="append",
                op=op,
                offset=call.offset or 0,
                at=call.inv,
                weak=weak,
                process=call.process,
            )
            yield "order", known
        for op, offset in self.revealed:
            append = self.appends[op]
            yield (
                "order",
                Known(kind="append", op=op, offset=offset, at=append.inv, process=append.process),
            )
        for call in (*self.polls, *self.ends):
            end = call.end if call.kind == "poll" else call.offset
            if end is not None:
                known = Known(kind="end", op=call.op, offset=end, at=call.inv, process=call.process)
                yield "fresh", known

    def real_time(self) -> Iterator[Instance]:
        best: dict[tuple[str, int], tuple[tuple[bool, int, int], Instance]] = {}
        absent = list(self.absent())
        for y in self.existed():
            for level in ("order", "fresh"):
                late = [
                    x
                    for of_level, x in absent
                    if of_level == level
                    and x.offset <= y.offset
                    and y.at < x.at - self._error_between(level, y, x)
                ]
                firm = [x for x in late if not x.weak] if not y.weak else []
                if not late:
                    continue
                x = min(firm or late, key=lambda x: (-x.at, x.offset, x.op))
                found = Instance(
                    id=self._name(level, y, x),
                    first=y.op,
                    second=x.op,
                    offset=y.offset,
                    other=x.offset,
                    since_ns=y.at,
                    weak=not firm,
                    gap_ns=x.at - y.at,
                )
                rank = (found.weak, -found.gap_ns, found.second)
                key = (found.id, y.op)
                if key not in best or rank < best[key][0]:
                    best[key] = (rank, found)
        for _, found in best.values():
            yield found

    def _error_between(self, level: str, y: Known, x: Known) -> int:
        """One process has one clock. Its own appends are compared in the order of sending (`swaps`)."""
        is_own = y.process == x.process and y.kind != "append"
        return 0 if is_own and level == "order" else self.error

    def _name(self, level: str, y: Known, x: Known) -> str:
        if level == "order":
            if y.kind == "append":
                return "order-inversion"
            is_same = y.kind == "read" and x.offset == y.offset
            return "future-read" if is_same else "late-insert"
        if y.kind != "append":
            return "end-regression"
        final_polls = [_last(poll) + 1 for poll in self.polls if poll.final]
        final_ends = [poll.end for poll in self.polls if poll.final and poll.end is not None]
        final_ends += [call.offset or 0 for call in self.ends if call.final]
        is_covered = self.start <= y.offset < max([0, *final_polls, *final_ends])
        return "lost-ack" if is_covered and y.value not in self.read_values else "stale-end"

    # --- C1 ---

    def values_of_one_offset(self) -> Iterator[Instance]:
        for offset in sorted(
            {o for o, _ in self.readers} | {c.offset or 0 for c in self.acked.values()}
        ):
            values = {op for op, call in self.acked.items() if call.offset == offset}
            values |= {value for o, value in self.readers if o == offset}
            claims = sorted(self._claim(offset, value) for value in values)
            for other in claims[1:]:
                yield from self._conflict(offset, claims[0], other)

    def _claim(self, offset: int, value: int) -> tuple[bool, int, int, int]:
        """Returns whether a value is weak, since when it is known, the operation that shows it, and the value."""
        acked, reader = self._sources(offset, value)
        times = [_done(call) for call in (acked, reader) if call is not None]
        witness = acked or reader
        assert witness is not None
        return reader is None and self.is_weak(value), min(times), witness.op, value

    def _sources(self, offset: int, value: int) -> tuple[Call | None, Call | None]:
        acked = self.acked.get(value)
        is_here = acked is not None and acked.offset == offset
        return acked if is_here else None, self.readers.get((offset, value))

    def _conflict(
        self, offset: int, lead: tuple[bool, int, int, int], other: tuple[bool, int, int, int]
    ) -> Iterator[Instance]:
        (_, lead_ns, lead_op, lead_value), (weak, other_ns, other_op, other_value) = lead, other
        lead_acked, lead_reader = self._sources(offset, lead_value)
        other_acked, other_reader = self._sources(offset, other_value)
        first, second = (other_op, lead_op) if lead_ns > other_ns else (lead_op, other_op)
        gap_ns = abs(lead_ns - other_ns) if max(lead_ns, other_ns) < INF_NS else 0
        both_acked = lead_acked is not None and other_acked is not None
        both_read = lead_reader is not None and other_reader is not None
        for identifier, holds in (
            ("two-acks-one-offset", both_acked),
            ("divergent-value", both_read or not both_acked),
        ):
            if holds:
                yield Instance(
                    id=identifier,
                    first=first,
                    second=second,
                    offset=offset,
                    since_ns=min(lead_ns, other_ns),
                    weak=weak,
                    gap_ns=gap_ns,
                )

    # --- C2 and C3 ---

    def provenance(self) -> Iterator[Instance]:
        lowest: dict[int, int] = {}
        for value, offset in self.revealed:
            lowest.setdefault(value, offset)
        for (offset, value), reader in self.readers.items():
            since_ns = _done(reader)
            append = self.appends.get(value)
            if append is None:
                yield Instance(
                    id="phantom-value",
                    first=reader.op,
                    offset=offset,
                    other=value,
                    since_ns=since_ns,
                )
            elif append.outcome == "fail":
                yield Instance(
                    id="failed-append-visible",
                    first=value,
                    second=reader.op,
                    offset=offset,
                    since_ns=since_ns,
                )
            else:
                home = append.offset if value in self.acked else lowest[value]
                assert home is not None
                if home != offset:
                    third = -1 if value in self.acked else self.readers[home, value].op
                    yield Instance(
                        id="duplicate",
                        first=value,
                        second=reader.op,
                        third=third,
                        offset=offset,
                        other=home,
                        since_ns=since_ns,
                    )

    # --- C4 ---

    def gaps(self) -> Iterator[Instance]:
        read = {offset for offset, _ in self.readers}
        acked = {call.offset for call in self.acked.values()}
        strong = {call.offset for op, call in self.acked.items() if not self.is_weak(op)}
        for poll in self.polls:
            offsets = sorted(offset for offset, _ in poll.records)
            before = [poll.position - 1, *offsets[:-1]] if poll.position >= 0 else offsets[:-1]
            after = offsets if poll.position >= 0 else offsets[1:]
            for below, offset in zip(before, after, strict=True) if offsets else ():
                # Nothing has to be there below the log start.
                previous = max(below, self.start - 1)
                if offset - previous <= 1:
                    continue
                known = {o for o in read | acked if o is not None and previous < o < offset}
                # In a sparse log, an offset whose record may be lost may also be empty.
                firm = {o for o in known if not self.sparse or o in read or o in strong}
                fields = {"since_ns": _done(poll), "gap_ns": offset - previous - 1}
                if known:
                    yield Instance(
                        id="lost-record",
                        first=poll.op,
                        offset=min(firm or known),
                        other=offset - previous - 1,
                        weak=not firm,
                        **fields,
                    )
                elif not self.sparse:
                    yield Instance(
                        id="skipped-offset",
                        first=poll.op,
                        offset=previous + 1,
                        other=offset,
                        **fields,
                    )

    # --- C5, and the order within polls ---

    def within_polls(self) -> Iterator[Instance]:
        for poll in self.polls:
            last = _last(poll)
            if poll.end is not None and last >= poll.end:
                yield Instance(
                    id="torn-fetch",
                    first=poll.op,
                    offset=last,
                    other=poll.end,
                    since_ns=_done(poll),
                    gap_ns=last - poll.end,
                )
            offsets = [offset for offset, _ in poll.records]
            for before, offset in pairwise(offsets):
                if offset < before:
                    yield Instance(id="unordered-poll", first=poll.op, offset=offset, other=before)
            ascending = sorted(offsets)
            for at, offset in enumerate(ascending):
                if offset < poll.position or (at and ascending[at - 1] == offset):
                    yield Instance(
                        id="nonmonotonic-poll",
                        first=poll.op,
                        offset=offset,
                        other=poll.position,
                        since_ns=_done(poll),
                    )

    # --- the order of one process ---

    def swaps(self) -> Iterator[Instance]:
        sent = self._sent()
        strong = list(self._pairs([place for place in sent if not self.is_weak(place[0])]))
        proven = {later for _, _, later, _ in strong}
        weak = [pair for pair in self._pairs(sent) if pair[2] not in proven]
        for pairs, is_weak in ((strong, False), (weak, True)):
            for earlier, offset, later, later_offset in pairs:
                before, after = self.appends[earlier], self.appends[later]
                if self._is_after(earlier, later):
                    identifier = "nonmonotonic-send"
                elif later in {op for op, _ in sent}:
                    identifier = "reordered-send"
                else:
                    continue
                yield Instance(
                    id=identifier,
                    first=earlier,
                    second=later,
                    offset=offset,
                    other=later_offset,
                    since_ns=_done(before),
                    weak=is_weak,
                    gap_ns=after.inv - before.inv,
                )

    def _sent(self) -> list[tuple[int, int]]:
        """Acknowledged appends with their places: that of the response, or those where they were read."""
        places = [(op, call.offset or 0) for op, call in self.acked.items()]
        places += [
            (op, offset)
            for op, offset in self.revealed
            if self.appends[op].outcome == "ok" and self.appends[op].acks != 0
        ]
        return sorted(places)

    def _is_after(self, earlier: int, later: int) -> bool:
        # One process calls one operation at a time; only records of one batch begin together.
        before, after = self.appends[earlier], self.appends[later]
        return _done(before) < after.inv or before.inv < _done(before) == after.inv

    def _pairs(self, sent: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
        """Each append with the one sent before it, or where clocks differ with those acknowledged before."""
        found = []
        is_ordered = True
        for later, offset in dict.fromkeys([*sent, *self.revealed]):
            process = self.appends[later].process
            own = [place for place in sent if self.appends[place[0]].process == process]
            before = [place for place in own if place < (later, offset)]
            if (later, offset) not in sent:
                before = [place for place in own if place[0] < later]
            pair = (*before[-1], later, offset) if before and before[-1][1] >= offset else None
            if pair is not None:
                is_ordered &= self._is_after(pair[0], later)
            acknowledged = [
                place for place in own if _done(self.appends[place[0]]) < self.appends[later].inv
            ]
            most = max(
                acknowledged,
                key=lambda place: (place[1], _done(self.appends[place[0]]), place[0]),
                default=None,
            )
            found.append((pair, most, later, offset))
        for pair, most, later, offset in found:
            is_over = most is not None and most[1] >= offset
            if is_ordered or not self.error:
                is_over = False
            if pair is not None and (self._is_after(pair[0], later) or not is_over):
                yield pair
            elif most is not None and is_over:
                yield (*most, later, offset)


def as_it_counts(call: Call) -> Call:
    """A poll that did not succeed counts with its records only."""
    return replace(call, end=None, final=False) if call.outcome != "ok" else call


def _done(call: Call) -> int:
    # The records of a poll were there when it ended, whatever its outcome.
    bounds = call.outcome == "ok" or call.kind == "poll"
    return call.res if call.res is not None and bounds else INF_NS


def _last(poll: Call) -> int:
    return max((offset for offset, _ in poll.records), default=-1)
