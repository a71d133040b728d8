"""A few hosts on one Ethernet segment: network namespaces, veth pairs, and a bridge in a namespace of its own.

Nothing of it has a name outside, so nothing of it can stay: a namespace is gone with its last process. The bridge
is not in the machine's own namespace, whose firewall would have a say in what passes it.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

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
        """Carries out `ip` commands inside, one a line."""
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
        """A process inside that accepts connections: "echo" answers the first, "hold" leaves them all alone."""
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
