"""Drawn faults in terms of the system: what could find no target, or have no effect, is replaced or left out.

Schedules are drawn for a log with an ISR, controllers and frequent flushes. A system that has none of these
states so, and each fault that is drawn for it is changed as little as possible:

- a selector that can mean no node becomes the nearest one that can (`SUBSTITUTES`). Without an ISR `leader` also
  means one replica while there is no leader;
- without controllers the packets to and from controllers do not exist, so the other planes remain, or all;
- a fault of fsync takes effect at a flush. Its target is a replica, and it lasts for a whole flush interval and an
  election, because nothing is appended without a leader. If the main phase is too short for that, `io_error`
  fails every call instead, and `slow_disk` is left out;
- an unclean election that the system refuses becomes a clean one.

Nothing is drawn here, so the rest of the schedule stays as it is.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from nemesis.fault import Fault
from nemesis.faults import FAULTS

SUBSTITUTES = {
    "last_in_isr": "leader",
    "isr_follower": "follower",
    "isr_member": "follower",
    "elr_member": "follower",
    "last_known_leader": "leader",
}
"""The selectors that are used instead of one that can mean no node."""

LEADER = "leader_or_replica"
"""What stands for the leader of a system without an ISR: it has none while a majority is away."""

FLUSH_MARGIN_MS = 2000
"""A fault of fsync lasts longer than a flush interval by this much: timers are late on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainable:
    """What a system has of what faults are about.

    Attributes:
        impossible_targets: Selectors that can mean no node, without a partition.
        has_controllers: Whether there are controllers.
        has_unclean_elections: Whether unclean elections can be requested.
        flush_interval_ms: After which time at most a replica that gets appends flushes its log; None if it is not
            known, and then faults of fsync stay as they are.
        election_timeout_ms: After which time at most a partition without a leader elects one; 0 if unknown.
        until_ms: When the main phase ends; no fault has to last longer.
    """

    impossible_targets: Collection[str] = ()
    has_controllers: bool = True
    has_unclean_elections: bool = True
    flush_interval_ms: float | None = None
    election_timeout_ms: float = 0
    until_ms: float = float("inf")

    def of(self, faults: Iterable[Fault]) -> tuple[Fault, ...]:
        """Returns drawn faults in terms of the system, in their order."""
        found = (self._one(fault) for fault in faults)
        return tuple(fault for fault in found if fault is not None)

    def _one(self, fault: Fault) -> Fault | None:
        targets = tuple(self._target(one) for one in fault.targets)
        params = dict(fault.params)
        if not self.has_controllers and "planes" in params:
            planes = tuple(plane for plane in params.pop("planes") if plane != "controller")
            params |= {"planes": planes} if planes else {}
        if not self.has_unclean_elections and params.get("election") == "unclean":
            del params["election"]
        return self._flushed(replace(fault, targets=targets, params=params))

    def _target(self, selector: str) -> str:
        name, colon, partition = selector.partition(":")
        if name in self.impossible_targets:
            name = SUBSTITUTES.get(name, name)
        if name == "leader" and "last_in_isr" in self.impossible_targets:
            name = LEADER
        return name + colon + partition

    def _flushed(self, fault: Fault) -> Fault | None:
        """Returns a fault of fsync so that it meets a flush; other faults as they are."""
        if self.flush_interval_ms is None or not is_about_fsync(fault):
            return fault
        least_ms = round(self.flush_interval_ms + self.election_timeout_ms + FLUSH_MARGIN_MS)
        if fault.at_ms + least_ms > self.until_ms:
            return _of_all_calls(fault)
        targets = tuple("follower" if target == "one" else target for target in fault.targets)
        return replace(fault, targets=targets, for_ms=max(fault.for_ms or 0, least_ms))


def is_about_fsync(fault: Fault) -> bool:
    """Whether a fault takes effect only when a node calls fsync."""
    if fault.fault == "slow_disk":
        return True
    return fault.fault == "io_error" and fault.value("op") == "fsync"


def _of_all_calls(fault: Fault) -> Fault | None:
    """Returns a fault that fails every call of the disk instead of fsync; None for a slow fsync."""
    if "op" not in FAULTS[fault.fault].parameters:
        return None
    return replace(fault, params={"op": "all"})
