r"""The states of a replica on one broker, and which may follow which.

::

    UNLOADED --> FOLLOWER <--> LEADER
        |    \       \            /
        |     `-------`-> OFFLINE   (its directory failed, or was offline at the start)
        v                  |
     REMOVED <-------------'        (from every state, and for good)

The controller decides between FOLLOWER and LEADER; each may also be confirmed, when a registration changes
something else. A transition that is not in the table is a defect of the broker, never of its input, so it ends the
run.

Source:
    In the manner of Kafka's `QuorumState`: legal transitions are listed, all others are refused.
"""

from enum import Enum
from types import MappingProxyType


class ReplicaState(Enum):
    """The state of one replica."""

    UNLOADED = "unloaded"
    """Created; no registration was applied yet, and the log is not open."""
    FOLLOWER = "follower"
    """The registration in force names another leader, or none."""
    LEADER = "leader"
    """The registration in force names this broker."""
    OFFLINE = "offline"
    """Its directory is offline; there is no log until the broker starts again."""
    REMOVED = "removed"
    """The partition was deleted, or is no longer assigned to this broker."""


_UNLOADED, _FOLLOWER, _LEADER = (
    ReplicaState.UNLOADED,
    ReplicaState.FOLLOWER,
    ReplicaState.LEADER,
)
_OFFLINE, _REMOVED = ReplicaState.OFFLINE, ReplicaState.REMOVED

TRANSITIONS = MappingProxyType(
    {
        _UNLOADED: frozenset({_FOLLOWER, _LEADER, _OFFLINE, _REMOVED}),
        _FOLLOWER: frozenset({_FOLLOWER, _LEADER, _OFFLINE, _REMOVED}),
        _LEADER: frozenset({_LEADER, _FOLLOWER, _OFFLINE, _REMOVED}),
        _OFFLINE: frozenset({_REMOVED}),
        _REMOVED: frozenset[ReplicaState](),
    }
)
"""Every state with the states that may follow it."""

REPORTED_ROLES = MappingProxyType(
    {
        # A log is opened before its replica has a role, and its load is reported as a follower's.
        _UNLOADED: "follower",
        _FOLLOWER: "follower",
        _LEADER: "leader",
        _OFFLINE: "offline",
        _REMOVED: "offline",
    }
)
"""What the observer is given as the role of a replica in each state."""
