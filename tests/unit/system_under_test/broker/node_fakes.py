"""Small fakes for the tests of a broker's talking parts: virtual time, scripted channels, a bare host."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from system_under_test.config import FAST_TIMINGS, NodeConfig
from system_under_test.runtime import SilentObserver


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer as soon as nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self._now_s = max(self._now_s, self._scheduled[0]._when)
        super()._run_once()


def run_virtually(main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in virtual time and leaves no task behind."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def now_ms() -> float:
    """Returns the time of the running loop, which began at 0."""
    return round(asyncio.get_running_loop().time() * 1000, 3)


def broker_config() -> NodeConfig:
    """Returns the configuration of a broker that is alone with its fakes."""
    return NodeConfig(
        node_id=1,
        role="broker",
        address="b1:9092",
        cluster_id="c",
        voters=(),
        timings=FAST_TIMINGS,
    )


class RecordingObserver(SilentObserver):
    """Keeps the marks."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, dict[str, Any]]] = []

    def mark(self, name: str, **details: Any) -> None:
        self.marks.append((name, details))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.marks]


class FakeRandom:
    """Seeded streams; `buggify` is true for the given names."""

    def __init__(self, *yes: str) -> None:
        self.yes = set(yes)

    def stream(self, *name: str | int) -> random.Random:
        return random.Random(repr(name))

    def buggify(self, name: str) -> bool:
        return name in self.yes


class FakeHost:
    """A host with marks and randomness; give it a network where the test needs one."""

    def __init__(self, *yes: str, network: Any = None) -> None:
        self.name = "b1"
        self.observer = RecordingObserver()
        self.random = FakeRandom(*yes)
        self.network = network


class ScriptedChannel:
    """A channel whose responses are a function of the request; raises what it returns if that is an error."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.answer = answer
        self.sent: list[tuple[float, Any]] = []
        self.closed = False

    async def send(self, message: Any, timeout_ms: float) -> Any:
        self.sent.append((now_ms(), message))
        response = self.answer(message)
        if isinstance(response, Awaitable):
            response = await response
        if isinstance(response, Exception):
            raise response
        return response

    def close(self) -> None:
        self.closed = True
