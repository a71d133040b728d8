"""Which faults hosts support, and how, given what their agents found out about kernel and tools."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.contracts.capability import NO, WEAKER, YES, Capability
from nemesis.administration import ACTIONS
from nemesis.message_rules import OF_MESSAGES

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
    "truncate_file": ("loop-mount",),
    "disk_full": ("loop-mount",),
    "stall_metadata": ("ptrace",),
    "io_error": ("strace",),
    "slow_disk": ("strace",),
    "stuck_disk": ("freeze",),
    "read_only": ("loop-mount",),
}
"""The mechanisms that each fault needs."""
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
    *ACTIONS,
)
"""Faults that need only signals, files and requests."""
OF_DIRECTORIES = ("log_dir_error", "wipe_log_dir")
"""Faults of one of several log directories."""


def host_capabilities(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Capability]:
    """Returns what an agent found, by mechanism; "delay" is the better of the two mechanisms for delays."""
    known = {
        name: Capability(
            level=str(entry["level"]),
            how=str(entry.get("how") or ""),
            why=str(entry.get("why") or ""),
        )
        for name, entry in found.items()
    }
    missing = Capability(level=NO, why="the agent did not report it")
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
    """Returns for every fault whether and how it can be injected on one host."""
    known = host_capabilities(found)
    faults = {name: Capability(level=YES) for name in FREE}
    for name in OF_DIRECTORIES:
        faults[name] = Capability(
            level=NO, why="a host keeps all log directories of a node on one disk"
        )
    for name in OF_MESSAGES:
        faults[name] = Capability(level=YES, how="fault points of nodes, if their system has these")
    for fault, mechanisms in NEEDS.items():
        faults[fault] = _worst(
            [
                known.get(name, Capability(level=NO, why=f"the agent did not report {name}"))
                for name in mechanisms
            ]
        )
    return faults


def shared_fault_capabilities(
    found: Sequence[Mapping[str, Mapping[str, Any]]],
) -> dict[str, Capability]:
    """Returns for every fault whether and how it can be injected on all of several hosts."""
    return weakest([fault_capabilities(one) for one in found])


def weakest(found: Sequence[Mapping[str, Capability]]) -> dict[str, Capability]:
    """Returns the weakest of the hosts' capabilities, by name."""
    order = (NO, WEAKER, YES)
    names = {name: None for capabilities in found for name in capabilities}
    missing = Capability(level=NO, why="unknown on some host")
    return {
        name: min(
            (capabilities.get(name, missing) for capabilities in found),
            key=lambda capability: order.index(capability.level),
        )
        for name in names
    }


def _worst(capabilities: list[Capability]) -> Capability:
    for level in (NO, WEAKER):
        for capability in capabilities:
            if capability.level == level:
                return capability
    return Capability(level=YES, how=", ".join(c.how for c in capabilities if c.how))
