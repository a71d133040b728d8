"""What final reads show of acknowledged and read records, from the definitions: slow, and without arrays.

No election explains anything here, and no logs of replicas are recorded.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from checkers.kernels.history import INF_NS
from checkers.kernels.lost_acked import BEYOND_END, NOWHERE, PASSED_OVER, REUSED, UNKNOWN
from tests.property.brute_force import Call
from tests.property.findings_by_definition import Instance, as_it_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a run declares; see `checkers.kernels.lost_acked.final_log`."""

    log_start_offset: int = 0
    phase_complete: bool = True
    ends_recorded: bool = True
    sparse: bool = False


class Losses:
    """The losses of one history whose records are readable."""

    def __init__(self, calls: list[Call], declared: Declared) -> None:
        calls = [as_it_counts(call) for call in calls]
        self.declared = declared
        self.start = declared.log_start_offset
        self.calls = {call.op: call for call in sorted(calls, key=lambda call: call.op)}
        self.appends = {op: c for op, c in self.calls.items() if c.kind == "append"}
        self.polls = [c for c in self.calls.values() if c.kind == "poll"]
        self.answered = {
            op: c for op, c in self.appends.items() if c.outcome == "ok" and c.acks != 0
        }
        self.placed = {op: c.offset for op, c in self.answered.items() if c.offset is not None}
        self.acked = {op: offset for op, offset in self.placed.items() if offset >= self.start}
        self.final = [poll for poll in self.polls if poll.final and poll.records]
        self.present = {value for poll in self.final for _, value in poll.records}
        self.read = {value for poll in self.polls for _, value in poll.records}
        self.passed = {
            offset
            for poll in self.final
            for offset in range(_begin(poll), max(o for o, _ in poll.records) + 1)
        }
        if declared.sparse:
            self.passed |= {offset for poll in self.polls for offset in self._moved_over(poll)}

    @property
    def ends_seen(self) -> list[tuple[int, int]]:
        """Log ends that the final phase saw: when each was asked for, and the end."""
        final = [c for c in self.calls.values() if c.final and c.kind != "append"]
        ends = [(call.inv, call.end if call.kind == "poll" else call.offset) for call in final]
        return [(asked_ns, end) for asked_ns, end in ends if end is not None]

    @property
    def end_offset(self) -> int:
        """The end of the log in the final phase, -1 if none was seen."""
        ends = [end for _, end in self.ends_seen]
        ends += [offset + 1 for offset in self.passed]
        if not self.declared.ends_recorded:
            offsets = [c.offset for c in self.answered.values() if c.offset is not None]
            offsets += [offset for poll in self.polls for offset, _ in poll.records]
            ends += [offset + 1 for offset in offsets] or [0]
        return max(ends, default=-1)

    @property
    def is_complete(self) -> bool:
        """Whether the final reads went over everything up to an end that was seen."""
        return (
            self.declared.phase_complete
            and (bool(self.ends_seen) or not self.declared.ends_recorded)
            and all(offset in self.passed for offset in range(self.start, self.end_offset))
        )

    def _moved_over(self, poll: Call) -> range:
        """Offsets between a final poll and the one before it of the same process, which is final too.

        The clock shows which one that is; it shows nothing of polls that begin and end at one instant.
        """
        own = [c for c in self.polls if c.process == poll.process]
        own.sort(key=lambda call: (call.inv, self._done(call.op), call.op))
        last = next((c for c, after in pairwise(own) if after is poll), None)
        if last is None or not (last.final and poll.final) or poll.inv < self._done(last.op):
            return range(0)
        instants = Counter(c.inv for c in own if c.inv == self._done(c.op))
        if any(instants[c.inv] > 1 and c.inv == self._done(c.op) for c in (last, poll)):
            return range(0)
        reached = [last.position, *(offset + 1 for offset, _ in last.records)]
        return range(max(reached), poll.position) if max(reached) >= 0 else range(0)

    def instances(self) -> list[Instance]:
        """Returns all of them."""
        return sorted([*self._lost(), *self._reused(), *self._regress()])

    @property
    def end_asked_ns(self) -> int:
        """When the largest end of the log was asked for, for the last time."""
        largest = max((end for _, end in self.ends_seen), default=-1)
        return max((asked_ns for asked_ns, end in self.ends_seen if end == largest), default=-1)

    def _how(self, offset: int, known_ns: int) -> int:
        if offset in self.passed:
            return PASSED_OVER
        is_beyond = self.is_complete and offset >= self.end_offset
        return BEYOND_END if is_beyond and known_ns < self.end_asked_ns else UNKNOWN

    def _witness(self, offset: int) -> int:
        """The final poll that began last before the offset, if it went past it."""
        before = [poll for poll in self.final if poll.position <= offset]
        last = max(before, key=lambda poll: (poll.position, poll.op), default=None)
        goes_past = last is not None and max(o for o, _ in last.records) >= offset
        return last.op if last is not None and goes_past and offset in self.passed else -1

    def _lost(self) -> Iterator[Instance]:
        survivors = self._survivors()
        for op, offset in self.acked.items():
            if op in self.present:
                continue
            how, witness = self._how(offset, self._done(op)), self._witness(offset)
            if op in survivors:
                how, witness = REUSED if how == UNKNOWN else how, survivors[op]
            yield from self._loss(op, offset, how, witness)
        if not self.declared.ends_recorded:
            return
        after = self._past_start_ns() if self.start else -1
        taken = {offset for op, offset in self.placed.items() if not self._is_weak(op)}
        taken |= {offset for poll in self.polls for offset, _ in poll.records}
        room = sum(offset not in taken for offset in range(self.start))
        for op, call in self.answered.items():
            if call.offset is not None or op in self.present or op in self.read:
                continue
            if call.inv <= after and room > 0:
                room -= 1
                continue
            was_over = self.is_complete and self._done(op) < self.end_asked_ns
            is_certain = was_over and call.inv > after
            yield from self._loss(op, -1, NOWHERE if is_certain else UNKNOWN, -1)

    def _past_start_ns(self) -> int:
        """When an operation ended, for the first time, that shows an offset at or beyond the start of the log."""
        shown = [self._done(op) for op in self.acked]
        for call in self.calls.values():
            ends = [call.end] if call.kind == "poll" else []
            ends += [call.offset] if call.kind == "latest" else []
            if any(end is not None and end > self.start for end in ends):
                shown.append(self._done(call.op))
            read = [value for offset, value in call.records if offset >= self.start]
            if read:
                shown.append(self._done(call.op))
            # A read shows where what was acknowledged without an offset is.
            shown += [
                self._done(value)
                for value in read
                if value in self.answered and self.answered[value].offset is None
            ]
        return min(shown, default=INF_NS)

    def _loss(self, op: int, offset: int, how: int, witness: int) -> Iterator[Instance]:
        is_strong = self.appends[op].acks == -1
        if how == UNKNOWN and not is_strong:
            return
        lost = "lost-acked-write" if is_strong else "lost-acked-write-acks1"
        yield Instance(
            id="unseen" if how == UNKNOWN else lost,
            first=op,
            second=witness,
            offset=offset,
            other=how,
            since_ns=self._done(op),
        )

    def _survivors(self) -> dict[int, int]:
        """Returns for every append that lost its offset to another one, the one that stayed there."""
        survivors = {}
        for offset in set(self.placed.values()):
            rivals = [op for op, at in self.placed.items() if at == offset]
            stays = max(rivals, key=self._right_to_stay)
            survivors |= {op: stays for op in rivals if op != stays}
        return survivors

    def _right_to_stay(self, op: int) -> tuple[bool, bool, int, int, int]:
        reads = [poll.res or INF_NS for poll in self.polls if (self.placed[op], op) in poll.records]
        # With acks=1, a record that was read counts from its first read on.
        established = min(
            [*reads, INF_NS if self.appends[op].acks == 1 and reads else self._done(op)]
        )
        return (
            op in self.present,
            not self._is_weak(op),
            established,
            self._done(op),
            op,
        )

    def _is_weak(self, op: int) -> bool:
        return self.appends[op].acks == 1 and op not in self.read

    def _reused(self) -> Iterator[Instance]:
        for op, stays in self._survivors().items():
            yield Instance(
                id="offset-reused",
                first=op,
                second=stays,
                offset=self.placed[op],
                since_ns=self._done(op),
                weak=self._is_weak(op),
            )

    def _regress(self) -> Iterator[Instance]:
        first: dict[int, tuple[int, int, int]] = {}
        for poll in self.polls:
            for offset, value in poll.records:
                if offset >= self.start and value in self.appends and value not in self.present:
                    seen = (poll.res or INF_NS, poll.op, offset)
                    first[value] = min(first.get(value, seen), seen)
        for value, (since_ns, op, offset) in first.items():
            how = self._how(offset, since_ns)
            if how != UNKNOWN:
                yield Instance(
                    id="visible-regress",
                    first=value,
                    second=op,
                    offset=offset,
                    other=how,
                    since_ns=since_ns,
                )

    def _done(self, op: int) -> int:
        return self.calls[op].res or INF_NS


def _begin(poll: Call) -> int:
    offsets = [offset for offset, _ in poll.records]
    return min(poll.position, max(offsets)) if poll.position >= 0 else min(offsets)
