"""The logs of replicas, replayed record by record: slow, and without arrays.

The rules are those of `checkers.kernels.replica_logs`; every question is answered by looking at all rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from checkers.kernels.history import INF_NS
from checkers.kernels.log_contents import ANY_EPOCH

Row = dict[str, Any]
Written = tuple[int, bool]
"""The epoch that wrote a record; false if it is only the largest that the writer can have had."""
Leader = Callable[[int], Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A replica's log after one of its rows."""

    row: Row
    log: tuple[Written, ...]
    grew_from: int
    led_before: tuple[int, int] | None = None
    """The leader epoch and the log end when the replica led last; None unless it leads, and led before."""
    lowest: int = 0
    """The smallest log end since then, this one included."""

    @property
    def is_cut(self) -> bool:
        """Whether the log was cut since the replica led before."""
        return self.led_before is not None and self.lowest < self.led_before[1]

    def is_cut_in(self, epoch: int) -> bool:
        return self.led_before is not None and self.led_before[0] == epoch and self.is_cut

    @property
    def grew(self) -> bool:
        return len(self.log) > self.grew_from


@dataclass(slots=True, kw_only=True)
class Replayed:
    """One replica while its rows are replayed. Mutable."""

    log: list[Written] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    led: tuple[int, int] | None = None
    lowest: int = 0
    writer: tuple[str, int] | None = None
    source: Leader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """The rows of one leader in one epoch, up to where it cut its own log, or from there on."""

    epoch: int
    broker: int
    cut_count: int
    until_ns: int
    moments: tuple[Moment, ...]
    unreported: tuple[Moment, ...]
    """Later ones that show that it had written more."""

    @property
    def writes(self) -> Iterator[tuple[int, int, int]]:
        """When it wrote, and the first offset and the one after the last."""
        for moment in (*self.moments, *self.unreported):
            if moment.grew and (moment.row["cause"] == "append" or moment in self.unreported):
                yield moment.row["at_ns"], moment.grew_from, len(moment.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A broker that was elected, and when the next epoch began."""

    broker: int
    at_ns: int
    epoch: int
    until_ns: int
    is_first: bool


def is_known(led: Led, rows: list[Row]) -> bool:
    """Whether the log of a leader was recorded when it was elected."""
    for row in rows:
        if row["broker"] != led.broker:
            continue
        if led.is_first:
            has_added = row["cause"] in ("append", "replicate")
            is_begun = row["log_end_offset"] > 0 and not has_added
            return bool(row["high_watermark"] < 2) and not is_begun
        return bool(row["at_ns"] <= led.at_ns)
    return False


def has_reported_what_it_did(led: Led, rows: list[Row]) -> bool:
    """Whether nothing that a leader may have done is missing from its rows, in order of time.

    Between two rows nothing happened. After the last one anything may have, unless its process was down or it had
    left its epoch by then; if no epoch came later, it must have entered this one at least.
    """
    is_down, has_left, has_entered = False, False, False
    was_down_at_the_end, ended_later = False, False
    for row in rows:
        if row["broker"] != led.broker:
            continue
        is_down = row["role"] == "offline"
        if row["at_ns"] < led.until_ns:
            was_down_at_the_end = is_down
        else:
            ended_later |= is_down
        has_left |= row["leader_epoch"] > led.epoch
        has_entered |= row["leader_epoch"] >= led.epoch
    is_last = led.until_ns >= INF_NS
    return was_down_at_the_end or (has_entered if is_last else has_left or ended_later)


class NaiveLogs:
    """All logs of a partition."""

    def __init__(
        self,
        rows: list[Row],
        led: Sequence[Led] = (),
        *,
        all_leaders_known: bool = True,
        elected_in: Mapping[int, int] | None = None,
    ) -> None:
        self.elected_in = elected_in or {}
        self.led = led
        self.replicas: dict[int, Replayed] = {}
        self.leaders: dict[int, Leader] = {}
        self.terms: dict[int, list[Leader]] = {}
        """For each epoch the log of its leader before each time it cut it, and after the last time."""
        self.has_all_changes = any(
            row["cause"] == "append" and row["log_end_offset"] >= 0 for row in rows
        )
        readable = sorted(
            (row for row in rows if row["log_end_offset"] >= 0), key=lambda row: row["at_ns"]
        )
        in_order = sorted(rows, key=lambda row: row["at_ns"])
        self.has_all_changes &= all_leaders_known and all(
            is_known(one, readable) and has_reported_what_it_did(one, in_order) for one in led
        )
        self.has_all_changes &= all(
            self._is_copied_from_a_leader(row, readable) for row in readable
        )
        self.readable, self.in_order = readable, in_order
        for at, row in enumerate(readable):
            is_look = self.has_all_changes or not any(
                (later["broker"], later["at_ns"]) == (row["broker"], row["at_ns"])
                for later in readable[at + 1 :]
            )
            replica = self.replicas.setdefault(row["broker"], Replayed())
            self._replay(replica, row, is_look=is_look)
        self.reigns = sorted(
            self._reigns(), key=lambda r: (r.epoch, r.moments[0].row["at_ns"], r.broker)
        )

    def _is_copied_from_a_leader(self, row: Row, rows: list[Row]) -> bool:
        """Whether the leader of the epoch in which a row's replica copied records reported them, if it did."""
        mine = [one for one in rows if one["broker"] == row["broker"]]
        at = next(at for at, one in enumerate(mine) if one is row)
        before = mine[at - 1]["log_end_offset"] if at else 0
        has_copied = row["cause"] == "replicate" and row["log_end_offset"] > before
        reported = [end for epoch, end in self._reported_ends(rows) if epoch == row["leader_epoch"]]
        return not has_copied or max(reported, default=-1) >= row["log_end_offset"]

    def _reported_ends(self, rows: list[Row]) -> Iterator[tuple[int, int]]:
        """Yields log ends that a leader had in an epoch, as it reported then, or as its log showed later."""
        last_that_ran: dict[int, Row] = {}
        ends: dict[int, int] = {}
        for row in rows:
            broker, end = row["broker"], row["log_end_offset"]
            before = last_that_ran.get(broker)
            has_grown = row["cause"] not in ("append", "replicate") and end > ends.get(broker, 0)
            if row["role"] == "leader":
                yield row["leader_epoch"], end
            if before is not None and before["role"] == "leader" and has_grown:
                yield before["leader_epoch"], end
            if row["role"] != "offline":
                last_that_ran[broker] = row
            ends[broker] = end

    def _stopped_ns(self, row: Row) -> int:
        """Since when the log of a row's replica had not been readable; the time of the row if it had been."""
        mine = [one for one in self.in_order if one["broker"] == row["broker"]]
        at = next(at for at, one in enumerate(mine) if one is row)
        while at and mine[at - 1]["role"] == "offline":
            at -= 1
        return int(mine[at]["at_ns"])

    def _replay(self, replica: Replayed, row: Row, *, is_look: bool) -> None:
        if not replica.moments and row["cause"] == "append" and row["leader_epoch"] > 0:
            # Who wrote what is below the first append that was recorded is not known.
            replica.log = [(row["leader_epoch"], False)] * max(row["log_end_offset"] - 1, 0)
        before, end, epoch = len(replica.log), row["log_end_offset"], row["leader_epoch"]
        writer = (row["cause"] if row["cause"] in ("append", "replicate") else "other", epoch)
        stopped_ns = self._stopped_ns(row)
        if stopped_ns < row["at_ns"]:
            replica.writer = None
        if end < before:
            replica.writer = None
            del replica.log[end:]
        elif end > before and replica.writer != writer:
            replica.writer = writer
            if writer[0] == "append":
                replica.source = lambda _, e=epoch: (e, True)  # type: ignore[misc]
            else:
                highest = epoch
                if writer[0] == "other" and self.has_all_changes and stopped_ns < row["at_ns"]:
                    begun = [
                        one["leader_epoch"]
                        for one in self.readable
                        if one["role"] == "leader" and one["at_ns"] <= stopped_ns
                    ]
                    highest = min(max(begun, default=epoch), epoch)
                bound: Leader = lambda _, e=highest: (e, False)  # type: ignore[misc]  # noqa: E731
                known = self.leaders.get(epoch) if writer[0] == "replicate" else None
                replica.source = known or bound
        for offset in range(before, end):
            assert replica.source is not None
            replica.log.append(replica.source(offset))
        leads, led_before = row["role"] == "leader", replica.led
        replica.lowest = min(replica.lowest, end)
        moment = Moment(
            row=row,
            log=tuple(replica.log),
            grew_from=before,
            led_before=led_before if leads else None,
            lowest=replica.lowest,
        )
        if leads:
            replica.led, replica.lowest = (epoch, end), end
        if leads and epoch not in self.leaders and is_look:
            start = before if writer[0] == "append" and end > before else end
            held = tuple(replica.log[:start])
            self.leaders[epoch] = lambda o: held[o] if o < len(held) else (epoch, True)
            self.terms[epoch] = [self.leaders[epoch]]
        elif epoch in self.leaders and moment.is_cut_in(epoch):
            # From there on the leader had two records at an offset.
            known_before = self.leaders[epoch]
            self.leaders[epoch] = lambda o: known_before(o) if o < moment.lowest else (epoch, False)
            last = self.terms[epoch][-1]
            self.terms[epoch].append(lambda o: last(o) if o < moment.lowest else (epoch, True))
        replica.moments.append(moment)

    def _reigns(self) -> Iterator[Reign]:
        for broker, replica in self.replicas.items():
            for epoch in {m.row["leader_epoch"] for m in replica.moments}:
                mine = [
                    (at, moment)
                    for at, moment in enumerate(replica.moments)
                    if moment.row["role"] == "leader" and moment.row["leader_epoch"] == epoch
                ]
                for cut_count, part in enumerate(_parts(mine)):
                    after = replica.moments[part[-1][0] + 1 :]
                    places = {at for at, _ in part}
                    yield Reign(
                        epoch=epoch,
                        broker=broker,
                        cut_count=cut_count,
                        until_ns=after[0].row["at_ns"] if after else INF_NS,
                        moments=tuple(moment for _, moment in part),
                        unreported=tuple(
                            moment
                            for at, moment in enumerate(replica.moments)
                            if moment.grew
                            and moment.row["cause"] not in ("append", "replicate")
                            and _last_that_ran(replica.moments[:at]) in places
                        ),
                    )

    def _reign(self, epoch: int) -> int:
        """The epoch in which the leader of an epoch was elected."""
        return self.elected_in.get(epoch, epoch)

    def _until(self, broker: int, at_ns: int) -> list[Moment]:
        replica = self.replicas.get(broker)
        return [m for m in replica.moments if m.row["at_ns"] <= at_ns] if replica else []

    def end_at(self, broker: int, at_ns: int) -> int:
        moments = self._until(broker, at_ns)
        return len(moments[-1].log) if moments else 0

    def was_down(self, broker: int, from_ns: int, until_ns: int, started_ns: list[int]) -> bool:
        moments = self._until(broker, from_ns)
        is_silent = (
            bool(moments)
            and moments[-1].row["role"] == "offline"
            and len(self._until(broker, until_ns - 1)) == len(moments)
        )
        if not is_silent or self.has_all_changes:
            return is_silent
        return bool(started_ns) and not any(
            moments[-1].row["at_ns"] < at_ns < until_ns for at_ns in started_ns
        )

    def _next_look(self, broker: int, at_ns: int) -> list[Moment]:
        replica = self.replicas.get(broker)
        later = [m for m in replica.moments if m.row["at_ns"] > at_ns] if replica else []
        return [m for m in later if m.row["at_ns"] == later[0].row["at_ns"]]

    def lacks_later(
        self, broker: int, at_ns: int, leader_epoch: int, offset: int, low: int, high: int
    ) -> bool:
        """Whether the next look shows the elected leader without a record."""
        look = self._next_look(broker, at_ns)
        if not look or look[-1].row["role"] != "leader":
            return False
        log = look[-1].log
        is_gone = offset >= len(log) or differs(log[offset], low, high)
        return is_gone and look[-1].row["leader_epoch"] == leader_epoch

    def had_before_and_after(
        self, broker: int, at_ns: int, offset: int, low: int, high: int
    ) -> bool:
        """Whether a record that is known by its epoch was there at the looks around a moment."""
        before, after = self._until(broker, at_ns)[-1:], self._next_look(broker, at_ns)
        if not before or not after or low != high:
            return False
        looks = [*before, *after]
        if any(m.row["role"] == "offline" or len(m.log) <= offset for m in looks):
            return False
        epoch, is_exact = looks[0].log[offset]
        return is_exact and epoch == low

    def _before_it_leads(self, broker: int, at_ns: int, leader_epoch: int) -> Sequence[Moment]:
        """What a replica reported before it heard of its election or ended, or came back if it was down."""
        before = self._until(broker, at_ns)
        after = self.replicas[broker].moments[len(before) :] if before else []
        heard = [at for at, one in enumerate(after) if one.row["leader_epoch"] >= leader_epoch]
        if not heard:
            return before
        later = after[: heard[0]]
        seen = _until_it_ended(before, later)
        if not _is_down(before[-1]) or len(seen) < len(later):
            return [*before, *seen]
        first = after[heard[0]].row
        if first["role"] == "leader" and self._reign(first["leader_epoch"]) == leader_epoch:
            return [*before, *later]
        # What it came back with.
        back = [at for at, one in enumerate(after) if not _is_down(one)]
        return [*before, *after[: back[0] + 1]] if back else before

    def lacks(
        self, broker: int, at_ns: int, leader_epoch: int, offset: int, low: int, high: int
    ) -> bool:
        moments = self._before_it_leads(broker, at_ns, leader_epoch)
        log = moments[-1].log if moments else ()
        return offset >= len(log) or differs(log[offset], low, high)

    def certainly_has(
        self,
        broker: int,
        at_ns: int,
        leader_epoch: int,
        offset: int,
        low: int,
        high: int,
        since_ns: int,
    ) -> bool:
        if self.lacks(broker, at_ns, leader_epoch, offset, low, high):
            return False
        moments = self._before_it_leads(broker, at_ns, leader_epoch)
        epoch, is_exact = moments[-1].log[offset]
        cuts = [
            cut_ns
            for cut_ns, cut_epoch, _, end, end_before in self.self_cuts()
            if cut_ns <= at_ns and end <= offset < end_before and cut_epoch == epoch
        ]
        missing = [at for at, moment in enumerate(moments) if len(moment.log) <= offset]
        there_ns = moments[missing[-1] + 1 if missing else 0].row["at_ns"]
        is_known = is_exact and (low == high or there_ns <= since_ns)
        return is_known and all(there_ns < cut_ns and since_ns < cut_ns for cut_ns in cuts)

    def self_cuts(self) -> list[tuple[int, int, int, int, int]]:
        """When, in which epoch and by which leader its own log was cut, to which end, and from which."""
        return sorted([*self._cut_while_they_led(), *self._cut_before_they_led()])

    def _cut_before_they_led(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yields the same of replicas that had more when they ended after their election."""
        for one in self.led if self.has_all_changes else ():
            before = self._until(one.broker, one.at_ns)
            after = self.replicas[one.broker].moments[len(before) :]
            leads = [
                at
                for at, moment in enumerate(after)
                if moment.row["role"] == "leader" and moment.row["leader_epoch"] >= one.epoch
            ]
            if not before or not leads:
                continue
            first = after[leads[0]]
            seen = _until_it_ended(before, after[: leads[0]])
            if len(seen) == leads[0]:
                continue
            had = [before[-1], *seen]
            came_back = after[len(had) - 1 : leads[0] + 1]
            lowest = min((len(moment.log) for moment in came_back), default=len(had[-1].log))
            is_its_own = self._reign(first.row["leader_epoch"]) == one.epoch
            if is_its_own and lowest < len(had[-1].log):
                yield first.row["at_ns"], one.epoch, one.broker, lowest, len(had[-1].log)

    def _cut_while_they_led(self) -> Iterator[tuple[int, int, int, int, int]]:
        return (
            (
                after.row["at_ns"],
                after.led_before[0],
                broker,
                after.lowest,
                after.led_before[1],
            )
            for broker, replica in self.replicas.items()
            for after in replica.moments
            if after.led_before is not None
            and after.is_cut
            and self._reign(after.led_before[0]) == self._reign(after.row["leader_epoch"])
        )

    def writes_at(self, offset: int) -> list[tuple[int, int]]:
        return sorted(
            {
                (reign.epoch, at_ns)
                for reign in self.reigns
                for at_ns, begin, stop in reign.writes
                if begin <= offset < stop
            }
        )

    def written(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        return sorted(
            {
                (offset, reign.epoch)
                for reign in self.reigns
                for at_ns, begin, stop in reign.writes
                if from_ns <= at_ns <= to_ns
                for offset in (begin, stop - 1)
            }
        )

    def written_in_term(self, term: int, offset: int) -> int:
        epoch, is_exact = self.leaders[term](offset) if term in self.leaders else (-1, False)
        return epoch if is_exact else -1

    @property
    def _known_reigns(self) -> list[Reign]:
        """Those whose leader's log is known."""
        return [reign for reign in self.reigns if reign.epoch in self.leaders]

    def passed(
        self, offset: int, low: int, high: int, invoked_ns: int, written_ns: int, seen_ns: int
    ) -> tuple[int, int, int]:
        perhaps_ns = INF_NS
        found, written_in, is_another = (INF_NS, -1), -1, False
        for reign in self._known_reigns:
            is_another |= written_in == reign.epoch and any(
                begin <= offset < stop and invoked_ns <= at_ns <= written_ns
                for at_ns, begin, stop in reign.writes
            )
            if reign.cut_count >= len(self.terms[reign.epoch]):
                continue
            log = self.terms[reign.epoch][reign.cut_count]
            is_other = self._wrote_ns(reign, offset) < invoked_ns or any(
                begin <= offset < stop and at_ns > written_ns for at_ns, begin, stop in reign.writes
            )
            is_other = is_other and log(offset)[0] == reign.epoch
            is_other = is_other and self._writes_at(reign.epoch, offset) > 1
            is_wanted = found[0] == INF_NS or is_another
            if not is_wanted or low > reign.epoch or is_other or differs(log(offset), low, high):
                continue
            times = [at_ns for at_ns, mark in _marks(reign) if mark > offset]
            times = [at_ns for at_ns in times if at_ns >= invoked_ns]
            perhaps_ns = min([perhaps_ns, *times[:1]])
            is_in_time = bool(times) and (not is_another or times[0] <= seen_ns)
            if is_in_time and log(offset)[1] and high < ANY_EPOCH:
                found, written_in, is_another = (times[0], reign.epoch), log(offset)[0], False
        return perhaps_ns, *found

    def _cut_again_ns(self, reign: Reign) -> int:
        """When the leader led on with a shorter log."""
        return min(
            (
                each.moments[0].row["at_ns"]
                for each in self.reigns
                if (each.epoch, each.broker) == (reign.epoch, reign.broker)
                and each.cut_count > reign.cut_count
            ),
            default=INF_NS,
        )

    def _writes_at(self, epoch: int, offset: int) -> int:
        """In how many reigns of an epoch its leader wrote at an offset."""
        return sum(
            any(begin <= offset < stop for _, begin, stop in each.writes)
            for each in self.reigns
            if each.epoch == epoch
        )

    def last_written_ns(self, epoch: int, offset: int, until_ns: int) -> int:
        times = [at_ns for at, at_ns in self.writes_at(offset) if at == epoch and at_ns <= until_ns]
        return max(times, default=-INF_NS)

    def may_have_had(self, epoch: int, offset: int) -> bool:
        logs = self.terms.get(epoch, [])
        return any(not is_exact or at < epoch for at, is_exact in (log(offset) for log in logs))

    def _wrote_ns(self, reign: Reign, offset: int) -> int:
        """When the leader of a reign wrote at an offset, for the last time before it ended."""
        times = [
            at_ns
            for each in self.reigns
            if (each.epoch, each.broker) == (reign.epoch, reign.broker)
            and each.cut_count <= reign.cut_count
            for at_ns, begin, stop in each.writes
            if begin <= offset < stop
        ]
        return max(times, default=INF_NS)

    def served(self, offset: int, from_ns: int, to_ns: int, by: int) -> tuple[int, int, int]:
        for reign in self._known_reigns:
            times = [at_ns for at_ns, mark in _marks(reign) if mark > offset]
            is_its_time = bool(times) and times[0] <= to_ns and from_ns <= reign.until_ns
            again_ns = self._cut_again_ns(reign)
            is_its_own = by == reign.epoch and (from_ns <= reign.until_ns or again_ns == INF_NS)
            if times and (is_its_time if by < 0 else is_its_own):
                own = self.terms[reign.epoch][reign.cut_count]
                epoch, is_exact = (own if to_ns < again_ns else self.leaders[reign.epoch])(offset)
                return epoch if is_exact else ANY_EPOCH, times[0], reign.epoch
        shown = [
            found for b in self.replicas for found in self._of_follower(b, offset, from_ns, to_ns)
        ]
        if not shown or by >= 0:
            return ANY_EPOCH, INF_NS, -1
        leader_epoch, at_ns, writer = min(shown)
        return writer, at_ns, leader_epoch

    def _of_follower(
        self, broker: int, offset: int, from_ns: int, to_ns: int
    ) -> Iterator[tuple[int, int, int]]:
        """Yields what a replica could show: epoch and time since when it could, and the writer's epoch."""
        since: Moment | None = None
        moments = self.replicas[broker].moments
        for at, moment in enumerate(moments):
            row = moment.row
            is_covered = min(row["high_watermark"], len(moment.log)) > offset
            since = (since or moment) if is_covered else None
            ends_ns = moments[at + 1].row["at_ns"] if at + 1 < len(moments) else INF_NS
            is_seen = (row["at_ns"] <= from_ns < ends_ns) or from_ns < row["at_ns"] <= to_ns
            if since is not None and is_seen and row["role"] != "offline":
                epoch, is_exact = moment.log[offset]
                writer = epoch if is_exact else ANY_EPOCH
                yield since.row["leader_epoch"], since.row["at_ns"], writer
                return


def _until_it_ended(before: Sequence[Moment], after: Sequence[Moment]) -> list[Moment]:
    """Returns what a replica reported since an election until its process ended, or ended again if it was down."""
    down = [*takewhile(_is_down, after)] if _is_down(before[-1]) else []
    return [*down, *takewhile(lambda one: not _is_down(one), after[len(down) :])]


def _is_down(moment: Moment) -> bool:
    return bool(moment.row["role"] == "offline")


def _last_that_ran(moments: Sequence[Moment]) -> int | None:
    """The place of the last moment of a process that ran."""
    ran = [at for at, moment in enumerate(moments) if moment.row["role"] != "offline"]
    return ran[-1] if ran else None


def _parts(mine: list[tuple[int, Moment]]) -> Iterator[list[tuple[int, Moment]]]:
    """Cuts a leader's rows where its log became shorter."""
    part: list[tuple[int, Moment]] = []
    for at, moment in mine:
        if part and moment.is_cut_in(moment.row["leader_epoch"]):
            yield part
            part = []
        part.append((at, moment))
    if part:
        yield part


def _marks(reign: Reign) -> Iterator[tuple[int, int]]:
    mark = -1
    for moment in reign.moments:
        mark = max(mark, moment.row["high_watermark"])
        yield moment.row["at_ns"], mark


def differs(written: Written, low: int, high: int) -> bool:
    """Whether a record is certainly not one that was written in certain epochs."""
    epoch, is_exact = written
    return epoch < low or (is_exact and epoch > high)
