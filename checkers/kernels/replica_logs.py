"""The logs of one partition's replicas over time: which leader epoch wrote the record at each offset.

A record is identified by its offset and the leader epoch that wrote it: one epoch has one leader, and it gives an
offset to one record only. The rows of `replica_states` show when a log grew or shrank and in which epoch. A leader
writes records of its own epoch; a follower copies the log of the leader whose epoch it is in. So the content of
every log follows, as ranges of offsets that one epoch wrote (`log_contents`).

Where the leader's log is not recorded, the epoch of the follower only bounds the epochs of what it copied.

A leader that cuts its own log, or lost its end in a restart and leads on without another election, may give an
offset to two records of its epoch. Then only what was established before the cut, and was in a replica's log
before it, is certainly there.

Nodes that report every change report when they append. Where no leader did, the logs were looked at now and then
(`has_all_changes` is false). Between two looks a log may have grown, so what a replica had at a moment follows
from the looks on both sides of it: a leader never cuts its log, so what it does not have after its election it did
not have then. The same holds if logs are missing: those of an elected replica until after its election, or those
of the leader of an epoch that clients saw or followers copied in. A replica that nothing is recorded of is not an
empty one. One that has nothing reports that when it is created; later, an empty log may be what a fault left.

`replica_reports` defines whether the rows of a replica end too early. They must not for an elected one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import largest_of_each
from checkers.kernels.history import I64, INF_NS, Bools, is_word
from checkers.kernels.leader_terms import LeaderTerms, Records, cannot_hold
from checkers.kernels.log_contents import (
    APPEND,
    OTHER,
    REPLICATE,
    LogRows,
)
from checkers.kernels.replica_reports import Elected, reports_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a broker was elected, or cut its own log.

    Attributes:
        broker: The broker.
        at_ns: The moment.
        epoch: Its leader epoch if it was elected; -1 if it leads already.
    """

    broker: int
    at_ns: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """When a broker became a replica of the partition, at the earliest.

    Attributes:
        at_ns: When that was committed; minus infinity if it may have been one before the first state.
        epoch: In which leader epoch; 0 likewise.
    """

    at_ns: int = -INF_NS
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCut:
    """A leader's log became shorter although no other leader was elected.

    Attributes:
        at_ns: When it led again, or still, with the shorter log.
        epoch: The leader epoch in which it led before that.
        broker: The leader.
        end_offset: The log end to which the log was cut.
        end_before: Its log end before. Between the two the epoch may have written two records at one offset.
        has_restarted: Whether its process may have been down meanwhile.
    """

    at_ns: int
    epoch: int
    broker: int
    end_offset: int
    end_before: int
    has_restarted: bool


class ReplicaLogs:
    """The logs of one partition's replicas.

    Args:
        replica_states: The partition's rows, in any order.
        elected: All elections that are recorded.
        shown_epochs: Leader epochs that clients saw.
        appended_ns: For each of them that only responses to appends show, when the first such append was invoked.
        shown_ends: For the others the largest log end that clients saw.
        final_end: The largest log end that final reads show; None if they show none.
        all_leaders_known: Whether every election is recorded.
        replicas: When each broker that has been a replica of the partition became one.
        last_replicas: Those in the last state.
        started_ns: When processes of each broker registered, as far as that is recorded.
        elected_in: For each leader epoch that began without an election the one in which its leader was elected.
    """

    def __init__(
        self,
        replica_states: pa.Table,
        elected: Sequence[Elected] = (),
        shown_epochs: Collection[int] = (),
        *,
        appended_ns: Mapping[int, int] | None = None,
        shown_ends: Mapping[int, int] | None = None,
        final_end: int | None = None,
        all_leaders_known: bool = True,
        replicas: Mapping[int, Joined] | None = None,
        last_replicas: Collection[int] = (),
        started_ns: Mapping[int, I64] | None = None,
        elected_in: Mapping[int, int] | None = None,
    ) -> None:
        self._elected_in = elected_in or {}
        self._elected = elected
        at = replica_states.column("at_ns").to_numpy()
        order = np.argsort(at, kind="stable")
        self._reports = reports_of(replica_states, order, started_ns or {})
        stopped_ns = np.empty(len(order), dtype=np.int64)
        all_brokers = replica_states.column("broker").to_numpy()[order]
        for identifier, reports in self._reports.items():
            stopped_ns[all_brokers == identifier] = reports.stopped_ns
        stopped_ns = stopped_ns[replica_states.column("log_end_offset").to_numpy()[order] >= 0]
        # A replica without a readable log reports no offsets; what it holds is still on its disk.
        order = order[replica_states.column("log_end_offset").to_numpy()[order] >= 0]
        broker = replica_states.column("broker").to_numpy()[order]
        cause = replica_states.column("cause")
        kind = np.where(is_word(cause, "append"), APPEND, OTHER)
        kind = np.where(is_word(cause, "replicate"), REPLICATE, kind)[order]
        is_leader = is_word(replica_states.column("role"), "leader")[order]
        is_down = is_word(replica_states.column("role"), "offline")[order]
        columns = {
            name: replica_states.column(name).to_numpy().astype(np.int64)[order]
            for name in ("at_ns", "log_end_offset", "leader_epoch", "high_watermark")
        }
        is_cut = is_word(cause, "truncate")[order]
        has_started = is_word(cause, "load")[order]
        is_empty = columns["log_end_offset"] == 0
        joined = {} if replicas is None else replicas
        self.node_of: dict[int, str] = {}
        self._rows: dict[int, LogRows] = {}
        for identifier in np.unique(broker).tolist():
            rows = np.flatnonzero(broker == identifier)
            first = int(rows[0])
            self.node_of[identifier] = replica_states.column("node")[int(order[first])].as_py()
            # No earlier row is missing: nobody led before, or the log is empty and nobody has led since it could
            # be created. An empty log of a later epoch may be what a fault has left.
            epoch_max = joined[identifier].epoch if is_empty[first] and identifier in joined else 0
            is_whole = columns["leader_epoch"][first] <= epoch_max and not is_cut[first]
            self._rows[identifier] = LogRows(
                order=rows,
                at_ns=columns["at_ns"][rows],
                stopped_ns=stopped_ns[rows],
                end=columns["log_end_offset"][rows],
                high_watermark=columns["high_watermark"][rows],
                epoch=columns["leader_epoch"][rows],
                kind=kind[rows],
                is_leader=is_leader[rows],
                is_down=is_down[rows],
                has_started=has_started[rows],
                is_whole=bool(is_whole),
            )
        self.has_all_changes = (
            bool((kind == APPEND).any())
            and all_leaders_known
            and all(self._is_known(each) for each in elected)
            and self._has_all_that_was_copied()
            and self._has_all_that_was_shown(shown_ends or {}, final_end, elected)
            and not self._unreported(shown_epochs, appended_ns or {}, elected)
        )
        """Whether every change of every leader's log was recorded, not only what somebody saw now and then."""
        self._silent_spans = [*self._silent_before_rows(joined)]
        last_epoch = max((each.epoch for each in elected), default=-1)
        self._silent_since_ns = min(
            (
                self._reports[each].ends_ns(last_epoch, is_replica=each in last_replicas)
                for each in joined
                if each in self._reports
            ),
            default=INF_NS,
        )

    def _silent_before_rows(self, joined: Mapping[int, Joined]) -> Iterator[tuple[int, int]]:
        """Yields from when until when each replica may have shown what its rows do not have yet."""
        for broker, since in joined.items():
            rows = self._rows.get(broker)
            if rows is None or not rows.is_whole:
                yield since.at_ns, INF_NS if rows is None else int(rows.at_ns[0])

    def _is_known(self, elected: Elected) -> bool:
        """Returns whether the log of a replica was recorded when it was elected, and what it did in its epoch."""
        rows = self._rows.get(elected.broker)
        if rows is None or not self._reports[elected.broker].cover(elected):
            return False
        if elected.is_first:
            # Its log was empty. If there is something in it that the first row does not add, or if more than one
            # record is established, there were changes before that row.
            is_begun = rows.end[0] > 0 and rows.kind[0] == OTHER
            return bool(rows.high_watermark[0] <= 1) and not is_begun
        return rows.until(elected.at_ns) > 0

    @cached_property
    def _led_ends(self) -> dict[int, int]:
        """For each epoch in which a leader reported its log, the largest end of that log."""
        ends = self._largest_ends([rows.is_leader for rows in self._rows.values()])
        for rows in self._rows.values():
            last, unreported = rows.unreported
            for epoch, end in zip(
                rows.epoch[last].tolist(), rows.end[unreported].tolist(), strict=True
            ):
                ends[epoch] = max(ends[epoch], end)
        return ends

    def _unreported(
        self, shown: Collection[int], appended_ns: Mapping[int, int], elected: Sequence[Elected]
    ) -> set[int]:
        """Returns the leader epochs that clients saw in which a replica led without reporting it.

        A producer names the epoch of its metadata. If the elected replica had heard of a later one when the first
        such append was sent, it wrote the records in that epoch.
        """
        unreported = {*shown} - {*self._led_ends}
        return unreported - {
            each.epoch
            for each in elected
            if each.epoch in appended_ns
            and self._reports[each.broker].had_left(each.epoch, appended_ns[each.epoch])
        }

    def _has_all_that_was_copied(self) -> bool:
        """Returns whether leaders reported all that followers copied from them, and that they led."""
        copied = self._largest_ends(
            [
                (rows.end > np.append(0, rows.end[:-1])) & (rows.kind == REPLICATE)
                for rows in self._rows.values()
            ]
        )
        return all(end <= self._led_ends.get(epoch, -1) for epoch, end in copied.items())

    def _has_all_that_was_shown(
        self, shown_ends: Mapping[int, int], final_end: int | None, elected: Sequence[Elected]
    ) -> bool:
        """Returns whether leaders reported all that clients saw of their logs, the last one also at the end."""
        ends = [*shown_ends.items()]
        # A leader may have come to a later epoch without an election, when its replicas changed.
        last_epoch = max(self._led_ends, default=-1)
        if final_end is not None and elected and last_epoch >= max(each.epoch for each in elected):
            ends.append((last_epoch, final_end))
        return all(end <= self._led_ends.get(epoch, INF_NS) for epoch, end in ends)

    def _largest_ends(self, counts: Sequence[Bools]) -> dict[int, int]:
        """Returns the largest log end of each epoch.

        Args:
            counts: Which rows count, one array per replica.
        """
        if not self._rows:
            return {}
        epoch, end = (
            np.concatenate(
                [
                    getattr(rows, name)[kept]
                    for rows, kept in zip(self._rows.values(), counts, strict=True)
                ]
            )
            for name in ("epoch", "end")
        )
        return largest_of_each(epoch, end)

    def __bool__(self) -> bool:
        """Whether any log was recorded."""
        return bool(self._rows)

    @cached_property
    def terms(self) -> LeaderTerms:
        """What leaders wrote and established."""
        return LeaderTerms(self._rows, has_all_changes=self.has_all_changes)

    @property
    def last_leader(self) -> int:
        """The broker that led in the largest epoch, -1 if none did."""
        return self.terms.all[-1].broker if self.terms.all else -1

    @cached_property
    def self_cuts(self) -> tuple[SelfCut, ...]:
        """Every time a leader's log became shorter although it led before and after, in order of time."""
        cuts = []
        for broker, rows in self._rows.items():
            reigns = rows.epoch.copy()
            for epoch, began_in in self._elected_in.items():
                reigns[rows.epoch == epoch] = began_in
            found = rows.cuts(reigns)
            cuts += [
                SelfCut(
                    at_ns=int(rows.at_ns[row]),
                    epoch=int(rows.epoch[before]),
                    broker=broker,
                    end_offset=end,
                    end_before=int(rows.end[before]),
                    has_restarted=row - before > 1 or bool(rows.was_down[row]),
                )
                for row, before, end in zip(
                    found.row.tolist(), found.before.tolist(), found.end.tolist(), strict=True
                )
            ]
        for each, ended, row in self._ended_before_they_led:
            rows = self._rows[each.broker]
            end, lowest = int(rows.end[ended - 1]), int(rows.end[ended : row + 1].min())
            if lowest < end:
                cuts.append(
                    SelfCut(
                        at_ns=int(rows.at_ns[row]),
                        epoch=each.epoch,
                        broker=each.broker,
                        end_offset=lowest,
                        end_before=end,
                        has_restarted=True,
                    )
                )
        return tuple(sorted(cuts, key=lambda cut: (cut.at_ns, cut.epoch, cut.broker)))

    @cached_property
    def _ended_before_they_led(self) -> tuple[tuple[Elected, int, int], ...]:
        """The replicas whose processes ended after their elections, or after they were back, and before they led.

        Returns:
            The election, the row that shows the end, and the first one in which it leads.
        """
        found = []
        for each in self._elected if self.has_all_changes else ():
            rows = self._rows[each.broker]
            count = rows.until(each.at_ns)
            leads = rows.is_leader[count:] & (rows.epoch[count:] >= each.epoch)
            if not count or not leads.any():
                continue
            row = count + int(np.argmax(leads))
            ended = _ended_in(rows, count, row)
            if ended is not None and self._reign(int(rows.epoch[row])) == each.epoch:
                found.append((each, ended, row))
        return tuple(found)

    @cached_property
    def led_on(self) -> tuple[tuple[int, int], ...]:
        """When leaders led on after their processes may have been down, and who, in order of time."""
        found = []
        for broker, rows in self._rows.items():
            lead = np.flatnonzero(rows.is_leader)
            for before, row in pairwise(lead.tolist()):
                reigns = (self._reign(int(rows.epoch[each])) for each in (before, row))
                if (row - before > 1 or rows.was_down[row]) and len({*reigns}) == 1:
                    found.append((int(rows.at_ns[row]), broker))
        found += [
            (int(self._rows[each.broker].at_ns[row]), each.broker)
            for each, _, row in self._ended_before_they_led
        ]
        return tuple(sorted(found))

    def end_at(self, broker: int, at_ns: int) -> int:
        """Returns a replica's log end at a moment, 0 if it had reported nothing yet."""
        rows = self._rows.get(broker)
        count = 0 if rows is None else rows.until(at_ns)
        return int(rows.end[count - 1]) if rows is not None and count else 0

    def end_in_term(self, broker: int, epoch: int) -> int | None:
        """Returns the last log end that a leader reported in its epoch, None if it reported none."""
        rows = self._rows[broker]
        mine = np.flatnonzero(rows.is_leader & (rows.epoch == epoch))
        return int(rows.end[mine[-1]]) if len(mine) else None

    def shows_leader(self, broker: int, epoch: int) -> bool:
        """Returns whether a replica reported that it led by its election in an epoch."""
        rows = self._rows.get(broker)
        if rows is None:
            return False
        return epoch in {self._reign(each) for each in rows.epoch[rows.is_leader].tolist()}

    def was_down(self, broker: int, from_ns: int, until_ns: int, started_ns: I64) -> bool:
        """Returns whether a replica's process was down at a moment, and reported nothing before another one.

        Args:
            broker: The replica.
            from_ns: The moment.
            until_ns: The other one.
            started_ns: When processes of the broker registered. Where the logs are sampled, only this shows that a
                process was back.
        """
        rows = self._rows.get(broker)
        count = 0 if rows is None else rows.until(from_ns)
        if rows is None or not count:
            return False
        is_silent = bool(rows.is_down[count - 1]) and rows.until(until_ns - 1) == count
        if self.has_all_changes:
            return is_silent
        is_between = (rows.at_ns[count - 1] < started_ns) & (started_ns < until_ns)
        return is_silent and len(started_ns) > 0 and not is_between.any()

    def lacks(self, election: Moment, records: Records) -> Bools:
        """Returns which records a replica certainly did not have when it was elected, or when it began to lead."""
        rows = self._rows.get(election.broker)
        count = 0 if rows is None else self._count_as_leader(rows, election)
        if not self.has_all_changes and election.epoch >= 0:
            return self._lacks_later(election, count, records)
        if rows is None or not count:
            return np.ones(len(records.offset), dtype=np.bool_)
        return self._differs_in(election.broker, count - 1, records)

    def _count_as_leader(self, rows: LogRows, election: Moment) -> int:
        """Returns how many rows of a replica come before its leadership.

        Before it hears of its election, it may follow an older leader: cut its log for that one, and copy from it.
        It may hear of a later epoch first, and then never leads in this one. If its process is down when it is
        elected, it has what it comes back with. What it lacks only when it comes back again, it lost later.
        """
        count = rows.until(election.at_ns)
        has_heard = rows.epoch[count:] >= election.epoch
        if not count or not self.has_all_changes or not has_heard.any():
            return count
        first = count + int(np.argmax(has_heard))
        ended = _ended_in(rows, count, first)
        if ended is not None:
            return ended
        if not rows.is_down[count - 1]:
            return first
        if rows.is_leader[first] and self._reign(int(rows.epoch[first])) == election.epoch:
            return first
        back = _back_at(rows, count)
        return back + 1 if back < len(rows.at_ns) else count

    def led_after_restart_ns(self, broker: int, at_ns: int, epoch: int) -> int | None:
        """Returns when a replica began to lead whose process was down when it was elected; None if it was not.

        If it ended again before it led, that is when it came back first.
        """
        rows = self._rows.get(broker)
        count = 0 if rows is None else rows.until(at_ns)
        if rows is None or not count or not rows.is_down[count - 1]:
            return None
        for row in (count + np.flatnonzero(rows.is_leader[count:])).tolist():
            if self._reign(int(rows.epoch[row])) == epoch:
                if self.has_all_changes and _ended_in(rows, count, row) is not None:
                    row = _back_at(rows, count)
                return int(rows.at_ns[row])
        return None

    def led_by_ns(self, broker: int, since_ns: int, epoch: int) -> int:
        """Returns when a replica first reported, after a moment, that it led by its election in an epoch.

        Infinity if it never did.
        """
        rows = self._rows.get(broker)
        if rows is None:
            return INF_NS
        first = rows.until(since_ns)
        for row in (first + np.flatnonzero(rows.is_leader[first:])).tolist():
            if self._reign(int(rows.epoch[row])) == self._reign(epoch):
                return int(rows.at_ns[row])
        return INF_NS

    def _reign(self, epoch: int) -> int:
        """Returns the leader epoch in which the leader of an epoch was elected."""
        return self._elected_in.get(epoch, epoch)

    def _lacks_later(self, election: Moment, first: int, records: Records) -> Bools:
        """Returns which records a replica did not have at the first look after its election.

        Args:
            election: The election.
            first: The replica's first row since then.
            records: The records.
        """
        rows = self._rows.get(election.broker)
        if rows is not None and first < len(rows.end):
            # One look may tell first how short the log was since the look before.
            last = rows.until(int(rows.at_ns[first])) - 1
            if rows.is_leader[last] and rows.epoch[last] == election.epoch:
                return self._differs_in(election.broker, last, records)
        return np.zeros(len(records.offset), dtype=np.bool_)

    def _differs_in(self, broker: int, row: int, records: Records) -> Bools:
        """Returns which records a replica certainly did not have at one of its rows."""
        epoch, is_exact = self.terms.content(broker, row).at(records.offset)
        return cannot_hold(records, int(self._rows[broker].end[row]), epoch, is_exact)

    def certainly_has(self, election: Moment, records: Records) -> Bools:
        """Returns which records a replica certainly had when it was elected, and when it began to lead.

        What was in its log when the record was established, and was not cut, is still there, if it is known which
        epoch wrote it: a leader that was deposed may have established another record there. Where a leader cut its
        own log, the epoch identifies no record, and what came before the cut counts.
        """
        rows = self._rows.get(election.broker)
        count = 0 if rows is None else self._count_as_leader(rows, election)
        if rows is None or not count:
            return np.zeros(len(records.offset), dtype=np.bool_)
        epoch, is_exact = self.terms.content(election.broker, count - 1).at(records.offset)
        differs = cannot_hold(records, int(rows.end[count - 1]), epoch, is_exact)
        is_record = is_exact & (records.low_epoch == records.high_epoch)
        if not self.has_all_changes:
            # It must still be there at the next look. Without its epoch, it may be another record.
            if count == len(rows.at_ns):
                return np.zeros(len(records.offset), dtype=np.bool_)
            seen = rows.until(int(rows.at_ns[count]))
            stays = not rows.is_down[count - 1 : seen].any()
            lowest = int(rows.end[count - 1 : seen].min())
            is_kept: Bools = ~differs & is_record & (records.offset < lowest) & stays
            return is_kept
        lowest_since = np.minimum.accumulate(rows.end[:count][::-1])[::-1]
        # Since when its log has gone beyond each offset.
        row = np.searchsorted(lowest_since, records.offset, side="right")
        there_ns = np.append(rows.at_ns[:count], INF_NS)[row]
        has: Bools = ~differs & (is_record | (is_exact & (there_ns <= records.by_ns)))
        for cut in self.self_cuts:
            if cut.at_ns <= election.at_ns:
                # The leader may have written another record there in the same epoch.
                again = (epoch == cut.epoch) & (records.offset >= cut.end_offset)
                again &= records.offset < cut.end_before
                has &= ~again | (np.maximum(there_ns, records.by_ns) < cut.at_ns)
        return has

    def may_hide_reader(self, from_ns: I64, to_ns: I64) -> Bools:
        """Returns which reads a follower may have responded to whose log is not recorded, by the span of each."""
        hidden: Bools = to_ns >= self._silent_since_ns
        for begin_ns, end_ns in self._silent_spans:
            hidden |= (begin_ns <= to_ns) & (from_ns <= end_ns)
        return hidden


def _ended_in(rows: LogRows, first: int, stop: int) -> int | None:
    """Returns the row that shows first that a process ended while it could lead; None if none does.

    Args:
        rows: Of its replica.
        first: The first row since its election. If its process was down then, it counts since it was back.
        stop: The first row that does not count.
    """
    is_over = rows.is_down.copy()
    if rows.is_down[first - 1]:
        # That another one started later shows it as well. The first one that started may have been down before.
        first = _back_at(rows, first) + 1
        is_over |= rows.has_started
    ended = np.flatnonzero(is_over[first:stop])
    return first + int(ended[0]) if len(ended) else None


def _back_at(rows: LogRows, first: int) -> int:
    """Returns the first row from one on in which a process is not down, or how many rows there are."""
    back = np.flatnonzero(~rows.is_down[first:])
    return first + int(back[0]) if len(back) else len(rows.at_ns)
