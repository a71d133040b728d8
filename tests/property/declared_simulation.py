"""Random runs of a correct broker: what a run declares, what its clients do, and what they learn.

The broker is `declared_broker`. `declared_runs` judges the runs.
"""

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from harness.contracts.run_context import LOG_CHECKERS, SESSION_CHECKER, RunContext
from tests.anomalies.runs import run
from tests.property.brute_force import Call
from tests.property.declared_broker import Broker, Record, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What is declared about a run and, by that, what may happen in it.

    Attributes:
        at_least_once: Whether producers send again without idempotence.
        is_idempotent: Whether producers are idempotent; they send again too.
        is_sparse: Whether the log has offsets without a record.
        has_start: Whether the start of the log is removed.
        clock_error_ns: Largest difference between two clocks.
        acks: The values of acks that producers use.
        hidden_offsets: The share of acknowledgements that name no offset.
        is_pipelined: Whether clients begin an operation before the one before it ends.
        elects: Whether there are clean elections.
        elects_uncleanly: Whether there are unclean elections, which are lawful and flagged.
        shows_epochs: Whether clients learn the epochs of responses and records.
        final_reads: How much the final phase reads: "all", "part" or "none".
    """

    at_least_once: bool = False
    is_idempotent: bool = False
    is_sparse: bool = False
    has_start: bool = False
    clock_error_ns: int = 0
    acks: tuple[int, ...] = (-1,)
    hidden_offsets: float = 0.0
    is_pipelined: bool = False
    elects: bool = False
    elects_uncleanly: bool = False
    shows_epochs: bool = False
    final_reads: str = "all"

    @property
    def sends_again(self) -> bool:
        return self.at_least_once or self.is_idempotent

    def context(self, log_start_offset: int) -> RunContext:
        return RunContext(
            elr_on=not self.elects_uncleanly,
            unclean_election_enabled=self.elects_uncleanly,
            checkers=(*LOG_CHECKERS, SESSION_CHECKER) if self.is_idempotent else LOG_CHECKERS,
            acked_during_faults_min=0,
            clock_error_ns=self.clock_error_ns,
            log_start_offset=log_start_offset,
            sparse_offsets=self.is_sparse,
            at_least_once=self.at_least_once,
        )


def random_declaration(rng: random.Random) -> Declaration:
    """Returns any declaration."""
    producers = rng.choice(("send once", "at least once", "idempotent"))
    is_idempotent = producers == "idempotent"
    acks = rng.choice(((-1,), (-1,), (-1, 1), (-1, 0), (-1, 0, 1), (1,)))
    return Declaration(
        at_least_once=producers == "at least once",
        is_idempotent=is_idempotent,
        is_sparse=rng.random() < 0.4,
        has_start=rng.random() < 0.4,
        clock_error_ns=rng.choice((0, 0, 3, 10)),
        # Kafka has no idempotence without acks=all.
        acks=(-1,) if is_idempotent else acks,
        hidden_offsets=rng.choice((0.0, 0.0, 0.4)),
        is_pipelined=rng.random() < 0.4,
        elects=rng.random() < 0.5,
        elects_uncleanly=rng.random() < 0.5,
        shows_epochs=rng.random() < 0.3,
        final_reads=rng.choice(("all", "all", "all", "all", "part", "none")),
    )


@dataclass(slots=True, kw_only=True)
class Client:
    """One client, whose clock is `clock_ns` ahead. Mutable.

    Attributes:
        process: Changes when the client gives an operation up, and with it the producer's session.
        sent: How many appends the process has sent.
        open: How many operations have no completion yet.
    """

    process: int
    clock_ns: int
    sent: int = 0
    open: int = 0


@dataclass(slots=True, kw_only=True)
class Append:
    """An append and its client. Mutable.

    Attributes:
        call: As far as it is known now.
        attempts: How many are left.
        continues: Whether the client's next operation begins when this one ends.
        is_open: Whether it has not ended.
        is_acknowledged: Whether it has ended with a response.
    """

    client: Client
    send: Send
    call: Call
    attempts: int
    continues: bool
    is_open: bool = True
    is_acknowledged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRun:
    """What happened in one run.

    Attributes:
        effects: What is not only declared but also happened; a test counts it.
        log: What the broker holds at the end.
    """

    declaration: Declaration
    calls: tuple[Call, ...]
    states: tuple[dict[str, Any], ...]
    log: tuple[Record, ...]
    log_start_offset: int
    effects: frozenset[str]

    @property
    def context(self) -> RunContext:
        return self.declaration.context(self.log_start_offset)

    def tables(self, *, with_metadata: bool = True) -> dict[str, pa.Table]:
        return run(list(self.calls), states=list(self.states) if with_metadata else [])

    def lost(self) -> list[tuple[int, int | None]]:
        """Returns the (value, offset) of records that clients know to be established and that are gone."""
        values = {record.send.value for record in self.log}
        records = {(record.send.value, record.offset) for record in self.log}

        def is_gone(value: int, offset: int | None) -> bool:
            if offset is None:
                # Its place may have been below the log start.
                return value not in values and not self.log_start_offset
            if offset < self.log_start_offset:
                return False
            # With at_least_once, a copy does not replace the record.
            is_replaced = value in values and not self.declaration.at_least_once
            return (value, offset) not in records and not is_replaced

        return [(value, offset) for value, offset in self._established() if is_gone(value, offset)]

    def _established(self) -> Iterator[tuple[int, int | None]]:
        for call in self.calls:
            if call.kind == "append" and call.outcome == "ok" and call.acks == -1:
                yield call.op, call.offset
            for offset, value in call.records:
                yield value, offset


class Simulation:
    """Makes one run. Mutable."""

    def __init__(self, number: int) -> None:
        self.rng = random.Random(f"declared/{number}")
        self.declaration = random_declaration(self.rng)
        self.broker = Broker(is_idempotent=self.declaration.is_idempotent)
        self.appends: dict[Send, Append] = {}
        self.calls: list[Call] = []
        self.effects: set[str] = set()
        self.now = 0
        self.ops = 0
        self.processes = 0
        self.events: list[tuple[int, float, Callable[[], None]]] = []
        self.stop = self.rng.choice((30, 60, 100))
        """When clients stop beginning operations."""
        self.final = self.stop + self.rng.choice((40, 160))
        """When the final phase begins. Requests may still be delayed then."""

    def run(self) -> DeclaredRun:
        self.broker.begin(1)
        for _ in range(self.rng.randint(1, 4)):
            self.at(self.rng.randint(1, 15), partial(self.begin, self.client()))
        self.schedule_events_of_the_log()
        self.at(self.final, self.begin_final_phase)
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()
        return self.result()

    def at(self, time: int, act: Callable[[], None]) -> None:
        """Schedules something; at one time the order is random."""
        heapq.heappush(self.events, (time, self.rng.random(), act))

    def later(self, most: int, act: Callable[[], None]) -> None:
        self.at(self.now + self.rng.randint(1, most), act)

    def result(self) -> DeclaredRun:
        declared, broker = self.declaration, self.broker
        log = tuple(broker.log)
        effects = self.effects | broker.effects
        if declared.is_sparse and broker.end - broker.start > len(broker.shown(broker.start)):
            effects.add("gaps")
        if broker.start:
            effects.add("log start")
        if declared.shows_epochs:
            effects.add("epochs")
        return DeclaredRun(
            declaration=declared,
            calls=tuple(sorted(self.calls, key=lambda call: call.op)),
            states=tuple(broker.states),
            log=log,
            log_start_offset=broker.start,
            effects=frozenset(effects),
        )

    # --- the log ---

    def schedule_events_of_the_log(self) -> None:
        rng, declared = self.rng, self.declaration

        def at_random_times(most: int, act: Callable[[], None], *, least: int = 0) -> None:
            for _ in range(rng.randint(least, most)):
                self.at(rng.randint(1, self.final - 1), act)

        at_random_times(20, self.replicate, least=4)
        if declared.is_sparse:
            at_random_times(5, self.broker.write_marker)
        if declared.has_start:
            self.at(rng.randint(self.stop // 2, self.final - 1), self.retain)
        if declared.elects:
            at_random_times(3, self.elect)
        if declared.elects_uncleanly:
            at_random_times(3, self.elect_uncleanly, least=1)
        # After everything that was sent has arrived.
        self.at(self.final + 200, self.replicate_all)

    def replicate(self) -> None:
        broker = self.broker
        self.replicate_up_to(self.rng.randint(broker.high_watermark, broker.end))

    def replicate_all(self) -> None:
        self.replicate_up_to(self.broker.end)

    def replicate_up_to(self, stop: int) -> None:
        for send, offset in self.broker.replicate(stop):
            # The append of the final phase has its response already.
            if append := self.appends.get(send):
                self.respond(append, offset)

    def retain(self) -> None:
        self.broker.retain_from(self.rng.randint(1, 4))

    def elect(self) -> None:
        broker = self.broker
        broker.elect(
            self.time_of_controllers(), self.rng.randint(broker.high_watermark, broker.end)
        )

    def elect_uncleanly(self) -> None:
        broker = self.broker
        broker.elect_uncleanly(self.time_of_controllers(), self.rng.randint(0, broker.end))

    def time_of_controllers(self) -> int:
        return 10 + self.now

    # --- clients ---

    def client(self) -> Client:
        clock_ns = self.rng.randint(0, self.declaration.clock_error_ns)
        if clock_ns:
            self.effects.add("clock error")
        return Client(process=self.new_process(), clock_ns=clock_ns)

    def new_process(self) -> int:
        self.processes += 1
        return self.processes - 1

    def time_of(self, client: Client) -> int:
        return 10 + self.now + client.clock_ns

    def begin(self, client: Client) -> None:
        """Begins a client's next operation. The one after it begins when this one ends, or independently."""
        if self.now >= self.stop:
            return
        if client.open:
            self.effects.add("pipelining")
        client.open += 1
        continues = not self.declaration.is_pipelined or self.rng.random() < 0.3
        if self.rng.random() < 0.65:
            self.begin_append(client, continues=continues)
        else:
            self.begin_read(client, continues=continues)
        if not continues:
            self.later(10, partial(self.begin, client))

    def end(self, client: Client, *, continues: bool) -> None:
        client.open -= 1
        if continues:
            self.later(10, partial(self.begin, client))

    def new_call(self, client: Client, kind: str, **more: Any) -> Call:
        self.ops += 1
        return Call(
            op=self.ops - 1,
            kind=kind,
            process=client.process,
            inv=self.time_of(client),
            res=None,
            **more,
        )

    def shown_epoch(self) -> int:
        return self.broker.epoch if self.declaration.shows_epochs else -1

    # --- appends ---

    def begin_append(self, client: Client, *, continues: bool) -> None:
        acks = self.rng.choice(self.declaration.acks)
        call = self.new_call(client, "append", outcome="info", acks=acks)
        send = Send(value=call.op, acks=acks, session=client.process, sequence=client.sent)
        client.sent += 1
        append = Append(
            client=client,
            send=send,
            call=call,
            attempts=self.rng.choice((1, 1, 2, 3)) if self.declaration.sends_again else 1,
            continues=continues,
        )
        self.appends[send] = append
        self.attempt(append)
        if acks == 0:
            self.later(1, partial(self.complete, append, None, -1))
        else:
            self.at(self.now + self.rng.randint(10, 60), partial(self.give_up, append))

    def attempt(self, append: Append) -> None:
        """Sends an append unless it has ended. Requests may be lost or delayed."""
        if not append.is_open:
            return
        append.attempts -= 1
        if self.rng.random() < 0.85:
            self.later(self.rng.choice((3, 15, 40)), partial(self.arrive, append))
        if append.attempts:
            self.later(12, partial(self.attempt, append))

    def arrive(self, append: Append) -> None:
        offset = self.broker.append(append.send)
        if offset is not None:
            self.respond(append, offset)

    def respond(self, append: Append, offset: int) -> None:
        if append.send.acks and self.rng.random() < 0.9:
            self.later(4, partial(self.complete, append, offset, self.shown_epoch()))

    def complete(self, append: Append, offset: int | None, epoch: int) -> None:
        if not append.is_open:
            return
        if self.rng.random() < self.declaration.hidden_offsets:
            offset = None
        if append.send.acks >= 0:
            self.effects.add(f"acks={append.send.acks}")
        elif offset is None:
            self.effects.add("hidden offset")
        append.is_open, append.is_acknowledged = False, True
        res = self.time_of(append.client)
        self.calls.append(replace(append.call, outcome="ok", res=res, offset=offset, epoch=epoch))
        self.end(append.client, continues=append.continues)

    def give_up(self, append: Append) -> None:
        """Ends an append without a response; the client continues as another process."""
        if not append.is_open:
            return
        append.is_open = False
        client = append.client
        self.calls.append(replace(append.call, res=self.rng.choice((None, self.time_of(client)))))
        client.process, client.sent = self.new_process(), 0
        self.end(client, continues=append.continues)

    # --- reads ---

    def begin_read(self, client: Client, *, continues: bool) -> None:
        kind = self.rng.choice(("poll", "poll", "latest"))
        serve = partial(self.poll, client) if kind == "poll" else partial(self.find_end, client)
        self.later(6, partial(serve, self.new_call(client, kind), continues=continues))

    def find_end(self, client: Client, call: Call, *, continues: bool) -> None:
        call = replace(call, offset=self.broker.high_watermark, epoch=self.shown_epoch())
        self.later(6, partial(self.complete_read, client, call, continues=continues))

    def poll(self, client: Client, call: Call, *, continues: bool) -> None:
        broker = self.broker
        position = self.rng.randint(broker.start, broker.high_watermark)
        call = self.polled(call, position)
        if self.rng.random() < 0.2:
            call = replace(call, position=-1)
        self.later(6, partial(self.complete_read, client, call, continues=continues))

    def polled(self, call: Call, position: int) -> Call:
        """Returns a poll with the first of the records from a position on."""
        found = self.broker.shown(position)
        found = found[: self.rng.choice((1, 2, 4, len(found)))]
        return replace(
            call,
            position=position,
            records=tuple((record.offset, record.send.value) for record in found),
            stamps=tuple(r.epoch for r in found) if self.declaration.shows_epochs else (),
            epoch=self.shown_epoch(),
            end=self.broker.high_watermark if self.rng.random() < 0.4 else None,
        )

    def complete_read(self, client: Client, call: Call, *, continues: bool) -> None:
        self.calls.append(replace(call, res=self.time_of(client)))
        self.end(client, continues=continues)

    # --- the final phase ---

    def begin_final_phase(self) -> None:
        """Appends a record that is acknowledged, asks for the log end, and reads up to it."""
        if self.declaration.final_reads == "none":
            return
        reader = self.client()
        append = self.new_call(reader, "append", acks=-1, final=True)
        send = Send(value=append.op, acks=-1, session=reader.process, sequence=0)
        offset = self.broker.end
        self.broker.append(send)
        self.replicate_all()
        self.calls.append(replace(self.completed(reader, append), offset=offset))
        self.at(self.now + 2, partial(self.find_last_end, reader))

    def find_last_end(self, reader: Client) -> None:
        end = self.broker.high_watermark
        call = self.new_call(reader, "latest", final=True, offset=end, epoch=self.shown_epoch())
        self.calls.append(self.completed(reader, call))
        self.at(self.now + 2, partial(self.read_on, reader, self.broker.start, end))

    def read_on(self, reader: Client, position: int, end: int) -> None:
        """Reads from a position on until nothing is left below the log end."""
        is_enough = self.declaration.final_reads == "part" and self.rng.random() < 0.4
        if position >= end or is_enough:
            return
        call = self.polled(self.new_call(reader, "poll", final=True), position)
        self.calls.append(self.completed(reader, call))
        if call.records:
            self.at(self.now + 2, partial(self.read_on, reader, call.records[-1][0] + 1, end))

    def completed(self, reader: Client, call: Call) -> Call:
        """Returns a call that takes 1 ns."""
        return replace(call, res=self.time_of(reader) + 1)
