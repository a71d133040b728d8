"""Delays packets without netem: the kernel queues them to this process, which releases each when it is due.

Queues belong to the network namespace in which they were bound. Packets are taken at the receiver's input: at the
sender's output they would stay charged to the sending socket, which then stops after two of them. A queue without
a process, or a full one, lets packets pass (fail open), so the counters have to show that a delay took effect.

Source: linux/netfilter/nfnetlink_queue.h, nf_tables_compat.h, xt_NFQUEUE.h.
"""

import contextlib
import heapq
import os
import random
import select
import socket
import struct
import threading
import time

from nemesis.agent.packets.nft_rules import NetworkError

QUEUE_FIRST = 21_000
QUEUE_COUNT = 2_000
QUEUE_LENGTH = 65_535
RECEIVE_BUFFER_BYTES = 64 << 20
_NETLINK_NETFILTER = 12
_SOL_NETLINK = 270
_NETLINK_NO_ENOBUFS = 5
_SO_RCVBUFFORCE = 33
_QUEUE = 3 << 8
_PACKET = _QUEUE | 0
_VERDICT = _QUEUE | 1
_CONFIG = _QUEUE | 2
_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_ERROR = 2
_ACCEPT = 1
_CFG_CMD, _CFG_PARAMS, _CFG_MAXLEN, _CFG_MASK, _CFG_FLAGS = 1, 2, 3, 4, 5
_BIND, _UNBIND = 1, 2
_COPY_META = 1
_FAIL_OPEN, _GSO = 1, 4
_VERDICT_HDR = 2
_RECEIVES_PER_TURN = 256


class DelayQueueWorker:
    """Holds the packets of one netfilter queue, each for some time. Mutable; it has a thread.

    Args:
        ms, jitter_ms: Each packet waits between `ms - jitter_ms` and `ms + jitter_ms`, uniformly.

    Attributes:
        number: Number of the queue.

    Raises:
        NetworkError: The kernel does not support queues, or none is free.
    """

    def __init__(self, ms: float, jitter_ms: float = 0.0) -> None:
        self._least_ns = int((ms - jitter_ms) * 1e6)
        self._spread_ns = int(2 * jitter_ms * 1e6)
        self._random = random.Random()
        self._due: list[tuple[int, int]] = []
        self._delayed = 0
        self._late_ns_sum = 0
        self._late_ns_max = 0
        self._failure = ""
        self._is_over = False
        self._socket = _open_socket()
        try:
            self.number = _bind_free(self._socket)
        except BaseException:
            self._socket.close()
            raise
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def evidence(self) -> dict[str, float | str]:
        """Returns how many packets were delayed, and by how much on average and at most."""
        count = self._delayed
        found: dict[str, float | str] = {
            "delayed": count,
            "waiting": len(self._due),
            "late_ms_mean": round(self._late_ns_sum / count / 1e6, 3) if count else 0.0,
            "late_ms_max": round(self._late_ns_max / 1e6, 3),
        }
        if self._failure:
            found["failure"] = self._failure
        return found

    def close(self) -> None:
        """Releases all waiting packets, in order, and closes the queue. Its nft rules must be gone before."""
        if self._is_over:
            return
        self._is_over = True
        os.write(self._wake_write, b"x")
        self._thread.join()
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)
        self._socket.close()

    def _work(self) -> None:
        try:
            while not self._is_over:
                self._wait()
                self._take()
                self._release(time.monotonic_ns())
            # Packets that were between the nft rule and the queue when the rule was removed.
            for _ in range(3):
                self._take()
                time.sleep(0.0005)
            self._take()
            self._release(1 << 63)
            self._socket.send(_config(self.number, _attribute(_CFG_CMD, _command(_UNBIND))))
        except OSError as error:
            self._failure = f"the queue failed: {error}"

    def _wait(self) -> None:
        timeout_s: float | None = None
        if self._due:
            timeout_s = max(0.0, (self._due[0][0] - time.monotonic_ns()) / 1e9)
        select.select([self._socket.fileno(), self._wake_read], [], [], timeout_s)

    def _take(self) -> None:
        receive = self._socket.recv
        due, least, spread = self._due, self._least_ns, self._spread_ns
        for _ in range(_RECEIVES_PER_TURN):
            try:
                data = receive(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            now_ns = time.monotonic_ns()
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if length < 16:
                    break
                if kind == _PACKET:
                    # The packet's header is always the first attribute.
                    (packet,) = struct.unpack_from(">I", data, at + 24)
                    wait_ns = least + (int(self._random.random() * spread) if spread else 0)
                    heapq.heappush(due, (now_ns + wait_ns, packet))
                at += (length + 3) & ~3

    def _release(self, until_ns: int) -> None:
        due = self._due
        now_ns = time.monotonic_ns()
        while due and due[0][0] <= until_ns:
            due_ns, packet = heapq.heappop(due)
            self._socket.send(_verdict(self.number, packet))
            self._delayed += 1
            late_ns = max(0, now_ns - due_ns)
            self._late_ns_sum += late_ns
            self._late_ns_max = max(self._late_ns_max, late_ns)


def _open_socket() -> socket.socket:
    try:
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    except OSError as error:
        raise NetworkError(f"the kernel has no netfilter netlink ({error.strerror})") from None
    try:
        made.bind((0, 0))
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        made.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
    except BaseException:
        made.close()
        raise
    return made


def _bind_free(made: socket.socket) -> int:
    reason = ""
    first = random.randrange(QUEUE_COUNT)
    for turn in range(64):
        number = QUEUE_FIRST + (first + turn) % QUEUE_COUNT
        error = _exchange(made, _config(number, _attribute(_CFG_CMD, _command(_BIND)), ack=True))
        if error == 0:
            _configure(made, number)
            return number
        reason = os.strerror(error)
    raise NetworkError(f"no netfilter queue can be bound: {reason}")


def _configure(made: socket.socket, number: int) -> None:
    flags = struct.pack(">I", _FAIL_OPEN | _GSO)
    for what in (
        _attribute(_CFG_PARAMS, struct.pack(">IB", 0, _COPY_META)),
        _attribute(_CFG_MAXLEN, struct.pack(">I", QUEUE_LENGTH)),
        _attribute(_CFG_MASK, flags) + _attribute(_CFG_FLAGS, flags),
    ):
        error = _exchange(made, _config(number, what, ack=True))
        if error:
            raise NetworkError(f"a netfilter queue cannot be set up: {os.strerror(error)}")


def _exchange(made: socket.socket, message: bytes) -> int:
    """Sends a message and returns the error number of the response; 0 if it was accepted."""
    made.send(message)
    while True:
        if not select.select([made], [], [], 2.0)[0]:
            raise NetworkError("the kernel does not respond on netfilter netlink")
        data = made.recv(65536)
        _, kind = struct.unpack_from("=IH", data)
        if kind == _ERROR:
            (code,) = struct.unpack_from("=i", data, 16)
            return -int(code)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _message(kind: int, flags: int, family: int, resource: int, body: bytes) -> bytes:
    header = struct.pack("=BB", family, 0) + struct.pack(">H", resource)
    return struct.pack("=IHHII", 20 + len(body), kind, flags, 0, 0) + header + body


def _config(number: int, body: bytes, *, ack: bool = False) -> bytes:
    return _message(_CONFIG, _REQUEST | (_ACK if ack else 0), socket.AF_UNSPEC, number, body)


def _command(number: int) -> bytes:
    return struct.pack(">BBH", number, 0, 0)


def _verdict(number: int, packet: int) -> bytes:
    body = _attribute(_VERDICT_HDR, struct.pack(">II", _ACCEPT, packet))
    return _message(_VERDICT, _REQUEST, socket.AF_UNSPEC, number, body)


# -- the target of older kernels


def add_queue_target(table: str, chain: str, number: int) -> None:
    """Adds an nft rule that queues every packet, for kernels that support queues in iptables only.

    Raises:
        NetworkError: The kernel does not support that either.
    """
    # struct xt_NFQ_info_v3: number, how many queues, flags (1: pass packets when no process listens), padding.
    info = struct.pack("=HHHH", number, 1, 1, 0)
    target = _attribute(1, b"NFQUEUE\0") + _attribute(2, struct.pack(">I", 3)) + _attribute(3, info)
    nested = 0x8000
    expression = _attribute(1, b"target\0") + _attribute(nested | 2, target)
    body = (
        _attribute(1, table.encode() + b"\0")
        + _attribute(2, chain.encode() + b"\0")
        + _attribute(nested | 4, _attribute(nested | 1, expression))
    )
    nftables = 10
    inet = 1
    begin = _message(0x10, _REQUEST, 0, nftables, b"")
    rule = _message((nftables << 8) | 6, _REQUEST | _ACK | _CREATE | _APPEND, inet, 0, body)
    end = _message(0x11, _REQUEST, 0, nftables, b"")
    with contextlib.closing(_open_socket()) as made:
        error = _exchange(made, begin + rule + end)
    if error:
        raise NetworkError(
            "the kernel has neither nftables queues nor the NFQUEUE target "
            f"({os.strerror(error)}), and packets cannot be delayed without"
        )
