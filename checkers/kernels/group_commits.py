"""The commits of one consumer group in one partition: a register that members write and read.

A commit takes effect at one moment between its request and its response, a report of the coordinator shows what
was committed at one moment between the two. A commit without a clear response takes effect at any later moment,
or never. So a report of an offset contradicts a *proof* of another one, which is an acknowledged commit or an
earlier report, if the proof ended before the report was requested and began after every commit of the reported
offset had taken effect. Whether the offset is smaller does not matter: the last commit counts. That nothing is
committed contradicts every proof. Two reports at the same time contradict each other if every commit of the one
offset had taken effect before the other one was requested, and the other way round.

The leader of a partition of the offsets topic keeps the register. What its elections explain is in
`checkers.kernels.coordinators`: one that lost the record of the proof, one that followed a report of what was not
committed yet, and one that deposed a coordinator which did not know of the proof and answered from its memory.
Such a *stale* answer is right at the moment at which the coordinator was deposed, so it contradicts what was
proven before. No record shows which coordinator answered, so a report that may be stale is undecided, both as an
answer and as a proof.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import Columns
from checkers.kernels.coordinators import Coordinator, Deposed
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED
from checkers.kernels.history import I8, I64, INF_NS, Bools, is_word

NEVER = 2**62
"""Stands for the number of an event that did not happen."""
BEFORE_ALL = -1
"""Stands for the number of an event that was not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits(Columns):
    """Commits of members, ascending by offset and request.

    Shape:
        sent, acked: numbers of the events; BEFORE_ALL for a request that was not recorded, NEVER for a response
        that did not arrive.
        process: the member.
    """

    offset: I64
    sent: I64
    acked: I64
    process: I64

    def first_of(self, offsets: I64) -> I64:
        """Returns the first request to commit each offset, BEFORE_ALL for none: it is not in effect before."""
        if not len(self.offset):
            return np.full(len(offsets), BEFORE_ALL)
        at = np.minimum(np.searchsorted(self.offset, offsets), len(self.offset) - 1)
        first: I64 = np.where(self.offset[at] == offsets, self.sent[at], BEFORE_ALL)
        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs(Columns):
    """What shows that offsets were committed, ascending by `end`.

    Shape:
        begin, end: numbers of the events between which the offset was the committed one, at one moment at least.
        from_ns: when the request for it was sent; 0 for a commit whose request was not recorded.
        end_ns: when the response arrived.
        is_report: whether the coordinator reported it; otherwise it acknowledged a commit.
    """

    offset: I64
    begin: I64
    end: I64
    from_ns: I64
    end_ns: I64
    is_report: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the coordinator reported to a member.

    Attributes:
        offset: The committed offset; negative for none.
        asked, seen: Numbers of request and response; NEVER for a request that was not recorded.
        asked_ns, seen_ns: Their times.
    """

    offset: int
    asked: int
    seen: int
    asked_ns: int
    seen_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A report and the proof that speaks most against it.

    Attributes:
        outcome: What elections mean for it: UNEXCUSED, UNDECIDED or EXCUSED.
        proven: The offset that was proven to be committed.
        was_reported: Whether the coordinator had reported it; otherwise it acknowledged the commit.
        seen: The offset that was reported afterwards; negative for none.
    """

    outcome: int
    proven: int
    was_reported: bool
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Columns):
    """Steps of members from a known offset to one whose commit was acknowledged, ascending by that commit.

    Shape:
        start, since: an offset at which the member was, and the number of the last event that shows it.
        stop: the offset of the commit.
    """

    start: I64
    since: I64
    stop: I64


@dataclass(frozen=True, kw_only=True)
class Register:
    """All that members recorded of a group's commits in one partition. Without slots, because it caches.

    Attributes:
        commits, proofs: See there.
        first_reports: The response that reported an offset first, by offset.
        steps: How members went on.
        index, at_ns: Numbers and times of all events, ascending.
    """

    commits: Commits
    proofs: Proofs
    first_reports: Mapping[int, int]
    steps: Steps
    index: I64
    at_ns: I64

    def took_effect(self, offset: int, before: int) -> int | None:
        """Returns the number of an event before which every commit of an offset took effect.

        Args:
            offset: Not negative.
            before: Commits that were sent after this event do not count.

        Returns:
            NEVER if one without a response may still take effect, and None if there was no commit.
        """
        sent, acked = self._commits_of(offset, before)
        if not len(sent):
            return None
        last = int(acked.max())
        if len(sent) == 1:
            # It is in effect when it is reported for the first time.
            last = min(last, self.first_reports.get(offset, NEVER))
        return last

    def contradicted_by(self, report: Report) -> I64:
        """Returns which proofs a report contradicts; none if it is not known when it was requested."""
        if report.asked == NEVER:
            return np.empty(0, dtype=np.int64)
        count = self.proofs_before(report.asked)
        rows = self.against(report.offset, count, report.seen)
        meanwhile = range(count, self.proofs_before(report.seen))
        at_once = [row for row in meanwhile if self._is_against_at_once(report, row)]
        return np.append(rows, np.array(at_once, dtype=np.int64))

    def _is_against_at_once(self, report: Report, row: int) -> bool:
        proofs = self.proofs
        offset = int(proofs.offset[row])
        if report.offset < 0 or offset == report.offset or not proofs.is_report[row]:
            return False
        last = self.took_effect(report.offset, report.seen)
        # A commit that was sent after the other report does not explain it, nor does it restore what is reported.
        other = self.took_effect(offset, int(proofs.end[row]))
        if last is None or other is None:
            return False
        return bool(last < proofs.begin[row]) and other < report.asked

    def against(self, offset: int, count: int, before: int) -> I64:
        """Returns which proofs contradict that an offset was committed after they had ended.

        Args:
            offset: The offset; negative for none.
            count: How many proofs had ended, from the first one.
            before: Commits that were sent after this event do not count.
        """
        last = self.took_effect(offset, before) if offset >= 0 else None
        if last is None:
            others = self.proofs.offset[:count]
            is_against: Bools = others > offset if offset >= 0 else others >= 0
            first = 0
        else:
            first = int(np.searchsorted(self.proofs.end[:count], last, side="right"))
            is_against = self.proofs.begin[first:count] > last
            is_against &= self.proofs.offset[first:count] != offset
        rows: I64 = first + np.flatnonzero(is_against)
        return rows

    def was_sent(self, offset: int, before: int) -> bool:
        """Whether a member sent a commit of an offset before an event."""
        return len(self._commits_of(offset, before)[0]) > 0

    def passed_since(self, offset: int) -> int:
        """Returns the last commit above an offset from before a member passed that offset for the last time.

        A member passed it between an event that shows the member at or below it and its next commit above it.

        Returns:
            The event with which the commit was sent; BEFORE_ALL if there is none.
        """
        steps = self.steps
        rows = np.flatnonzero((steps.start >= 0) & (steps.start <= offset) & (offset < steps.stop))
        if not len(rows):
            return BEFORE_ALL
        commits, number = self._sent_after(BEFORE_ALL)
        is_before = (commits.offset > offset) & (number < steps.since[rows[-1]])
        return int(number[is_before].max(initial=BEFORE_ALL))

    def passed(self, offset: int, since: int = BEFORE_ALL) -> tuple[int, int]:
        """Returns when the first commit above an offset was sent, and by which member.

        Args:
            offset: The offset.
            since: Only commits that were sent after this event count.

        Returns:
            The moment and the process number; infinity and -1 if no such commit is recorded.
        """
        commits, number = self._sent_after(since)
        rows = np.flatnonzero(commits.offset > offset)
        if not len(rows):
            return INF_NS, -1
        commits, number = commits.take(rows), number[rows]
        first = int(np.argmin(number))
        return self.time_of(int(number[first])), int(commits.process[first])

    def sent_by(self, member: int, since: int = BEFORE_ALL) -> tuple[I64, I64]:
        """Returns when a member sent its commits, ascending, and the largest offset that it had sent by then.

        Args:
            member: Its process number.
            since: Only commits that were sent after this event count.
        """
        commits, number = self._sent_after(since)
        rows = np.flatnonzero(commits.process == member)
        commits, number = commits.take(rows), number[rows]
        order = np.argsort(number)
        at_ns = self.at_ns[np.searchsorted(self.index, number[order])]
        return at_ns, np.maximum.accumulate(commits.offset[order])

    def _sent_after(self, since: int) -> tuple[Commits, I64]:
        """Returns the commits that were sent after an event, and the number of each one's first event."""
        # The response to a commit whose request was not recorded came later.
        sent, acked = self.commits.sent, self.commits.acked
        number = np.where(sent == BEFORE_ALL, acked, sent)
        rows = np.flatnonzero(number > since)
        return self.commits.take(rows), number[rows]

    def proofs_before(self, index: int) -> int:
        """Returns how many proofs ended before an event."""
        return int(np.searchsorted(self.proofs.end, index))

    def at(self, at_ns: int) -> int:
        """Returns the number of the first event after a moment."""
        row = int(np.searchsorted(self.at_ns, at_ns, side="right"))
        return int(self.index[row]) if row < len(self.index) else NEVER

    def time_of(self, index: int) -> int:
        """Returns when an event happened, infinity for NEVER."""
        return INF_NS if index == NEVER else int(self.at_ns[np.searchsorted(self.index, index)])

    @cached_property
    def settled_ns(self) -> tuple[I64, I64]:
        """When each commit was sent that has both request and acknowledgement, and when that one arrived."""
        rows = np.flatnonzero((self.commits.sent != BEFORE_ALL) & (self.commits.acked != NEVER))
        sent, acked = self.commits.sent[rows], self.commits.acked[rows]
        return (
            self.at_ns[np.searchsorted(self.index, sent)],
            self.at_ns[np.searchsorted(self.index, acked)],
        )

    def _commits_of(self, offset: int, before: int) -> tuple[I64, I64]:
        """Returns the requests and the responses of commits of an offset that were sent before an event."""
        low = int(np.searchsorted(self.commits.offset, offset))
        end = int(np.searchsorted(self.commits.offset, offset, side="right"))
        sent, acked = self.commits.sent[low:end], self.commits.acked[low:end]
        return sent[sent < before], acked[sent < before]


def register_of(events: pa.Table) -> tuple[Register, tuple[Report, ...]]:
    """Returns what members recorded of commits, and all that the coordinator reported.

    Args:
        events: Rows of `group_events` of one group and partition, ascending by event_index.
    """
    index = events.column("event_index").to_numpy()
    offset = events.column("offset").to_numpy()
    at_ns = events.column("at_ns").to_numpy()
    kind = events.column("event")
    is_seen = is_word(kind, "committed-seen")
    request = _requests(
        index, events.column("refers_to").to_numpy(), is_word(kind, "committed-asked")
    )
    commits, acked, sent = _commits(events)
    shown = np.flatnonzero(is_seen & (offset >= 0))
    rows, began = np.append(acked, shown), np.append(sent, request[shown])
    is_report = np.arange(len(rows)) >= len(acked)
    asked = np.where(began >= 0, index[began], BEFORE_ALL)
    proofs = Proofs(
        offset=offset[rows],
        # If nobody had sent a commit of it when it was reported, it begins with the report itself.
        begin=np.minimum(np.maximum(asked, commits.first_of(offset[rows])), index[rows]),
        end=index[rows],
        # Without its request a report shows only that the offset was committed when the response arrived.
        from_ns=np.where(began >= 0, at_ns[began], np.where(is_report, at_ns[rows], 0)),
        end_ns=at_ns[rows],
        is_report=is_report,
    )
    first_reports: dict[int, int] = {}
    for row in shown.tolist():
        first_reports.setdefault(int(offset[row]), int(index[row]))
    register = Register(
        commits=commits,
        proofs=proofs.take(np.argsort(proofs.end)),
        first_reports=first_reports,
        steps=_steps(events, acked, sent),
        index=index,
        at_ns=at_ns,
    )
    reports = tuple(
        Report(
            offset=int(offset[row]),
            asked=int(index[request[row]]) if request[row] >= 0 else NEVER,
            seen=int(index[row]),
            asked_ns=int(at_ns[request[row]]) if request[row] >= 0 else INF_NS,
            seen_ns=int(at_ns[row]),
        )
        for row in np.flatnonzero(is_seen).tolist()
    )
    return register, reports


def _steps(events: pa.Table, acked: I64, sent: I64) -> Steps:
    """Returns how members went on.

    Args:
        events: See `register_of`.
        acked: The rows of acknowledgements, ascending.
        sent: The row of the request of each; -1 for none.
    """
    offset = events.column("offset").to_numpy()
    process = events.column("process").to_numpy()
    shows = is_word(events.column("event"), "assigned")
    shows[acked] = True
    found = []
    for member in np.unique(process[acked]).tolist():
        shown = np.flatnonzero(shows & (process == member))
        mine = np.flatnonzero((process[acked] == member) & (sent >= 0))
        before = np.searchsorted(shown, sent[mine]) - 1
        found.append(np.stack((shown[before], sent[mine], acked[mine]))[:, before >= 0])
    start, request, stop = np.concatenate([np.empty((3, 0), dtype=np.int64), *found], axis=1)
    order = np.argsort(request)
    index = events.column("event_index").to_numpy()
    return Steps(start=offset[start[order]], since=index[start[order]], stop=offset[stop[order]])


def _requests(index: I64, refers_to: I64, is_request: Bools) -> I64:
    """Returns the row of the request that each event refers to, -1 for none."""
    found = np.full(len(index), -1)
    rows = np.flatnonzero(np.isin(refers_to, index[is_request]))
    found[rows] = np.searchsorted(index, refers_to[rows])
    return found


def _commits(events: pa.Table) -> tuple[Commits, I64, I64]:
    """Returns the commits, the rows of acknowledgements, and the row of the request of each; -1 for none.

    An acknowledgement belongs to the latest commit of that offset by that member which has none yet: a member
    waits for one response before it sends the next commit.
    """
    kind = events.column("event")
    is_sent, is_acked = is_word(kind, "commit-sent"), is_word(kind, "commit-acknowledged")
    index = events.column("event_index").to_numpy()
    offset = events.column("offset").to_numpy()
    process = events.column("process").to_numpy()
    waiting: dict[tuple[int, int], list[int]] = {}
    found: list[tuple[int, int]] = []
    for row in np.flatnonzero((is_sent | is_acked) & (offset >= 0)).tolist():
        mine = waiting.setdefault((int(process[row]), int(offset[row])), [])
        if is_sent[row]:
            mine.append(row)
        else:
            found.append((mine.pop() if mine else -1, row))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    open_rows = np.array([row for rows in waiting.values() for row in rows], dtype=np.int64)
    sent_row, acked_row = pairs[:, 0], pairs[:, 1]
    commits = Commits(
        offset=np.concatenate([offset[acked_row], offset[open_rows]]),
        sent=np.concatenate(
            [np.where(sent_row >= 0, index[sent_row], BEFORE_ALL), index[open_rows]]
        ),
        acked=np.concatenate([index[acked_row], np.full(len(open_rows), NEVER)]),
        process=process[np.concatenate([acked_row, open_rows])],
    )
    return commits.take(np.lexsort((commits.sent, commits.offset))), acked_row, sent_row


class GroupJudge:
    """Judges what a group's coordinator reported.

    Args:
        register: What members recorded.
        coordinator: What elections did to it.
    """

    def __init__(self, register: Register, coordinator: Coordinator) -> None:
        self._register = register
        self._coordinator = coordinator

    def contradiction(self, report: Report) -> Contradiction:
        """Returns the proof that speaks most against a report that contradicts some."""
        register = self._register
        rows = register.contradicted_by(report)
        each = self._each(report.offset, rows, report.seen, (report.asked_ns, report.seen_ns))
        outcome = max(int(each.min()), self._if_stale(report, rows))
        worst = rows[each == each.min()]
        named = worst[np.argmax(register.proofs.offset[worst])]
        return Contradiction(
            outcome=outcome,
            proven=int(register.proofs.offset[named]),
            was_reported=bool(register.proofs.is_report[named]),
            seen=report.offset,
        )

    def _each(self, offset: int, rows: I64, before: int, between_ns: tuple[int, int]) -> I8:
        """Returns what elections mean for each proof that contradicts an offset, reported between two moments."""
        proofs = self._register.proofs
        asked_ns, seen_ns = between_ns
        from_ns = np.minimum(proofs.from_ns[rows], asked_ns)
        outcome = self._coordinator.losses(from_ns, np.full(len(rows), seen_ns))
        for at in np.flatnonzero((outcome == UNEXCUSED) & proofs.is_report[rows]).tolist():
            reported_ns = int(proofs.from_ns[rows[at]]), int(proofs.end_ns[rows[at]])
            settled_ns = self._register.settled_ns
            if self._coordinator.may_be_uncommitted(reported_ns, seen_ns, settled_ns):
                outcome[at] = UNDECIDED
        last = self._register.took_effect(offset, before) if offset >= 0 else None
        if last is not None:
            last_ns = self._register.time_of(last)
            for at in np.flatnonzero((outcome == UNEXCUSED) & proofs.is_report[rows]).tolist():
                if self._may_be_stale(int(rows[at]), last_ns):
                    outcome[at] = UNDECIDED
        return outcome

    def _may_be_stale(self, proof: int, last_ns: int) -> bool:
        """Whether a report may come from a coordinator that was deposed before another offset was committed."""
        proofs = self._register.proofs
        asked_ns, seen_ns = int(proofs.from_ns[proof]), int(proofs.end_ns[proof])
        return any(
            deposed.may_answer(asked_ns, seen_ns)
            and deposed.may_lack(last_ns)
            and self._at(deposed, int(proofs.offset[proof])) > UNEXCUSED
            for deposed in self._coordinator.deposed
        )

    def _if_stale(self, report: Report, rows: I64) -> int:
        """Returns UNDECIDED if a report may come from a deposed coordinator, otherwise UNEXCUSED."""
        end_ns = self._register.proofs.end_ns[rows]
        for deposed in self._coordinator.deposed:
            later = end_ns[end_ns >= deposed.from_ns]
            if (
                deposed.may_answer(report.asked_ns, report.seen_ns)
                and all(deposed.may_lack(one) for one in later.tolist())
                and self._at(deposed, report.offset) > UNEXCUSED
            ):
                return UNDECIDED
        return UNEXCUSED

    def _at(self, deposed: Deposed, offset: int) -> int:
        """Returns whether an offset may have been the committed one when a coordinator was deposed."""
        register = self._register
        before = register.at(deposed.until_ns)
        if offset >= 0 and not register.was_sent(offset, before):
            return UNEXCUSED
        count = int(np.searchsorted(register.proofs.end_ns, deposed.from_ns))
        rows = register.against(offset, count, before)
        if not len(rows):
            return EXCUSED
        until_ns = deposed.until_ns
        return int(self._each(offset, rows, before, (until_ns, until_ns)).min())
