"""The smallest set of operations that shows an anomaly, described so that a reader can verify it by hand."""

from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.fates import Election
from checkers.kernels.findings import Finding
from checkers.kernels.history import ABSENT, INF_NS, by_op_index
from checkers.kernels.lost_acked import BEYOND_END, LOG_GONE, PASSED_OVER, REUSED
from harness.contracts.verdict import Witness

WITNESS_COUNT_MAX = 3
"""No violation of a log needs more operations than this to be shown."""


def seconds(time_ns: int | None) -> str:
    """Returns a time as seconds since the start of the run, for example "101.220 s"."""
    return "open" if time_ns is None or time_ns >= INF_NS else f"{time_ns / 1e9:.3f} s"


def duration(time_ns: int) -> str:
    """Returns a length of time in a unit that keeps three digits readable."""
    if time_ns < 1_000:
        return f"{time_ns} ns"
    if time_ns < 1_000_000:
        return f"{time_ns / 1e3:.3g} us"
    if time_ns < 1_000_000_000:
        return f"{time_ns / 1e6:.3g} ms"
    return f"{time_ns / 1e9:.2f} s"


class Evidence:
    """Finds and describes operations of one partition.

    Args:
        operations: The partition's operations, in any order.
    """

    def __init__(self, operations: pa.Table) -> None:
        self._operations = by_op_index(operations)
        self._op = self._operations.column("op_index").to_numpy()

    def operation(self, op_index: int) -> dict[str, Any] | None:
        """Returns one operation as a mapping, or None if it is not in the table."""
        at = int(np.searchsorted(self._op, op_index))
        if at >= len(self._op) or self._op[at] != op_index:
            return None
        row: dict[str, Any] = self._operations.slice(at, 1).to_pylist()[0]
        return row

    def describe(self, op_index: int) -> str:
        """Returns one line about an operation."""
        row = self.operation(op_index)
        if row is None:
            return "not in the history"
        times = f"[{seconds(row['invoked_ns'])}, {seconds(row['completed_ns'])}]"
        return f"process {row['process']} {_call(row)} -> {_response(row)} {times}"

    def witnesses(self, finding: Finding, row: int) -> tuple[Witness, ...]:
        """Returns the operations behind one instance, in the order of its sentence."""
        ops: list[int] = []
        for column in (finding.first, finding.second, finding.third):
            op = int(column[row])
            if op != ABSENT and op not in ops:
                ops.append(op)
        return tuple(Witness(op_index=op, text=self.describe(op)) for op in ops[:WITNESS_COUNT_MAX])


def _call(row: dict[str, Any]) -> str:
    if row["kind"] == "append":
        acks = {-1: "all"}.get(row["acks"], row["acks"])
        return f"append v={row['op_index']} acks={acks}"
    return f"poll from {row['position']}" if row["kind"] == "poll" else str(row["kind"])


def _response(row: dict[str, Any]) -> str:
    if row["outcome"] != "ok":
        return f"{row['outcome']} {row['error']}".rstrip()
    if row["kind"] == "append":
        return "ok" if row["offset"] is None else f"ok offset {row['offset']}"
    if row["kind"] == "poll":
        end = "" if row["end_offset"] is None else f", end {row['end_offset']}"
        return f"ok {row['record_count']} records{end}"
    return f"ok end {row['offset']}"


_SENTENCES = {
    "unseen": "op {first} was acknowledged at offset {offset}, and the final reads did not get that far",
    "offset-reused": "op {first} was acknowledged at offset {offset}, which op {second} was given too",
    "lost-acked-write": "op {first} was acknowledged at offset {offset}",
    "lost-acked-write-acks1": "op {first} was acknowledged with acks=1 at offset {offset}",
    "visible-regress": "op {second} read the record of op {first} at offset {offset}",
    "two-acks-one-offset": "offset {offset} was acknowledged to op {first} and to op {second}",
    "divergent-value": "at offset {offset}, op {first} and op {second} show different records",
    "duplicate": "the record of op {first} was read at offset {offset}; it is also at offset {other}",
    "failed-append-visible": "op {first} failed for certain, yet op {second} read its record at offset {offset}",
    "phantom-value": "op {first} read the value {other} at offset {offset}, which no append sent here",
    "corrupt-record": "op {first} read a record at offset {offset} whose checksum, form or writer is wrong",
    "misplaced-record": "op {first} read a record at offset {offset} of another run, topic or partition",
    "impossible-offset": "op {first} received the offset {offset}",
    "lost-record": "op {first} skipped offset {offset}, where a record is known to be",
    "skipped-offset": "op {first} skipped the offsets from {offset} up to but without {other}",
    "torn-fetch": "op {first} returned a record at offset {offset} together with the log end {other}",
    "unfilled-hole": (
        "from offset {offset} on, {other} offsets exist that were never acknowledged or read, but only {fitting}"
        " unresolved appends could fill them"
    ),
    "hole-before-append": (
        "from offset {offset} on, {other} offsets that were never acknowledged or read existed when only {fitting}"
        " unresolved appends had been invoked"
    ),
    "unplaced-append": (
        "op {first} succeeded without learning its offset, and there is no offset where it can be"
    ),
    "unplaced-below-end": (
        "op {first} succeeded without learning its offset, and the log ends that were reported after it leave no"
        " place for it"
    ),
    "order-inversion": (
        "op {second} began {gap} after op {first} was acknowledged at offset {offset}, so it must come after it in"
        " the log, but it was given offset {other}"
    ),
    "future-read": (
        "op {first} had read the record at offset {offset} {gap} before op {second}, which wrote it, began"
    ),
    "late-insert": (
        "op {first} had shown that offset {offset} exists {gap} before op {second} began, yet op {second} landed"
        " at offset {other}"
    ),
    "nonmonotonic-send": (
        "op {first} was acknowledged at offset {offset}; the same process then sent op {second}, which is at"
        " offset {other}"
    ),
    "reordered-send": (
        "op {first} got offset {offset}; the same process sent op {second} before it knew that, and that one got"
        " offset {other}"
    ),
    "out-of-sequence": (
        "op {first} is at offset {offset}; op {second}, which the same producer session sent later, is at offset"
        " {other}"
    ),
    "producer-gap": (
        "op {second} of the same producer session was sent after op {first} and is at offset {other}, but the"
        " final reads do not show op {first}"
    ),
    "torn-batch": (
        "the final reads returned the record of op {first} at offset {offset}, but not that of op {second}, which"
        " was sent in the same batch and belongs at offset {other}"
    ),
    "end-in-batch": (
        "the final reads returned the record of op {first} at offset {offset}, and op {second} received the log"
        " end {other}, which is inside of its batch"
    ),
    "unsent-in-batch": (
        "op {first} had returned the record at offset {offset} {gap} before op {second}, which was sent in its"
        " batch, began"
    ),
    "nonmonotonic-poll": (
        "op {first} polled from offset {other}, but returned offset {offset} below it or twice"
    ),
    "unordered-poll": "op {first} returned offset {offset} after offset {other}",
    "stale-end": (
        "op {first} was acknowledged at offset {offset}; op {second}, begun {gap} later, received"
        " the log end {other}"
    ),
    "lost-ack": (
        "op {first} was acknowledged at offset {offset}; op {second}, begun {gap} later, received"
        " the log end {other}, and the record was never read"
    ),
    "end-regression": (
        "op {first} had shown that offset {offset} exists; op {second}, begun {gap} later, received"
        " the log end {other}"
    ),
}


def sentence(finding: Finding, row: int) -> str:
    """Returns one instance as one sentence about numbered operations."""
    gap_ns = int(finding.gap_ns[row])
    other = int(finding.other[row])
    return _SENTENCES[finding.id].format(
        first=int(finding.first[row]),
        second=int(finding.second[row]),
        offset=int(finding.offset[row]),
        other=other,
        gap=duration(gap_ns),
        fitting=other - gap_ns,
    )


_NOT_FOUND = {
    True: "the final reads, from the start of the log to its end, do not contain it",
    False: "the final reads do not contain it, but do not show that it is gone",
}
_GONE = {
    PASSED_OVER: "; the final reads went past that offset without it",
    REUSED: "; that offset now belongs to another acknowledged record",
    BEYOND_END: "; the settled log ends at or below that offset",
    LOG_GONE: "; the log itself is gone: committed metadata no longer has it",
}


def loss_sentence(finding: Finding, row: int, election: Election | None) -> str:
    """Returns one loss as a sentence: how it is known, and the election that gave the record up, if one did."""
    if int(finding.offset[row]) == ABSENT:
        how = f", and {_NOT_FOUND[finding.id != 'unseen']}"
        if int(finding.other[row]) == LOG_GONE:
            how = _GONE[LOG_GONE]
        return f"op {int(finding.first[row])} was acknowledged without an offset{how}"
    text = sentence(finding, row)
    if finding.id != "unseen":
        text += _GONE.get(int(finding.other[row]), "")
    if election is None:
        return text
    how = "flagged" if election.is_flagged else "not flagged"
    end = election.log_end_offset
    log = "" if end is None else f" with log end {end}"
    objection = f" ({election.reason})" if election.reason else ""
    if election.alone_since_ns < INF_NS:
        objection = (
            " (min ISR was 1, and faults destroyed what was established since"
            f" {seconds(election.alone_since_ns)} on every member of the ISR)"
        )
    return f"{text}; at {seconds(election.at_ns)} broker {election.leader} was elected{log}, {how}{objection}"
