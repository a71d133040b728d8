"""What clients know of a record, one record after the other; no logs of replicas are recorded here."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from checkers.kernels.claims import ClaimReader, find_pairs
from checkers.kernels.elections import Elections
from checkers.kernels.history import INF_NS, NONE, read_history
from checkers.kernels.log_contents import ANY_EPOCH
from harness.history.schema import TABLES
from tests.anomalies.claims import plain_reader
from tests.anomalies.runs import state, table
from tests.anomalies.test_compacted_logs import keyed
from tests.property.brute_force import Call, ends_table, operations_table, records_table
from tests.property.test_findings_by_definition import history_of

CASES = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row of `checkers.kernels.elections.Claims`."""

    offset: int
    low_epoch: int
    high_epoch: int
    from_ns: int
    by_ns: int
    epoch: int
    read_ns: int


class NaiveClaims:
    """Reads claims from the operations; `ends` is when each leader epoch ended."""

    def __init__(
        self,
        calls: list[Call],
        ends: dict[int, int],
        sent_again: bool,
        elections: list[tuple[int, ...]],
    ) -> None:
        """Takes the moment, the epoch and the leader of each election."""
        self.calls = {call.op: call for call in calls}
        self.ends = ends
        self.elections = elections
        self.sent_again = sent_again

    def done(self, call: Call) -> int:
        bounds = call.outcome == "ok" or call.kind == "poll"
        return call.res if bounds and call.res is not None else INF_NS

    def epoch(self, call: Call) -> int:
        return -1 if call.kind == "append" else call.epoch

    def true_by(self, call: Call) -> int:
        """When what an operation returned was true at the latest: its leader returns nothing of later epochs."""
        epoch = self.epoch(call)
        return min(self.done(call), self.ends[epoch]) if epoch >= 0 else self.done(call)

    def value(self, op: int, offset: int) -> int:
        call = self.calls.get(op)
        if call is None or call.kind == "append":
            return NONE if call is None else op
        return min((v for o, v in call.records if o == offset), default=NONE)

    def claim(self, op: int, offset: int, value: int, last_shown: bool) -> Claim:
        call = self.calls.get(op)
        if value == NONE:
            by = INF_NS if call is None else self.true_by(call)
            since = 0 if call is None else call.inv
            epoch = -1 if call is None else self.epoch(call)
            low, high = -1, ANY_EPOCH
            return Claim(
                offset=offset,
                low_epoch=low,
                high_epoch=high,
                from_ns=min(since, by),
                by_ns=by,
                epoch=epoch,
                read_ns=-INF_NS,
            )
        append = self.calls.get(value)
        append = append if append is not None and append.kind == "append" else None
        readers = [c for c in self.calls.values() if (offset, value) in c.records]
        stamps = [
            stamp
            for c in readers
            for record, stamp in zip(c.records, c.stamps, strict=True)
            if record == (offset, value)
        ]
        epochs = [self.epoch(c) for c in readers if self.epoch(c) >= 0]
        times = [self.true_by(c) for c in readers]
        since = 0 if call is None else call.inv
        if append is not None:
            since = append.inv
            is_here = append.outcome == "ok" and append.acks and append.offset == offset
            # With acks=1 the record was only written when the response came.
            if is_here and not (append.acks == 1 and readers):
                times.append(self.done(append))
        elif call is not None:
            since = min(call.inv, self.true_by(call))
        by = min(times, default=INF_NS)
        stamp = max(stamps, default=-1)
        hint = append.epoch if append is not None else -1
        pick = max if last_shown else min
        if self.sent_again:
            # What others show may be another copy.
            own = call is not None and call.kind == "poll"
            stamp = self.stamps(call, offset, value)[0] if call is not None and own else -1
            hint = -1
            if not last_shown:
                epochs = [] if call is None or self.epoch(call) < 0 else [self.epoch(call)]
            if append is not None and not own and is_promised_at(append, offset):
                by = self.done(append)
            if call is not None and own:
                by = self.copy_true_by(call, offset, value, append)
        return Claim(
            offset=offset,
            low_epoch=stamp if stamp >= 0 else hint,
            high_epoch=stamp if stamp >= 0 else ANY_EPOCH,
            from_ns=min(since, by),
            by_ns=by,
            epoch=pick(epochs, default=-1),
            read_ns=max((c.inv for c in readers if self.epoch(c) < 0), default=-INF_NS),
        )

    def stamps(self, poll: Call, offset: int, value: int) -> list[int]:
        """The leader epochs on the batches in which a poll returned a record."""
        returned = zip(poll.records, poll.stamps, strict=True)
        return [stamp for record, stamp in returned if record == (offset, value)]

    def copy_true_by(self, poll: Call, offset: int, value: int, append: Call | None) -> int:
        """When the copy that a poll returned was there at the latest, by what certainly shows the same copy."""

        def copies(call: Call) -> list[tuple[str, int]]:
            leader = ("leader", call.epoch) if call.epoch >= 0 else ("poll", call.op)
            stamps = self.stamps(call, offset, value)
            return [("batch", stamp) if stamp >= 0 else leader for stamp in stamps]

        own = copies(poll)[0]
        times = [self.true_by(call) for call in self.calls.values() if own in copies(call)]
        # The leader that wrote the batch acknowledged it.
        if append is not None and is_promised_at(append, offset):
            wrote = own == ("batch", append.epoch) and self.led_once(append)
            times += [self.done(append)] if wrote else []
        return min(times)

    def led_once(self, append: Call) -> bool:
        """Whether the leader that a producer knew had not been elected again before it responded."""
        led = [leader for _, epoch, leader in self.elections if epoch <= append.epoch]
        return not any(
            at <= self.done(append)
            for at, epoch, leader in self.elections
            if epoch > append.epoch and (not led or leader == led[-1])
        )


def is_promised_at(append: Call, offset: int) -> bool:
    """Whether an append was acknowledged at an offset, with acks=all."""
    return (append.outcome, append.acks, append.offset) == ("ok", -1, offset)


def history_with_epochs(number: int) -> tuple[list[Call], list[dict[str, object]]]:
    """Returns a random history whose responses and records name leader epochs, and the elections."""
    rng = random.Random(f"claims/{number}")
    calls = [
        replace(
            call,
            epoch=rng.choice((-1, 0, 0, 1, 2)),
            stamps=tuple(rng.choice((-1, 0, 1)) for _ in call.records),
        )
        for call in history_of(number)[0]
    ]
    elected = sorted(rng.sample(range(90), rng.choice((0, 2, 3))))
    return calls, [state(at, 1 + n % 2, [1], epoch=n) for n, at in enumerate(elected)]


@pytest.mark.parametrize("sent_again", [False, True])
@pytest.mark.parametrize("part", range(3))
def test_claims_are_those_of_one_record_after_the_other(part: int, sent_again: bool) -> None:
    for number in range(part * CASES // 3, (part + 1) * CASES // 3):
        calls, states = history_with_epochs(number)
        ends = {
            e: next(
                (int(str(s["at_ns"])) for s in states if int(str(s["leader_epoch"])) > e), INF_NS
            )
            for e in range(-1, 4)
        }
        elected = [
            tuple(int(str(s[n])) for n in ("at_ns", "leader_epoch", "leader")) for s in states
        ]
        naive = NaiveClaims(calls, ends, sent_again, elected)
        operations, records = operations_table(calls), records_table(calls)
        nothing = {
            n: TABLES[n].empty_table() for n in ("replica_states", "broker_states", "faults")
        }
        elections = Elections(table("partition_states", states), **nothing, elr_on=False)
        history = read_history(operations, records, ends_table(calls))
        reader = plain_reader(history, operations, records, elections, sent_again=sent_again)
        rng = random.Random(number)
        pairs = [(c.op, o) for c in calls for o, _ in c.records]
        pairs += [(c.op, c.offset) for c in calls if c.offset is not None]
        pairs += [(rng.randrange(16), rng.randrange(5)) for _ in range(6)]
        ops, offsets = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
        values = reader.values(ops, offsets)
        assert values.tolist() == [naive.value(*pair) for pair in pairs], f"history {number}"
        for last_shown in (False, True):
            claims = reader.claims(ops, offsets, values, last_shown=last_shown)
            found = [
                Claim(**{name: int(getattr(claims, name)[row]) for name in Claim.__slots__})
                for row in range(len(pairs))
            ]
            assert found == [
                naive.claim(op, offset, int(value), last_shown)
                for (op, offset), value in zip(pairs, values, strict=True)
            ], f"history {number}"


def keyed_history(rng: random.Random) -> tuple[list[Call], dict[int, str]]:
    """Returns appends to a compacted topic and polls of it, in any order, and the keys of the appends."""
    calls: list[Call] = []
    for op in range(rng.randint(2, 8)):
        inv = rng.randrange(12)
        res = inv + rng.randrange(6)
        if rng.random() < 0.3:
            offsets = sorted(rng.sample(range(5), rng.randint(0, 3)))
            records = tuple((offset, rng.randrange(9)) for offset in offsets)
            more = {"position": 0, "records": records, "stamps": (0,) * len(records)}
            calls.append(Call(op=op, kind="poll", process=9, inv=inv, res=res, **more))
            continue
        outcome = rng.choice(("ok", "ok", "ok", "info", "fail"))
        calls.append(
            Call(
                op=op,
                kind="append",
                process=op,
                inv=inv,
                res=rng.choice((res, None)) if outcome == "info" else res,
                outcome=outcome,
                offset=rng.randrange(5) if outcome == "ok" and rng.random() < 0.7 else None,
            )
        )
    return calls, {call.op: rng.choice(("", "a", "b")) for call in calls if call.kind == "append"}


def may_be_behind(one: Call, other: Call, clock_error_ns: int) -> bool:
    """Whether an append may have written behind another one, as far as times show it."""
    if other.outcome == "fail":
        return False
    return other.outcome == "info" or (other.res or 0) >= one.inv - clock_error_ns


@pytest.mark.parametrize("part", range(3))
def test_what_a_cleaner_may_have_removed_follows_from_keys_and_times(part: int) -> None:
    seen = set()
    for number in range(part * 200, (part + 1) * 200):
        rng = random.Random(f"keys/{number}")
        calls, keys = keyed_history(rng)
        error_ns = rng.choice((0, 0, 2))
        tables = keyed(calls, keys)
        history = read_history(*tables.values())
        no_states = {
            n: TABLES[n].empty_table()
            for n in ("partition_states", "replica_states", "broker_states", "faults")
        }
        elections = Elections(no_states.pop("partition_states"), **no_states, elr_on=False)
        reader = ClaimReader(
            history,
            tables["operations"],
            tables["records_read"],
            elections,
            sent_again=False,
            compacted=True,
            clock_error_ns=error_ns,
        )
        appends = {call.op: call for call in calls if call.kind == "append"}
        known = {(c.offset, c.op) for c in appends.values() if c.offset is not None}
        known |= {record for c in calls for record in c.records}
        pairs = [(offset, value) for offset in range(5) for value in range(10)]
        offsets, values = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
        replaced_ns = [
            min(
                (
                    other.inv
                    for op, other in appends.items()
                    if op != value and keys[value] != "" and keys[op] == keys[value]
                    if may_be_behind(appends[value], other, error_ns)
                ),
                default=INF_NS,
            )
            if value in appends
            else -INF_NS
            for _, value in pairs
        ]
        may_be_removed = [at_ns < INF_NS for at_ns in replaced_ns]
        have_later = [
            value in appends
            and keys[value] != ""
            and any(o > offset and keys.get(v, "") == keys[value] for o, v in known)
            for offset, value in pairs
        ]
        are_shared = [
            is_later and len({v for o, v in known if o == offset}) > 1
            for (offset, _), is_later in zip(pairs, have_later, strict=True)
        ]
        assert reader.replaced_ns(values).tolist() == replaced_ns, f"history {number}"
        assert reader.may_be_removed(values).tolist() == may_be_removed, f"history {number}"
        assert reader.have_later(values, offsets).tolist() == have_later, f"history {number}"
        found = reader.are_replaced_at_shared(values, offsets).tolist()
        assert found == are_shared, f"history {number}"
        seen |= set(zip(may_be_removed, have_later, are_shared, strict=True))
    assert len(seen) >= 5


def test_pairs_are_found_among_pairs() -> None:
    rng = random.Random(3)
    for _ in range(300):
        there = sorted({(rng.randrange(4), rng.randrange(4)) for _ in range(rng.randint(1, 9))})
        wanted = [(rng.randrange(-1, 6), rng.randrange(-1, 6)) for _ in range(rng.randint(1, 9))]
        columns = [
            np.array(c, dtype=np.int64)
            for c in (*zip(*there, strict=True), *zip(*wanted, strict=True))
        ]
        at, is_there = find_pairs(*columns)
        assert is_there.tolist() == [pair in there for pair in wanted]
        for row in np.flatnonzero(is_there):
            assert there[at[row]] == wanted[row]
