"""The fault point of a real node: what its rules do to messages, and what it reports."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from nemesis.message_rules import RULES
from system_under_test.real.fault_point import KINDS, FaultPoint

NODES = {"b1": "127.0.0.1:1", "b2": "127.0.0.1:2", "c11": "127.0.0.1:3"}


FETCH, FETCHED, HEARTBEAT = "FetchRequest", "FetchResponse", "BrokerHeartbeatRequest"


class Passage:
    """A message whose way is noted."""

    def __init__(self, name: str, source: str = "b2", target: str = "b1") -> None:
        self.name, self.source, self.target = name, source, target
        self.is_request = name.endswith("Request")
        self.is_open = True
        self.way: list[Any] = []

    def wait(self) -> None:
        self.way.append("wait")

    def go(self) -> None:
        self.way.append("go")

    def lose(self) -> None:
        self.way.append("lose")

    def copy(self) -> None:
        self.way.append("copy")

    def refusal(self, error: str) -> Any:
        return f"refused: {error}" if self.name == HEARTBEAT else None

    def answer(self, response: Any) -> None:
        self.way.append(response)


class Bench:
    """A fault point, its file, and what it reported."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "fault-point.json"
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.point = FaultPoint(
            self.path, "b1", lambda event, **fields: self.reports.append((event, fields))
        )
        self.version = 0

    async def write(self, *rules: dict[str, Any], watches: Any = ()) -> None:
        """Replaces the file, and returns when it was read."""
        self.version += 1
        content = {"version": self.version, "nodes": NODES, "watches": watches, "rules": rules}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(content))
        os.replace(new, self.path)
        if self.version == 1:
            self.point.start()
        await until(lambda: ("fault-point", {"version": self.version}) in self.reports)

    def takes(self, passage: Passage) -> bool:
        return self.point.takes(passage)

    def acted(self) -> list[int]:
        return [fields["count"] for event, fields in self.reports if event == "fault-acted"]


def rule(kind: str, message: str = "FetchRequest", **values: Any) -> dict[str, Any]:
    base = {"id": "f", "kind": kind, "message": message, "pairs": [["b2", "b1"]]}
    return {**base, "count": None, "delay_ms": 0, "error": "", **values}


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


Story = Callable[[Bench], Coroutine[Any, Any, None]]


def play(directory: Path, story: Story) -> Bench:
    async def run() -> Bench:
        bench = Bench(directory)
        await story(bench)
        return bench

    return asyncio.run(run())


def test_both_sides_know_the_same_kinds_of_rules() -> None:
    assert sorted(KINDS) == sorted(rule.kind for rule in RULES.values())


def test_a_held_message_goes_on_when_its_rule_is_gone(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("hold"))
        held, other = Passage(FETCH), Passage(FETCH, source="c11")
        assert bench.takes(held)
        assert not bench.takes(other)
        assert held.way == ["wait"]
        await bench.write()
        assert held.way == ["wait", "go"]
        assert not bench.takes(Passage(FETCH))
        assert bench.acted() == [1, 1]  # at once, and when the rule is gone

    play(tmp_path, story)


def test_a_message_whose_connection_is_gone_does_not_go_on(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("hold"))
        held = Passage(FETCH)
        assert bench.takes(held)
        held.is_open = False
        await bench.write()
        assert held.way == ["wait"]

    play(tmp_path, story)


def test_a_rule_keeps_its_count_when_its_pairs_change(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("drop", count=1))
        assert bench.takes(Passage(FETCH))
        await bench.write(rule("drop", count=1, pairs=[["b2", "b1"], ["c11", "b1"]]))
        assert not bench.takes(Passage(FETCH, source="c11"))

    play(tmp_path, story)


def test_a_late_message_goes_on_by_itself(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("late", delay_ms=5))
        late = Passage(FETCH)
        assert bench.takes(late)
        await until(lambda: late.way == ["wait", "go"])

    play(tmp_path, story)


def test_a_late_message_is_seen_by_the_rules_behind(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("late", delay_ms=5), {**rule("drop"), "id": "g"})
        late = Passage(FETCH)
        assert bench.takes(late)
        await until(lambda: late.way == ["wait", "lose"])

    play(tmp_path, story)


def test_a_copy_of_a_node_is_processed_and_none_of_a_client(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("duplicate", pairs=[["b2", "b1"], ["*", "b1"]]))
        of_node, of_client = Passage(FETCH), Passage(FETCH, source="app")
        assert not bench.takes(of_node)
        assert not bench.takes(of_client)
        await until(lambda: of_node.way == ["copy"])
        assert of_client.way == []

    play(tmp_path, story)


def test_a_copy_that_is_late_comes_when_its_rule_is_gone(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("duplicate", delay_ms=60_000))
        one = Passage(FETCH)
        assert not bench.takes(one)
        await bench.write()
        assert one.way == ["copy"]

    play(tmp_path, story)


def test_a_message_waits_until_one_of_another_connection_has_overtaken_it(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("reorder", delay_ms=60_000, count=1))
        first = Passage(FETCH)
        assert bench.takes(first)
        assert bench.acted() == []
        assert not bench.takes(Passage(FETCH, source="c11"))
        await asyncio.sleep(0)
        assert first.way == ["wait"]
        assert not bench.takes(Passage(HEARTBEAT))
        await until(lambda: first.way == ["wait", "go"])
        assert bench.acted() == [1]

    play(tmp_path, story)


def test_a_request_is_refused_with_an_error_and_a_response_is_not(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        heartbeat = rule("refuse", "BrokerHeartbeatRequest", error="NOT_CONTROLLER")
        await bench.write(heartbeat)
        refused = Passage(HEARTBEAT)
        assert bench.takes(refused)
        assert refused.way == ["refused: NOT_CONTROLLER"]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("pairs", "source", "is_about"),
    [
        ([["*", "b1"]], "app", True),
        ([["*", "b1"]], "b2", False),
        ([["client-0", "b1"]], "client-0", True),
        ([["client-0", "b1"]], "client-1", False),
        ([["b2", "c11"]], "b2", False),
    ],
)
def test_a_rule_is_about_pairs_and_a_star_is_everyone_who_is_no_node(
    tmp_path: Path, pairs: list[list[str]], source: str, is_about: bool
) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("drop", pairs=pairs))
        assert bench.takes(Passage(FETCH, source=source)) == is_about

    play(tmp_path, story)


def test_only_messages_and_fsyncs_that_are_watched_are_reported(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.point.sync_began()
        await bench.write(watches=[["sent", "FetchRequest"], ["received", "FetchResponse"]])
        bench.point.sync_began()
        fetch, fetched = (type(name, (), {})() for name in (FETCH, FETCHED))
        bench.point.client_sent(NODES["b2"], fetch)
        bench.point.client_received(NODES["b2"], fetched)
        bench.point.client_sent("127.0.0.1:9", fetch)  # nobody of this cluster
        # What a node sent, it has reported itself; a client reports nothing.
        bench.takes(Passage(FETCH))
        bench.takes(Passage(FETCH, source="app"))
        bench.takes(Passage(FETCHED, source="b1", target="app"))
        assert [fields for event, fields in bench.reports if event == "message"] == [
            {"what": "sent", "name": "FetchRequest", "source": "b1", "target": "b2"},
            {"what": "received", "name": "FetchResponse", "source": "b2", "target": "b1"},
            {"what": "sent", "name": "FetchRequest", "source": "app", "target": "b1"},
            {"what": "received", "name": "FetchResponse", "source": "b1", "target": "app"},
        ]
        await bench.write(watches=[["fsync", ""]])
        bench.point.sync_began()
        assert [event for event, _ in bench.reports].count("fsync") == 1

    play(tmp_path, story)


def test_a_node_that_starts_reads_its_rules_first(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.write(rule("drop"))
        again = Bench(tmp_path)
        again.point.start()
        assert again.reports == [("fault-point", {"version": 1})]
        assert again.takes(Passage(FETCH))

    play(tmp_path, story)
