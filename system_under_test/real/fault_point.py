"""The fault point of a real node: a file by which a test has the node report and change single messages.

The file is JSON, and replaces the one before as a whole. The node notices that within `POLL_S`, and reports the
version that it has read:

    {"version": 3,
     "nodes": {"b1": "198.18.0.11:9092", "c11": "198.18.0.21:9093"},
     "watches": [["sent", "FetchResponse"], ["fsync", ""]],
     "rules": [{"id": "f2", "kind": "hold", "message": "FetchRequest", "pairs": [["b2", "b1"], ["*", "b1"]],
                "count": null, "delay_ms": 0, "error": ""}]}

A rule is about the messages of one type between pairs of a sender and a receiver; "*" is everyone who is no node.
The node applies it to the connections that it has accepted, so that every message of a cluster passes exactly one
fault point. TCP delivers the bytes of a connection once and in order, or breaks it, and rules stay within that:

* hold, late: the message waits, until the rule is gone or for `delay_ms`, and everything behind it on its
  connection;
* drop: the connection is broken instead. A request that is dropped is not processed; one whose response is was;
* duplicate: the request is processed a second time, `delay_ms` later, as if it came over another connection;
* reorder: the message waits until one between the same nodes on another connection has arrived, or for `delay_ms`;
* refuse: the response to the request is `error`, and it is not processed.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

POLL_S = 0.01
ANYONE = "*"
SENT, RECEIVED, FSYNC = "sent", "received", "fsync"

Report = Callable[..., None]
"""Takes an event and its fields (`system_under_test.real.observer`)."""


class Passage(Protocol):
    """One message that has arrived at a connection of the node, or is about to leave by one.

    Attributes:
        source: Who sends it.
        target: Who gets it.
        name: Class name of the message.
        is_request: Whether it is a request.
        is_open: Whether its connection still exists.
    """

    source: str
    target: str
    is_request: bool

    @property
    def name(self) -> str:
        """Class name of the message."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether its connection still exists."""
        ...

    def wait(self) -> None:
        """Makes it wait, and everything behind it."""
        ...

    def go(self) -> None:
        """Lets it go on after it has waited."""
        ...

    def lose(self) -> None:
        """Breaks the connection."""
        ...

    def copy(self) -> None:
        """Processes a request as if it had come a second time."""
        ...

    def refusal(self, error: str) -> Any:
        """Returns the response that refuses all of a request with an error of this name; None if there is none."""
        ...

    def answer(self, response: Any) -> None:
        """Responds to a request with what `refusal` returned, without processing it."""
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A message that waits, or the copy of a request: `rest` are the rules that have not seen it yet."""

    passage: Passage
    rest: "tuple[_Rule, ...]"
    timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        """Ends the timer, if there is one."""
        if self.timer is not None:
            self.timer.cancel()


@dataclass(slots=True, kw_only=True, eq=False)
class _Rule:
    """One rule. Mutable: what it has done."""

    id: str
    kind: str
    message: str
    pairs: frozenset[tuple[str, str]]
    remaining: int | None
    delay_ms: int
    error: str
    acted: int = 0
    waiting: list[_Waiting] = field(default_factory=list)


class FaultPoint:
    """The rules in force at one node, and what it reports. Mutable.

    Args:
        path: The file; it may appear later.
        name: The node's name.
        report: Takes events.
        is_alone: Whether nodes do not report themselves what they send and get, as behind a proxy. It is then
            reported here, when it arrives and when it leaves.

    Raises:
        OSError, ValueError: The file exists and cannot be used.
    """

    def __init__(self, path: Path, name: str, report: Report, *, is_alone: bool = False) -> None:
        self._is_alone = is_alone
        self._path = path
        self._name = name
        self._report = report
        self._seen: tuple[int, int] | None = None
        self._addresses: dict[str, str] = {}
        self._nodes: frozenset[str] = frozenset()
        self._watches: frozenset[tuple[str, str]] = frozenset()
        self._rules: dict[str, _Rule] = {}

    def start(self) -> None:
        """Reads the file, and from now on whenever it was replaced."""
        self._read()
        asyncio.get_running_loop().call_later(POLL_S, self.start)

    # -- what passes

    def takes(self, passage: Passage) -> bool:
        """Applies the rules to a message; returns whether it does not go on now."""
        self._note(passage)
        if not self._rules:
            return False
        self._overtake(passage)
        return self._apply(passage, tuple(self._rules.values()))

    def client_sent(self, address: str, message: Any) -> None:
        """Notes a request that this node sends to another one."""
        target = self._addresses.get(address, "")
        self._note_one(SENT, self._name, target, type(message).__name__)

    def client_received(self, address: str, message: Any) -> None:
        """Notes a response that this node gets from another one."""
        source = self._addresses.get(address, "")
        self._note_one(RECEIVED, source, self._name, type(message).__name__)

    def sync_began(self) -> None:
        """Notes that an fsync begins."""
        if (FSYNC, "") in self._watches:
            self._report("fsync")

    def _note(self, passage: Passage) -> None:
        if not self._watches:
            return
        # Who is no node reports nothing itself.
        is_of_stranger = passage.source not in self._nodes or passage.target not in self._nodes
        events = [RECEIVED if passage.is_request else SENT]
        if is_of_stranger or self._is_alone:
            events.append(SENT if passage.is_request else RECEIVED)
        for event in sorted(events, reverse=True):
            self._note_one(event, passage.source, passage.target, passage.name)

    def _note_one(self, event: str, source: str, target: str, name: str) -> None:
        if (event, name) in self._watches and source and target:
            self._report("message", what=event, name=name, source=source, target=target)

    # -- rules

    def _is_about(self, rule: _Rule, passage: Passage) -> bool:
        if rule.remaining == 0 or rule.message != passage.name:
            return False
        source, target = (
            {end, end if end in self._nodes else ANYONE} for end in (passage.source, passage.target)
        )
        return any((s, t) in rule.pairs for s in source for t in target)

    def _apply(self, passage: Passage, rules: tuple[_Rule, ...]) -> bool:
        for index, rule in enumerate(rules):
            if rule.id not in self._rules or not self._is_about(rule, passage):
                continue
            if _ACTIONS[rule.kind](self, rule, passage, rules[index + 1 :]):
                return True
        return False

    def _hold(self, rule: _Rule, passage: Passage, rest: tuple[_Rule, ...]) -> bool:
        self._acts(rule)
        self._wait(rule, passage, rest, None)
        return True

    def _delay(self, rule: _Rule, passage: Passage, rest: tuple[_Rule, ...]) -> bool:
        if rule.kind == "late":
            self._acts(rule)
        else:
            _count_down(rule)
        self._wait(rule, passage, rest, rule.delay_ms)
        return True

    def _drop(self, rule: _Rule, passage: Passage, _rest: tuple[_Rule, ...]) -> bool:
        self._acts(rule)
        passage.lose()
        return True

    def _duplicate(self, rule: _Rule, passage: Passage, _rest: tuple[_Rule, ...]) -> bool:
        # A copy of what a client sent would be a client's fault; copies are those of the network between nodes.
        if passage.is_request and passage.source in self._nodes:
            self._acts(rule)
            waiting = _Waiting(passage, ())
            rule.waiting.append(waiting)
            waiting.timer = asyncio.get_running_loop().call_later(
                rule.delay_ms / 1e3, self._deliver_copy, rule, waiting
            )
        return False

    def _refuse(self, rule: _Rule, passage: Passage, _rest: tuple[_Rule, ...]) -> bool:
        if not passage.is_request:
            return False
        response = passage.refusal(rule.error)
        if response is None:
            return False
        self._acts(rule)
        passage.answer(response)
        return True

    def _overtake(self, passage: Passage) -> None:
        """Releases the messages that this one overtakes: those of other connections between the same nodes."""
        for rule in self._rules.values():
            if rule.kind != "reorder":
                continue
            for waiting in list(rule.waiting):
                other = waiting.passage
                if (other.source, other.target) == (passage.source, passage.target):
                    rule.acted += 1
                    self._report_acted(rule)
                    # After this one, which must be processed first.
                    asyncio.get_running_loop().call_soon(self._release, rule, waiting)

    def _acts(self, rule: _Rule) -> None:
        _count_down(rule)
        rule.acted += 1
        self._report_acted(rule)

    def _report_acted(self, rule: _Rule, *, is_last: bool = False) -> None:
        # A busy rule must not fill the log: counts that are powers of two, and the last one.
        if is_last or rule.acted & (rule.acted - 1) == 0:
            self._report("fault-acted", rule=rule.id, count=rule.acted)

    # -- waiting

    def _wait(
        self, rule: _Rule, passage: Passage, rest: tuple[_Rule, ...], for_ms: int | None
    ) -> None:
        passage.wait()
        waiting = _Waiting(passage, rest)
        rule.waiting.append(waiting)
        if for_ms is not None:
            loop = asyncio.get_running_loop()
            waiting.timer = loop.call_later(for_ms / 1e3, self._release, rule, waiting)

    def _release(self, rule: _Rule, waiting: _Waiting) -> None:
        if waiting not in rule.waiting:
            return
        rule.waiting.remove(waiting)
        waiting.stop_timer()
        if waiting.passage.is_open and not self._apply(waiting.passage, waiting.rest):
            waiting.passage.go()

    def _deliver_copy(self, rule: _Rule, waiting: _Waiting) -> None:
        if waiting in rule.waiting:
            rule.waiting.remove(waiting)
            waiting.stop_timer()
            waiting.passage.copy()

    # -- the file

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen == self._seen:
            return
        data = json.loads(self._path.read_bytes())
        self._seen = seen
        self._take(data)
        self._report("fault-point", version=data["version"])

    def _take(self, data: Mapping[str, Any]) -> None:
        self._addresses = {address: name for name, address in data["nodes"].items()}
        self._nodes = frozenset(data["nodes"])
        self._watches = frozenset((event, name) for event, name in data["watches"])
        before, self._rules = self._rules, {}
        for row in data["rules"]:
            pairs = frozenset((source, target) for source, target in row["pairs"])
            rule = before.pop(row["id"], None)
            if rule is None:
                rule = _Rule(
                    id=row["id"],
                    kind=row["kind"],
                    message=row["message"],
                    pairs=pairs,
                    remaining=row["count"],
                    delay_ms=row["delay_ms"],
                    error=row["error"],
                )
            rule.pairs = pairs
            self._rules[rule.id] = rule
        for gone in before.values():
            self._end(gone)

    def _end(self, rule: _Rule) -> None:
        """Lets go of everything that waits for a rule which is gone, in the order of its arrival."""
        if rule.acted:
            self._report_acted(rule, is_last=True)
        for waiting in list(rule.waiting):
            if rule.kind == "duplicate":
                self._deliver_copy(rule, waiting)
            else:
                self._release(rule, waiting)


_Action = Callable[[FaultPoint, _Rule, Passage, tuple[_Rule, ...]], bool]

_ACTIONS: Mapping[str, _Action] = {
    "hold": FaultPoint._hold,
    "late": FaultPoint._delay,
    "drop": FaultPoint._drop,
    "duplicate": FaultPoint._duplicate,
    "reorder": FaultPoint._delay,
    "refuse": FaultPoint._refuse,
}

KINDS: Sequence[str] = tuple(_ACTIONS)
"""The kinds of rules."""


def _count_down(rule: _Rule) -> None:
    # A rule about which nothing is left stays until it is removed: messages that it has made late still wait.
    if rule.remaining is not None:
        rule.remaining -= 1
