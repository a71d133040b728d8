"""What idempotent producers promise: the log holds a session's records in the order of sending, without gaps.

A leader accepts a batch of an idempotent producer only if its sequence number follows that of the batch before
it. So the records of one session (one producer id and epoch, one partition) are in the log in the order in which
they were sent, whatever became of their responses (`out-of-sequence`), and a record that is in the log proves that
everything sent before it was appended as well (`producer-gap`), whether it was acknowledged or only read. Each
record is compared with the next one of its session, and with the next one that the final reads returned too: what
was lost between them may excuse the order of its neighbours, but not theirs.

A run whose producers are idempotent names the checker `idempotent-producer`. It states that each of its processes
is one session: one producer id and epoch, sequence numbers in the order of invocation, `fail` only for records
that took no place. A client that continues with a new epoch after a timeout (KIP-360) is another process.

A leader that knows nothing of a producer accepts any sequence number. It may never have had a record of it: the
requests with the first records were lost, or only a leader had them that an ordinary election deposed. So a gap is
undecided unless a record that the session sent before it is in the log.

A leader that lost what it knew of a producer knows nothing of it either. So a lawful flagged election excuses
both if it was after the first record was sent, and before it is certain that the second one was in the log. What a
leader lost it does not know later either, until it has a record of the session again. So an election before the
missing record of a gap was sent counts too, if every record that the session had sent by then is gone. An
acknowledgement of the second one makes that certain. Without one, it may have been sent again to a new leader at
any time, so every election up to the last read is an excuse. There is one exception: nothing precedes a record
at offset 0, so a read of it shows a gap at once. Records out of sequence are excused as well if the first of
them was lost excusably before the second one was established (`excuses`).

An election after faults destroyed what only one replica had (`elections`) is such an excuse too, for what was sent
while that replica was alone and before the fault was over. It is undecided for what may have been sent before.

A leader reads its log when it begins, so it knows what is in there, whichever leaders came before. So nothing
excuses a gap if a record of the session from before the gap is below the second record in one log, and nothing
excuses records out of sequence that are both in one log. One final poll shows one log, and so do the final polls
that were served in one leader epoch. If other final polls show the two records, the first one may have gone
between these polls, which is undecided.

In a compacted topic the missing record of a gap may have been appended and removed since. So there is no gap if
the final reads returned nothing at an offset between those of the records of the session around it, and a record
of its key behind that offset. If an election may have lost that record, a gap is undecided.

A leader that was deposed may respond to a final poll too, from a log that is not the one at the end. So a gap is
undecided if its second record is shown only by final polls of older leader epochs than that of another final poll.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES
from checkers.expectations import Case, judge
from checkers.kernels.columns import find_pairs
from checkers.kernels.elections import Elections
from checkers.kernels.evidence import Evidence, sentence
from checkers.kernels.excuses import Excuses
from checkers.kernels.facts import Facts
from checkers.kernels.fates import EXCUSED, UNDECIDED, UNEXCUSED, Election
from checkers.kernels.final_polls import epochs_of, records_of_final_polls
from checkers.kernels.findings import Finding, finding
from checkers.kernels.history import (
    ABSENT,
    I64,
    INF_NS,
    INFO,
    OK_AT,
    Bools,
    PartitionHistory,
    lookup,
)
from checkers.kernels.judging import expectations_of
from checkers.kernels.log_checkers import LOG_TABLES, elections_of, final_log_of, log_of, reader_of
from checkers.kernels.lost_acked import FinalLog, has_room
from checkers.kernels.refusals import int_column, text_column
from checkers.kernels.sequences import process_codes
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import RunContext

ACKS_ALL = -1


def check_session_order(history: PartitionHistory, facts: Facts) -> Finding:
    """Finds records whose place is not above that of a record that their session sent before them.

    Returns:
        `out-of-sequence`; records of unknown outcome count where a read revealed their place.
    """
    appends = np.concatenate((facts.acked, facts.pinned))
    places = np.concatenate((facts.acked_place, facts.pinned_place))
    counts = history.append_acks[appends] == ACKS_ALL
    appends, offset = appends[counts], facts.places.offset(places[counts])
    order = np.lexsort((offset, appends, process_codes(history.append_process[appends])))
    appends, offset = appends[order], offset[order]
    process = history.append_process[appends]

    def not_ascending(rows: I64) -> tuple[I64, I64]:
        earlier, later = rows[:-1], rows[1:]
        # One record at two places is a duplicate; its own name is enough.
        is_bad = (process[later] == process[earlier]) & (appends[later] != appends[earlier])
        is_bad &= offset[later] <= offset[earlier]
        return earlier[is_bad], later[is_bad]

    first, second = not_ascending(np.arange(len(appends)))
    if len(first):
        stayed = np.flatnonzero(_are_final(history, appends, offset))
        before, after = not_ascending(stayed)
        is_new = after - before > 1
        first, second = (
            np.append(rows, more[is_new]) for rows, more in ((first, before), (second, after))
        )
    earlier, later = appends[first], appends[second]
    return finding(
        "out-of-sequence",
        history.append_op[earlier],
        second=history.append_op[later],
        offset=offset[first],
        other=offset[second],
        since_ns=history.append_inv[earlier],
        gap_ns=history.append_inv[later] - history.append_inv[earlier],
    )


def _are_final(history: PartitionHistory, appends: I64, offsets: I64) -> Bools:
    """Returns which records final reads returned at these offsets."""
    rows = records_of_final_polls(history)
    append, offset = history.record_append[rows], history.record_offset[rows]
    if not len(rows):
        return np.zeros(len(appends), dtype=np.bool_)
    order = np.lexsort((offset, append))
    return find_pairs(append[order], offset[order], appends, offsets)[1]


def check_gaps(
    history: PartitionHistory, facts: Facts, final: FinalLog, last_of_key: I64 | None = None
) -> Finding:
    """Finds records that are certainly not in the log although a later one of their session is.

    Args:
        history: One partition.
        facts: Derived from it.
        final: What the final reads showed; they have to be complete.
        last_of_key: Per append, the largest offset at which the final reads returned a record of its key, -1 if
            they returned none; None if the topic is not compacted.

    Returns:
        `producer-gap`: `first` is the missing record, `second` the first later one that is in the log, `third` the
        last one that was sent before `first` and is in the log, ABSENT if none is.
    """
    if not final.is_complete or not history.record_trusted.all():
        # A record that cannot be read may be the missing one.
        return finding("producer-gap", np.empty(0, dtype=np.int64))
    is_sent = history.append_acks == ACKS_ALL
    appends = np.flatnonzero(is_sent)
    order = np.argsort(process_codes(history.append_process[appends]), kind="stable")
    appends = appends[order]
    # Where each record is; of one that a read revealed, the lowest place.
    offset = np.where(history.append_status == OK_AT, history.append_offset, INF_NS)
    np.minimum.at(offset, facts.pinned, facts.places.offset(facts.pinned_place))
    stays = final.present[appends] & (offset[appends] < INF_NS)
    stays &= offset[appends] >= facts.log_start_offset
    missing = (history.append_status[appends] == INFO) & ~facts.append_read[appends]
    # The first record at or after each row that is in the log, to be of the same process.
    position = np.where(stays, np.arange(len(appends)), len(appends))
    following = np.minimum.accumulate(position[::-1])[::-1]
    rows = np.flatnonzero(missing & (following < len(appends)))
    process = history.append_process[appends]
    rows = rows[process[rows] == process[following[rows]]]
    before = np.maximum.accumulate(np.where(stays, np.arange(len(appends)), -1))[rows]
    is_known = (before >= 0) & (process[before] == process[rows])
    if facts.log_start_offset:
        # The missing record may have been below the log start, unless one that was sent before it is not.
        rows, before, is_known = rows[is_known], before[is_known], is_known[is_known]
    if last_of_key is not None:
        below = np.where(is_known, offset[appends[before]], facts.log_start_offset - 1)
        above = np.minimum(offset[appends[following[rows]]], last_of_key[appends[rows]])
        is_gap = ~has_room(_taken(history), below + 1, above)
        rows, before, is_known = rows[is_gap], before[is_gap], is_known[is_gap]
    first, second = appends[rows], appends[following[rows]]
    since_ns = _unknown_since(history, appends, stays)[rows]
    return finding(
        "producer-gap",
        history.append_op[first],
        second=history.append_op[second],
        third=np.where(is_known, history.append_op[appends[before]], ABSENT),
        other=offset[second],
        since_ns=since_ns,
        gap_ns=history.append_inv[second] - history.append_inv[first],
    )


def _lowest_places(history: PartitionHistory) -> I64:
    """Returns the lowest offset at which each append is known to have been, infinity if none is known."""
    is_at = history.append_status == OK_AT
    place: I64 = np.where(is_at, history.append_offset, INF_NS)
    rows = np.flatnonzero(history.record_append >= 0)
    np.minimum.at(place, history.record_append[rows], history.record_offset[rows])
    return place


def _taken(history: PartitionHistory) -> I64:
    """Returns the offsets at which the final reads returned a record, ascending."""
    rows = history.record_poll >= 0
    rows &= history.poll_final[history.record_poll]
    return np.unique(history.record_offset[rows])


def _last_of_key(history: PartitionHistory, tables: Mapping[str, pa.Table]) -> I64:
    """Returns the largest offset at which final reads returned a record of each append's key, -1 if at none."""
    records, operations = tables["records_read"], tables["operations"]
    is_final = pc.is_in(records.column("op_index"), pa.array(history.poll_op[history.poll_final]))
    keys = text_column(records, "key").combine_chunks().filter(is_final)
    offsets = records.column("offset").filter(is_final)
    last = pa.table({"key": keys, "offset": offsets}).group_by("key").aggregate([("offset", "max")])
    # Records without a key replace nothing.
    last = last.filter(pc.field("key") != "")
    place = pc.index_in(text_column(operations, "key"), last.column("key").combine_chunks())
    row = np.append(int_column(last, "offset_max"), ABSENT)[pc.fill_null(place, -1).to_numpy()]
    op = int_column(operations, "op_index")
    order = np.argsort(op, kind="stable")
    found: I64 = row[order[lookup(op[order])(history.append_op)]]
    return found


def _unknown_since(history: PartitionHistory, appends: I64, stays: Bools) -> I64:
    """Returns since when a leader that loses what it knows of a session still knows nothing of it at each append.

    Args:
        history: One partition.
        appends: Those of the sessions, one session after the other, each in the order of sending.
        stays: Which of them are in the final log.

    Returns:
        When the session began, if none of its records before the append is in the log; otherwise when it was sent.
    """
    process = history.append_process[appends]
    rows = np.arange(len(appends))
    begins = np.append(True, process[1:] != process[:-1])[: len(rows)]
    begin = np.maximum.accumulate(np.where(begins, rows, 0))
    is_known = np.maximum.accumulate(np.where(stays, rows, -1)) >= begin
    since_ns: I64 = history.append_inv[appends[np.where(is_known, rows, begin)]]
    return since_ns


class IdempotentProducer:
    """The checker `idempotent-producer`; see the module."""

    name = "idempotent-producer"
    tables = LOG_TABLES
    per_partition = True

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        """Checks the sessions of one partition."""
        report = log_of(tables, context)
        history, facts = report.history, report.facts
        last_of_key = _last_of_key(history, tables) if context.compacted else None
        findings: list[CheckerFinding] = []
        for found in (
            check_session_order(history, facts),
            check_gaps(history, facts, final_log_of(tables, context), last_of_key),
        ):
            if found.count:
                elections = elections_of(tables, context)
                excuses = Excuses(history, reader_of(tables, context), elections, report.findings)
                outcome = excuses.fates(found).outcome
                is_unsure = np.zeros(found.count, dtype=np.bool_)
                if found.id == "producer-gap" and context.compacted and elections.can_excuse:
                    # The cleaner may have removed it because of a record that an election lost.
                    below = _lowest_places(history)[history.append_at(found.third)]
                    below[found.third == ABSENT] = ABSENT
                    is_unsure = reader_of(tables, context).have_later(found.first, below)
                findings += _judged(
                    found, history, elections, tables["operations"], context, outcome, is_unsure
                )
        return CheckerReport(findings=tuple(findings))


IDEMPOTENT_PRODUCER = IdempotentProducer()


def _judged(
    found: Finding,
    history: PartitionHistory,
    elections: Elections,
    operations: pa.Table,
    context: RunContext,
    outcome: Any,
    is_unsure: Bools,
) -> list[CheckerFinding]:
    evidence = Evidence(operations)
    by_ns, last_ns = _in_the_log_by(found, history)
    for election in (*elections.elections, *elections.cuts):
        explained = _explained(found, election, by_ns, last_ns, context.clock_error_ns)
        outcome = np.maximum(outcome, explained)
    rows = np.flatnonzero(outcome > UNEXCUSED)
    if len(rows):
        best = _best_outcome(found.take(rows), history, operations)
        outcome[rows] = np.minimum(outcome[rows], best)
    if found.id == "producer-gap":
        # The leader may never have had a record of the session.
        is_unsure = is_unsure | (found.third == ABSENT)
        is_unsure |= _is_in_older_log(found, history, operations)
        outcome[is_unsure & (outcome == UNEXCUSED)] = UNDECIDED
    findings = []
    for result in (UNEXCUSED, EXCUSED, UNDECIDED):
        rows = np.flatnonzero(outcome == result)
        if not len(rows):
            continue
        worst = found.worst(rows)
        case = Case(
            id=found.id,
            is_weak=False,
            is_excused=result == EXCUSED,
            is_undecided=result == UNDECIDED,
            expectations=expectations_of(context),
        )
        row = judge(case)
        findings.append(
            CheckerFinding(
                id=found.id,
                level=ANOMALIES[found.id].level,
                count=len(rows),
                judgement=row.judgement,
                rule=row.rule,
                sentence=sentence(found, worst),
                witnesses=evidence.witnesses(found, worst),
            )
        )
    return findings


def _explained(found: Finding, election: Election, by_ns: I64, last_ns: I64, error_ns: int) -> I64:
    """Returns what one election means for each instance, if it lost what the leader before it knew.

    Args:
        found: The instances.
        election: The election.
        by_ns: When the second record was certainly there, for the first time.
        last_ns: For the last time.
        error_ns: Largest difference between two clocks.
    """
    since_ns = found.since_ns
    early_ns, late_ns = election.earliest_ns - error_ns, election.at_ns + error_ns
    perhaps = (since_ns <= late_ns) & (early_ns <= last_ns)
    certain = (since_ns <= early_ns) & (late_ns <= by_ns)
    outcome = np.full(found.count, UNEXCUSED, dtype=np.int64)
    if election.may_excuse:
        outcome[perhaps] = UNDECIDED
        if election.excuses:
            outcome[certain] = EXCUSED
    for alone in election.alone:
        may_be_lost = perhaps & (since_ns - error_ns <= alone.until_ns)
        outcome[may_be_lost] = np.maximum(outcome[may_be_lost], UNDECIDED)
        is_alone = (since_ns - error_ns >= alone.since_ns) & (since_ns + error_ns <= alone.until_ns)
        outcome[certain & is_alone] = EXCUSED
    return outcome


def _best_outcome(found: Finding, history: PartitionHistory, operations: pa.Table) -> I64:
    """Returns the best that elections can make of each instance, by what was in one log with its second record."""
    rows = records_of_final_polls(history)
    rows = rows[history.append_acks[history.record_append[rows]] == ACKS_ALL]
    append, offset = history.record_append[rows], history.record_offset[rows]
    poll, process = history.record_poll[rows], history.append_process[append]
    epoch = epochs_of(history.poll_op[poll], operations)
    best = np.full(found.count, EXCUSED, dtype=np.int64)
    first, second = (history.append_at(ops) for ops in (found.first, found.second))
    for row in range(found.count):
        later = np.flatnonzero(append == second[row])
        if found.id == "producer-gap":
            later = later[offset[later] == offset[later].min(initial=INF_NS)]
            below = (process == history.append_process[first[row]]) & (append < first[row])
            earlier = np.flatnonzero(below & (offset < offset[later].min(initial=INF_NS)))
        else:
            later = later[offset[later] == found.other[row]]
            earlier = np.flatnonzero((append == first[row]) & (offset == found.offset[row]))
            if found.offset[row] == found.other[row]:
                continue  # one log has one record at an offset
        if not len(later) or not len(earlier):
            continue
        of_one_epoch = epoch[later][epoch[later] >= 0]
        is_one_log = np.isin(poll[earlier], poll[later]) | np.isin(epoch[earlier], of_one_epoch)
        best[row] = UNEXCUSED if is_one_log.any() else UNDECIDED
    return best


def _is_in_older_log(found: Finding, history: PartitionHistory, operations: pa.Table) -> Bools:
    """Returns which second records are shown only by final polls to which a deposed leader responded."""
    rows = records_of_final_polls(history)
    epoch = epochs_of(history.poll_op, operations)
    newest = epoch[history.poll_final & history.poll_ok].max(initial=-1)
    is_older = (epoch >= 0) & (epoch < newest)
    append, older = history.record_append[rows], is_older[history.record_poll[rows]]
    second = history.append_at(found.second)
    is_shown: Bools = np.isin(second, append[older]) & ~np.isin(second, append[~older])
    return is_shown


def _in_the_log_by(found: Finding, history: PartitionHistory) -> tuple[I64, I64]:
    """Returns when the second record of each instance was certainly where the finding says, for the first time.

    And for the last time: after a `producer-gap`, a late copy of the request may have put the record at the same
    offset again, once it was lost with all that a leader knew of the session.
    """
    first, second = (history.append_at(ops) for ops in (found.first, found.second))
    rows = np.flatnonzero((history.record_poll >= 0) & history.record_trusted)
    returned_ns = history.poll_res[history.record_poll[rows]]
    # All that is known of the two records was known then.
    last_read_ns = int(returned_ns.max(initial=0))
    last = np.full(found.count, last_read_ns)
    has_response = history.append_status[first] != INFO
    last[has_response] = np.maximum(last, history.append_res[first])[has_response]
    if found.id == "producer-gap":
        rows = rows[history.record_offset[rows] == 0]
        first_ns = np.full(len(history.append_op), INF_NS, dtype=np.int64)
        at_start = history.record_append[rows]
        is_append = at_start >= 0
        returned_ns = history.poll_res[history.record_poll[rows]]
        np.minimum.at(first_ns, at_start[is_append], returned_ns[is_append])
        last = np.minimum(last, first_ns[second])
    is_acked = history.append_status[second] != INFO
    by_ns = np.where(is_acked, history.append_res[second], last)
    may_return = is_acked & (found.id == "producer-gap")
    return by_ns, np.where(may_return, np.maximum(by_ns, last_read_ns), by_ns)
