"""Packet rules as values, and the nftables commands that put them in force.

Every token owns one table, so removing it removes exactly what it added. The chains run before those of other
firewalls (priority -10), so that no third-party rule can accept the packets of a partitioned connection.
Packet rules match pairs of addresses and never interfaces, because several nodes may share one namespace and then
communicate over the loopback interface.
"""

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemesis.agent.errors import AgentError

TABLE_PREFIX = "laststand_"
ANY = "*"
KINDS = ("drop", "reject", "loss", "delay", "bandwidth")
HOOKS = ("input", "output")
NETEM, NFQUEUE = "netem", "nfqueue"
PRIORITY = -10
LOSS_PARTS = 10_000
DELAY_MS_MAX = 600_000
RATE_KIB_S_MAX = 4_000_000
TABLE_NAME_MAX = 200


class NetworkError(AgentError):
    """A packet rule or a command of a network namespace failed; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to the packets of some pairs of addresses.

    Attributes:
        kind: One of `KINDS`.
        pairs: Source and destination, each an address or "*".
        hook: "input" at the receiver, or "output" at the sender.
        percent: Percentage of the packets, for "loss".
        ms, jitter_ms: For "delay": each packet waits between `ms - jitter_ms` and `ms + jitter_ms`, uniformly.
        rate_kib_s: For "bandwidth".
        by: For "delay": `NETEM` or `NFQUEUE` to insist on one mechanism; "" for the better one that is available.
    """

    kind: str
    pairs: tuple[tuple[str, str], ...]
    hook: str = "input"
    percent: float = 0.0
    ms: float = 0.0
    jitter_ms: float = 0.0
    rate_kib_s: int = 0
    by: str = ""


def parse_rules(data: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Reads and checks packet rules.

    Raises:
        NetworkError: A packet rule is invalid; the message gives the reason.
    """
    rules = tuple(_parse_rule(dict(item)) for item in data)
    if not rules:
        raise NetworkError("a token needs at least one rule")
    return rules


def _parse_rule(data: dict[str, Any]) -> Rule:
    unknown = set(data) - set(Rule.__dataclass_fields__)
    if unknown:
        raise NetworkError(f"a packet rule has no {', '.join(sorted(unknown))}")
    kind = data.get("kind")
    if kind not in KINDS:
        raise NetworkError(f"a packet rule is one of {', '.join(KINDS)}, not {kind!r}")
    hook = data.get("hook", "input")
    if hook not in HOOKS:
        raise NetworkError(f"a packet rule's hook is input or output, not {hook!r}")
    by = data.get("by", "")
    if by not in ("", NETEM, NFQUEUE) or (by and kind != "delay"):
        raise NetworkError(f"only a delay uses {NETEM} or {NFQUEUE}, not a {kind} by {by!r}")
    pairs = tuple(_parse_pair(pair) for pair in data.get("pairs", ()))
    if not pairs:
        raise NetworkError(f"a {kind} rule needs at least one pair of addresses")
    ms = _number(data, "ms", 0, DELAY_MS_MAX)
    rule = Rule(
        kind=kind,
        hook=hook,
        pairs=tuple(dict.fromkeys(pairs)),
        percent=_number(data, "percent", 0, 100),
        ms=ms,
        jitter_ms=_number(data, "jitter_ms", 0, ms),
        rate_kib_s=int(_number(data, "rate_kib_s", 0, RATE_KIB_S_MAX)),
        by=by,
    )
    needs = {"loss": rule.percent, "delay": rule.ms, "bandwidth": rule.rate_kib_s}
    if needs.get(kind, 1) <= 0:
        name = {"loss": "percent", "delay": "ms", "bandwidth": "rate_kib_s"}[kind]
        raise NetworkError(f"a {kind} rule needs {name} above 0")
    return rule


def _number(data: Mapping[str, Any], name: str, least: float, most: float) -> float:
    value = data.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise NetworkError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


def _parse_pair(pair: Any) -> tuple[str, str]:
    try:
        source, target = pair
        return _address(source), _address(target)
    except (TypeError, ValueError):
        raise NetworkError(
            f"a pair is a source and a destination address, each may be '*'; not {pair!r}"
        ) from None


def _address(text: object) -> str:
    if text == ANY:
        return ANY
    if not isinstance(text, str):
        raise TypeError(text)
    return str(ipaddress.ip_address(text))


def table_name(token: str, owner: str) -> str:
    """Returns the name of a token's table; owners in one namespace may use the same tokens.

    Raises:
        NetworkError: The token is empty or too long.
    """
    clean = re.sub(r"[^a-z0-9_]", "_", token.lower())
    if clean != token:
        clean += f"_{hashlib.sha256(token.encode()).hexdigest()[:12]}"  # two names may have become the same
    name = f"{TABLE_PREFIX}{owner}_{clean}"
    if not token or len(name) > TABLE_NAME_MAX:
        raise NetworkError(f"{token!r} cannot name a table; use 1 to 150 characters")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayQueue:
    """Where the packets of a delay rule wait.

    Attributes:
        number: Number of the netfilter queue.
        is_native: Whether nftables supports queues; if not, a chain is made to which the older target is added.
    """

    number: int
    is_native: bool


def delay_chain(index: int) -> str:
    """Returns the chain of a token's delay rule, for kernels without queues in nftables."""
    return f"delay{index}"


def is_for_table(index: int, rule: Rule, queues: Mapping[int, DelayQueue]) -> bool:
    """Returns whether a packet rule uses nftables."""
    return index in queues if rule.kind == "delay" else rule.kind != "bandwidth"


def table_text(
    name: str,
    rules: Sequence[Rule],
    queues: Mapping[int, DelayQueue],
    exempt: tuple[str, int] | None = None,
) -> str:
    """Returns the commands that make a table, replacing one of the same name, in one transaction.

    Args:
        name: Name of the table.
        rules: Its packet rules; bandwidth rules use no table.
        queues: By index of the delay rule; delay rules without one use netem, and no table either.
        exempt: A remote address and a local port whose packets always pass: the agent's connection to the harness.
    """
    lines = [f"add table inet {name}", f"delete table inet {name}", f"table inet {name} {{"]
    chains: dict[str, list[str]] = {}
    for index, rule in enumerate(rules):
        if not is_for_table(index, rule, queues):
            continue
        for version in (4, 6):
            elements = [pair for pair in rule.pairs if _version(pair) == version]
            if elements:
                pairs = ", ".join(f"{source} . {target}" for source, target in elements)
                kind = f"ipv{version}_addr"
                lines.append(f"set r{index}v{version} {{ type {kind} . {kind}; ")
                lines.append(f"elements = {{ {pairs} }}; }}")
        if index in queues and not queues[index].is_native:
            lines.append(f"chain {delay_chain(index)} {{ }}")
        if rule.hook not in chains:
            chains[rule.hook] = _exemption(rule.hook, exempt)
        for match in _matches(index, rule):
            chains[rule.hook].extend(_statements(match, index, rule, queues))
    for hook, body in chains.items():
        lines.append(f"chain {hook} {{ type filter hook {hook} priority {PRIORITY}; policy accept;")
        lines.extend([*body, "}"])
    return "\n".join([*lines, "}"])


def _version(pair: tuple[str, str]) -> int:
    """Returns the version of a pair of two addresses; 0 if one of them may be any."""
    if ANY in pair:
        return 0
    versions = {ipaddress.ip_address(address).version for address in pair}
    if len(versions) == 2:
        raise NetworkError(f"{pair[0]} and {pair[1]} are not of one IP version")
    return versions.pop()


def _exemption(hook: str, exempt: tuple[str, int] | None) -> list[str]:
    if exempt is None:
        return []
    address, port = exempt
    family = "ip" if ipaddress.ip_address(address).version == 4 else "ip6"
    if hook == "input":
        return [f"{family} saddr {address} tcp dport {port} accept"]
    return [f"{family} daddr {address} tcp sport {port} accept"]


def _matches(index: int, rule: Rule) -> list[str]:
    """Returns the expressions that match a rule's packets; no packet matches two of them."""
    matches = [
        f"{family} saddr . {family} daddr @r{index}v{version}"
        for version, family in ((4, "ip"), (6, "ip6"))
        if any(_version(pair) == version for pair in rule.pairs)
    ]
    for source, target in rule.pairs:
        # What a node sends to itself is not on the network, so "any" never includes the node itself.
        if source == target == ANY:
            side = "iifname" if rule.hook == "input" else "oifname"
            matches.append(f'{side} != "lo"')
        elif source == ANY:
            family = _family(target)
            matches.append(f"{family} daddr {target} {family} saddr != {target}")
        elif target == ANY:
            family = _family(source)
            matches.append(f"{family} saddr {source} {family} daddr != {source}")
    return matches


def _family(address: str) -> str:
    return "ip" if ipaddress.ip_address(address).version == 4 else "ip6"


def _statements(match: str, index: int, rule: Rule, queues: Mapping[int, DelayQueue]) -> list[str]:
    if rule.kind == "drop":
        does = ["counter drop"]
    elif rule.kind == "reject":
        # Resets pass: where both directions are rejected, the reset of each side has to reach the other.
        return [
            f'meta l4proto tcp tcp flags & rst == 0 {match} counter reject with tcp reset comment "r{index}"',
            f'meta l4proto != tcp {match} counter reject comment "r{index}"',
        ]
    elif rule.kind == "loss":
        parts = round(rule.percent * LOSS_PARTS / 100)
        # A limit equal to the modulus is not legal there.
        chance = f"numgen random mod {LOSS_PARTS} < {parts} " if parts < LOSS_PARTS else ""
        does = [f"counter {chance}counter drop"]
    elif queues[index].is_native:
        does = [f"counter queue flags bypass to {queues[index].number}"]
    else:
        does = [f"counter goto {delay_chain(index)}"]
    return [f'{match} {what} comment "r{index}"' for what in does]


Counters = dict[int, tuple[tuple[int, int], tuple[int, int]]]
"""By index of the rule: packets and bytes that matched, and those that were acted upon."""


def counters(listing: Mapping[str, Any]) -> Counters:
    """Reads a table's counters.

    Args:
        listing: The output of `nft -j list table`.

    Returns:
        Sums by rule.
    """
    found: Counters = {}
    for item in listing.get("nftables", ()):
        rule = item.get("rule")
        if rule is None or not re.fullmatch(r"r\d+", rule.get("comment", "")):
            continue
        values = [
            (int(part["counter"]["packets"]), int(part["counter"]["bytes"]))
            for part in rule["expr"]
            if "counter" in part
        ]
        index = int(rule["comment"][1:])
        matched, acted = values[0], values[-1]
        if index in found:
            old_matched, old_acted = found[index]
            matched = (matched[0] + old_matched[0], matched[1] + old_matched[1])
            acted = (acted[0] + old_acted[0], acted[1] + old_acted[1])
        found[index] = (matched, acted)
    return found
