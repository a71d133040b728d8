"""Facts about the offsets of one partition, and the conditions that need no clock.

From a history this module derives the place of every append and what every observation proves, and checks five of
the six conditions under which a partition log is linearizable:

C1  one value per offset          C4  reads skip nothing
C2  one offset per value          C5  no response contradicts itself
C3  every value was appended

The sixth, real time, is `real_time`; appends without a known place are `places`.

An append is *pinned* at an offset if it was acknowledged there, or if its outcome is unknown and its value was
read there. An append acknowledged with acks=1 whose record was never read is *weak*: losing it breaks no
promise.

If the log starts beyond 0 at the end of the run, retention may have removed every record below that start, at any
time. So nothing has to be at an offset below it, and a read may skip such offsets (C4). What acknowledgements and
reads say of them was true of the log at its time all the same: C1 to C3, C5 and C6 hold there as above.
"""

from dataclasses import dataclass

import numpy as np

from checkers.kernels.columns import Columns, distinct
from checkers.kernels.findings import Finding, finding
from checkers.kernels.history import (
    ABSENT,
    FAIL,
    I64,
    INF_NS,
    NONE,
    OK_AT,
    Bools,
    PartitionHistory,
)


class Places:
    """Offsets as positions in arrays.

    Positions are the offsets themselves (minus the first one) when that costs little memory. A history with an
    absurd offset, or a very sparse one, gets one position per offset that some fact mentions instead; all rules
    only use the order of offsets, so nothing else changes.

    Args:
        start: First offset with a position.
        limit: One more than the largest offset that is known to have existed.
        mentioned: Every offset in [start, limit) that a fact mentions, repeats allowed; None to give every
            offset a position.
    """

    def __init__(self, start: int, limit: int, mentioned: I64 | None = None) -> None:
        self.start = start
        self.limit = limit
        self._offsets: I64 | None = None if mentioned is None else distinct(mentioned)
        self.count = limit - start if self._offsets is None else len(self._offsets)

    @property
    def is_compact(self) -> bool:
        """Whether only the offsets have a position that some fact mentions."""
        return self._offsets is not None

    def index(self, offsets: I64) -> I64:
        """Returns positions; offsets at or beyond the limit get position `count`."""
        if self._offsets is not None:
            return np.searchsorted(self._offsets, offsets).astype(np.int64, copy=False)
        positions: I64 = np.minimum(self.existing(offsets), self.count)
        return positions

    def existing(self, offsets: I64) -> I64:
        """Returns positions of offsets below the limit; faster than `index`."""
        if self._offsets is not None:
            return np.searchsorted(self._offsets, offsets).astype(np.int64, copy=False)
        return offsets - self.start if self.start else offsets

    def offset(self, positions: I64) -> I64:
        """Returns the offsets at positions below `count`."""
        if self._offsets is not None:
            return self._offsets[positions]
        return positions + self.start if self.start else positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The places of appends and what is known of every offset.

    Shape:
        value, seen, occupied: one row per place; `value` is the op index of the append at that place (NONE if
            unknown), `seen` means that a read returned it, `occupied` that a record is known to be there.
        acked, acked_place: positions of the appends acknowledged at an offset, and their places.
        pinned, pinned_place: appends of unknown outcome that a read revealed, once per place.
        copies, copies_place: acknowledged appends that a read revealed at other offsets, once per place.
        append_read: per append, whether any read returned its value.
        append_weak: per append, whether it is acknowledged with acks=1 and was never read.
        gap_first, gap_last: offsets [first, last) that a read skipped.

    Attributes:
        log_start_offset: Below it no record has to be there.
    """

    places: Places
    log_start_offset: int
    value: I64
    seen: Bools
    occupied: Bools
    acked: I64
    acked_place: I64
    pinned: I64
    pinned_place: I64
    copies: I64
    copies_place: I64
    append_read: Bools
    append_weak: Bools
    gap_first: I64
    gap_last: I64

    @property
    def acked_there(self) -> I64:
        """The positions of the acknowledged appends that have to be there."""
        if not self.log_start_offset:
            return self.acked
        offset = self.places.offset(self.acked_place)
        return self.acked[offset >= self.log_start_offset]

    @property
    def first_there(self) -> int:
        """The first place that is not below the log start, or how many places there are."""
        return int(self.places.index(np.array([self.log_start_offset], dtype=np.int64))[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _OddReads:
    """Distinct (place, value) pairs that were read and that no acknowledgement shows."""

    place: I64
    value: I64
    poll: I64
    append: I64


def derive_facts(
    history: PartitionHistory,
    *,
    log_start_offset: int = 0,
    sparse: bool = False,
    sent_twice: bool = False,
) -> tuple[Facts, list[Finding]]:
    """Derives the facts of a history and what breaks C1 to C5.

    Args:
        history: One partition.
        log_start_offset: Nothing has to be there below it (retention).
        sparse: Whether offsets may be missing from the log (transactions).
        sent_twice: Whether producers without idempotence sent appends again. The record that was acknowledged with
            acks=1 may then be lost although another one of the same append was read, even at the same offset.

    Returns:
        The facts and the findings; integrity holds iff there are none.
    """
    acked = np.flatnonzero(history.append_status == OK_AT)
    places = _places(history, acked, log_start_offset)

    value = np.full(places.count, NONE, dtype=np.int64)
    acked_place = places.existing(history.append_offset[acked])
    acked_op = history.append_op[acked]
    value[acked_place] = acked_op
    lost_race = value[acked_place] != acked_op
    if history.left_out:
        lost_race &= ~history.left_out.covers(history.append_offset[acked])
    read_place, read_value, read_poll = _trusted_reads(history, places)

    # Reads that no acknowledgement explains are few; the first value read there settles the offset for now.
    odd_rows = np.flatnonzero(value[read_place] != read_value)
    orphan = odd_rows[value[read_place[odd_rows]] == NONE]
    value[read_place[orphan]] = read_value[orphan]
    misread = odd_rows[value[read_place[odd_rows]] != read_value[odd_rows]]
    seen = np.zeros(places.count, dtype=np.bool_)
    seen[np.delete(read_place, misread) if len(misread) else read_place] = True
    odd = _odd_reads(history, read_place, read_value, read_poll, odd_rows)
    append_read = np.zeros(len(history.append_op), dtype=np.bool_)
    append_read[acked] = seen[acked_place] & ~lost_race
    append_read[odd.append[odd.append >= 0]] = True
    pinned, pinned_place = _revealed(history, places, odd)
    copies, copies_place = _copies(history, places, odd)
    occupied = value != NONE
    if history.left_out:
        append_read[acked] |= history.left_out.covers(history.append_offset[acked])
        append_read[pinned] = True
        occupied |= history.left_out.covers(places.offset(np.arange(places.count)))
    append_weak = (history.append_acks == 1) & (history.append_status == OK_AT)
    if not sent_twice:
        append_weak &= ~append_read
    if not history.record_trusted.all():
        occupied[places.index(history.record_offset[~history.record_trusted])] = True
    # In a sparse log an offset may stay empty after its record, acknowledged with acks=1 only, was lost.
    firm = occupied
    if sparse and append_weak.any():
        firm = occupied.copy()
        firm[acked_place[append_weak[acked]]] = False
        firm[acked_place[~append_weak[acked]]] = True
        firm[places.index(history.record_offset)] = True
    gap_findings, gap_first, gap_last = _gaps(
        history, places, _Occupied(known=occupied, firm=firm, value=value), log_start_offset, sparse
    )
    facts = Facts(
        places=places,
        log_start_offset=log_start_offset,
        value=value,
        seen=seen,
        occupied=occupied,
        acked=acked,
        acked_place=acked_place,
        pinned=pinned,
        pinned_place=pinned_place,
        copies=copies,
        copies_place=copies_place,
        append_read=append_read,
        append_weak=append_weak,
        gap_first=gap_first,
        gap_last=gap_last,
    )
    findings = [
        *(_conflicts(history, facts, odd) if len(misread) or lost_race.any() else ()),
        *_provenance(history, facts, odd),
        *gap_findings,
        *_torn_fetches(history),
        *_unbelievable(history),
    ]
    return facts, [f for f in findings if f.count]


def _revealed(history: PartitionHistory, places: Places, odd: _OddReads) -> tuple[I64, I64]:
    """Returns the appends of unknown outcome or place that a read revealed, and the places of their records."""
    rows = np.flatnonzero(odd.append >= 0)
    rows = rows[~np.isin(history.append_status[odd.append[rows]], (FAIL, OK_AT))]
    append, place = odd.append[rows], odd.place[rows]
    if len(history.left_out.revealed_op):
        more = history.append_at(history.left_out.revealed_op)
        known = more >= 0
        offset = history.left_out.revealed_offset[known]
        append = np.concatenate((append, more[known]))
        place = np.concatenate((place, places.existing(offset)))
    return append, place


def _copies(history: PartitionHistory, places: Places, odd: _OddReads) -> tuple[I64, I64]:
    """Returns acknowledged appends that a read revealed at other offsets, and these places."""
    rows = np.flatnonzero(odd.append >= 0)
    rows = rows[history.append_status[odd.append[rows]] == OK_AT]
    append, place = odd.append[rows], odd.place[rows]
    elsewhere = history.append_offset[append] != places.offset(place)
    return append[elsewhere], place[elsewhere]


def _places(history: PartitionHistory, acked: I64, log_start: int) -> Places:
    """Returns positions for every offset below the largest that is known to have existed.

    The first one is the log start, or the lowest offset that any operation shows.
    """
    existing = [history.append_offset[acked], history.record_offset, history.end_offset - 1]
    if history.left_out:
        end = np.array([history.left_out.limit - 1], dtype=np.int64)
        existing += [end, history.left_out.revealed_offset]
    limit = max((int(offsets.max()) + 1 for offsets in existing if len(offsets)), default=0)
    limit = max(limit, log_start)
    start = log_start
    if log_start:
        start = min([log_start, *(int(offsets.min()) for offsets in existing if len(offsets))])
        start = max(start, 0)  # a log end of 0
    rows = sum(len(offsets) for offsets in existing)
    if limit - start <= 4 * rows + 4096:
        return Places(start, limit)
    # Positions too: between two neighbouring places, a read skipped all offsets or none.
    mentioned = np.concatenate((*existing, history.end_offset, history.poll_position))
    return Places(start, limit, mentioned[(mentioned >= start) & (mentioned < limit)])


def _trusted_reads(history: PartitionHistory, places: Places) -> tuple[I64, I64, I64]:
    """Returns place, value and poll of every record read that can be trusted."""
    columns = (history.record_offset, history.record_value, history.record_poll)
    trusted = history.record_trusted
    if not trusted.all():
        columns = (columns[0][trusted], columns[1][trusted], columns[2][trusted])
    return places.existing(columns[0]), columns[1], columns[2]


def _odd_reads(history: PartitionHistory, place: I64, value: I64, poll: I64, at: I64) -> _OddReads:
    """Returns distinct pairs among the given rows, each with its first reader and its append."""
    order = at[np.lexsort((poll[at], value[at], place[at]))]
    place, value, poll = place[order], value[order], poll[order]
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (place[1:] != place[:-1]) | (value[1:] != value[:-1])
    place, value, poll = place[fresh], value[fresh], poll[fresh]
    return _OddReads(place=place, value=value, poll=poll, append=history.append_at(value))


def _poll_op(history: PartitionHistory, poll: I64) -> I64:
    if not len(history.poll_op):
        return np.full(len(poll), ABSENT, dtype=np.int64)
    return np.where(poll >= 0, history.poll_op[poll], ABSENT)


def _poll_res(history: PartitionHistory, poll: I64) -> I64:
    if not len(history.poll_op):
        return np.full(len(poll), INF_NS, dtype=np.int64)
    return np.where(poll >= 0, history.poll_res[poll], INF_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims(Columns):
    """Values that acknowledgements and reads show at an offset.

    Shape:
        One row per claim at first, one per (place, value) once grouped. `witness` is the op index behind it,
        `by_ns` when it was known; `is_acked` and `was_read` give the source of the claim, `is_strong`
        whether it must be kept.
    """

    place: I64
    value: I64
    witness: I64
    by_ns: I64
    is_acked: Bools
    was_read: Bools
    is_strong: Bools


def _conflicts(history: PartitionHistory, facts: Facts, odd: _OddReads) -> list[Finding]:
    """Returns what breaks C1, for the few offsets that hold more than one value.

    All values of an offset are collected, acknowledged and read alike, and each is compared with one of them: the
    one with the strongest claim (not weak, then earliest). So the result does not depend on which value the arrays
    happened to keep, and is linear in the number of values.
    """
    claims = _grouped(_claims(history, facts, odd))
    order = np.lexsort((claims.witness, claims.by_ns, ~claims.is_strong, claims.place))
    claims = claims.take(order)
    is_lead = np.ones(len(order), dtype=np.bool_)
    is_lead[1:] = claims.place[1:] != claims.place[:-1]
    others = np.flatnonzero(~is_lead)
    lead = claims.take(np.flatnonzero(is_lead)[np.cumsum(is_lead) - 1][others])
    other = claims.take(others)
    both_acked = lead.is_acked & other.is_acked
    both_read = lead.was_read & other.was_read
    return [
        _conflict("two-acks-one-offset", facts, lead, other, both_acked),
        _conflict("divergent-value", facts, lead, other, both_read | ~both_acked),
    ]


def _conflict(identifier: str, facts: Facts, lead: _Claims, other: _Claims, rows: Bools) -> Finding:
    lead, other = lead.take(np.flatnonzero(rows)), other.take(np.flatnonzero(rows))
    is_later = lead.by_ns > other.by_ns
    known = np.maximum(lead.by_ns, other.by_ns) < INF_NS
    return finding(
        identifier,
        np.where(is_later, other.witness, lead.witness),
        second=np.where(is_later, lead.witness, other.witness),
        offset=facts.places.offset(lead.place),
        since_ns=np.minimum(lead.by_ns, other.by_ns),
        weak=~other.is_strong,
        gap_ns=np.where(known, np.abs(lead.by_ns - other.by_ns), 0),
    )


def _claims(history: PartitionHistory, facts: Facts, odd: _OddReads) -> _Claims:
    """Returns every claim about an offset that holds more than one value."""
    acked_op = history.append_op[facts.acked]
    lost_race = facts.acked_place[facts.value[facts.acked_place] != acked_op]
    misread = odd.place[facts.value[odd.place] != odd.value]
    contested = np.unique(np.concatenate((lost_race, misread)))
    contested = contested[~history.left_out.covers(facts.places.offset(contested))]
    ack = np.flatnonzero(np.isin(facts.acked_place, contested))
    odd_read = np.flatnonzero(np.isin(odd.place, contested))
    kept = contested[facts.seen[contested]]
    append = facts.acked[ack]
    poll = np.concatenate((odd.poll[odd_read], _first_readers(history, facts, kept)))
    is_acked = np.arange(len(ack) + len(poll)) < len(ack)
    return _Claims(
        place=np.concatenate((facts.acked_place[ack], odd.place[odd_read], kept)),
        value=np.concatenate((acked_op[ack], odd.value[odd_read], facts.value[kept])),
        witness=np.concatenate((acked_op[ack], _poll_op(history, poll))),
        by_ns=np.concatenate((history.append_res[append], _poll_res(history, poll))),
        is_acked=is_acked,
        was_read=~is_acked,
        is_strong=np.concatenate((~facts.append_weak[append], np.ones(len(poll), dtype=np.bool_))),
    )


def _grouped(claims: _Claims) -> _Claims:
    """Returns one row per (place, value); its witness is the acknowledgement, else the first reader."""
    order = np.lexsort((claims.witness, claims.by_ns, claims.was_read, claims.value, claims.place))
    claims = claims.take(order)
    head = np.ones(len(order), dtype=np.bool_)
    head[1:] = (claims.place[1:] != claims.place[:-1]) | (claims.value[1:] != claims.value[:-1])
    group = np.cumsum(head) - 1
    by_ns = np.full(int(head.sum()), INF_NS, dtype=np.int64)
    np.minimum.at(by_ns, group, claims.by_ns)
    first = claims.take(np.flatnonzero(head))
    return _Claims(
        place=first.place,
        value=first.value,
        witness=first.witness,
        by_ns=by_ns,
        is_acked=first.is_acked,
        was_read=np.bincount(group, weights=claims.was_read) > 0,
        is_strong=np.bincount(group, weights=claims.is_strong) > 0,
    )


def _first_readers(history: PartitionHistory, facts: Facts, wanted: I64) -> I64:
    """Returns the first poll that read the kept value of each wanted (ascending) place."""
    offsets = facts.places.offset(wanted)
    rows = np.flatnonzero(history.record_trusted & np.isin(history.record_offset, offsets))
    place = facts.places.index(history.record_offset[rows])
    same = facts.value[place] == history.record_value[rows]
    rows, place = rows[same], place[same]
    first = np.full(len(wanted), len(history.poll_op), dtype=np.int64)
    np.minimum.at(first, np.searchsorted(wanted, place), history.record_poll[rows])
    return first


def _provenance(history: PartitionHistory, facts: Facts, odd: _OddReads) -> list[Finding]:
    """Returns what breaks C2 and C3, for the few values read where no acknowledgement put them."""
    if not len(odd.value):
        return []
    offset = facts.places.offset(odd.place)
    reader, reader_res = _poll_op(history, odd.poll), _poll_res(history, odd.poll)
    known = odd.append >= 0
    status = np.where(
        known, history.append_status[odd.append] if len(history.append_status) else FAIL, FAIL
    )
    failed = known & (status == FAIL)
    # Read where it was acknowledged, it is no duplicate: its offset then holds a second value (C1).
    home_offset = (
        history.append_offset[odd.append]
        if len(history.append_offset)
        else np.full_like(offset, -1)
    )
    elsewhere = known & (status == OK_AT) & (home_offset != offset)

    # A revealed append that was read at several offsets is a duplicate at all but its lowest.
    free = np.flatnonzero(known & ~failed & ~elsewhere)
    order = free[np.lexsort((odd.place[free], odd.append[free]))]
    again = np.zeros(len(order), dtype=np.bool_)
    again[1:] = odd.append[order][1:] == odd.append[order][:-1]
    group_start = np.maximum.accumulate(np.where(~again, np.arange(len(order)), 0))
    repeated, original = order[again], order[group_start[again]]
    twice = np.concatenate((np.flatnonzero(elsewhere), repeated))
    home = np.concatenate((home_offset[elsewhere], offset[original]))
    home_reader = np.concatenate((np.full(int(elsewhere.sum()), ABSENT), reader[original]))
    return [
        finding(
            "phantom-value",
            reader[~known],
            offset=offset[~known],
            other=odd.value[~known],
            since_ns=reader_res[~known],
        ),
        finding(
            "failed-append-visible",
            odd.value[failed],
            second=reader[failed],
            offset=offset[failed],
            since_ns=reader_res[failed],
        ),
        finding(
            "duplicate",
            odd.value[twice],
            second=reader[twice],
            third=home_reader,
            offset=offset[twice],
            other=home,
            since_ns=reader_res[twice],
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occupied:
    """Which places have a record, which of these not only by an acknowledgement with acks=1, and whose it is."""

    known: Bools
    firm: Bools
    value: I64

    def first_within(self, occupied: Bools, first: I64, last: I64) -> tuple[I64, Bools]:
        """Returns the first occupied place of each range [first, last), and whether there is one."""
        stand = np.append(np.flatnonzero(occupied), len(occupied))
        found = stand[np.searchsorted(stand[:-1], first)]
        return found, found < last


def _gaps(
    history: PartitionHistory,
    places: Places,
    occupied: _Occupied,
    start: int,
    sparse: bool,
) -> tuple[list[Finding], I64, I64]:
    """Returns what breaks C4, and the ranges of offsets that reads skipped."""
    rows, previous = skips(history, start)
    if not len(rows):
        return [], rows, rows
    poll, offset = history.record_poll, history.record_offset
    first = np.maximum(previous + 1, start)
    last = offset[rows]
    if history.left_out:
        # The poll returned what was left out.
        real = ~history.left_out.holds(first, last)
        rows, first, last = rows[real], first[real], last[real]
    ranges = places.index(first), places.index(last)
    # The first record known to be in each gap; its append, where known, is a witness.
    firm, is_firm = occupied.first_within(occupied.firm, *ranges)
    skipped, known = occupied.first_within(occupied.known, *ranges)
    skipped = np.where(is_firm, firm, skipped)[known]
    value = occupied.value[skipped]
    append = np.where(value != NONE, value, ABSENT)
    reader = history.poll_op[poll[rows]]
    width = last - first
    findings = [
        finding(
            "lost-record",
            reader[known],
            second=append,
            offset=places.offset(skipped),
            other=width[known],
            since_ns=history.poll_res[poll[rows]][known],
            weak=~is_firm[known],
            gap_ns=width[known],
        )
    ]
    if not sparse:
        findings.append(
            finding(
                "skipped-offset",
                reader[~known],
                offset=first[~known],
                other=last[~known],
                since_ns=history.poll_res[poll[rows]][~known],
                gap_ns=width[~known],
            )
        )
    return findings, first, last


def skips(history: PartitionHistory, start: int) -> tuple[I64, I64]:
    """Returns rows of records before which their poll skipped something, and the last offset before the skip.

    Args:
        history: One partition.
        start: Offsets below it do not count.
    """
    poll, offset, head = history.record_poll, history.record_offset, history.record_heads
    if not len(offset) or not len(history.poll_op):
        none = np.empty(0, dtype=np.int64)
        return none, none
    inner = np.flatnonzero((poll[1:] == poll[:-1]) & (offset[1:] - offset[:-1] > 1)) + 1
    # Without a known position the first record of a poll proves nothing about what is before it.
    requested = history.poll_position[poll[head]]
    skips = (requested >= 0) & (offset[head] > requested)
    rows = np.concatenate((head[skips], inner))
    previous = np.concatenate((requested[skips] - 1, offset[inner - 1]))
    counts = (poll[rows] >= 0) & (offset[rows] > start)
    return rows[counts], previous[counts]


def _torn_fetches(history: PartitionHistory) -> list[Finding]:
    """Returns what breaks C5: responses with records at or beyond the log end that they report."""
    torn = np.flatnonzero((history.poll_end >= 0) & (history.poll_last >= history.poll_end))
    return [
        finding(
            "torn-fetch",
            history.poll_op[torn],
            offset=history.poll_last[torn],
            other=history.poll_end[torn],
            since_ns=history.poll_res[torn],
            gap_ns=history.poll_last[torn] - history.poll_end[torn],
        )
    ]


def _unbelievable(history: PartitionHistory) -> list[Finding]:
    """Returns records whose payload is not ours, and offsets that cannot be."""
    findings = []
    if not history.record_trusted.all():
        for identifier, rows in (
            ("corrupt-record", ~history.record_trusted & ~history.record_foreign),
            ("misplaced-record", history.record_foreign),
        ):
            poll = history.record_poll[rows]
            findings.append(
                finding(
                    identifier,
                    _poll_op(history, poll),
                    offset=history.record_offset[rows],
                    other=history.record_value[rows],
                    since_ns=_poll_res(history, poll),
                )
            )
    if len(history.odd_op):
        findings.append(finding("impossible-offset", history.odd_op, offset=history.odd_offset))
    return findings
