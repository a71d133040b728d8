"""Delays packets in the kernel, with netem, at the receiver.

Netem is a queue of what an interface sends, and delays belong to the receiver (see `nft_rules`). So each delay
rule gets an interface that leads back in (ifb), with netem as its queue; filters at the arrival hook of the
namespace's interfaces send the packets of the rule's pairs through it. A packet that leaves the queue arrives once
more where it came from. It passes no such filter again, but it does pass nftables at the input: a partition that
began meanwhile drops it. Two rules with a pair in common can therefore not both use netem, and netem is not used
at a hook that has third-party filters, because the delayed packets would bypass them.

Names and preferences of filters identify our objects, also after the process that made them has died:
`lsd`, two digits that are the filters' preference, five characters of the owner and five of the token and rule.

Packets that wait when a delay is healed still wait to the end of their delay, because the kernel cannot release
them. So longer delays use `nfqueue`, which can.

Source: tc-netem(8), tc-u32(8), tc-mirred(8).
"""

import base64
import contextlib
import functools
import hashlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Sequence

from nemesis.agent.packets.nft_rules import ANY, NetworkError, Rule
from nemesis.agent.packets.qdisc import Link, arrival_filters, links, qdiscs
from nemesis.agent.packets.traffic import interfaces, run_batch, set_up, traffic_lock

NAME_PREFIX = "lsd"
OUR_PREFERENCES = range(0x6C00, 0x6D00)
LONGEST_MS = 2000
"""Bound of a delay with its jitter: packets of a healed delay may still arrive for this time. The kernel bounds a
jitter by 2147 ms; above that, it silently uses less."""
PACKETS_MAX = 100_000
DRAIN_STEP_S = 0.02
DRAIN_LIMIT_S = LONGEST_MS / 1000 + 0.2
_WHOLE_AND_PLAIN = "match u8 0x45 0xff at 0 match u16 0x0000 0x3fff at 6"
_TCP = 6


class NoNetemError(NetworkError):
    """A rule cannot use netem here, or now; the message is one sentence."""


class KernelLacksNetemError(NoNetemError):
    """No rule can use netem here; the message is one sentence."""


class NetemDelay:
    """One delay rule in force. Mutable.

    Args:
        owner, token, index: Distinguish this rule from all others in this namespace.
        rule: A rule of kind "delay" for which `unsuitable` returned "".
        exempt: A remote address and a local port whose packets are never delayed.

    Raises:
        NoNetemError: netem cannot be used; nothing is in force.
    """

    def __init__(
        self, owner: str, token: str, index: int, rule: Rule, exempt: tuple[str, int] | None = None
    ) -> None:
        ending = _ending(owner, token, index)
        self._last: dict[str, int] = {}
        self._rest: threading.Thread | None = None
        with traffic_lock():
            self.device = _free_name(ending)
            places = _places(rule)
            new_hooks = [interface for interface in places if not _has_hook(interface)]
            try:
                self._make(places, new_hooks, rule, exempt)
            except BaseException:
                _remove_filters([_preference(self.device)])
                _remove_empty_hooks(new_hooks)
                _delete([self.device])
                raise

    @classmethod
    def taken_over(cls, owner: str, token: str, index: int) -> "NetemDelay":
        """Returns the rule that a process of the same owner left in force.

        Raises:
            NoNetemError: No such rule is in force.
        """
        ending = _ending(owner, token, index)
        used = _preferences(_all_interfaces())
        for name in device_names():
            if name.endswith(ending) and _preference(name) in used:
                found = cls.__new__(cls)
                found.device, found._last, found._rest = name, {}, None
                return found
        raise NoNetemError("its packets were queued by a process before, and are again")

    def _make(
        self,
        places: list[str],
        new_hooks: list[str],
        rule: Rule,
        exempt: tuple[str, int] | None,
    ) -> None:
        _load_module()
        try:
            run_batch("ip", [f"link add {self.device} type ifb"])
            _silence(self.device)
            set_up(self.device)
            hooks = [f"qdisc add dev {interface} ingress" for interface in new_hooks]
            run_batch("tc", [self._queue(rule), *hooks, *self._filters(places, rule, exempt)])
        except (NetworkError, OSError) as error:
            raise KernelLacksNetemError(f"netem cannot be used here: {error}") from None

    def _queue(self, rule: Rule) -> str:
        delay = f"{rule.ms * 1000:.3f}us {rule.jitter_ms * 1000:.3f}us"
        return f"qdisc add dev {self.device} root netem delay {delay} limit {PACKETS_MAX}"

    def _filters(self, places: list[str], rule: Rule, exempt: tuple[str, int] | None) -> list[str]:
        preference = _preference(self.device)
        delays, passes = f"action mirred egress redirect dev {self.device}", "flowid ffff:1"
        return [
            f"filter add dev {interface} parent ffff: protocol ip pref {preference} u32 "
            f"{match} {delays if is_delayed else passes}"
            for interface in places
            for match, is_delayed in filter_matches(rule, exempt)
        ]

    def evidence(self) -> dict[str, int]:
        """Returns how much netem has delayed so far, or had delayed when the delay was healed.

        Returns:
            `delayed` packets, their `bytes` with the headers of the link, how many are `waiting`, and `drops`.
        """
        if self._rest is None:
            self._last = _taken(self.device)
        return dict(self._last)

    def close(self) -> None:
        """Ends the delay for packets that arrive from now on; waiting packets arrive when due. Idempotent."""
        if self._rest is not None:
            return
        with traffic_lock():
            _remove_filters([_preference(self.device)])
        self._last = _taken(self.device)
        self._rest = threading.Thread(target=_drain, args=([self.device],), daemon=True)
        self._rest.start()

    @property
    def rest(self) -> threading.Thread | None:
        """A thread that ends when the last packet has passed and the interface is gone; None while in force."""
        return self._rest


def unsuitable(rules: Sequence[Rule], index: int) -> str:
    """Returns why one of a token's delay rules cannot use netem on any kernel; "" if it can."""
    rule = rules[index]
    if rule.hook != "input":
        return "netem delays arriving packets, and this rule delays outgoing ones"
    if rule.ms + rule.jitter_ms > LONGEST_MS:
        return f"above {LONGEST_MS} ms, because packets that wait in netem cannot be released when a delay ends"
    if any(":" in address for pair in rule.pairs for address in pair):
        return "netem delays IPv4 only here"
    if any(source == target for source, target in rule.pairs):
        return "netem delays neither a node's packets to itself nor all packets"
    for other_index, other in enumerate(rules):
        # In a table, the first rule that matches decides.
        if other_index != index and other.kind != "bandwidth" and _have_common(rule, other.pairs):
            return "another rule of the same token has a pair in common with this one"
    return ""


def filter_matches(rule: Rule, exempt: tuple[str, int] | None) -> list[tuple[str, bool]]:
    """Returns in order what each u32 filter matches, and whether such packets are delayed or pass at once."""
    found: list[tuple[str, bool]] = []
    plain = ""
    if exempt is not None and ":" not in exempt[0]:
        # The port is at a fixed place only in unfragmented packets without options. Other packets do not occur;
        # they are not delayed, because the harness's own connection must never be.
        plain = f"{_WHOLE_AND_PLAIN} "
        address, port = exempt
        of_harness = f"match ip src {address}/32 match ip protocol {_TCP} 0xff"
        found.append((f"{plain}{of_harness} match ip dport {port} 0xffff", False))
    for source, target in rule.pairs:
        one = target if source == ANY else source
        if ANY in (source, target):
            # What a node sends to itself is not on the network, so "any" never includes the node itself.
            found.append((f"match ip src {one}/32 match ip dst {one}/32", False))
    for source, target in rule.pairs:
        sides = (("src", source), ("dst", target))
        match = " ".join(f"match ip {side} {one}/32" for side, one in sides if one != ANY)
        found.append((f"{plain}{match}", True))
    return found


def device_names(owner: str = "") -> list[str]:
    """Returns our interfaces in this namespace: of an owner, or of all."""
    part = _short(owner) if owner else ""
    start = len(NAME_PREFIX) + 2
    return [
        name
        for name in _all_names()
        if name.startswith(NAME_PREFIX) and _is_hex(name[3:5]) and name.startswith(part, start)
    ]


def remove(names: Iterable[str]) -> threading.Thread:
    """Removes the filters of interfaces of ours at once; the thread ends when the interfaces are gone, too."""
    gone = list(names)
    if gone:
        with traffic_lock():
            _remove_filters({_preference(name) for name in gone})
    thread = threading.Thread(target=_drain, args=(gone,), daemon=True)
    thread.start()
    return thread


def remove_ours() -> list[str]:
    """Removes all delays of any run in this namespace; returns one line each, when all are gone."""
    names = device_names()
    places = [one for one in _all_interfaces() if _preferences([one]) & set(OUR_PREFERENCES)]
    if places:
        with traffic_lock():
            _remove_filters(OUR_PREFERENCES)
    _drain(names)
    return [f"delay {name}" for name in names] + [f"filters of delays on {one}" for one in places]


# -- where filters go


def _places(rule: Rule) -> list[str]:
    """Returns the interfaces at which packets of a rule can arrive.

    Raises:
        NoNetemError: One of them must not be used.
    """
    places = interfaces()
    _check_apart(places, links())
    for interface in places:
        filters = arrival_filters(interface)
        if _has_hook(interface) and not (
            filters and all(one.preference in OUR_PREFERENCES for one in filters)
        ):
            raise NoNetemError(
                f"third-party filters are installed where packets arrive at {interface}"
            )
        if any(one.pair is not None and _have_common(rule, (one.pair,)) for one in filters):
            raise NoNetemError("another delay in force has a pair in common with this one")
    return places


def _check_apart(places: list[str], found: list[Link]) -> None:
    # A packet that passes two interfaces on its way in would be delayed at both.
    for link in found:
        for other in (link.below, link.above):
            if link.name != other and {link.name, other} <= set(places):
                raise NoNetemError(f"packets pass both {other} and {link.name}")


def _have_common(rule: Rule, pairs: Iterable[tuple[str, str]]) -> bool:
    return any(
        all(one == other or ANY in (one, other) for one, other in zip(pair, mine, strict=True))
        for pair in pairs
        for mine in rule.pairs
    )


def _has_hook(interface: str) -> bool:
    return any(one.kind in ("ingress", "clsact") for one in qdiscs(interface))


def _preferences(places: Iterable[str]) -> set[int]:
    return {one.preference for place in places for one in arrival_filters(place)}


def _all_names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _all_interfaces() -> list[str]:
    return [name for name in _all_names() if not name.startswith(NAME_PREFIX)]


# -- interfaces


def _ending(owner: str, token: str, index: int) -> str:
    return _short(owner) + _short(f"{token} {index}")


def _short(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.b32encode(digest)[:5].decode().lower()


def _is_hex(text: str) -> bool:
    return len(text) == 2 and all(one in "0123456789abcdef" for one in text)


def _preference(device: str) -> int:
    return OUR_PREFERENCES[int(device[3:5], 16)]


def _free_name(ending: str) -> str:
    used = {_preference(name) for name in device_names()}
    # Filters may outlive their interface, if another program deletes the interface.
    used |= _preferences(_all_interfaces())
    for slot, preference in enumerate(OUR_PREFERENCES):
        if preference not in used:
            return f"{NAME_PREFIX}{slot:02x}{ending}"
    raise NoNetemError(f"{len(OUR_PREFERENCES)} delays are in force in this namespace already")


@functools.cache
def _load_module() -> None:
    """Loads the kernel module for such interfaces, if it is a module.

    When loaded on demand, it would make two interfaces in the machine's namespace.
    """
    modprobe = shutil.which("modprobe", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if modprobe is not None:
        subprocess.run(
            [modprobe, "-q", "ifb", "numifbs=0"],
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )


def _silence(device: str) -> None:
    """Keeps the kernel from sending its own packets through an interface; they would be counted."""
    with contextlib.suppress(FileNotFoundError):  # there is no IPv6 at all
        path = f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6"
        with open(path, "w", encoding="ascii") as setting:
            setting.write("1")


def _taken(device: str) -> dict[str, int]:
    found = next((one for one in qdiscs(device) if one.kind == "netem"), None)
    if found is None:
        return {"delayed": 0, "bytes": 0, "waiting": 0, "drops": 0}
    return {
        "delayed": found.packets + found.waiting,
        "bytes": found.bytes + found.backlog,
        "waiting": found.waiting,
        "drops": found.drops,
    }


def _remove_filters(preferences: Collection[int]) -> None:
    """Removes filters of ours, and hooks that were made for such filters only."""
    commands = []
    for interface in _all_interfaces():
        there = {one.preference for one in arrival_filters(interface)}
        if there and all(preference in preferences for preference in there):
            commands.append(f"qdisc del dev {interface} ingress")
            continue
        commands += [
            f"filter del dev {interface} parent ffff: pref {preference}"
            for preference in sorted(there)
            if preference in preferences
        ]
    if commands:
        run_batch("tc", commands)


def _remove_empty_hooks(hooks: list[str]) -> None:
    for interface in hooks:
        if _has_hook(interface) and not arrival_filters(interface):
            run_batch("tc", [f"qdisc del dev {interface} ingress"])


def _drain(devices: list[str]) -> None:
    """Deletes interfaces when no packet waits in them; deleting an interface drops waiting packets."""
    deadline_s = time.monotonic() + DRAIN_LIMIT_S
    left = list(devices)
    empty: set[str] = set()
    while left:
        time.sleep(DRAIN_STEP_S)
        is_late = time.monotonic() > deadline_s
        still = {name for name in left if _taken(name)["waiting"]}
        # A packet that has just left netem, or just passed the filter, needs another moment.
        gone = [name for name in left if is_late or (name in empty and name not in still)]
        empty = set(left) - still
        _delete(gone)
        left = [name for name in left if name not in gone]


def _delete(devices: Iterable[str]) -> None:
    there = [name for name in devices if name in _all_names()]
    for name in there:
        with contextlib.suppress(NetworkError):  # another process was faster
            run_batch("ip", [f"link del {name}"])
