"""From what a host's kernel and tools can do to what every fault can be done with there."""

from collections.abc import Mapping
from typing import Any

from harness.contracts.capability import NO, WEAKER, YES, Capability

NEEDS: dict[str, tuple[str, ...]] = {
    "cut": ("nft-drop",),
    "isolate": ("nft-drop",),
    "partition": ("nft-drop",),
    "reject": ("nft-reject",),
    "loss": ("nft-loss",),
    "delay": ("delay",),
    "bandwidth": ("tbf",),
    "reset_connections": ("sock-destroy",),
    "power": ("nft-drop", "loop-mount", "shutdown-ioctl"),
    "oom": ("memory-cgroup",),
    "slow_cpu": ("cpu",),
    "wipe": ("loop-mount",),
    "bit_flip": ("loop-mount",),
    "disk_full": ("loop-mount",),
    "io_error": ("strace",),
    "slow_disk": ("strace",),
    "stuck_disk": ("freeze",),
    "read_only": ("loop-mount",),
}
"""What each fault needs; those that are not listed need nothing but signals and files."""
FREE = (
    "pause",
    "stop",
    "kill",
    "restart",
    "start",
    "heal",
    "clock_step",
    "clock_drift",
    "clock_strobe",
)


def host_capabilities(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Capability]:
    """Returns what an agent found, one entry per mechanism, with delays by whichever mechanism there is."""
    known = {
        name: Capability(
            level=str(entry["level"]),
            how=str(entry.get("how") or ""),
            why=str(entry.get("why") or ""),
        )
        for name, entry in found.items()
    }
    missing = Capability(level=NO, why="not looked for")
    netem, queue = known.get("netem", missing), known.get("nfqueue", missing)
    if netem.level == YES:
        known["delay"] = netem
    elif queue.is_there:
        known["delay"] = Capability(
            level=WEAKER, how=queue.how, why=f"instead of netem, because {netem.why}"
        )
    else:
        known["delay"] = Capability(level=NO, why=f"{netem.why}; {queue.why}")
    return known


def fault_capabilities(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Capability]:
    """Returns for every fault of the vocabulary whether and how it can be done."""
    known = host_capabilities(found)
    faults = {name: Capability(level=YES) for name in FREE}
    for fault, mechanisms in NEEDS.items():
        faults[fault] = _worst(
            [
                known.get(name, Capability(level=NO, why=f"{name} was not looked for"))
                for name in mechanisms
            ]
        )
    return faults


def _worst(capabilities: list[Capability]) -> Capability:
    for level in (NO, WEAKER):
        for capability in capabilities:
            if capability.level == level:
                return capability
    return Capability(level=YES, how=", ".join(c.how for c in capabilities if c.how))
