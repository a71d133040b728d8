"""What faults are called in the report: a sentence for each, its colour, and whether it lasts."""

from collections.abc import Mapping, Sequence
from typing import Any

from results.report.run import said

_NETWORK = (
    *("cut", "isolate", "partition", "reject", "reset_connections"),
    *("loss", "delay", "bandwidth"),
)
_DISK = (
    *("power", "wipe", "bit_flip", "disk_full"),
    *("io_error", "slow_disk", "stuck_disk", "read_only"),
)
FAULT_CLASS = {**dict.fromkeys(_NETWORK, "network"), **dict.fromkeys(_DISK, "power")}
"""Style of a fault's bars; faults of processes and clocks have the usual one."""

_SENTENCES = {
    "cut": "Cut the network {who}",
    "isolate": "Isolated {who} from everybody",
    "partition": "Split {groups}",
    "reject": "Refused the packets {who} with resets",
    "reset_connections": "Reset every connection of {who}",
    "loss": "Lost {percent} % of the packets to and from {who}",
    "delay": "Delayed what arrives at {who} by {ms} ms",
    "bandwidth": "Throttled what {who} sends to {rate_kib_s} KiB/s",
    "pause": "Paused {who}",
    "stop": "Stopped {who} in order (SIGTERM)",
    "kill": "Killed {who} (SIGKILL)",
    "restart": "Restarted {who} in order (SIGTERM)",
    "oom": "Let the kernel kill {who} for want of memory",
    "slow_cpu": "Left {who} {percent} % of a core",
    "power": "Cut the power of {who}",
    "clock_step": "Stepped the clock of {who} by {ms} ms",
    "clock_drift": "Let the clock of {who} run wrong by {ppm} ppm",
    "clock_strobe": "Strobed the clock of {who} by {ms} ms every {period_ms} ms",
    "wipe": "Wiped the disk of {who}",
    "disk_full": "Filled the disk of {who}",
    "io_error": "Let the disk of {who} fail",
    "slow_disk": "Made each fsync of {who} {ms} ms slower",
    "stuck_disk": "Let the disk of {who} hang",
    "read_only": "Restarted {who} with a read-only disk",
    "bit_flip": "Flipped a bit of a log of {who}",
    "start": "Started {who}",
}


def fault_sentence(row: Mapping[str, Any]) -> str:
    """Returns what a fault did, for example "Isolated b2 from everybody"."""
    name, params = row["fault"], row["params"]
    if name == "heal":
        return "Healed " + (listed([str(i) for i in params.get("faults", [])]) or "everything")
    words = {"who": _who(row), "groups": _groups(row)}
    words |= {key: str(value) for key, value in params.items() if isinstance(value, int)}
    template = _SENTENCES.get(name, "")
    try:
        sentence = template.format_map(words)
    except KeyError:  # a number that the sentence needs is not there: another version wrote the run
        sentence = ""
    sentence = sentence or f"{name} {words['who']}"
    rest = {
        key: value
        for key, value in params.items()
        if key not in ("direction", "groups") and f"{{{key}}}" not in template
    }
    return f"{sentence} ({said(rest)})" if rest else sentence


def _who(row: Mapping[str, Any]) -> str:
    nodes = list(row["resolved"])
    if row["fault"] in ("cut", "reject") and len(nodes) == 2:
        return (" → " if row["params"].get("direction") == "one-way" else " ↔ ").join(nodes)
    return listed(nodes) if nodes else "nobody"


def _groups(row: Mapping[str, Any]) -> str:
    groups = row["params"].get("groups", ())
    if not row["resolved"] or not all(isinstance(group, list | tuple) for group in groups):
        return "nobody"
    return " | ".join(" ".join(str(name) for name in group) for group in groups) or "nobody"


def listed(names: Sequence[str]) -> str:
    """Returns names as in a sentence: "b1, b2 and b3"."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
