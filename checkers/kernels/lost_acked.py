"""Acknowledged records that are gone, and read records that are gone.

The final reads decide: after all faults are healed, every partition is read from its start to its end.
An acknowledged record that they do not contain is

- *lost* if they went past its offset (they returned a record at or beyond it), or if they reached the settled end
  of the log below its offset, or if its offset was acknowledged to another append that stayed, or if committed
  metadata has no such log any more, so that nothing can be read;
- *unseen* otherwise: its fate is unknown, and the run's verdict cannot be better than unknown. The same holds for
  a record that a poll returned, however it was acknowledged.

An append that was acknowledged without an offset is lost if complete final reads do not contain it.

In a sparse log the final reads also went over offsets that hold no record: those between two final polls of one
process that follow each other.

Whether a loss is a broken promise, excused by a flagged election or allowed by acks=1 is not decided here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.claims import ClaimReader
from checkers.kernels.columns import find_pairs, heads
from checkers.kernels.elections import Elections
from checkers.kernels.facts import Facts
from checkers.kernels.findings import Finding, finding
from checkers.kernels.free_appends import earliest_present
from checkers.kernels.history import (
    ABSENT,
    I64,
    INF_NS,
    OK_AT,
    OK_SOMEWHERE,
    Bools,
    PartitionHistory,
)
from checkers.kernels.left_out import largest_end
from checkers.kernels.refusals import int_column

PASSED_OVER, REUSED, BEYOND_END, UNKNOWN, NOWHERE, LOG_GONE = 0, 1, 2, 3, 4, 5
"""How a record is known to be gone: the final reads went past it; its offset belongs to another record; the log
now ends below it; not known; its offset is not known, and it is at none; the log itself is gone."""


NO_RANGES: tuple[I64, I64] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """What the final reads showed.

    Attributes:
        end_offset: Largest log end seen in the final phase, -1 if none was.
        is_complete: Whether the reads cover everything from the log start to that end, which is settled.
        present: Per append, whether a final read returned its value; if producers send again, at its own offset.
        starts, stops: Merged ranges [start, stop) of offsets that the final reads went over.
        end_asked_ns: When the last operation was invoked that saw this log end in the final phase. What was known
            to exist only later may be beyond that end.
    """

    end_offset: int
    is_complete: bool
    present: Bools
    starts: I64
    stops: I64
    end_asked_ns: int

    def covers(self, offsets: I64) -> Bools:
        """Returns which offsets the final reads went over."""
        if not len(self.starts):
            return np.zeros(len(offsets), dtype=np.bool_)
        at = np.searchsorted(self.starts, offsets, side="right") - 1
        return (at >= 0) & (offsets < self.stops[at])

    def ends_below(self, offsets: I64, seen_ns: I64, settled_end_offset: int | None) -> Bools:
        """Returns at which offsets there is no record because the settled log ends there or before.

        Args:
            offsets: Where records should be.
            seen_ns: When each was known to exist. A log end that was asked for before may have been too small
                then.
            settled_end_offset: Log end of the last leader, None if unknown. A leader that holds more than it may
                show (its ISR is too small) may still hold the record.
        """
        is_beyond = (offsets >= self.end_offset) & (offsets >= (settled_end_offset or 0))
        return self.is_complete & is_beyond & (seen_ns < self.end_asked_ns)


def final_log(
    history: PartitionHistory,
    *,
    log_start_offset: int = 0,
    phase_complete: bool = True,
    ends_recorded: bool = True,
    sent_twice: bool = False,
    passed: tuple[I64, I64] = NO_RANGES,
) -> FinalLog:
    """Returns what the final phase showed of the log.

    Args:
        history: One partition.
        log_start_offset: Nothing below it has to be there.
        phase_complete: Whether the run recorded that its final phase ended as planned.
        ends_recorded: Whether log ends were observed. If not, the log ends after the last record that was ever
            acknowledged or read.
        sent_twice: Whether producers without idempotence sent appends again. A copy that stays then does not
            replace the record that was acknowledged.
        passed: Ranges [start, stop) that the final reads went over without a record (`passed_between_polls`).
    """
    final = history.poll_final & history.poll_ok
    present = np.zeros(len(history.append_op), dtype=np.bool_)
    first = np.full(len(history.poll_op), INF_NS, dtype=np.int64)
    if len(history.record_poll) and final.any():
        # The records of a poll are in order of their offsets: its first one is the lowest.
        head = history.record_heads[history.record_poll[history.record_heads] >= 0]
        first[history.record_poll[head]] = history.record_offset[head]
        rows = (history.record_poll >= 0) & final[history.record_poll] & history.record_trusted
        rows &= history.record_append >= 0
        if sent_twice:
            rows &= ~_is_copy(history)
        present[history.record_append[np.flatnonzero(rows)]] = True
    if history.left_out:
        present[
            history.left_out.covers(history.append_offset) & (history.append_status == OK_AT)
        ] = True
        revealed = history.append_at(history.left_out.revealed_op)
        present[revealed[revealed >= 0]] = True
    polls = np.flatnonzero(final & (history.poll_last >= 0))
    requested = history.poll_position[polls]
    start = np.where(requested >= 0, np.minimum(requested, history.poll_last[polls]), first[polls])
    starts, stops = merged(
        np.concatenate((start, history.left_out.final_start, passed[0])),
        np.concatenate((history.poll_last[polls] + 1, history.left_out.final_stop, passed[1])),
    )
    end, asked_ns = largest_end(
        np.append(history.end_offset[history.end_final], history.left_out.final_end),
        np.append(history.end_inv[history.end_final], history.left_out.final_end_asked_ns),
    )
    has_end = end >= 0
    end = max(end, int(stops.max(initial=ABSENT)))
    if not ends_recorded:
        acked = history.append_offset[history.append_status == OK_AT]
        known = max(int(acked.max(initial=ABSENT)), int(history.record_offset.max(initial=ABSENT)))
        has_end, end = True, max(end, known + 1)
    reached = end <= log_start_offset or bool(
        len(starts) and ((starts <= log_start_offset) & (stops >= end)).any()
    )
    return FinalLog(
        end_offset=end,
        is_complete=phase_complete and has_end and reached,
        present=present,
        starts=starts,
        stops=stops,
        end_asked_ns=asked_ns,
    )


def _is_copy(history: PartitionHistory) -> Bools:
    """Returns which records belong to appends that were acknowledged at another offset."""
    append, count = history.record_append, len(history.append_op)
    if not count:
        return np.zeros(len(append), dtype=np.bool_)
    elsewhere = history.append_offset[append] != history.record_offset
    is_copy: Bools = (append >= 0) & (history.append_status[append] == OK_AT) & elsewhere
    return is_copy


def passed_between_polls(history: PartitionHistory, operations: pa.Table) -> tuple[I64, I64]:
    """Returns the ranges [start, stop) between final polls of one process that follow each other.

    A consumer moves past markers, and past records that it must not return, without a record to show for it; only
    the position of its next poll shows how far it got. Any other poll in between may have returned records that
    do not count, so nothing is known then.

    Args:
        history: One partition.
        operations: Its rows, in any order.
    """
    op, process = int_column(operations, "op_index"), int_column(operations, "process")
    by_op = np.argsort(op)
    process = process[by_op][np.searchsorted(op[by_op], history.poll_op)]
    reach = np.where(history.poll_last >= 0, history.poll_last + 1, ABSENT)
    reach = np.maximum(reach, history.poll_position)
    counts = history.poll_final & history.poll_ok
    before, after = following(process, counts, history.poll_inv, history.poll_res)
    start, stop = reach[before], history.poll_position[after]
    rows = (start >= 0) & (start < stop)
    return start[rows], stop[rows]


def following(process: I64, counts: Bools, begin_ns: I64, end_ns: I64) -> tuple[I64, I64]:
    """Returns the pairs of polls that one process made one after the other, if both count.

    The clock alone shows the order. A poll that begins and ends together with another one is in no pair, because
    which of them was first is not known.

    Args:
        process: Who made each poll.
        counts: Whether it counts.
        begin_ns: When it was invoked.
        end_ns: When it was completed.

    Returns:
        The positions of the earlier and of the later polls.
    """
    order = np.lexsort((end_ns, begin_ns, process))
    before, after = order[:-1], order[1:]
    is_same = process[before] == process[after]
    tied = is_same & (end_ns[before] == begin_ns[before]) & (end_ns[after] == begin_ns[before])
    is_tied = np.append(tied, False) | np.append(False, tied)
    follows = is_same & counts[before] & counts[after] & (end_ns[before] <= begin_ns[after])
    follows &= ~is_tied[:-1] & ~is_tied[1:]
    return before[follows], after[follows]


def has_room(taken: I64, start: I64, stop: I64) -> Bools:
    """Returns in which ranges [start, stop) an offset is left.

    Args:
        taken: The offsets that are not left, ascending and each once.
        start: Of each range.
        stop: Likewise.
    """
    count = np.searchsorted(taken, stop) - np.searchsorted(taken, start)
    is_left: Bools = (start < stop) & (count < stop - start)
    return is_left


def merged(start: I64, stop: I64) -> tuple[I64, I64]:
    """Returns the union of ranges as disjoint ranges, ascending."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(stop[order])
    if not len(start):
        return start, reach
    opens = np.append(True, start[1:] > reach[:-1])
    closes = np.append(opens[1:], True)
    return start[opens], reach[closes]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """What the kernel found in one partition.

    Attributes:
        findings: Not yet judged.
        final: What the final reads showed.
        coverage: Counts that show how much was tested.
    """

    findings: tuple[Finding, ...]
    final: FinalLog
    coverage: dict[str, Any]


def check_losses(
    history: PartitionHistory,
    facts: Facts,
    elections: Elections,
    reader: ClaimReader,
    *,
    log_start_offset: int = 0,
    phase_complete: bool = True,
    ends_recorded: bool = True,
    sent_twice: bool = False,
    clock_error_ns: int = 0,
    passed: tuple[I64, I64] = NO_RANGES,
) -> LossReport:
    """Finds acknowledged and read records that are gone.

    Args:
        history: One partition.
        facts: Derived from it.
        elections: Of the same partition; for the settled log end.
        reader: What its operations show of records; for the order in which they were established. If producers may
            have sent appends again, a record that was read at one offset is gone even if the final reads show a
            copy of it at another one.
        log_start_offset: Nothing below it has to be there.
        phase_complete: Whether the run recorded that its final phase ended as planned.
        ends_recorded: Whether log ends were observed.
        sent_twice: See `final_log`.
        clock_error_ns: By how much two clocks of the run may differ; it only ever hides losses.
        passed: See `final_log`.

    Returns:
        Findings `lost-acked-write`, `lost-acked-write-acks1`, `unseen`, `offset-reused` and `visible-regress`.
        `other` of the first two and the last holds how it is known (PASSED_OVER ...).

    Source:
        `docs/variants.md`, "How a loss is judged"; KIP-966. Jepsen's `lost-write` and `unseen` are the same idea.
    """
    final = final_log(
        history,
        log_start_offset=log_start_offset,
        phase_complete=phase_complete,
        ends_recorded=ends_recorded,
        sent_twice=sent_twice,
        passed=passed,
    )
    reused, reused_by = _reused(history, facts, final, reader)
    acked = facts.acked_there
    missing = acked[~final.present[acked]]
    offset = history.append_offset[missing]
    seen_ns = history.append_res[missing] + clock_error_ns
    how, witness = _how(history, final, elections, offset, seen_ns)
    again = np.isin(missing, reused)
    at = np.searchsorted(reused, missing[again])
    how[again & (how == UNKNOWN)] = REUSED
    witness[again] = reused_by[at]
    nowhere, nowhere_how = _nowhere(
        history,
        facts,
        final,
        elections,
        log_start_offset,
        sent_twice=sent_twice,
        clock_error_ns=clock_error_ns,
    )
    if not ends_recorded:
        # The final reads may have missed the end of the log; the reader of the history reports that.
        nowhere, nowhere_how = nowhere[:0], nowhere_how[:0]
    missing, how = np.concatenate((missing, nowhere)), np.concatenate((how, nowhere_how))
    witness = np.concatenate((witness, np.full(len(nowhere), ABSENT)))
    lost = how != UNKNOWN
    acks_all = history.append_acks[missing] == -1
    findings = [
        _loss(identifier, history, missing, rows, witness, how)
        for identifier, rows in (
            ("lost-acked-write", lost & acks_all),
            ("lost-acked-write-acks1", lost & ~acks_all),
            ("unseen", ~lost & acks_all),
        )
    ]
    regress, read_unseen = _visible_regress(
        history,
        final,
        elections,
        log_start_offset,
        by_offset=reader.sent_again or sent_twice,
        clock_error_ns=clock_error_ns,
    )
    findings += [_offset_reused(history, facts, reused, reused_by), regress]
    coverage = {
        "final_end_offset": final.end_offset,
        "final_reads_complete": final.is_complete,
        "acked_in_final_reads": int(final.present[acked].sum()),
        "acked_unseen": int((~lost & acks_all).sum()),
        "read_unseen": read_unseen,
    }
    return LossReport(
        findings=tuple(f for f in findings if f.count), final=final, coverage=coverage
    )


def _nowhere(
    history: PartitionHistory,
    facts: Facts,
    final: FinalLog,
    elections: Elections,
    log_start_offset: int,
    *,
    sent_twice: bool,
    clock_error_ns: int,
) -> tuple[I64, I64]:
    """Returns appends acknowledged without an offset that no read showed, and what is known of each."""
    free = (history.append_status == OK_SOMEWHERE) & ~final.present & ~facts.append_read
    appends = np.flatnonzero(free)
    removable = np.zeros(len(appends), dtype=np.bool_)
    if log_start_offset:
        # Retention may have removed it, unless the log was past its start before it began.
        present_ns = earliest_present(history, facts, clock_error_ns, sent_twice=sent_twice)
        there_ns = present_ns[facts.first_there :].min(initial=INF_NS)
        removable = history.append_inv[appends] <= there_ns
        # There is no room for more of them below the start; which of them are gone is not known.
        more = np.flatnonzero(removable)[_room_below_start(history, facts) :]
        appends = np.append(appends[~removable], appends[more])
        removable = np.append(removable[~removable], removable[more])
    hidden = (elections.settled_end_offset or 0) > final.end_offset
    # A log that lost its end may have grown past its start once more.
    is_unsure = log_start_offset > 0 and elections.can_excuse
    how = np.full(len(appends), _unknown(elections), dtype=np.int64)
    if final.is_complete and not hidden and not is_unsure:
        is_over = history.append_res[appends] + clock_error_ns < final.end_asked_ns
        how[is_over & ~removable] = NOWHERE
    return appends, how


def _room_below_start(history: PartitionHistory, facts: Facts) -> int:
    """Returns how many offsets below the log start no record is known to have had that must have stayed."""
    start, count = facts.log_start_offset, facts.first_there
    taken = facts.occupied.copy()
    weak = facts.append_weak[facts.acked]
    taken[facts.acked_place[weak]] = False
    taken[facts.acked_place[~weak]] = True
    taken[facts.places.existing(history.record_offset)] = True
    taken = taken[:count] & ~history.left_out.covers(facts.places.offset(np.arange(count)))
    left_out = np.minimum(history.left_out.stop, start) - np.minimum(history.left_out.start, start)
    return start - int(np.count_nonzero(taken)) - int(left_out.sum())


def _unknown(elections: Elections) -> int:
    """Returns what a record is of which the final reads show nothing."""
    return LOG_GONE if elections.log_is_gone else UNKNOWN


def _loss(
    identifier: str,
    history: PartitionHistory,
    missing: I64,
    rows: Bools,
    witness: I64,
    how: I64,
) -> Finding:
    append = missing[rows]
    return finding(
        identifier,
        history.append_op[append],
        second=witness[rows],
        offset=history.append_offset[append],
        other=how[rows],
        since_ns=history.append_res[append],
    )


def _how(
    history: PartitionHistory, final: FinalLog, elections: Elections, offset: I64, seen_ns: I64
) -> tuple[I64, I64]:
    """Returns how absent records are known to be gone, and a final poll that shows it.

    Args:
        history: One partition.
        final: What the final reads showed.
        elections: For the settled log end.
        offset: Of each record.
        seen_ns: When it was known to exist. A log end that was asked for before may have been too small then.
    """
    how = np.full(len(offset), _unknown(elections), dtype=np.int64)
    witness = np.full(len(offset), ABSENT, dtype=np.int64)
    how[final.ends_below(offset, seen_ns, elections.settled_end_offset)] = BEYOND_END
    covered = final.covers(offset)
    how[covered] = PASSED_OVER
    polls = np.flatnonzero(history.poll_final & history.poll_ok & (history.poll_last >= 0))
    if len(polls):
        position = history.poll_position[polls]
        polls = polls[np.lexsort((polls, position))]
        at = np.searchsorted(history.poll_position[polls], offset, side="right") - 1
        passes = covered & (at >= 0) & (history.poll_last[polls[at]] >= offset)
        witness[passes] = history.poll_op[polls[at[passes]]]
    return how, witness


def _reused(
    history: PartitionHistory, facts: Facts, final: FinalLog, reader: ClaimReader
) -> tuple[I64, I64]:
    """Returns appends (ascending) that lost their offset to another acknowledged append, and the op of that one.

    Of several appends acknowledged at one offset the one stays that the final reads show; if none, one that must
    stay (not weak), the one established last. Acknowledgements may arrive in another order.
    """
    acked = facts.acked
    is_contested = facts.value[facts.acked_place] != history.append_op[acked]
    if history.left_out:
        is_contested &= ~history.left_out.covers(history.append_offset[acked])
    if not is_contested.any():
        none = np.empty(0, dtype=np.int64)
        return none, none
    rows = np.flatnonzero(np.isin(facts.acked_place, facts.acked_place[is_contested]))
    append, place = acked[rows], facts.acked_place[rows]
    op = history.append_op[append]
    claims = reader.claims(op, history.append_offset[append], op)
    order = np.lexsort(
        (
            op,
            history.append_res[append],
            claims.by_ns,
            ~facts.append_weak[append],
            final.present[append],
            place,
        )
    )
    append, place = append[order], place[order]
    stays = np.append(place[1:] != place[:-1], True)
    group = np.cumsum(stays) - stays
    survivor = append[np.flatnonzero(stays)[group]]
    by_append = np.argsort(append[~stays])
    return append[~stays][by_append], history.append_op[survivor[~stays]][by_append]


def _offset_reused(history: PartitionHistory, facts: Facts, reused: I64, reused_by: I64) -> Finding:
    return finding(
        "offset-reused",
        history.append_op[reused],
        second=reused_by,
        offset=history.append_offset[reused],
        since_ns=history.append_res[reused],
        weak=facts.append_weak[reused],
    )


def _visible_regress(
    history: PartitionHistory,
    final: FinalLog,
    elections: Elections,
    log_start_offset: int,
    *,
    by_offset: bool,
    clock_error_ns: int,
) -> tuple[Finding, int]:
    """Returns records that some poll returned and that are gone, and of how many more that is not known.

    Args:
        history: One partition.
        final: What the final reads showed.
        elections: For the settled log end.
        log_start_offset: Nothing below it has to be there.
        by_offset: Whether a record is gone that the final reads show only at another offset. Then what is gone
            from several offsets counts at each of them.
        clock_error_ns: Largest difference between two clocks of the run.
    """
    append = history.record_append
    gone = history.record_trusted & (history.record_poll >= 0) & (append >= 0)
    gone &= history.record_offset >= log_start_offset
    if by_offset:
        gone &= ~_is_shown(history)
    elif len(final.present):
        gone &= ~final.present[append]
    rows = np.flatnonzero(gone)
    append = append[rows]
    poll = history.record_poll[rows]
    keys = (history.record_offset[rows], append) if by_offset else (append,)
    order = np.lexsort((poll, history.poll_res[poll] if len(rows) else rows, *keys))
    first = order[heads(*(key[order] for key in keys))]
    rows, append, poll = rows[first], append[first], poll[first]
    offset = history.record_offset[rows]
    seen_ns = history.poll_res[poll] if len(poll) else poll
    how, _ = _how(history, final, elections, offset, seen_ns + clock_error_ns)
    known = how != UNKNOWN
    append, poll, offset = append[known], poll[known], offset[known]
    gone_for_certain = finding(
        "visible-regress",
        history.append_op[append],
        second=history.poll_op[poll] if len(poll) else poll,
        offset=offset,
        other=how[known],
        since_ns=history.poll_res[poll] if len(poll) else poll,
    )
    return gone_for_certain, int((~known).sum())


def _is_shown(history: PartitionHistory) -> Bools:
    """Returns which records a final read returned with the same value at the same offset."""
    append, offset = history.record_append, history.record_offset
    polls = history.poll_final & history.poll_ok
    is_final = history.record_trusted & (history.record_poll >= 0) & (append >= 0)
    is_final[is_final] = polls[history.record_poll[is_final]]
    shown_at = np.full(len(history.append_op), ABSENT, dtype=np.int64)
    shown_at[append[is_final]] = offset[is_final]
    is_shown = np.zeros(len(append), dtype=np.bool_)
    known = np.flatnonzero(append >= 0)
    is_shown[known] = shown_at[append[known]] == offset[known]
    # Of an append that the final reads show at several offsets, one was compared.
    rest = known[~is_shown[known] & (shown_at[append[known]] >= 0)]
    if len(rest):
        moved = np.flatnonzero(is_final)
        moved = moved[np.isin(append[moved], append[rest])]
        order = moved[np.lexsort((offset[moved], append[moved]))]
        _, is_shown[rest] = find_pairs(append[order], offset[order], append[rest], offset[rest])
    return is_shown
