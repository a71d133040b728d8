"""Three abstract brokers that replicate one log by Kafka's rules, or break them, and clients that use it.

`election_runs` judges what they record. The logs are known at every moment, so the truth about each loss is.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.anomalies.runs import broker, fault, replica, state
from tests.property.brute_force import Call

BROKERS = (1, 2, 3)
NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    value: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An election, or a leader that cut its own log; `log` is the leader's log then.

    `destroyed` are the (offset, record) which only brokers had to have that lost their data, the elected one
    included.
    """

    epoch: int
    excuses: bool
    log: tuple[Record, ...]
    is_election: bool = True
    destroyed: frozenset[tuple[int, Record]] = frozenset()


@dataclass(slots=True, kw_only=True)
class Replica:
    """One broker's log and what it knows of the partition. Mutable: the state of a small simulation."""

    log: list[Record] = field(default_factory=list)
    high_watermark: int = 0
    epoch: int = 0
    leads: bool = False
    isr: tuple[int, ...] = ()
    min_isr: int = 1
    known_ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is random about a whole run.

    Attributes:
        has_logs: Whether replica states are recorded.
        sampled_share: Which share of the states of replicas is seen; 1 where nodes report every change.
        has_epochs, has_stamps: Whether clients learn the epochs of responses and of records.
        is_broken: Whether rules are broken.
        elr_on: Whether flagged elections must be justified.
        final_is_complete: Whether the final reads read everything.
        follower_reads: Whether followers serve reads too (KIP-392). They do not tell an epoch.
    """

    has_logs: bool
    sampled_share: float
    has_epochs: bool
    has_stamps: bool
    is_broken: bool
    elr_on: bool
    final_is_complete: bool
    follower_reads: bool = False

    @property
    def has_all_logs(self) -> bool:
        """Whether every state of every replica is recorded."""
        return self.has_logs and self.sampled_share == 1


@dataclass(slots=True, kw_only=True)
class Pending:
    """An append that a leader wrote and has not acknowledged yet."""

    value: int
    offset: int
    epoch: int
    acks: int


OTHERS_SHARE = 0.3
"""In this share of the steps something happens that plain runs do not have."""

SETTINGS_SHARE = 0.05
"""In this share of the steps min ISR is raised or lowered."""

RESTARTS_SHARE = 0.15
"""In this share of the steps a process ends or starts, or the controller notices that one has ended."""

UNHEARD_SHARE = 0.1
"""This share of the elected replicas that run end before they hear of their election."""


@dataclass(slots=True, kw_only=True)
class Reign:
    """What a broker leads by. Mutable: what it had changes.

    Attributes:
        leader: The broker.
        epoch: In which it was elected.
        excuses: Whether that excuses what it lacks.
        had: Its log when it ended, or when it was elected; None if it was down then, and has not led yet.
        event: The number of its event, if it was down when it was elected, and the election lost something all
            the same.
        is_flagged: Whether the election was.
        was_in_isr: Whether the broker was in the ISR before.
    """

    leader: int
    epoch: int
    excuses: bool
    had: tuple[Record, ...] | None = None
    event: int | None = None
    is_flagged: bool = False
    was_in_isr: bool = True


class Cluster:
    """Simulates one run. Mutable."""

    def __init__(
        self,
        rng: random.Random,
        choices: Choices,
        late: random.Random | None = None,
        copies: random.Random | None = None,
        copies_share: float = 0.0,
        others: random.Random | None = None,
        mishaps: random.Random | None = None,
        restarts: random.Random | None = None,
        settings: random.Random | None = None,
    ) -> None:
        self.rng = rng
        self.choices = choices
        self.late = late
        """Decides which elected replicas hear of it late; None if none does."""
        self.copies = copies
        """Decides which appends idempotent producers send again, and to which leader; None if they do not."""
        self.copies_share = copies_share
        self.others = others
        """Decides about questions for the log end, appends that are refused, and final reads in pieces; None if
        there are none."""
        self.mishaps = mishaps
        """Decides which producers name an older epoch of the leader that responds, which elected replicas hear of
        two elections at once, and which leaders fail before they report what they wrote; None if none does."""
        self.restarts = restarts
        """Decides which processes end and start again while the controller may not know it; None if none does."""
        self.settings = settings
        """Decides when min ISR is raised or lowered; None if it stays as it is."""
        self.down: set[int] = set()
        self.destroyers: dict[int, dict[str, Any]] = {}
        """The power cut by which each broker is down."""
        self.reign = Reign(leader=NO_LEADER, epoch=-1, excuses=False)
        self.is_torn = False
        """Whether a leader lost records and may lead on in its epoch, while followers still have them."""
        self.restart_cuts: list[int] = []
        """The log ends with which leaders led on that had had more."""
        self.shrinking_begins_epoch = restarts is not None and restarts.random() < 0.3
        """Whether a smaller ISR begins a leader epoch without an election, as before Apache Kafka 3.6."""
        self.elected_in: dict[int, list[int]] = {b: [] for b in BROKERS}
        """In which epochs each broker was elected."""
        self.now = 10
        self.min_isr = 2 if choices.elr_on else 1
        self.replicas = {b: Replica() for b in BROKERS}
        self.leader, self.epoch = NO_LEADER, -1
        self.isr: tuple[int, ...] = BROKERS
        self.calls: list[Call] = []
        self.states: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.broker_rows = [broker(0, b, "registered") for b in BROKERS]
        self.faults: list[dict[str, Any]] = []
        self.pending: dict[int, list[Pending]] = {b: [] for b in BROKERS}
        self.established: dict[tuple[int, Record], tuple[int, int]] = {}
        """The epoch in which each (offset, record) was established, and how many events there were before."""
        self.known: set[tuple[int, Record]] = set()
        """The (offset, record) that reads and acknowledgements show."""
        self.spread: dict[tuple[int, Record], set[int]] = {}
        """Which brokers were in the ISR since each (offset, record) was established."""
        self.given_up: set[tuple[int, Record]] = set()
        """The (offset, record) that a lawful flagged election lost, and that are not back."""
        self.is_tainted = False
        """Whether an election that was not flagged brought any of them back, or chose a replica outside of the ISR
        that lacked what faults had destroyed."""
        self.alone: set[tuple[int, Record]] = set()
        """The (offset, record) that were established when min ISR was 1."""
        self.hit: dict[tuple[int, Record], set[int]] = {}
        """Which brokers a power cut hit since then, and since they joined the ISR or were elected with it."""
        self.events: list[Event] = []
        self.elect(1, flagged=False)
        for b in BROKERS[1:]:
            self.note(b, "load")

    # --- time and rows ---

    def tick(self) -> int:
        self.now += self.rng.choice((1, 3, 10))
        return self.now

    def note(self, b: int, cause: str, *, end: int | None = None) -> None:
        r = self.replicas[b]
        role = "offline" if cause == "down" else "leader" if r.leads else "follower"
        end = len(r.log) if end is None else end
        self.rows.append(
            replica(self.now, b, end, hw=r.high_watermark, epoch=r.epoch, role=role, cause=cause)
        )

    def commit_state(self, *, flagged: bool = False) -> None:
        before = self.states[-1]["isr"] if self.states else ()
        leader = self.replicas.get(self.leader)
        for pair, brokers in self.spread.items():
            brokers.update(self.isr)
            if leader is not None and holds(leader.log, *pair):
                self.hit[pair] -= {*self.isr} - {*before}
        self.states.append(
            state(
                self.now,
                self.leader,
                list(self.isr),
                epoch=self.epoch,
                flagged=flagged,
                min_isr=self.min_isr,
            )
        )

    # --- the controller ---

    def elect(self, b: int, *, flagged: bool, lawful: bool = True) -> None:
        """Gives the partition a leader; with a flag, it is the only member of the ISR."""
        self.tick()
        is_up, was_in_isr = b not in self.down, b in self.isr
        destroyed = self.destroyed(b, flagged=flagged) if is_up else frozenset()
        old, old_epoch = self.leader, self.epoch
        if flagged and lawful and self.choices.elr_on:
            self.justify()
        elif self.states and (old == b or (not flagged and b not in self.isr)):
            self.leader = NO_LEADER
            self.epoch += 1
            self.commit_state()
            self.tick()
        if b not in self.isr:
            self.isr = (b,)
        if flagged:
            self.isr = (b,)
        self.leader, self.epoch = b, self.epoch + 1
        if self.mishaps is not None and self.states and not flagged and self.mishaps.random() < 0.2:
            self.elect_in_vain(b)
        self.commit_state(flagged=flagged)
        self.elected_in[b].append(self.epoch)
        excuses = flagged and lawful
        self.reign = Reign(
            leader=b, epoch=self.epoch, excuses=excuses, is_flagged=flagged, was_in_isr=was_in_isr
        )
        self.is_tainted |= bool(destroyed) and not was_in_isr
        if is_up:
            self.hear_late(b, old, old_epoch)
        self.give_up_others(b, excuses=excuses)
        if not is_up:
            if flagged or not was_in_isr:
                # Whether or not it leads then, what it lacks is given up.
                self.reign.event = len(self.events)
                self.events.append(
                    Event(
                        epoch=self.epoch,
                        excuses=excuses,
                        log=tuple(self.replicas[b].log),
                        destroyed=self.destroyed(b, flagged=flagged),
                    )
                )
            return
        self.events.append(
            Event(
                epoch=self.epoch,
                excuses=excuses,
                log=tuple(self.replicas[b].log),
                destroyed=destroyed,
            )
        )
        r = self.replicas[b]
        self.reign.had = tuple(r.log)
        if self.restarts is not None and self.states[1:] and self.restarts.random() < UNHEARD_SHARE:
            self.crash(b)
            return
        self.begin_to_lead(b)
        if self.rng.random() < 0.5:
            self.learn(old)

    def give_up_others(self, b: int, *, excuses: bool) -> None:
        """Notes that only the elected broker has to have now what it has.

        That is so after a lawful flagged election, and if the record is back that such an election had lost.
        """
        for pair, brokers in self.spread.items():
            has = holds(self.replicas[b].log, *pair)
            if has and (excuses or pair in self.given_up):
                brokers.clear()
                brokers.add(b)
                self.is_tainted |= not excuses
                self.given_up.discard(pair)
            elif excuses:
                self.given_up.add(pair)

    def begin_to_lead(self, b: int) -> None:
        r = self.replicas[b]
        r.epoch, r.leads, r.isr, r.known_ends = self.epoch, True, self.isr, {}
        r.min_isr = self.min_isr
        self.drop_pending(b)
        self.tick()
        self.note(b, "role")
        self.advance(b)

    def elect_in_vain(self, b: int) -> None:
        """Elects a replica that hears of it only with the next election, which chooses it again."""
        self.commit_state()
        self.elected_in[b].append(self.epoch)
        self.leader, self.epoch = NO_LEADER, self.epoch + 1
        self.tick()
        self.commit_state()
        self.leader, self.epoch = b, self.epoch + 1
        self.tick()

    def hear_late(self, b: int, old: int, epoch: int) -> None:
        """Perhaps lets an elected replica follow the leader before it first: it cuts what differs, and copies."""
        r, leader = self.replicas[b], self.replicas.get(old)
        if self.late is None or leader is None or b == old or self.late.random() < 0.5:
            return
        if old in self.down:
            return
        if not leader.leads or leader.epoch != epoch or r.epoch > epoch:
            return
        same = common_prefix(r.log, leader.log)
        if same < len(r.log):
            if r.epoch == epoch:
                return
            self.now += 1
            r.leads, r.epoch = False, epoch
            self.truncate(b, same)
        if r.epoch < epoch or r.leads or self.late.random() < 0.5:
            return
        more = leader.log[same : same + self.late.randint(1, 3)]
        if more:
            self.now += 1
            r.log += more
            self.note(b, "replicate")

    def destroyed(self, b: int, *, flagged: bool) -> frozenset[tuple[int, Record]]:
        """Returns what only brokers had to have that power cuts hit, as they did the elected one.

        One broker may commit alone then. What an elected broker has now, no power cut destroyed before. A flagged
        election explains by itself what it lacks.
        """
        found = frozenset(
            pair
            for pair, brokers in self.spread.items()
            if pair in self.alone and {b, *brokers} <= self.hit[pair]
        )
        for pair, brokers in self.hit.items():
            if holds(self.replicas[b].log, *pair):
                brokers.discard(b)
        return frozenset() if flagged else found

    def justify(self) -> None:
        """Ends two brokers uncleanly and takes them out of ISR and ELR."""
        for b in (1, 2):
            self.start(b)
            kill = fault(self.now, "kill", [f"b{b}"])
            self.faults.append({**kill, "fault_id": f"f{len(self.faults)}"})
        self.isr, self.leader, self.epoch = (1, 2), NO_LEADER, self.epoch + 1
        self.commit_state()
        self.tick()
        self.broker_rows += [broker(self.now, b, "registered") for b in (1, 2)]
        self.tick()
        self.isr = ()
        self.commit_state()
        self.tick()

    def change_isr(self) -> None:
        r = self.replicas.get(self.leader)
        if r is None or not r.leads or r.epoch != self.epoch:
            return
        others = [b for b in self.isr if b != self.leader]
        if others and self.rng.random() < 0.6:
            self.isr = tuple(b for b in self.isr if b != self.rng.choice(others))
            self.epoch += self.shrinking_begins_epoch
        else:
            back = [
                b
                for b in BROKERS
                if b not in self.isr
                and r.known_ends.get(b, -1) == len(r.log)
                and b not in self.down
            ]
            self.isr = (*self.isr, *back)
        self.tick()
        self.commit_state()
        r.isr = self.isr
        self.tick()
        self.hear_of_epoch()
        self.advance(self.leader)

    def hear_of_epoch(self) -> None:
        """Lets a leader hear of the epoch that a smaller ISR has begun."""
        r = self.replicas[self.leader]
        if r.leads and r.epoch < self.epoch:
            r.epoch = self.epoch
            self.note(self.leader, "role")
            self.tick()

    def change_min_isr(self) -> None:
        """Lets an administrator raise or lower min ISR; the leader hears of it at once."""
        if self.settings is None or self.settings.random() >= SETTINGS_SHARE:
            return
        self.tick()
        self.min_isr = 3 - self.min_isr
        self.commit_state()
        if self.leads_now:
            self.replicas[self.leader].min_isr = self.min_isr
            self.tick()
            self.advance(self.leader)

    # --- the brokers ---

    def learn(self, b: int) -> None:
        """Lets a broker follow the current leader: it cuts its log where that leader's differs."""
        if b in (self.leader, NO_LEADER) or self.leader == NO_LEADER:
            return
        r, leader = self.replicas[b], self.replicas[self.leader]
        if r.epoch == self.epoch or leader.epoch != self.epoch or {b, self.leader} & self.down:
            return
        self.tick()
        self.drop_pending(b)
        r.leads, r.epoch = False, self.epoch
        same = common_prefix(r.log, leader.log)
        if same < len(r.log):
            self.truncate(b, same)
        else:
            self.note(b, "role")

    def truncate(self, b: int, end: int) -> None:
        """Cuts a broker's log off at an offset."""
        r = self.replicas[b]
        del r.log[end:]
        r.high_watermark = min(r.high_watermark, end)
        self.note(b, "truncate")

    def replicate(self, b: int) -> None:
        """Copies some records of the leader that a follower follows."""
        r = self.replicas[b]
        leader = self.replicas.get(self.leader)
        if leader is None or r.leads or r.epoch != self.epoch or leader.epoch != self.epoch:
            return
        if {b, self.leader} & self.down:
            return
        self.tick()
        if len(r.log) > len(leader.log):
            # The leader lost its end and leads on; a follower that has less than the leader now finds out nothing.
            self.truncate(b, len(leader.log))
        leader.known_ends[b] = len(r.log)
        more = leader.log[len(r.log) : len(r.log) + self.rng.randint(1, 3)]
        r.log += more
        before = r.high_watermark
        r.high_watermark = min(len(r.log), max(before, leader.high_watermark))
        if more:
            self.note(b, "replicate")
            self.tick()
            leader.known_ends[b] = len(r.log)
        elif r.high_watermark != before:
            # As brokers do: a follower may show records from now on.
            self.note(b, "high-watermark")
        self.advance(self.leader)

    def advance(self, b: int) -> None:
        """Moves a leader's high watermark and acknowledges what it passes."""
        r = self.replicas[b]
        if not r.leads or len(r.isr) < r.min_isr:
            return
        end = min([len(r.log), *(r.known_ends.get(o, 0) for o in r.isr if o != b)])
        if end > r.high_watermark:
            for pair in enumerate(r.log[:end]):
                self.establish(r, pair)
            r.high_watermark = end
            self.note(b, "high-watermark")
        for pending in list(self.pending[b]):
            if pending.acks == 1 or pending.offset < r.high_watermark:
                self.pending[b].remove(pending)
                self.complete(b, pending, r.log[pending.offset])

    def establish(self, r: Replica, pair: tuple[int, Record]) -> None:
        """Notes what a leader established, if nobody had before."""
        self.established.setdefault(pair, (r.epoch, len(self.events)))
        self.spread.setdefault(pair, {*self.isr, *r.isr})
        if pair not in self.hit and r.min_isr == 1:
            self.alone.add(pair)
        self.hit.setdefault(pair, {*self.destroyers})

    def cut_itself(self) -> None:
        """Lets the leader cut its own log while it leads."""
        r = self.replicas.get(self.leader)
        if r is None or not r.leads or r.epoch != self.epoch:
            return
        self.tick()
        self.truncate(self.leader, self.rng.randint(0, len(r.log)))
        self.drop_pending(self.leader)
        for other in BROKERS:
            # What followers have beyond that is theirs alone; they find out when they fetch.
            end = min(r.known_ends.get(other, 0), len(r.log))
            r.known_ends[other] = end
            follower = self.replicas[other]
            if (
                follower.epoch == self.epoch
                and not follower.leads
                and len(follower.log) > len(r.log)
            ):
                self.truncate(other, len(r.log))
        self.events.append(
            Event(epoch=self.epoch, excuses=False, log=tuple(r.log), is_election=False)
        )

    def lose_tail(self, b: int) -> None:
        """Cuts a broker's log, as a power cut does, and restarts it as a follower of nobody."""
        r = self.replicas[b]
        self.tick()
        del r.log[self.rng.randint(0, len(r.log)) :]
        r.high_watermark = min(r.high_watermark, len(r.log))
        r.leads, r.epoch = False, r.epoch
        self.drop_pending(b)
        self.note(b, "load")
        self.tick()
        self.broker_rows.append(broker(self.now, b, "registered", clean=True))

    def kept_what_was_hit(self, b: int) -> bool:
        """Whether a broker has records that a power cut did not destroy, and has not led with them since.

        If it loses them now without a fault, nothing shows that unless its log was seen in between.
        """
        log = self.replicas[b].log
        return any(b in brokers and holds(log, *pair) for pair, brokers in self.hit.items())

    def cut_power(self) -> None:
        """Cuts the power of the leader and perhaps of others; one that is in the ISR leads again."""
        if self.leader == NO_LEADER or self.down:
            return
        self.tick()
        hit = {self.leader, *(b for b in BROKERS if self.rng.random() < 0.3)}
        power = fault(self.now, "power", [f"b{b}" for b in sorted(hit)])
        self.faults.append({**power, "fault_id": f"f{len(self.faults)}"})
        for b in sorted(hit):
            self.lose_tail(b)
        self.faults[-1]["healed_ns"] = self.now
        for brokers in self.hit.values():
            brokers |= hit
        leads_again = self.leader in self.isr and self.rng.random() < 0.7
        self.elect(self.leader if leads_again else self.rng.choice(self.isr), flagged=False)

    # --- processes that end and start while the controller may not know it ---

    @property
    def up(self) -> tuple[int, ...]:
        """The brokers whose processes run."""
        return tuple(b for b in BROKERS if b not in self.down)

    @property
    def leads_now(self) -> bool:
        """Whether the leader of the last state leads by it."""
        r = self.replicas.get(self.leader)
        return r is not None and r.leads and r.epoch == self.epoch

    def end_or_start(self) -> None:
        if self.restarts is None or self.restarts.random() >= RESTARTS_SHARE:
            return
        kind, down = self.restarts.random(), sorted(self.down)
        if down and kind < 0.5:
            self.start(self.restarts.choice(down))
        elif down and kind < 0.7:
            self.end_session(self.restarts.choice(down))
        elif self.leader in self.up and not self.leads_now and kind < 0.7:
            self.lead(self.leader)
        elif kind < 0.9 and self.leader in self.up:
            self.crash(self.leader)
        else:
            b = self.restarts.choice(BROKERS)
            if b not in self.down:
                self.crash(b)

    def crash(self, b: int) -> None:
        """Ends a process: it is killed, or its power is cut, and it loses the end of its log."""
        assert self.restarts is not None
        r = self.replicas[b]
        self.tick()
        if self.reign.leader == b and r.leads and r.epoch == self.epoch:
            self.reign.had = tuple(r.log)
        self.note(b, "down")
        self.down.add(b)
        r.leads = False
        self.drop_pending(b)
        is_lawful = self.min_isr == 1
        if self.restarts.random() < 0.5 or not (is_lawful or self.choices.is_broken):
            return
        end = self.restarts.randint(0, len(r.log))
        is_fault = not (is_lawful and self.choices.is_broken and self.restarts.random() < 0.2)
        if not is_fault and self.kept_what_was_hit(b):
            return
        self.is_torn |= self.leader == b and end < len(r.log)
        del r.log[end:]
        r.high_watermark = min(r.high_watermark, len(r.log))
        if not is_fault:
            return
        power = fault(self.now, "power", [f"b{b}"])
        self.faults.append({**power, "fault_id": f"f{len(self.faults)}"})
        self.destroyers[b] = self.faults[-1]
        for brokers in self.hit.values():
            brokers.add(b)

    def start(self, b: int) -> None:
        """Starts the process of a broker that is down; if it is the leader still, it leads."""
        if b not in self.down:
            return
        self.tick()
        if b in self.destroyers:
            self.destroyers.pop(b)["healed_ns"] = self.now
            self.tick()
        self.down.remove(b)
        self.note(b, "load")
        self.tick()
        self.broker_rows.append(broker(self.now, b, "registered", clean=True))
        if self.leader == b:
            self.come_back(b)
            if self.restarts is None or self.restarts.random() < 0.8:
                self.lead(b)

    def come_back(self, b: int) -> None:
        """Notes what a leader has that was down when it was elected: what it lacks, its election lost."""
        r, reign = self.replicas[b], self.reign
        assert reign.leader == b
        if reign.had is not None:
            return
        destroyed = self.destroyed(b, flagged=reign.is_flagged)
        self.is_tainted |= bool(destroyed) and not reign.was_in_isr
        event = Event(
            epoch=reign.epoch, excuses=reign.excuses, log=tuple(r.log), destroyed=destroyed
        )
        if reign.event is None:
            self.events.append(event)
        else:
            self.events[reign.event] = event
        reign.had = tuple(r.log)

    def lead(self, b: int) -> None:
        """Lets a replica lead that came back after its election, or whose process ended since."""
        r, reign = self.replicas[b], self.reign
        self.come_back(b)
        assert reign.had is not None
        destroyed = self.destroyed(b, flagged=False)
        if len(r.log) < len(reign.had):
            self.restart_cuts.append(len(r.log))
            self.events.append(
                Event(
                    epoch=self.epoch,
                    excuses=False,
                    log=tuple(r.log),
                    is_election=False,
                    destroyed=destroyed,
                )
            )
        reign.had = tuple(r.log)
        self.begin_to_lead(b)

    def end_session(self, b: int) -> None:
        """Lets the controller notice that a broker is down."""
        others = tuple(each for each in self.isr if each != b)
        if self.leader == b:
            if others:
                self.isr = others
                self.elect(self.rng.choice(others), flagged=False)
                return
            self.leader = NO_LEADER
            self.epoch += 1
        elif b in self.isr and others:
            self.isr = others
            self.epoch += self.shrinking_begins_epoch
        else:
            return
        self.tick()
        self.commit_state()
        if self.leader != NO_LEADER:
            self.hear_of_epoch()

    # --- clients ---

    def append(self, b: int) -> None:
        r = self.replicas[b]
        if not r.leads:
            return
        value = len(self.calls)
        invoked = self.tick()
        self.tick()
        offset = len(r.log)
        r.log.append(Record(value=value, epoch=r.epoch))
        fails = self.mishaps is not None and self.mishaps.random() < 0.06
        if not fails:
            self.note(b, "append")
        is_idempotent = self.copies is not None
        acks = 1 if self.rng.random() < 0.1 and not is_idempotent else -1
        call = Call(
            op=value,
            kind="append",
            process=value,
            inv=invoked,
            res=None,
            outcome="info",
            acks=acks,
            epoch=self.name_of_epoch(b, r.epoch)
            if self.choices.has_epochs and not is_idempotent
            else -1,
        )
        self.calls.append(call)
        if fails:
            self.fail_before_it_reports(b, offset)
            return
        self.pending[b].append(Pending(value=value, offset=offset, epoch=r.epoch, acks=acks))
        self.tick()
        self.advance(b)

    def fail_before_it_reports(self, b: int, end: int) -> None:
        """Ends the process of a leader that has written a record and has not reported that; nothing is lost."""
        r = self.replicas[b]
        self.tick()
        self.note(b, "down", end=end)
        self.tick()
        r.leads = False
        self.drop_pending(b)
        self.note(b, "load")
        if self.leader == b:
            self.elect(self.rng.choice(self.isr), flagged=False)

    def name_of_epoch(self, b: int, epoch: int) -> int:
        """Returns the epoch of a leader as a producer knows it: perhaps an older one of the same leader."""
        older = [each for each in self.elected_in[b] if each < epoch]
        if self.mishaps is not None and older and self.mishaps.random() < 0.3:
            return self.mishaps.choice(older[-3:])
        return epoch

    def send_again(self) -> None:
        """Lets a leader get an append once more: a late copy of the request, or the next attempt of its producer.

        A leader that has the record does not write it again. Each producer has one record, so no leader that does
        not have it refuses it.
        """
        leaders = [b for b in BROKERS if self.replicas[b].leads]
        sent = [c for c in self.calls if c.kind == "append" and c.outcome != "fail"]
        if self.copies is None or self.copies.random() >= self.copies_share:
            return
        if not (leaders and sent):
            return
        b, call = self.copies.choice(leaders), self.copies.choice(sent[-8:])
        r = self.replicas[b]
        self.tick()
        places = [offset for offset, record in enumerate(r.log) if record.value == call.op]
        if not places:
            places = [len(r.log)]
            r.log.append(Record(value=call.op, epoch=r.epoch))
            self.note(b, "append")
        if call.outcome == "info" and self.copies.random() < 0.7:
            # The producer has given up the attempts before this one.
            for waiting in self.pending.values():
                waiting[:] = [one for one in waiting if one.value != call.op]
            attempt = Pending(value=call.op, offset=places[0], epoch=r.epoch, acks=-1)
            self.pending[b].append(attempt)
        self.tick()
        self.advance(b)

    def complete(self, b: int, pending: Pending, record: Record) -> None:
        """Responds to an append: soon, much later, without the offset, or never."""
        kind = self.rng.random()
        if kind < 0.15:
            return
        self.tick()
        delay = self.rng.choice((0, 0, 0, 5, 60, 300))
        offset = None if kind < 0.18 else pending.offset
        if offset is not None and pending.acks == -1:
            self.establish(self.replicas[b], (offset, record))
            self.known.add((offset, record))
        call = self.calls[pending.value]
        epoch = call.epoch
        if self.copies is not None and self.choices.has_epochs:
            epoch = self.name_of_epoch(b, pending.epoch)
        self.calls[pending.value] = replace(
            call, res=self.now + delay, outcome="ok", offset=offset, epoch=epoch
        )

    def drop_pending(self, b: int) -> None:
        self.pending[b].clear()

    def ask_or_be_refused(self) -> None:
        """Asks a leader for the log end, or sends an append to a broker that refuses it."""
        if self.others is None or self.others.random() >= OTHERS_SHARE:
            return
        kind, b = self.others.random(), self.others.choice(BROKERS)
        r = self.replicas[b]
        if kind < 0.5 and r.leads:
            self.ask_for_end(b)
        elif kind < 0.7 and not r.leads:
            invoked = self.tick()
            value = len(self.calls)
            self.calls.append(
                Call(
                    op=value,
                    kind="append",
                    process=value,
                    inv=invoked,
                    res=self.tick(),
                    outcome="fail",
                )
            )

    def ask_for_end(self, b: int) -> None:
        r = self.replicas[b]
        invoked, end = self.tick(), r.high_watermark
        self.calls.append(
            Call(
                op=len(self.calls),
                kind="latest",
                process=901,
                inv=invoked,
                res=self.tick(),
                offset=end,
                epoch=r.epoch if self.choices.has_epochs else -1,
            )
        )

    def read_to_the_end(self) -> None:
        """Reads the whole log of the leader, perhaps in several polls."""
        end = self.replicas[self.leader].high_watermark
        start, others = 0, self.others
        while others is not None and start < end and others.random() < 0.6:
            stop = others.randint(start + 1, end)
            self.read(self.leader, final=True, start=start, stop=stop)
            start = stop
        self.read(self.leader, final=True, start=start)

    def read(self, b: int, *, final: bool = False, start: int = 0, stop: int | None = None) -> None:
        r = self.replicas[b]
        if (not r.leads and not self.choices.follower_reads) or b in self.down:
            return
        invoked = self.tick()
        end = r.high_watermark
        if not final:
            start = self.rng.randint(0, end)
            stop = min(end, start + self.rng.randint(1, 6))
        stop = end if stop is None else stop
        delay = 0 if final else self.rng.choice((0, 0, 4, 80))
        response = self.tick() + delay
        shown = list(enumerate(r.log[start:stop], start))
        for pair in shown:
            # A follower keeps another record than the leader that wrote two at one offset in one epoch. It shows
            # it when it leads.
            self.establish(r, pair)
        self.known.update(shown)
        self.calls.append(
            Call(
                op=len(self.calls),
                kind="poll",
                process=900,
                inv=invoked,
                res=response,
                position=start,
                records=tuple((offset, record.value) for offset, record in shown),
                stamps=tuple(
                    record.epoch if self.choices.has_stamps else -1 for _, record in shown
                ),
                end=end if final or self.rng.random() < 0.5 else None,
                epoch=r.epoch if self.choices.has_epochs and r.leads else -1,
                final=final,
            )
        )

    # --- a run ---

    def step(self) -> None:
        self.send_again()
        self.ask_or_be_refused()
        self.end_or_start()
        self.change_min_isr()
        kind = self.rng.random()
        leaders = [b for b in BROKERS if self.replicas[b].leads]
        if kind < 0.32 and leaders:
            self.append(self.rng.choice(leaders))
        elif kind < 0.62:
            self.replicate(self.rng.choice(BROKERS))
        elif kind < 0.72 and leaders:
            self.read(self.rng.choice(BROKERS if self.choices.follower_reads else leaders))
        elif kind < 0.80:
            self.learn(self.rng.choice(BROKERS))
        elif kind < 0.88:
            self.change_isr()
        elif kind < 0.93:
            self.elect(self.rng.choice(self.isr), flagged=False)
        elif kind < 0.96:
            self.elect(self.rng.choice(BROKERS), flagged=True)
        elif kind < 0.98 and self.min_isr == 1:
            self.cut_power()
        elif self.choices.is_broken:
            self.misbehave()

    def misbehave(self) -> None:
        kind = self.rng.random()
        if kind < 0.4:
            self.elect(self.rng.choice(BROKERS), flagged=False)
        elif kind < 0.7 and self.leader != NO_LEADER and self.leader not in self.down:
            # The last replica standing: it loses its tail and is elected again, because it is in the ISR.
            b = self.leader
            if not self.kept_what_was_hit(b):
                self.lose_tail(b)
                self.elect(b, flagged=False)
        elif kind < 0.8 and self.choices.has_all_logs:
            # Nothing else would show it.
            self.cut_itself()
        elif self.choices.elr_on and len(self.isr) >= self.min_isr:
            self.elect(self.rng.choice(BROKERS), flagged=True, lawful=False)

    def finish(self) -> None:
        """Heals everything, lets all replicas catch up, and reads the log."""
        self.restarts = None
        for b in BROKERS:
            self.start(b)
        if self.leader == NO_LEADER:
            self.elect(self.isr[0], flagged=False)
        if not self.leads_now:
            self.lead(self.leader)
        for b in BROKERS:
            self.learn(b)
        for _ in range(400):
            for b in BROKERS:
                self.replicate(b)
            leader = self.replicas[self.leader]
            if all(len(self.replicas[b].log) == len(leader.log) for b in BROKERS):
                break
        self.now += 1000
        if self.isr != BROKERS:
            self.isr = BROKERS
            self.commit_state()
            leader.isr = BROKERS
        for b in BROKERS:
            self.replicate(b)
        if self.choices.final_is_complete:
            self.read_to_the_end()


def holds(log: Sequence[Record], offset: int, record: Record) -> bool:
    """Returns whether a log has a record at an offset."""
    return offset < len(log) and log[offset] == record


def common_prefix(one: list[Record], other: list[Record]) -> int:
    """Returns how many records two logs have in common at their start."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
