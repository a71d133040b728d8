"""A few hosts on one Ethernet segment: network namespaces, veth pairs, and a bridge in its own namespace.

Nothing of it has a name outside, so nothing of it can stay: a namespace is gone with its last process. The bridge
is not in the machine's own namespace, whose firewall could drop some of it.
"""

import contextlib
import ctypes
import functools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from nemesis.agent.packets.namespace import Namespace, NetworkError

T = TypeVar("T")

PORT = 9092
PROBE_MS = 200

_CLONE_NEWNET = 0x40000000
_SERVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=int(sys.argv[3]))
print("ready", flush=True)
held = []
while True:
    connection, _ = listener.accept()
    held.append(connection)
    if sys.argv[4] == "echo":
        while data := connection.recv(65536):
            connection.sendall(data)
"""


def why_not() -> str:
    """Returns why there can be no such hosts here; "" if there can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    for program in ("ip", "unshare", "nsenter", "tc"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no network namespace can be made here"


@functools.cache
def why_no_netem() -> str:
    """Returns why packets cannot be delayed by netem here, in the words of `tc`; "" if they can."""
    if why_not():
        return why_not()
    command = (
        "ip link set lo up && ip link add trial type ifb && "
        "tc qdisc add dev trial root netem delay 1ms && tc qdisc add dev lo ingress && "
        "tc filter add dev lo parent ffff: u32 match u32 0 0 action mirred egress redirect dev trial"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    return f"this kernel has no netem: {(done.stderr.splitlines() or ['no reason'])[0]}"


class RigHost:
    """A host of the rig.

    Attributes:
        pid: A process in its namespace.
        address: Of its interface `eth0`.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._holder = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        self.pid = self._holder.pid
        own = os.stat("/proc/self/ns/net").st_ino
        while os.stat(f"/proc/{self.pid}/ns/net").st_ino == own:
            if self._holder.poll() is not None:
                raise OSError("no network namespace")

    def ip(self, batch: str) -> None:
        """Runs `ip` commands inside, one per line."""
        self.run(["ip", "-batch", "-"], batch)

    def run(self, command: list[str], stdin: str = "") -> str:
        """Runs a program inside and returns what it prints."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-n", *command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
        assert done.returncode == 0, (command, stdin, done.stderr)
        return done.stdout

    def inside(self, work: Callable[[], T]) -> T:
        """Runs a function on a thread that is inside; sockets it opens stay inside."""
        results: list[Any] = []

        def enter() -> None:
            try:
                with open(f"/proc/{self.pid}/ns/net", "rb") as namespace:
                    library = ctypes.CDLL(None, use_errno=True)
                    if library.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "setns")
                results.append((work(), None))
            except BaseException as error:
                results.append((None, error))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        result, error = results[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def listen(self, port: int = 9092, backlog: int = 128) -> socket.socket:
        """Returns a listening socket inside."""
        return self.inside(lambda: socket.create_server((self.address, port), backlog=backlog))

    def connect(self, to: str, port: int = 9092, timeout_s: float = 5.0) -> socket.socket:
        """Returns a connection from inside; TCP_NODELAY is set."""
        made = self.inside(lambda: socket.create_connection((to, port), timeout_s))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def connect_result(self, to: str, port: int = 9092, timeout_s: float = 1.0) -> str:
        """Returns how an attempt to connect from inside ended: "connected" or the exception's name."""
        try:
            self.connect(to, port, timeout_s).close()
        except OSError as error:
            return type(error).__name__ if type(error) is not OSError else f"errno {error.errno}"
        return "connected"

    @contextlib.contextmanager
    def server(
        self, port: int = 9092, backlog: int = 128, does: str = "echo"
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """A process inside that accepts connections: "echo" echoes the first, "hold" sends nothing."""
        arguments = [self.address, str(port), str(backlog), does]
        process = subprocess.Popen(
            ["nsenter", "-t", str(self.pid), "-n", sys.executable, "-c", _SERVER, *arguments],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def close(self) -> None:
        """Ends the namespace."""
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()


@contextlib.contextmanager
def segment(count: int) -> Iterator[list[RigHost]]:
    """Hosts 198.18.0.1, 198.18.0.2 ... on one segment."""
    with contextlib.ExitStack() as stack:
        bridge = RigHost("")
        stack.callback(bridge.close)
        hosts = []
        for number in range(count):
            hosts.append(RigHost(f"198.18.0.{number + 1}"))
            stack.callback(hosts[-1].close)
        lines = ["link add br0 type bridge", "link set br0 up"]
        for number, host in enumerate(hosts):
            lines.append(f"link add v{number} type veth peer name eth0 netns {host.pid}")
            lines.append(f"link set v{number} master br0 up")
        bridge.ip("\n".join(lines))
        for host in hosts:
            host.ip(f"link set lo up\naddr add {host.address}/15 dev eth0\nlink set eth0 up")
        yield hosts


@contextlib.contextmanager
def connected(
    client: RigHost, server: RigHost, port: int = 9092
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, the client's first."""
    with server.listen(port) as listener:
        near = client.connect(server.address, port)
        with near:
            far, _ = listener.accept()
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            far.settimeout(5)
            with far:
                yield near, far


class Site:
    """Two hosts with their namespaces; more on demand."""

    def __init__(self, hosts: list[RigHost], stack: contextlib.ExitStack) -> None:
        self.hosts = hosts
        self._stack = stack
        self.a, self.b = hosts[:2]
        self.net_a, self.net_b = self.enter(self.a), self.enter(self.b)

    def enter(self, host: RigHost) -> Namespace:
        """Returns another way into a host's namespace."""
        return self._stack.enter_context(contextlib.closing(Namespace(host.pid)))

    def pair(self) -> list[str]:
        """From the first host to the second."""
        return [self.a.address, self.b.address]

    def probe(self) -> str:
        """How a connection from the first host to the second goes."""
        return str(self.net_a.probe(self.b.address, PORT, PROBE_MS)["outcome"])


@contextlib.contextmanager
def hosts_or_skip(count: int, reason: str) -> Iterator[list[RigHost]]:
    """Yields hosts; skips the test if there is a reason why there can be none."""
    if reason:
        pytest.skip(reason)
    with segment(count) as hosts:
        yield hosts


@contextlib.contextmanager
def clean_site(hosts: list[RigHost]) -> Iterator[Site]:
    """Yields a site, and checks afterwards that nothing is left of its faults."""
    with contextlib.ExitStack() as stack:
        yield Site(hosts, stack)
    for host in hosts:
        left = left_behind(host)
        assert left == [], left


def refusal(text: str) -> Any:
    """Expects that the agent refuses something, with this in its message."""
    return pytest.raises(NetworkError, match=text)


def tables(host: RigHost) -> list[str]:
    """Returns the nftables tables of a host."""
    return [line for line in host.run(["nft", "list", "tables"]).splitlines() if line]


def devices(host: RigHost) -> list[str]:
    """Returns the interfaces of a host that delays are done with."""
    lines = host.run(["ip", "-oneline", "link", "show"]).splitlines()
    return [name for name in (line.split(":")[1].strip() for line in lines) if name[:3] == "lsd"]


def left_behind(host: RigHost) -> list[str]:
    """Returns everything that faults of packets may leave on a host."""
    lines = host.run(["tc", "qdisc", "show"]).splitlines()
    queues = [line for line in lines if any(kind in line for kind in ("htb", "netem", "ingress"))]
    return tables(host) + devices(host) + queues


def drop(*pairs: list[str], hook: str = "input") -> list[dict[str, Any]]:
    """Returns a rule."""
    return [{"kind": "drop", "pairs": list(pairs), "hook": hook}]


def delay(site: Site, ms: float, jitter_ms: float = 0, by: str = "") -> list[dict[str, Any]]:
    """Returns a rule that hits what the first host sends the second."""
    return [{"kind": "delay", "pairs": [site.pair()], "ms": ms, "jitter_ms": jitter_ms, "by": by}]


def limit(source: str, rate_kib_s: int) -> list[dict[str, Any]]:
    """Returns a rule that limits what an address sends."""
    return [{"kind": "bandwidth", "pairs": [[source, "*"]], "rate_kib_s": rate_kib_s}]


def udp(host: RigHost, port: int = 0) -> socket.socket:
    """Returns a socket inside."""
    made = host.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind((host.address, port))
    made.settimeout(2)
    return made


def round_trips_ms(near: socket.socket, far: socket.socket, count: int) -> list[float]:
    """Measures how long a byte there and one back take."""
    found = []
    for _ in range(count):
        began_ns = time.monotonic_ns()
        near.sendall(b"x")
        far.recv(1)
        far.sendall(b"y")
        near.recv(1)
        found.append((time.monotonic_ns() - began_ns) / 1e6)
    return found


def helper_pid(net: Namespace) -> int:
    """Returns the process that does the work in a namespace."""
    return int(net._request("hello")["pid"])


def wait_for(condition: Any, limit_s: float = 3.0) -> bool:
    """Returns whether something became true in time."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True
