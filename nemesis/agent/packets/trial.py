"""Finds out which packet faults a namespace supports, by trying them on test packets.

Two unused loopback addresses exchange packets; each mechanism must change what they receive, and count it.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from nemesis.agent.packets.nft_rules import NETEM, NFQUEUE, NetworkError
from nemesis.agent.packets.sockets import connect_probe, reset_connections

FROM, TO = "127.93.7.1", "127.93.7.2"
PROBE_LIMIT_MS = 150
DELAY_MS = 20
_TRIES = 40

Level = dict[str, str]
Response = dict[str, Any]


class Rules(Protocol):
    """What is tried."""

    def apply(self, token: str, rules: list[Response]) -> Response:
        """Puts rules in force."""
        ...

    def remove(self, token: str) -> Response:
        """Removes them."""
        ...

    @property
    def knows_queues(self) -> bool:
        """Whether nftables can queue by itself."""
        ...

    @property
    def nft(self) -> Any:
        """The access to nftables."""
        ...


def try_out(rules: Rules, is_scratch: bool) -> dict[str, Level]:
    """Tries every mechanism.

    Args:
        rules: To try with.
        is_scratch: Whether the interfaces of this namespace may be changed.
    """
    trials: dict[str, Callable[[], Level]] = {
        "nft-drop": lambda: _try_rule(rules, {"kind": "drop"}, _is_dropped),
        "nft-reject": lambda: _try_rule(rules, {"kind": "reject"}, _is_refused),
        "nft-loss": lambda: _try_rule(rules, {"kind": "loss", "percent": 100}, _is_dropped),
        "nfqueue": lambda: _try_delay(rules, NFQUEUE),
        "netem": lambda: _try_delay(rules, NETEM),
        "tbf": lambda: _try_bandwidth(rules),
        "sock-destroy": _try_destroy,
    }
    found: dict[str, Level] = {}
    for name, trial in trials.items():
        if name in ("netem", "tbf") and not is_scratch:
            found[name] = _no("not tried: that would change the interfaces of the host")
            continue
        try:
            found[name] = trial()
        except (NetworkError, OSError) as error:
            found[name] = _no(str(error))
    return found


def _yes(how: str) -> Level:
    return {"level": "yes", "how": how, "why": ""}


def _no(why: str) -> Level:
    return {"level": "no", "how": "", "why": why}


def _try_rule(
    rules: Rules, rule: Response, has_worked: Callable[[Mapping[str, Any]], bool]
) -> Level:
    with _listener() as port:
        before = connect_probe(TO, port, PROBE_LIMIT_MS, FROM)
        if before["outcome"] != "connected":
            return _no(
                f"two loopback addresses cannot communicate even without it: {before['outcome']}"
            )
        rules.apply("trial", [{**rule, "pairs": [[FROM, TO]]}])
        try:
            outcome = connect_probe(TO, port, PROBE_LIMIT_MS, FROM)
        finally:
            evidence = rules.remove("trial")
    if not has_worked(outcome):
        return _no(f"the rule was accepted, but a connection was {outcome['outcome']}")
    if not evidence["packets"]:
        return _no("the rule worked but counted nothing")
    return _yes(f"{rules.nft.name}, a table per fault")


def _is_dropped(outcome: Mapping[str, Any]) -> bool:
    return bool(outcome["outcome"] == "timeout")


def _is_refused(outcome: Mapping[str, Any]) -> bool:
    return bool(outcome["outcome"] in ("refused", "reset"))


def _try_delay(rules: Rules, mechanism: str) -> Level:
    def is_late(outcome: Mapping[str, Any]) -> bool:
        return bool(outcome["outcome"] == "connected" and outcome["ms"] >= DELAY_MS)

    level = _try_rule(rules, {"kind": "delay", "ms": DELAY_MS, "by": mechanism}, is_late)
    if level["level"] == "yes" and mechanism == NETEM:
        level["how"] = "tc netem"
    elif level["level"] == "yes":
        queue = "nftables queue" if rules.knows_queues else "NFQUEUE target in an nftables chain"
        level["how"] = f"{queue}, packets held by the agent"
    return level


def _try_bandwidth(rules: Rules) -> Level:
    rule = {"kind": "bandwidth", "rate_kib_s": 64, "pairs": [[FROM, "*"]]}
    data = bytes(1000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((FROM, 0))
        rules.apply("trial", [rule])
        try:
            for _ in range(_TRIES):
                sender.sendto(data, (TO, 9))
        except OSError:
            pass  # the ICMP error because no socket listens
        finally:
            evidence = rules.remove("trial")
    if not evidence["overlimits"]:
        return _no("the limit was accepted but delayed nothing")
    return _yes("tc htb, a class per source address")


def _try_destroy() -> Level:
    with _listener() as port, socket.create_connection((TO, port), 1, (FROM, 0)) as client:
        result = reset_connections([FROM], [port])
        client.settimeout(0.5)
        try:
            client.recv(1)
            return _no("a destroyed socket still worked")
        except ConnectionError:
            pass
    if result["before"] < 1 or result["after"]:
        return _no(f"of {result['before']} connections {result['after']} survived")
    return _yes("SOCK_DESTROY over netlink")


@contextlib.contextmanager
def _listener() -> Iterator[int]:
    with socket.create_server((TO, 0)) as server:
        yield server.getsockname()[1]
