"""What the leaders of one partition wrote and established, epoch by epoch, as their logs show it.

A leader that cuts its log, or leads on with less after a restart, begins another term in its epoch: it writes at
the same offsets again.

`replica_logs` states how the rows of replicas are read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from checkers.kernels.columns import Columns
from checkers.kernels.history import I64, INF_NS, OFFSET_MAX, Bools
from checkers.kernels.log_contents import (
    ANY_EPOCH,
    APPEND,
    Content,
    Contents,
    LogRows,
    contents_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(Columns):
    """Records that replicas may have.

    Shape:
        offset: one row per record, as in all others.
        low_epoch, high_epoch: between which leader epochs it was written; `ANY_EPOCH` if nothing bounds it.
        by_ns: when it was established at the latest.
    """

    offset: I64
    low_epoch: I64
    high_epoch: I64
    by_ns: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """When high watermarks passed records, infinity if none did.

    Shape:
        perhaps_ns: that of a leader that may have had the record, one row per record, as in all others.
        at_ns: that of a leader that had it, as far as its epochs show.
        epoch: the epoch of that leader, -1 for none.
    """

    perhaps_ns: I64
    at_ns: I64
    epoch: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What a leader reported in its epoch; if its own log was cut, what it reported before or after that.

    Shape:
        at_ns, high_watermark: one row per report; the high watermark only grows.
        write_*: one row per batch that it wrote: when, its first offset, and one more than its last.

    Attributes:
        cut_count: How many times it had cut its log in this epoch.
        until_ns: When it reported that it no longer led; infinity if it never did.
    """

    epoch: int
    broker: int
    cut_count: int
    until_ns: int
    at_ns: I64
    high_watermark: I64
    write_ns: I64
    write_begin: I64
    write_end: I64

    def wrote(self, offsets: I64) -> tuple[Bools, I64]:
        """Returns whether it wrote at offsets, and when; infinity for those after all of its batches."""
        at = np.searchsorted(self.write_end, offsets, side="right")
        is_there: Bools = np.append(self.write_begin, OFFSET_MAX)[at] <= offsets
        write_ns: I64 = np.append(self.write_ns, INF_NS)[at]
        return is_there, write_ns


class LeaderTerms:
    """The terms of all leaders of one partition.

    Args:
        rows: The rows of each broker's replica while its log was readable.
        has_all_changes: Whether every change of every leader's log was recorded.
    """

    def __init__(self, rows: Mapping[int, LogRows], *, has_all_changes: bool) -> None:
        self._rows = rows
        self._has_all_changes = has_all_changes

    @cached_property
    def all(self) -> tuple[Term, ...]:
        """The leaders' terms, by epoch; of two leaders in one epoch, both."""
        terms = []
        for broker, rows in self._rows.items():
            lead = np.flatnonzero(rows.is_leader)
            epochs = rows.epoch[lead]
            before = np.concatenate(([rows.grew_from(0)], rows.end[:-1]))
            last, unreported = rows.unreported
            cut_rows = rows.cuts(rows.epoch).row
            for epoch in np.unique(epochs).tolist():
                all_mine = lead[epochs == epoch]
                cuts = np.flatnonzero(np.isin(all_mine, cut_rows))
                for cut_count, mine in enumerate(np.split(all_mine, cuts)):
                    wrote = mine[(rows.kind[mine] == APPEND) & (rows.end[mine] > before[mine])]
                    # When it wrote that is not known; nobody was told before the log was loaded.
                    wrote = np.sort(np.append(wrote, unreported[np.isin(last, mine)]))
                    terms.append(
                        Term(
                            epoch=epoch,
                            broker=broker,
                            cut_count=cut_count,
                            until_ns=int(np.append(rows.at_ns, INF_NS)[mine[-1] + 1]),
                            at_ns=rows.at_ns[mine],
                            high_watermark=np.maximum.accumulate(rows.high_watermark[mine]),
                            write_ns=rows.at_ns[wrote],
                            write_begin=before[wrote],
                            write_end=rows.end[wrote],
                        )
                    )
        return tuple(sorted(terms, key=lambda term: (term.epoch, int(term.at_ns[0]), term.broker)))

    def writers(self, offsets: I64, from_ns: I64, to_ns: I64, hints: I64) -> tuple[I64, I64]:
        """Returns the smallest and largest epoch in which a leader wrote at each offset in a span of time.

        Args:
            offsets: Of the records.
            from_ns: Start of the span for each of them.
            to_ns: Its end.
            hints: Epochs that count alone if their leader wrote there.

        Returns:
            `ANY_EPOCH` and -1 where no leader did.
        """
        low = np.full(len(offsets), ANY_EPOCH, dtype=np.int64)
        high = np.full(len(offsets), -1, dtype=np.int64)
        if not self._has_all_changes:
            return low, high  # another leader may have written there, whose log is not recorded
        is_hinted = np.zeros(len(offsets), dtype=np.bool_)
        for term in self.all:
            if not len(term.write_ns):
                continue
            span = (from_ns <= term.write_ns[-1]) & (to_ns >= term.write_ns[0])
            rows = np.flatnonzero(span & (offsets < term.write_end[-1]))
            at = np.searchsorted(term.write_end, offsets[rows], side="right")
            wrote = (term.write_begin[at] <= offsets[rows]) & (term.write_ns[at] >= from_ns[rows])
            rows = rows[wrote & (term.write_ns[at] <= to_ns[rows])]
            low[rows] = np.minimum(low[rows], term.epoch)
            high[rows] = np.maximum(high[rows], term.epoch)
            is_hinted[rows] |= hints[rows] == term.epoch
        return np.where(is_hinted, hints, low), np.where(is_hinted, hints, high)

    def wrote_at(self, offsets: I64) -> Iterator[tuple[int, Bools]]:
        """Yields for the term of each leader its epoch, and at which offsets it wrote."""
        for term in self.all:
            yield term.epoch, term.wrote(offsets)[0]

    def may_have_had(self, epochs: I64, offsets: I64) -> Bools:
        """Returns in which epochs the leader may have had a record at an offset that was written before."""
        found = np.zeros(len(offsets), dtype=np.bool_)
        for epoch in np.unique(epochs[epochs >= 0]).tolist():
            rows = np.flatnonzero(epochs == epoch)
            for content in self.contents.by_term.get(epoch, []):
                written, is_exact = content.at(offsets[rows])
                found[rows] |= ~is_exact | (written < epoch)
        return found

    def wrote_once(self, epochs: I64, offsets: I64) -> Bools:
        """Returns in which epochs the leader wrote one record at an offset, and no other after a restart."""
        once: Bools = self._write_counts(epochs, offsets) == 1
        return once

    def wrote_again(self, epochs: I64, offsets: I64) -> Bools:
        """Returns in which epochs the leader wrote several records at an offset, as it led on with less."""
        again: Bools = self._write_counts(epochs, offsets) > 1
        return again

    def _write_counts(self, epochs: I64, offsets: I64) -> I64:
        times = np.zeros(len(offsets), dtype=np.int64)
        for epoch, is_there in self.wrote_at(offsets):
            times += is_there & (epochs == epoch)
        return times

    def last_written_ns(self, epochs: I64, offsets: I64, until_ns: I64) -> I64:
        """Returns when leaders of epochs last wrote at offsets until certain moments, minus infinity if never."""
        found = np.full(len(offsets), -INF_NS)
        for term in self.all:
            is_there, write_ns = term.wrote(offsets)
            rows = is_there & (epochs == term.epoch) & (write_ns <= until_ns)
            found[rows] = np.maximum(found[rows], write_ns[rows])
        return found

    def writes_at(self, offset: int) -> list[tuple[int, int]]:
        """Returns (epoch, when) of every write of a leader at an offset, by epoch."""
        writes = set()
        for term in self.all:
            is_there = (term.write_begin <= offset) & (offset < term.write_end)
            writes |= {(term.epoch, at_ns) for at_ns in term.write_ns[is_there].tolist()}
        return sorted(writes)

    def written(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """Returns (offset, epoch) of the first and last record of every batch written in a span of time."""
        places = set()
        for term in self.all:
            rows = slice(
                int(np.searchsorted(term.write_ns, from_ns, side="left")),
                int(np.searchsorted(term.write_ns, to_ns, side="right")),
            )
            for offsets in (term.write_begin[rows], term.write_end[rows] - 1):
                places |= {(offset, term.epoch) for offset in offsets.tolist()}
        return sorted(places)

    def written_in_terms(self, terms: I64, offsets: I64) -> I64:
        """Returns which epoch wrote the record that the leader of each term had at an offset, -1 if not known."""
        written = np.full(len(offsets), -1, dtype=np.int64)
        for term in np.unique(terms[terms >= 0]).tolist():
            content = self.contents.by_epoch.get(term)
            if content is not None:
                rows = np.flatnonzero(terms == term)
                epoch, is_exact = content.at(offsets[rows])
                written[rows] = np.where(is_exact, epoch, -1)
        return written

    def passed(
        self,
        offsets: I64,
        low_epochs: I64,
        high_epochs: I64,
        invoked_ns: I64,
        written_ns: I64 | None = None,
        seen_ns: I64 | None = None,
    ) -> Passed:
        """Returns when a leader's high watermark first passed records.

        Only a leader whose log can hold the record counts, and only from the record's invocation on: an earlier
        log may have passed the same offset with another record. What a leader wrote before that, or after the
        record was written, is another record if it led on with less and wrote there again. If it wrote there both
        times while the record may have been written, the record is one of the two: then that of the last one
        counts for `at_ns`.

        Args:
            offsets: Of the records.
            low_epochs: Since which epoch each may have been written.
            high_epochs: Up to which one.
            invoked_ns: When it was sent.
            written_ns: By when it was written; by then, if None.
            seen_ns: By when it was established, likewise.
        """
        last_ns = np.full(len(offsets), INF_NS) if written_ns is None else written_ns
        written_ns = invoked_ns if written_ns is None else written_ns
        seen_ns = invoked_ns if seen_ns is None else seen_ns
        is_another = np.zeros(len(offsets), dtype=np.bool_)
        at = np.full(len(offsets), INF_NS, dtype=np.int64)
        perhaps = at.copy()
        epochs = np.full(len(offsets), -1, dtype=np.int64)
        written_in = epochs.copy()
        leader, wrote_ns = (-1, -1), np.full(len(offsets), INF_NS, dtype=np.int64)
        for term in self.all:
            if leader != (term.epoch, term.broker):
                leader, wrote_ns = (term.epoch, term.broker), np.full(len(offsets), INF_NS)
            wrote, write_ns = term.wrote(offsets)
            wrote_ns = np.where(wrote, write_ns, wrote_ns)
            is_another |= (
                wrote
                & (invoked_ns <= write_ns)
                & (write_ns <= written_ns)
                & (written_in == term.epoch)
            )
            known = self.contents.by_term.get(term.epoch, [])
            is_open = (at == INF_NS) | is_another
            rows = np.flatnonzero(is_open & (low_epochs <= term.epoch))
            if term.cut_count >= len(known) or not len(rows):
                continue
            content = known[term.cut_count]
            records = Records(
                offset=offsets[rows],
                low_epoch=low_epochs[rows],
                high_epoch=high_epochs[rows],
                by_ns=invoked_ns[rows],
            )
            epoch, is_exact = content.at(records.offset)
            may_hold = ~cannot_hold(records, OFFSET_MAX, epoch, is_exact)
            is_other = wrote_ns[rows] < invoked_ns[rows]
            is_other |= wrote[rows] & (write_ns[rows] > last_ns[rows])
            is_other &= epoch == term.epoch
            may_hold &= ~is_other | self.wrote_once(np.full(len(rows), term.epoch), offsets[rows])
            rows, is_exact = rows[may_hold], is_exact[may_hold]
            # A record of which nothing shows who wrote it need not be the one that is there.
            has = is_exact & (high_epochs[rows] < ANY_EPOCH)
            # Past the offset, and not before the record was sent.
            report = np.maximum(
                np.searchsorted(term.high_watermark, offsets[rows], side="right"),
                np.searchsorted(term.at_ns, invoked_ns[rows], side="left"),
            )
            moment = np.append(term.at_ns, INF_NS)[report]
            perhaps[rows] = np.minimum(perhaps[rows], moment)
            counts = has & (moment < INF_NS) & (~is_another[rows] | (moment <= seen_ns[rows]))
            rows, moment = rows[counts], moment[counts]
            at[rows], epochs[rows], written_in[rows] = moment, term.epoch, epoch[may_hold][counts]
            is_another[rows] = False
        return Passed(perhaps_ns=perhaps, at_ns=at, epoch=epochs)

    def served(self, offsets: I64, from_ns: I64, to_ns: I64, by: I64) -> tuple[I64, I64, I64]:
        """Returns which record a replica may have shown to exist at each offset in a span of time.

        Leaders serve reads, and followers if clients read from them (KIP-392). A follower that has not heard of
        the newest leader yet shows what it copied from an older one.

        Args:
            offsets: Where.
            from_ns: Start of the span for each of them.
            to_ns: Its end.
            by: The epoch of the leader that responded; -1 if it is not known. If it is, the span only shows
                whether that was before the leader's own log was cut.

        Returns:
            The epoch that wrote the record (`ANY_EPOCH` if that is not known), when the leader's high watermark
            passed it, and that leader's epoch; infinity and -1 where no leader can have shown it. Of several
            leaders the one of the smallest epoch, which may have been deposed without knowing it. Where no
            leader can have shown the record, the same of a follower.
        """
        written = np.full(len(offsets), ANY_EPOCH, dtype=np.int64)
        passed = np.full(len(offsets), INF_NS, dtype=np.int64)
        epochs = np.full(len(offsets), -1, dtype=np.int64)
        for term in self.all:
            content = self.contents.by_epoch.get(term.epoch)
            report = np.searchsorted(term.high_watermark, offsets, side="right")
            at_ns = np.append(term.at_ns, INF_NS)[report]
            is_its_time = (at_ns <= to_ns) & (from_ns <= term.until_ns)
            again_ns = self._cut_again_ns(term)
            is_its_own = (by == term.epoch) & (at_ns < INF_NS)
            is_its_own &= (from_ns <= term.until_ns) | (again_ns == INF_NS)
            rows = np.flatnonzero((epochs < 0) & np.where(by < 0, is_its_time, is_its_own))
            if content is None or not len(rows):
                continue
            # Unless it may have responded after that, it had what its own log had before.
            terms = self.contents.by_term[term.epoch]
            own = terms[term.cut_count] if term.cut_count < len(terms) else content
            is_own = to_ns[rows] < again_ns
            epoch, is_exact = (
                np.where(is_own, *each)
                for each in zip(own.at(offsets[rows]), content.at(offsets[rows]), strict=True)
            )
            written[rows] = np.where(is_exact, epoch, ANY_EPOCH)
            passed[rows], epochs[rows] = at_ns[rows], term.epoch
        for row in np.flatnonzero((epochs < 0) & (by < 0)).tolist():
            offset, span = int(offsets[row]), (int(from_ns[row]), int(to_ns[row]))
            shown = [
                found
                for broker in self._rows
                if (found := self._shown_by_follower(broker, offset, *span)) is not None
            ]
            if shown:
                epochs[row], passed[row], written[row] = min(shown)
        return written, passed, epochs

    def _cut_again_ns(self, term: Term) -> int:
        """Returns when the leader led on in its epoch with a shorter log; infinity if it did not."""
        return min(
            (
                int(each.at_ns[0])
                for each in self.all
                if (each.epoch, each.broker) == (term.epoch, term.broker)
                and each.cut_count > term.cut_count
            ),
            default=INF_NS,
        )

    def _shown_by_follower(
        self, broker: int, offset: int, from_ns: int, to_ns: int
    ) -> tuple[int, int, int] | None:
        """Returns what a replica's high watermark covered at an offset in a span of time.

        Returns:
            The epoch of the replica when its high watermark came past the offset, that moment, and the epoch that
            wrote the record; None if its high watermark did not cover the offset.
        """
        rows = self._rows[broker]
        first, stop = max(rows.until(from_ns) - 1, 0), rows.until(to_ns)
        covers = (rows.high_watermark > offset) & (rows.end > offset) & ~rows.is_down
        seen = np.flatnonzero(covers[first:stop])
        if not len(seen):
            return None
        at = first + int(seen[0])
        # Since when without a break.
        breaks = np.flatnonzero((rows.high_watermark[:at] <= offset) | (rows.end[:at] <= offset))
        since = int(breaks[-1]) + 1 if len(breaks) else 0
        epoch, is_exact = self.content(broker, at).at(np.array([offset]))
        writer = int(epoch[0]) if is_exact[0] else ANY_EPOCH
        return int(rows.epoch[since]), int(rows.at_ns[since]), writer

    def content(self, broker: int, row: int) -> Content:
        """Returns what a replica's log held at one of its rows."""
        turns = self.contents.turns[broker]
        return self.contents.contents[broker][int(np.searchsorted(turns, row, side="right")) - 1]

    @cached_property
    def contents(self) -> Contents:
        """The content of every log. Read only if something is lost or contradicted."""
        return contents_of(self._rows, has_all_changes=self._has_all_changes)


def cannot_hold(records: Records, end: int, epoch: I64, is_exact: Bools) -> Bools:
    """Returns which records a log cannot hold that ends at an offset and has these epochs at theirs."""
    is_other: Bools = (epoch < records.low_epoch) | (is_exact & (epoch > records.high_epoch))
    return (records.offset >= end) | is_other
