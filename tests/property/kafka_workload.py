"""A correct Kafka under Jepsen's Kafka workload: random histories in EDN.

Three partitions hold records and, with transactions, markers. Consumers read committed records only. Four clients
send, poll, assign and subscribe at the same time; operations may fail or have an unknown outcome, responses may be
lost, and partitions of a group may move during an operation. At the end one consumer reads everything.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

KEYS = (1, 2, 3)
CLIENTS = 4
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"

Micro = list[object]
"""[:send key value], [:send key [offset value]], [:poll] or [:poll {key [[offset value] ...]}]."""


def edn(value: object) -> str:
    """Returns a value as EDN; texts are written as they are."""
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return "{" + " ".join(f"{edn(key)} {edn(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(edn, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(slots=True)
class Consumer:
    """Where a client's consumer is. Mutable."""

    is_subscribed: bool = False
    positions: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Kafka:
    """The logs. Mutable.

    Attributes:
        logs: Per partition, the value at each offset and its transaction; a marker has no value.
        states: Of every transaction.
        committed: The committed positions of the consumer group.
    """

    logs: dict[int, list[tuple[int | None, int | None]]] = field(
        default_factory=lambda: {key: [] for key in KEYS}
    )
    states: dict[int, str] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))

    def append(self, key: int, value: int, transaction: int | None) -> int:
        self.logs[key].append((value, transaction))
        return len(self.logs[key]) - 1

    def finish(self, transaction: int, state: str) -> None:
        """Ends a transaction and writes its markers."""
        if self.states[transaction] == OPEN:
            self.states[transaction] = state
            for log in self.logs.values():
                if any(one == transaction for _, one in log):
                    log.append((None, transaction))

    def read(self, key: int, position: int, most: int) -> tuple[list[list[int]], int]:
        """Returns committed records from a position on, and the position after them."""
        found: list[list[int]] = []
        for offset, (value, transaction) in list(enumerate(self.logs[key]))[position:]:
            state = COMMITTED if transaction is None else self.states[transaction]
            if state == OPEN or len(found) == most:
                break
            position = offset + 1
            if value is not None and state == COMMITTED:
                found.append([offset, value])
        return found, position


class Workload:
    """Makes one history. Mutable.

    Args:
        number: Every number has its own stream.
    """

    def __init__(self, number: int) -> None:
        self.rng = random.Random(f"workload/{number}")
        self.is_transactional = number % 2 == 0
        self.kafka = Kafka()
        self.lines: list[str] = []
        self.values = 0
        self.processes = list(range(CLIENTS))
        self.consumers = [Consumer() for _ in range(CLIENTS)]
        self.unfinished: list[int] = []

    def run(self) -> str:
        """Returns the history."""
        self.send_first()
        running: dict[int, Iterator[None]] = {}
        for _ in range(self.rng.randint(10, 90)):
            if self.unfinished and self.rng.random() < 0.1:
                self.finish_late()
            client = self.rng.randrange(CLIENTS)
            step = running.setdefault(client, self.operation(client))
            if next(step, self) is self:
                del running[client]
        for step in running.values():
            list(step)
        while self.unfinished:
            self.finish_late()
        self.read_everything()
        return "\n".join(self.lines)

    def send_first(self) -> None:
        """Sends a record, so that there is one."""
        send = self.micro("send")
        self.event("invoke", CLIENTS - 1, "send", [send])
        offset = self.kafka.append(int(str(send[1])), 1, None)
        self.event("ok", CLIENTS - 1, "send", [[*send[:2], [offset, send[2]]]])

    def finish_late(self) -> None:
        self.kafka.finish(self.unfinished.pop(), self.rng.choice((COMMITTED, ABORTED)))

    def event(self, kind: str, process: int, function: str, value: object, extra: str = "") -> None:
        self.lines.append(
            f"{{:type :{kind}, :process {process}, :f :{function}, :value {edn(value)},"
            f" :time {len(self.lines) + 1}{extra}}}"
        )

    def replace(self, client: int) -> None:
        """Gives a client a new process and consumer, as after an operation of unknown outcome."""
        self.processes[client] += CLIENTS
        self.consumers[client] = Consumer()

    def operation(self, client: int) -> Iterator[None]:
        """Runs one operation; others may run wherever it yields."""
        kind = self.rng.random()
        process = self.processes[client]
        if kind < 0.12:
            yield from self.move(client)
        elif kind < 0.15:
            self.event("invoke", process, "crash", None)
            yield
            self.event("info", process, "crash", None)
            self.replace(client)
        else:
            yield from self.send_and_poll(client)

    def move(self, client: int) -> Iterator[None]:
        rng, process, kafka = self.rng, self.processes[client], self.kafka
        keys = rng.sample(KEYS, rng.randint(1, 3))
        function = rng.choice(("assign", "subscribe"))
        seeks = function == "assign" and rng.random() < 0.4
        extra = ", :seek-to-beginning? true" if seeks else ""
        self.event("invoke", process, function, keys, extra)
        yield
        outcome = rng.choices(("ok", "fail", "info"), (6, 1, 1))[0]
        if outcome != "fail" or rng.random() < 0.5:
            before = self.consumers[client]
            known = {} if before.is_subscribed or seeks else before.positions
            start = dict.fromkeys(KEYS, 0) if seeks else kafka.committed | known
            is_subscribed = function == "subscribe"
            mine = [key for key in keys if not is_subscribed or rng.random() < 0.7]
            chosen = kafka.committed if is_subscribed else start
            self.consumers[client] = Consumer(is_subscribed, {key: chosen[key] for key in mine})
        self.event(outcome, process, function, keys, extra)
        if outcome == "info":
            self.replace(client)

    def send_and_poll(self, client: int) -> Iterator[None]:
        rng, kafka, process = self.rng, self.kafka, self.processes[client]
        allowed = rng.choice((("send",), ("poll",), ("send", "poll")))
        asked = [self.micro(rng.choice(allowed)) for _ in range(rng.randint(1, 3))]
        names = {micro[0] for micro in asked}
        function = {":send": "send", ":poll": "poll"}[str(*names)] if len(names) == 1 else "txn"
        self.event("invoke", process, function, asked)
        yield
        consumer = self.consumers[client]
        transaction = None
        if self.is_transactional and function != "poll":
            transaction = len(kafka.states)
            kafka.states[transaction] = OPEN
        before, done, moved, outcome = dict(consumer.positions), [], [], "ok"
        for micro in asked:
            if rng.random() < 0.3:
                yield
            if micro[0] == ":send":
                result = self.send(micro, transaction)
                outcome = "ok" if result else "info"
                done.append(result or micro)
            elif transaction is None and not done and rng.random() < 0.05:
                outcome = "fail" if len(asked) == 1 else "info"
            else:
                done.append([":poll", self.poll(consumer, moved)])
            if outcome != "ok":
                break
        done += asked[len(done) :]
        if rng.random() < 0.5:
            yield
        outcome = self.end(transaction, outcome)
        if outcome == "fail" and not moved and rng.random() < 0.5:
            consumer.positions = before
        if outcome == "ok" and consumer.is_subscribed:
            kafka.committed |= consumer.positions
        extra = f", :rebalance-log {edn(moved)}" if moved else ""
        self.event(
            outcome,
            process,
            function,
            done if rng.random() < 0.5 or outcome == "ok" else asked,
            extra,
        )
        if outcome == "info":
            self.replace(client)

    def micro(self, kind: str) -> Micro:
        if kind == "poll":
            return [":poll"]
        self.values += 1
        return [":send", self.rng.choice(KEYS), self.values]

    def send(self, micro: Micro, transaction: int | None) -> Micro | None:
        """Sends a record and returns what the client learned; None if it learned nothing."""
        _, key, value = micro
        assert isinstance(key, int)
        assert isinstance(value, int)
        fate = self.rng.random()
        if fate < 0.03:
            return None
        offset = self.kafka.append(key, value, transaction)
        if fate < 0.06:
            return None
        return [":send", key, [None if self.rng.random() < 0.05 else offset, value]]

    def poll(self, consumer: Consumer, moved: list[object]) -> dict[int, list[list[int]]]:
        rng = self.rng
        if consumer.is_subscribed and rng.random() < 0.15:
            keys = rng.sample(KEYS, rng.randint(1, 3))
            moved.append({":keys": keys})
            consumer.positions |= {key: self.kafka.committed[key] for key in keys}
        found = {}
        for key, position in list(consumer.positions.items()):
            if rng.random() < 0.7:
                records, after = self.kafka.read(key, position, rng.choice((0, 1, 2, 5)))
                consumer.positions[key] = after
                if records:
                    found[key] = records
        return found

    def end(self, transaction: int | None, outcome: str) -> str:
        """Ends an operation, and its transaction if it has one; returns the outcome."""
        rng = self.rng
        if transaction is None:
            return "info" if outcome == "ok" and rng.random() < 0.04 else outcome
        if outcome == "info" or rng.random() < 0.1:
            fate = rng.choice((COMMITTED, ABORTED, OPEN))
            if fate == OPEN:
                self.unfinished.append(transaction)
            else:
                self.kafka.finish(transaction, fate)
            return "info"
        is_aborted = rng.random() < 0.12
        self.kafka.finish(transaction, ABORTED if is_aborted else COMMITTED)
        return "fail" if is_aborted else "ok"

    def read_everything(self) -> None:
        process = self.processes[0]
        for kind in ("invoke", "ok"):
            self.event(kind, process, "assign", KEYS, ", :seek-to-beginning? true")
        positions = dict.fromkeys(KEYS, 0)
        while any(positions[key] < len(self.kafka.logs[key]) for key in KEYS):
            found = {}
            for key in KEYS:
                records, positions[key] = self.kafka.read(
                    key, positions[key], self.rng.choice((1, 2, 5))
                )
                if records:
                    found[key] = records
            self.event("invoke", process, "poll", [[":poll"]])
            self.event("ok", process, "poll", [[":poll", found]])
