"""Where a script about TCP is played: a client, a server and faults, in the simulated world and on this kernel."""

import asyncio
import contextlib
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Protocol

from harness.simulation.connect import LISTEN_BACKLOG
from harness.simulation.network import SYN_LINEAR_TIMEOUTS
from harness.simulation.weather import CALM
from nemesis.agent.packets.namespace import Namespace
from tests.containers.network_rig import RigHost
from tests.simulation.network_helpers import B1_TO_K1, K1_AND_B1, K1_TO_B1
from tests.simulation.sim_helpers import MS, Echo, S, pair

PORT = 9092
UNUSED = "198.18.0.99"
_SERVER = """
import socket, sys, threading, time
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for line in connection.makefile("rb"):
            time.sleep(int(line) / 1000)
            connection.sendall(b"ok\\n")
    except OSError:
        pass
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=int(sys.argv[3]))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a program saw.

    Attributes:
        outcome: "connected", "refused", "unreachable", "answered", "reset" (or an end of the stream: the
            system call gives one error for both), "aborted", or "silence" until the program's timeout.
        ms: How long it took.
    """

    outcome: str
    ms: float


class Stage(Protocol):
    """A client `a`, a server `b` that responds to each request after so many milliseconds, and faults."""

    def connect(self, timeout_s: float, to: str = "b") -> Seen:
        """Opens a connection and closes it."""
        ...

    def start_connect(self) -> Any:
        """Starts to open a connection, without a timeout."""
        ...

    def connect_all(self, count: int, timeout_s: float) -> int:
        """Opens connections at once and returns how many there are after the timeout."""
        ...

    def open(self) -> Any:
        """Returns an established connection."""
        ...

    def send(self, connection: Any, takes_ms: int = 0) -> Any:
        """Sends a request; does not wait."""
        ...

    def await_(self, pending: Any, timeout_s: float) -> Seen:
        """Waits for the response, or for the connection; the time is since the sending."""
        ...

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        ...

    def cut(self, direction: str = "both", at: str = "receiver") -> Any:
        """Drops packets between the two: "both", "a_to_b" or "b_to_a"."""
        ...

    def reject(self) -> Any:
        """Rejects packets between the two with resets."""
        ...

    def delay(self, ms: float) -> Any:
        """Delays packets from a to b."""
        ...

    def loss(self, percent: float) -> Any:
        """Loses packets in both directions."""
        ...

    def heal(self, token: Any) -> None:
        """Ends a fault of packets."""
        ...

    def reset_connections(self, node: str) -> int:
        """Destroys the connections of "a" or "b"."""
        ...

    def kill(self) -> None:
        """Kills the server's process."""
        ...

    def pause(self) -> None:
        """Stops the server's process."""
        ...

    def resume(self) -> None:
        """Resumes it."""
        ...

    def power_off(self) -> None:
        """Takes the server's power."""
        ...

    def start(self) -> None:
        """Starts the server, or the machine it is on."""
        ...


# -- the model


class Sleeper(Echo):
    """Responds after as many milliseconds as the request contains."""

    def handle(self, message: Any, context: Any) -> Any:
        self.received.append((self.host.clock.monotonic_ns(), message))
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(message / 1000, _resolve, future)
        return future


def _resolve(future: Any) -> None:
    if not future.done():
        future.set_result("ok")


_ERRORS = (
    (ConnectionRefusedError, "refused"),
    (ConnectionAbortedError, "aborted"),
    (ConnectionResetError, "reset"),
    (TimeoutError, "silence"),
    (OSError, "unreachable"),
)


def _named(error: BaseException | None, success: str) -> str:
    if error is None:
        return success
    return next(name for kind, name in _ERRORS if isinstance(error, kind))


_PAIRS = {"both": K1_AND_B1, "a_to_b": K1_TO_B1, "b_to_a": B1_TO_K1}


class Model:
    """The simulated world."""

    def __init__(self, seed: int, *, syn_linear_timeouts: int = SYN_LINEAR_TIMEOUTS) -> None:
        self.world, self.server, self.client = pair(CALM, seed=seed, main=Sleeper)
        self.world.network.syn_linear_timeouts = syn_linear_timeouts

    def connect(self, timeout_s: float, to: str = "b") -> Seen:
        return self.await_(self._connecting(timeout_s, to), timeout_s + 1)

    def start_connect(self) -> Any:
        return self._connecting(1000, "b")

    def _connecting(self, timeout_s: float, to: str) -> Any:
        address = "b1:9092" if to == "b" else "nobody:1"
        task = self.world.spawn("k1", self.client.host.network.connect(address, timeout_s * 1000))
        return task, self.world.now, "connected"

    def connect_all(self, count: int, timeout_s: float) -> int:
        tasks = [self._connecting(timeout_s, "b")[0] for _ in range(count)]
        self.world.run_for(int((timeout_s + 0.1) * S))
        return sum(task.exception() is None for task in tasks)

    def open(self) -> Any:
        task = self._connecting(10, "b")[0]
        self.world.run(task.done, limit_ns=10 * S)
        return task.result()

    def send(self, connection: Any, takes_ms: int = 0) -> Any:
        with self.world.inside(self.client.loop):
            return connection.request(takes_ms, 10_000_000.0), self.world.now, "answered"

    def await_(self, pending: Any, timeout_s: float) -> Seen:
        future, began_ns, success = pending
        deadline_ns = began_ns + int(timeout_s * S)
        while not future.done() and self.world.now < deadline_ns:
            self.world.run_for(MS // 4)
        ms = (self.world.now - began_ns) / MS
        if not future.done():
            return Seen(outcome="silence", ms=ms)
        return Seen(outcome=_named(future.exception(), success), ms=ms)

    def wait(self, seconds: float) -> None:
        self.world.run_for(int(seconds * S))

    def cut(self, direction: str = "both", at: str = "receiver") -> Any:
        return self.world.network.stall("cut", _PAIRS[direction], at=at)

    def reject(self) -> Any:
        return self.world.network.refuse("reject", K1_AND_B1)

    def delay(self, ms: float) -> Any:
        return self.world.network.impair("late", K1_TO_B1, delay_ns=int(ms * MS))

    def loss(self, percent: float) -> Any:
        return self.world.network.impair("lossy", K1_AND_B1, loss=percent / 100)

    def heal(self, token: Any) -> None:
        self.world.network.heal(token)

    def reset_connections(self, node: str) -> int:
        return self.world.network.reset_connections([{"a": "k1", "b": "b1"}[node]])

    def kill(self) -> None:
        self.server.kill()

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    def power_off(self) -> None:
        self.server.power_off("lose_all")

    def start(self) -> None:
        self.server.start()


# -- this kernel


class Real:
    """Two hosts of a rig."""

    def __init__(self, a: RigHost, b: RigHost, nets: dict[str, Namespace]) -> None:
        self._a, self._b, self._nets = a, b, nets
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._open = contextlib.ExitStack()
        self.start()

    def close(self) -> None:
        self._open.close()
        self.kill()
        for net in self._nets.values():
            for token in net.tokens():
                net.remove(token)

    def connect(self, timeout_s: float, to: str = "b") -> Seen:
        address = self._b.address if to == "b" else UNUSED
        response = self._nets["a"].probe(address, PORT, int(timeout_s * 1000))
        outcome = {"timeout": "silence"}.get(response["outcome"], response["outcome"])
        return Seen(outcome=outcome, ms=response["ms"])

    def start_connect(self) -> Any:
        return self._connecting(), time.monotonic_ns(), "connected"

    def _connecting(self) -> socket.socket:
        made = self._a.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        self._open.enter_context(made)
        made.setblocking(False)
        made.connect_ex((self._b.address, PORT))
        return made

    def connect_all(self, count: int, timeout_s: float) -> int:
        made = [self._connecting() for _ in range(count)]
        time.sleep(timeout_s)
        ready = select.select([], made, [], 0)[1]
        return sum(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 for one in ready)

    def open(self) -> Any:
        return self._open.enter_context(self._a.connect(self._b.address, PORT))

    def send(self, connection: Any, takes_ms: int = 0) -> Any:
        with contextlib.suppress(ConnectionError):  # which reading reports as well
            connection.sendall(b"%d\n" % takes_ms)
        return connection, time.monotonic_ns(), "answered"

    def await_(self, pending: Any, timeout_s: float) -> Seen:
        connection, began_ns, success = pending
        left_s = max(0.0, timeout_s - (time.monotonic_ns() - began_ns) / 1e9)
        error: BaseException | None = None
        if success == "connected":
            if not select.select([], [connection], [], left_s)[1]:
                error = TimeoutError()
            elif code := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                error = OSError(code, "connect")
        else:
            connection.settimeout(max(left_s, 0.001))
            try:
                if not connection.recv(3):
                    error = ConnectionResetError()
            except OSError as caught:
                error = caught
        ms = (time.monotonic_ns() - began_ns) / 1e6
        return Seen(outcome=_named(error, success), ms=ms)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _apply(self, *placed: tuple[str, dict[str, Any]]) -> str:
        self._count += 1
        token = f"f{self._count}"
        for node in "ab":
            rules = [rule for at, rule in placed if at == node]
            if rules:
                self._nets[node].apply(token, rules)
        return token

    def _both(self, rule: dict[str, Any]) -> str:
        a, b = self._a.address, self._b.address
        return self._apply(("b", {**rule, "pairs": [[a, b]]}), ("a", {**rule, "pairs": [[b, a]]}))

    def cut(self, direction: str = "both", at: str = "receiver") -> Any:
        a, b = self._a.address, self._b.address
        ways = {"a_to_b": [(a, b, "a", "b")], "b_to_a": [(b, a, "b", "a")]}
        chosen = ways.get(direction, ways["a_to_b"] + ways["b_to_a"])
        placed = []
        for source, target, sender, receiver in chosen:
            where, hook = (sender, "output") if at == "sender" else (receiver, "input")
            placed.append((where, {"kind": "drop", "pairs": [[source, target]], "hook": hook}))
        return self._apply(*placed)

    def reject(self) -> Any:
        return self._both({"kind": "reject"})

    def delay(self, ms: float) -> Any:
        pairs = [[self._a.address, self._b.address]]
        return self._apply(("b", {"kind": "delay", "pairs": pairs, "ms": ms}))

    def loss(self, percent: float) -> Any:
        return self._both({"kind": "loss", "percent": percent})

    def heal(self, token: Any) -> None:
        for net in self._nets.values():
            net.remove(token)

    def reset_connections(self, node: str) -> int:
        address = {"a": self._a, "b": self._b}[node].address
        return int(self._nets[node].reset_connections([address])["before"])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        time.sleep(0.01)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def power_off(self) -> None:
        b = self._b.address
        self._apply(
            ("b", {"kind": "drop", "pairs": [["*", b]]}),
            ("b", {"kind": "drop", "pairs": [[b, "*"]], "hook": "output"}),
        )
        self._silence = f"f{self._count}"
        self.pause()
        self.kill()
        self.reset_connections("b")

    def start(self) -> None:
        command = [sys.executable, "-I", "-S", "-c", _SERVER, self._b.address]
        self._process = subprocess.Popen(
            ["nsenter", "-t", str(self._b.pid), "-n", *command, str(PORT), str(LISTEN_BACKLOG)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        if hasattr(self, "_silence"):
            self._nets["b"].remove(self._silence)
