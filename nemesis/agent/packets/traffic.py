"""Limits how fast nodes may send, with the traffic control of the kernel.

Every interface of the namespace that has an address gets a classifying queue (htb) with a reserved handle, and in
it one class per limited source address; other traffic bypasses the classes. So several nodes of one namespace can
have different limits, and an address cannot be limited twice. A third-party queue on an interface is never
replaced; limiting is refused then.
"""

import contextlib
import fcntl
import ipaddress
import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

from nemesis.agent.packets.nft_rules import ANY, NetworkError, Rule
from nemesis.agent.packets.qdisc import Traffic, classes, qdiscs

HANDLE = "6c73"
_MAJOR = int(HANDLE, 16)
QUEUE_SECONDS = 3
QUEUE_BYTES_MIN = 128 << 10
BURST_BYTES_MIN = 1600
FULL_RATE = "32gbit"
DRAIN_LIMIT_S = 0.2
_LOCK_NAME = "\0laststand-traffic"
_LOCK_LIMIT_S = 10.0
_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_HEADER_BYTES = 100
_PROGRAM_LIMIT_S = 10.0


class Bandwidth:
    """The limits of one token. Mutable.

    Args:
        rules: Packet rules of kind "bandwidth".
        adopts: Existing limits of the same addresses are taken over.

    Raises:
        NetworkError: The kernel lacks these queues, an address is limited already, or `tc` is not installed.
    """

    def __init__(self, rules: tuple[Rule, ...], *, adopts: bool = False) -> None:
        self._adopts = adopts
        self._classes = _by_source(rules)
        self._interfaces = interfaces()
        self._made: list[tuple[str, int]] = []
        self._last: dict[str, int] = {}
        with traffic_lock():
            try:
                for interface in self._interfaces:
                    _make_root(interface)
                    for minor, (pairs, rate) in self._classes.items():
                        self._make_class(interface, minor, pairs, rate)
            except BaseException:
                self._remove_classes()
                raise

    def _make_class(
        self, interface: str, minor: int, pairs: list[tuple[str, str]], rate_kib_s: int
    ) -> None:
        source = pairs[0][0]
        rate = rate_kib_s * 1024
        if self._adopts and minor in _our_classes(interface):
            self._made.append((interface, minor))
            return
        burst = max(BURST_BYTES_MIN, rate // 100)
        try:
            run_tc(
                f"class add dev {interface} parent {HANDLE}: classid {HANDLE}:{minor:x} "
                f"htb rate {rate * 8}bit burst {burst} cburst {burst} quantum 1514"
            )
        except NetworkError as error:
            if "File exists" in str(error):
                raise NetworkError(
                    f"what {source} sends is limited already; heal that first"
                ) from None
            raise
        self._made.append((interface, minor))
        limit = max(QUEUE_BYTES_MIN, rate * QUEUE_SECONDS)
        # The class counts a large offloaded segment as one packet, so at low rates it would send one per second.
        # A token bucket that is never empty, and accepts no packet above the MTU, splits them before.
        run_tc(
            f"qdisc add dev {interface} parent {HANDLE}:{minor:x} "
            f"tbf rate {FULL_RATE} burst {_mtu(interface) + _HEADER_BYTES} limit {limit}"
        )
        add = f"filter add dev {interface} parent {HANDLE}: protocol ip pref {minor} u32"
        run_tc(f"{add} match ip src {source}/32 match ip dst {source}/32 flowid {HANDLE}:0")
        for _, target in pairs:
            to = "" if target == ANY else f"match ip dst {target}/32 "
            run_tc(f"{add} match ip src {source}/32 {to}flowid {HANDLE}:{minor:x}")

    def evidence(self) -> dict[str, int]:
        """Returns what was sent, and how often a packet had to wait (`overlimits`), now or until the removal."""
        if self._made:
            found = dict.fromkeys(("packets", "bytes", "overlimits", "drops", "backlog"), 0)
            for interface, minor in self._made:
                stats = _our_classes(interface).get(minor)
                for key in found if stats is not None else ():
                    found[key] += getattr(stats, key)
            self._last = found
        return dict(self._last)

    def close(self) -> None:
        """Removes the limits; idempotent."""
        with traffic_lock():
            self.evidence()
            self._remove_classes()

    def _remove_classes(self) -> None:
        for interface, minor in self._made:
            _let_go(interface, minor)
        for interface, minor in self._made:
            with contextlib.suppress(NetworkError):
                run_tc(f"filter del dev {interface} parent {HANDLE}: protocol ip pref {minor}")
            with contextlib.suppress(NetworkError):
                run_tc(f"class del dev {interface} classid {HANDLE}:{minor:x}")
        self._made = []
        for interface in self._interfaces:
            if _has_root(interface) and not _our_classes(interface):
                with contextlib.suppress(NetworkError):
                    run_tc(f"qdisc del dev {interface} root")


def remove_ours() -> list[str]:
    """Removes the limits of any run on interfaces of this namespace; returns one line each."""
    removed = []
    with traffic_lock():
        for _, name in socket.if_nameindex():
            if _has_root(name):
                run_tc(f"qdisc del dev {name} root")
                removed.append(f"bandwidth limits on {name}")
    return removed


def interfaces() -> list[str]:
    """Returns the interfaces of this namespace that have an IPv4 address.

    Ports of bridges have none, and what passes one has passed the bridge.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("16s240x", name.encode()[:15])
            with contextlib.suppress(OSError):
                fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
                found.append(name)
    return found


def _by_source(rules: tuple[Rule, ...]) -> dict[int, tuple[list[tuple[str, str]], int]]:
    found: dict[int, tuple[list[tuple[str, str]], int]] = {}
    for rule in rules:
        for source, target in rule.pairs:
            addresses = [address for address in (source, target) if address != ANY]
            if source == ANY or any(ipaddress.ip_address(one).version != 4 for one in addresses):
                raise NetworkError("a bandwidth rule needs an IPv4 source address in each pair")
            # The same address always gets the same class, so the kernel refuses the second limit.
            minor = int(ipaddress.IPv4Address(source)) % 0xFFFE + 1
            pairs, rate = found.setdefault(minor, ([], rule.rate_kib_s))
            if rate != rule.rate_kib_s or (pairs and pairs[0][0] != source):
                raise NetworkError(f"what {source} sends is limited twice by one token")
            pairs.append((source, target))
    return found


def _make_root(interface: str) -> None:
    root = _root(interface)
    if root is not None and root.major == _MAJOR:
        return
    if root is not None and root.major != 0:
        raise NetworkError(
            f"{interface} has a third-party {root.kind} queue, which is not replaced"
        )
    run_tc(f"qdisc add dev {interface} root handle {HANDLE}: htb default 0")


def _mtu(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16si236x", interface.encode()[:15], 0)
        response = fcntl.ioctl(any_socket, _SIOCGIFMTU, request)
    return int(struct.unpack_from("=i", response, 16)[0])


def _root(interface: str) -> Traffic | None:
    return next((qdisc for qdisc in qdiscs(interface) if qdisc.is_root), None)


def _has_root(interface: str) -> bool:
    root = _root(interface)
    return root is not None and root.major == _MAJOR


def _our_classes(interface: str) -> dict[int, Traffic]:
    return {one.minor: one for one in classes(interface) if one.major == _MAJOR and one.minor}


def _let_go(interface: str, minor: int) -> None:
    """Releases the packets that wait in a class, because deleting the class would drop them."""
    with contextlib.suppress(NetworkError):
        run_tc(
            f"class change dev {interface} parent {HANDLE}: classid {HANDLE}:{minor:x} "
            f"htb rate {FULL_RATE} burst 1000000 cburst 1000000 quantum 60000"
        )
    deadline_s = time.monotonic() + DRAIN_LIMIT_S
    while time.monotonic() < deadline_s:
        left = _our_classes(interface).get(minor)
        if left is None or left.backlog == 0:
            return
        time.sleep(0.01)


def set_up(interface: str) -> None:
    """Lets an interface send and receive.

    Raises:
        OSError: There is no such interface, or it may not be changed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh238x", interface.encode(), _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def run_tc(command: str) -> str:
    """Runs the traffic control program and returns what it prints.

    Raises:
        NetworkError: It failed, or is not installed.
    """
    done = _run("tc", command.split(), "")
    if done.returncode != 0:
        raise NetworkError(f"`tc {command}` failed: {_reason(done)}")
    return done.stdout


def run_batch(program: str, commands: list[str]) -> None:
    """Runs commands of `tc` or `ip` in one process, up to the first that fails.

    Raises:
        NetworkError: One failed, or the program is not installed.
    """
    done = _run(program, ["-batch", "-"], "\n".join(commands) + "\n")
    if done.returncode != 0:
        # The last line reads: Command failed -:3
        number = re.search(r"Command failed -:(\d+)", done.stderr)
        failed = commands[int(number[1]) - 1] if number else commands[0]
        raise NetworkError(f"`{program} {failed}` failed: {_reason(done)}")


def _run(program: str, arguments: list[str], text: str) -> "subprocess.CompletedProcess[str]":
    path = shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise NetworkError(f"the command `{program}` is missing; install iproute2")
    return subprocess.run(
        [path, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PROGRAM_LIMIT_S,
    )


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    return (done.stderr.strip() or "no reason given").splitlines()[0]


@contextlib.contextmanager
def traffic_lock() -> Iterator[None]:
    """Lets one process at a time change the queues and filters of this namespace.

    Raises:
        NetworkError: Another process does for too long.

    Names of abstract sockets belong to the network namespace, and the kernel frees them when a process dies.
    """
    deadline_s = time.monotonic() + _LOCK_LIMIT_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        while True:
            try:
                lock.bind(_LOCK_NAME)
                break
            except OSError:
                if time.monotonic() > deadline_s:
                    raise NetworkError("another process changes traffic control here") from None
                time.sleep(0.005)
        yield
