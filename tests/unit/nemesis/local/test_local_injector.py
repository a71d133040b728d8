"""Faults of local processes, on real processes that only sleep."""

import asyncio
import signal
import subprocess
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from nemesis.agent.processes.procfs import process_start, process_state
from nemesis.driver import cut_short
from nemesis.fault import Fault
from nemesis.local.injector import LocalInjector


@dataclass
class Sleeper:
    process: "subprocess.Popen[bytes]"
    began: int

    @property
    def pid(self) -> int:
        return self.process.pid


class Sleepers:
    """A cluster of processes that sleep."""

    def __init__(self) -> None:
        self.nodes = {name: self._spawn() for name in ("b1", "b2")}
        self.reports: list[Callable[[Any], None]] = []
        self.exit_code: int | None = None
        """What a process ends with after SIGTERM; None: the signal itself."""

    def _spawn(self) -> Sleeper:
        process = subprocess.Popen(["sleep", "60"])
        return Sleeper(process, process_start(process.pid))

    def is_alive(self, name: str) -> bool:
        return self.nodes[name].process.poll() is None

    async def start_node(self, name: str) -> None:
        if not self.is_alive(name):
            self.nodes[name] = self._spawn()

    async def end_process(self, name: str, how: str, limit_s: float) -> int | None:
        node = self.nodes[name]
        node.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        ended = node.process.wait(limit_s)
        return ended if how == "kill" or self.exit_code is None else self.exit_code

    def end(self) -> None:
        for node in self.nodes.values():
            node.process.kill()
            node.process.wait()


def run(story: Callable[[Sleepers, LocalInjector], Coroutine[Any, Any, None]]) -> None:
    cluster = Sleepers()
    try:
        asyncio.run(story(cluster, LocalInjector(cluster)))
    finally:
        cluster.end()


def fault(name: str, *nodes: str) -> Fault:
    return Fault(id="f", fault=name, targets=nodes)


def test_a_paused_process_is_stopped_until_it_is_healed() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        pause = await injector.inject(fault("pause", "b1"), ("b1",))
        assert pause.nodes == ("b1",)
        assert process_state(cluster.nodes["b1"].pid) == "T"
        effect = await pause.effect()
        assert effect.took_effect
        assert effect.evidence["stood_still"] == {"b1": True}
        await pause.heal()
        assert process_state(cluster.nodes["b1"].pid) != "T"
        assert (await pause.effect()).took_effect, "evidence stays after the heal"

    run(story)


def test_of_two_pauses_at_one_instant_one_affects_the_node() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        first, second = await asyncio.gather(
            *(injector.inject(fault("pause", "b1"), ("b1",)) for _ in range(2))
        )
        assert (first.nodes, second.nodes) == (("b1",), ())
        await second.heal()
        assert process_state(cluster.nodes["b1"].pid) == "T"
        assert not (await second.effect()).took_effect
        await first.heal()
        again = await injector.inject(fault("pause", "b1"), ("b1",))
        assert again.nodes == ("b1",)

    run(story)


def test_settling_resumes_what_is_still_paused() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        await injector.inject(fault("pause", "b1", "b2"), ("b1", "b2"))
        await injector.settle()
        assert "T" not in {process_state(node.pid) for node in cluster.nodes.values()}

    run(story)


def test_a_killed_node_is_started_by_the_heal_and_killed_once() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        kill = await injector.inject(fault("kill", "b1"), ("b1",))
        again = await injector.inject(fault("kill", "b1"), ("b1",))
        assert (kill.nodes, again.nodes) == (("b1",), ())
        effect = await kill.effect()
        assert (effect.took_effect, effect.evidence["exit_codes"]) == (True, {"b1": -9})
        assert not (await again.effect()).took_effect
        await kill.heal()
        assert cluster.is_alive("b1")

    run(story)


@pytest.mark.parametrize(
    ("exit_code", "is_clean"),
    [(0, True), (143, True), (1, False)],
    ids=["a program", "a Java virtual machine", "a failure"],
)
def test_a_stop_takes_effect_if_the_process_ends_as_one_that_was_asked_to(
    exit_code: int, is_clean: bool
) -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        cluster.exit_code = exit_code
        stop = await injector.inject(fault("stop", "b1"), ("b1",))
        assert (await stop.effect()).took_effect is is_clean

    run(story)


def test_a_stop_that_ends_by_a_signal_did_not_stop_cleanly() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        stop = await injector.inject(fault("stop", "b1"), ("b1",))
        effect = await stop.effect()
        assert (effect.took_effect, effect.evidence["exit_codes"]) == (False, {"b1": -15})

    run(story)


@pytest.mark.parametrize(("exit_code", "nodes"), [(0, []), (1, []), (-signal.SIGKILL, ["b1"])])
def test_a_stop_that_took_too_long_was_cut_short(exit_code: int, nodes: list[str]) -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        cluster.exit_code = exit_code
        stop = await injector.inject(fault("stop", "b1"), ("b1",))
        assert cut_short((await stop.effect()).evidence) == nodes

    run(story)


def test_a_start_affects_only_nodes_that_are_down() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        await injector.inject(fault("kill", "b2"), ("b2",))
        start = await injector.inject(fault("start", "b1", "b2"), ("b1", "b2"))
        assert start.nodes == ("b2",)
        assert (await start.effect()).took_effect
        assert cluster.is_alive("b2")

    run(story)


def test_a_client_is_never_affected() -> None:
    async def story(cluster: Sleepers, injector: LocalInjector) -> None:
        assert (await injector.inject(fault("pause", "client-0"), ("client-0",))).nodes == ()

    run(story)
