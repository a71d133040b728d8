"""A network namespace, as the agent sees it: a helper process in the namespace that executes requests.

A process (more exactly, a thread) is in one network namespace only, so each namespace gets a helper. A request by
a line of JSON takes about a millisecond; starting a program for each change would take many. If a helper dies, the
next request starts another one in the same namespace, which takes over the packet rules of the dead one.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any

from nemesis.agent.child import end_child
from nemesis.agent.packets.nft_rules import NetworkError

__all__ = ["Namespace", "NetworkError"]

RESPONSE_LIMIT_S = 30.0
END_LIMIT_S = 10.0
_SERIAL = itertools.count(1)
_OWNER_CHARS = "0123456789abcdefghijklmnopqrstuvwxyz"

Response = dict[str, Any]


class Namespace:
    """One network namespace. Safe to use from several threads.

    Args:
        pid: A process in the namespace; None for the namespace of this process.
        is_scratch: A new namespace instead, which ends with this object.

    Raises:
        NetworkError: There is no such process, or its namespace cannot be entered.
    """

    def __init__(self, pid: int | None, *, is_scratch: bool = False) -> None:
        self.pid = pid
        self._is_scratch = is_scratch
        # Several of these objects may use one namespace, with the same tokens.
        self._owner = f"{_base36(os.getpid())}_{_base36(next(_SERIAL))}"
        self._lock = threading.Lock()
        self._is_closed = False
        self._descriptor = -1
        self._applied: dict[str, list[Response]] = {}
        if not is_scratch:
            path = f"/proc/{pid if pid is not None else 'thread-self'}/ns/net"
            try:
                self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise NetworkError(
                    f"the network namespace of process {pid} cannot be opened: {error.strerror}"
                ) from None
        try:
            self._helper = self._start()
        except BaseException:
            self._close_descriptor()
            raise

    def _start(self) -> "_Helper":
        arguments = ["--owner", self._owner]
        if self._is_scratch:
            arguments.append("--scratch")
        elif self.pid is not None:
            arguments += ["--descriptor", str(self._descriptor)]
        return _Helper(arguments, () if self._descriptor < 0 else (self._descriptor,))

    @property
    def is_alive(self) -> bool:
        """Whether its helper process runs."""
        return not self._is_closed and self._helper.is_alive

    def apply(self, token: str, rules: list[Response]) -> Response:
        """Puts packet rules in force; returns when they are. Idempotent by token.

        Args:
            token: Names the packet rules in later calls.
            rules: Each with `kind` ("drop", "reject", "loss", "delay", "bandwidth"), `pairs` of source and
                destination address ("*" for any), `hook` ("input" or "output") and, by kind, `percent`, `ms`,
                `jitter_ms`, `by` ("netem" or "nfqueue", to insist on one), `rate_kib_s`.

        Returns:
            `in_force_ns` (monotonic) and `took_ms`.

        Raises:
            NetworkError: It failed; none of the packet rules is in force.
        """
        response: Response = self._request("apply", token=token, rules=rules)
        self._applied[token] = rules
        return response

    def evidence(self, token: str) -> Response:
        """Returns what a token's packet rules have caught; after their removal, what they had caught until then.

        Returns:
            `packets` that were dropped, rejected, delayed or limited, their `bytes`; by kind: `seen`
            (packets of the pairs, hit or not); of delays the `mechanism` ("netem", "nfqueue" or both), what each
            rule's `netem` or its `queues` took, and why there is `no_netem`; `overlimits`, `sent_bytes` of limits.

        Raises:
            NetworkError: The token was never in force here.
        """
        response: Response = self._request("evidence", token=token)
        return response

    def remove(self, token: str) -> Response:
        """Removes a token's packet rules, and no others, and returns the last evidence; idempotent."""
        response: Response = self._request("remove", token=token)
        self._applied.pop(token, None)
        return response

    def tokens(self) -> list[str]:
        """Returns the tokens in force, oldest first."""
        tokens: list[str] = self._request("tokens")
        return tokens

    def reset(self) -> list[str]:
        """Removes what any run left in this namespace; returns one line for each thing removed."""
        removed: list[str] = self._request("reset")
        self._applied.clear()
        return removed

    def reset_connections(self, addresses: list[str], ports: list[int] | None = None) -> Response:
        """Destroys every TCP connection with one of the addresses at one of its ends.

        Args:
            addresses: Local or remote.
            ports: Only connections with one of these ports; None for all.

        Returns:
            `before` and `after`: how many there were, and how many of these are left.

        Raises:
            NetworkError: The kernel does not support it.
        """
        response: Response = self._request("reset_connections", addresses=addresses, ports=ports)
        return response

    def probe(self, address: str, port: int, timeout_ms: int, source: str = "") -> Response:
        """Tries to open a TCP connection from inside.

        Returns:
            `outcome`: "connected", "refused", "reset", "timeout" or "unreachable", and `ms`.

        Raises:
            NetworkError: It could not be tried.
        """
        response: Response = self._request(
            "probe",
            limit_s=RESPONSE_LIMIT_S + timeout_ms / 1000,
            address=address,
            port=port,
            timeout_ms=timeout_ms,
            source=source,
        )
        return response

    def try_out(self) -> dict[str, dict[str, str]]:
        """Returns what this namespace supports; see `nemesis.agent.packets.network.capabilities`."""
        found: dict[str, dict[str, str]] = self._request("try_out", is_scratch=self._is_scratch)
        return found

    def close(self) -> None:
        """Removes all packet rules that were made through this object and ends the helper. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._helper.close()
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _request(self, command: str, *, limit_s: float = RESPONSE_LIMIT_S, **arguments: Any) -> Any:
        with self._lock:
            if self._is_closed:
                raise NetworkError("this network namespace was left already")
            if not self._helper.is_alive and not self._is_scratch:
                self._helper.close()
                self._helper = self._start()
                self._adopt_rules()
            future = self._helper.submit(command, arguments)
        try:
            return future.result(limit_s)
        except FutureTimeoutError:
            raise NetworkError(
                f"the network helper did not respond to {command!r} within {limit_s:g} s"
            ) from None

    def _adopt_rules(self) -> None:
        try:
            self._helper.submit("adopt", {"tokens": self._applied}).result(RESPONSE_LIMIT_S)
        except (NetworkError, FutureTimeoutError) as error:
            self._helper.close()  # so that the next request tries again
            raise NetworkError(
                f"the packet rules of a dead network helper are lost: {error}"
            ) from None


class _Helper:
    """The process in the namespace.

    Args:
        arguments: For `nemesis.agent.packets.network`.
        descriptors: Open files that it inherits.
    """

    def __init__(self, arguments: list[str], descriptors: tuple[int, ...]) -> None:
        root = Path(__file__).resolve().parents[3]
        paths = [os.fspath(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nemesis.agent.packets.network", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._is_gone = False
        self._farewell = "the network helper process ended"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.submit("hello", {}).result(RESPONSE_LIMIT_S)
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it runs and accepts requests."""
        return not self._is_gone and self._process.poll() is None

    def submit(self, command: str, arguments: Response) -> "Future[Any]":
        """Sends a request; the future holds its response."""
        future: Future[Any] = Future()
        request_id = next(self._ids)
        request = {"id": request_id, "do": command, "args": arguments}
        data = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        stdin = self._process.stdin
        assert stdin is not None
        with self._lock:
            if self._is_gone:
                raise NetworkError(self._farewell)
            self._waiting[request_id] = future
            try:
                stdin.write(data)
                stdin.flush()
            except (OSError, ValueError):
                pass  # the reader notices its end as well, and fails the future
        return future

    def close(self) -> None:
        """Ends its input and waits for its end; idempotent."""
        assert self._process.stdout is not None
        end_child(self._process, END_LIMIT_S, writing=self._lock)
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            message = json.loads(line)
            if message["id"] is None:
                self._farewell = message["error"]
                continue
            with self._lock:
                future = self._waiting.pop(message["id"])
            if "error" in message:
                future.set_exception(NetworkError(message["error"]))
            else:
                future.set_result(message["ok"])
        with self._lock:
            self._is_gone = True
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(NetworkError(self._farewell))


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _OWNER_CHARS[rest] + digits
    return digits or "0"
