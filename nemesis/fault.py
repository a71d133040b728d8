"""A fault is a value: what, to whom, when, how, for how long. The same value means the same in every world.

| fault               | targets               | parameters                          | evidence that it bit        |
|---------------------|-----------------------|-------------------------------------|-----------------------------|
| `cut`               | the first from others | `planes`, `direction`, `at`         | packets dropped             |
| `isolate`           | nodes, each from all  | `planes`, `at`                      | packets dropped             |
| `partition`         | the nodes to be split | `shape`, `groups`, `planes`, `at`   | packets dropped             |
| `reject`            | the first from others | `planes`                            | packets answered by resets  |
| `reset_connections` | nodes                 |                                     | connections there were      |
| `loss`              | nodes, to, from all   | `percent`, `planes`                 | packets dropped             |
| `delay`             | nodes, from all       | `ms`, `jitter_ms`, `planes`         | packets delayed             |
| `bandwidth`         | what nodes send       | `rate_kib_s`                        | packets that had to wait    |
| `pause`             | nodes (SIGSTOP)       |                                     | work that had to wait       |
| `stop`              | nodes (SIGTERM)       | `grace_ms`                          | the process ended in order  |
| `kill`              | nodes (SIGKILL)       |                                     | the process is gone         |
| `restart`           | nodes (SIGTERM)       | `grace_ms`                          | a new incarnation           |
| `oom`               | nodes                 |                                     | killed by the kernel        |
| `slow_cpu`          | nodes                 | `percent` of one core               | times it was throttled      |
| `power`             | nodes, at one instant | `mode`, `keep_records`, `torn_bytes`| process gone, bytes lost    |
| `clock_step`        | nodes                 | `ms`                                | the wall clock it sees      |
| `clock_drift`       | nodes                 | `ppm`                               | the rate of its clock       |
| `clock_strobe`      | nodes                 | `ms`, `period_ms`                   | times the clock went back   |
| `wipe`              | brokers               |                                     | bytes that are gone         |
| `disk_full`         | nodes                 | `free_bytes`                        | writes refused (ENOSPC)     |
| `io_error`          | nodes                 | `op` (fsync, all), `every`          | calls that failed (EIO)     |
| `slow_disk`         | nodes                 | `ms` added to each fsync            | calls that were late        |
| `stuck_disk`        | nodes                 |                                     | calls that waited           |
| `read_only`         | nodes                 |                                     | writes refused (EROFS)      |
| `bit_flip`          | brokers               |                                     | the byte before and after   |
| `start`             | nodes that are down   |                                     | a new incarnation           |
| `heal`              |                       | `faults` (ids; all when absent)     | the faults it healed        |

Planes are "inter-broker", "controller" and "client"; all when absent. Clients are part of the "client" plane.
`nemesis.shapes` says whose packets a network fault concerns. Packets are dropped `at` the "receiver" (default),
as on a path, or at the "sender", whose kernel then knows. A `partition` splits its targets into "halves"
(default), a "minority" and the rest, halves with a "bridge" between them (the first target), a
"majorities_ring", or into `groups`.
A delay is `ms` plus or minus up to `jitter_ms`. A strobe moves the clock by `ms` and back in every `period_ms`.

`stop`, `kill`, `power`, `oom`, `wipe`, `bit_flip` and `read_only` take the node down; starting it heals them.
A node that ends by itself while `io_error`, `disk_full`, `read_only` or `stuck_disk` is in force on it suffers the
effect of that fault, and healing the fault starts it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.names import unknown_name
from nemesis.parameters import PARAMETERS, PLANES, POWER_MODES, SHAPES, check_params

__all__ = [
    "EXCLUSIVE",
    "EXCUSES_DEATH",
    "FAULT_NAMES",
    "HEALABLE",
    "OF_BROKERS",
    "OF_SERVERS",
    "ONE_SHOT",
    "OUTAGES",
    "PLANES",
    "POWER_MODES",
    "SHAPES",
    "TRAITS",
    "Fault",
    "Traits",
    "fault_from_json",
]

FAULT_NAMES = tuple(PARAMETERS)

ONE_SHOT = frozenset({"reset_connections", "restart", "start", "heal"})
"""Faults that are over as soon as they have happened."""

HEALABLE = frozenset(FAULT_NAMES) - ONE_SHOT
"""Faults that last: until they are healed, a dead node until it is started."""

OUTAGES = frozenset({"stop", "kill", "power", "oom", "wipe", "bit_flip", "read_only"})
"""Faults that take the node down, and that a start of the node heals."""

EXCUSES_DEATH = frozenset({"disk_full", "io_error", "read_only", "stuck_disk"})
"""A node that ends by itself under one of these suffers its effect; nobody else is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a fault means for a verdict; the driver writes it into the fault's row of the `faults` table.

    Attributes:
        heals: It mends something instead of breaking it: it need not take effect and opens no fault window.
        can_lose_data: A node may come back with less data than it had.
        unclean_end: It ends its nodes uncleanly at the moment it is injected.
        broken_disk: While it is in force a node may end uncleanly by itself.
        orderly_end: It gives a process time to stop cleanly, which may not be enough.
    """

    heals: bool = False
    can_lose_data: bool = False
    unclean_end: bool = False
    broken_disk: bool = False
    orderly_end: bool = False


_LOSSY = Traits(can_lose_data=True, unclean_end=True)

TRAITS: Mapping[str, Traits] = {
    **dict.fromkeys(FAULT_NAMES, Traits()),
    **dict.fromkeys(("stop", "restart"), Traits(orderly_end=True)),
    **dict.fromkeys(("kill", "oom"), Traits(unclean_end=True)),
    **dict.fromkeys(("power", "wipe", "bit_flip"), _LOSSY),
    **dict.fromkeys(("disk_full", "io_error", "stuck_disk"), Traits(broken_disk=True)),
    "read_only": Traits(unclean_end=True, broken_disk=True),
    **dict.fromkeys(("start", "heal"), Traits(heals=True)),
}
"""The traits of every fault by name; the only place where they are defined."""

OF_SERVERS = frozenset(FAULT_NAMES) - frozenset(
    {
        *("cut", "isolate", "partition", "reject", "reset_connections"),
        *("loss", "delay", "bandwidth", "pause", "heal"),
    }
)
"""Faults that clients are spared: a client that is gone tells nothing, and nobody would start it again."""

OF_BROKERS = frozenset({"wipe", "bit_flip"})
"""Faults that controllers are spared: a voter that forgets its vote is outside everything Raft promises."""

EXCLUSIVE: dict[str, str] = {
    **dict.fromkeys(("clock_step", "clock_drift", "clock_strobe"), "clock"),
    **{
        name: name
        for name in (
            *("bandwidth", "slow_cpu", "disk_full", "io_error"),
            *("slow_disk", "stuck_disk", "read_only"),
        )
    },
}
"""Faults of which a node suffers one of a kind at a time, and the kind; a second one hits nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        id: Unique in the schedule, for example "f3".
        fault: One of `FAULT_NAMES`.
        targets: Selectors (`nemesis.targets`), resolved when the fault is injected. A partition of shape "groups"
            may leave them out: then it splits all that its groups name.
        at_ms: When, in milliseconds since the start of the workload.
        for_ms: Healed after this long; None lasts until a `heal` or `start`.
        params: See the table above.

    Raises:
        UsageError: A name, a parameter or a number is wrong; the sentence says which and what is possible.
    """

    id: str
    fault: str
    targets: tuple[str, ...] = ()
    at_ms: int = 0
    for_ms: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks names, parameters and numbers."""
        if self.fault not in PARAMETERS:
            raise UsageError(unknown_name("fault", self.fault, FAULT_NAMES))
        check_params(self.id, self.fault, self.params)
        if self.at_ms < 0 or (self.for_ms is not None and self.for_ms <= 0):
            raise UsageError(f"fault {self.id}: at_ms must be >= 0 and for_ms must be > 0")
        if self.fault in ("cut", "reject") and len(self.targets) < 2:
            raise UsageError(f"fault {self.id}: a {self.fault} needs at least two targets")
        if self.fault != "heal" and not self.targets and "groups" not in self.params:
            raise UsageError(f"fault {self.id} ({self.fault}) needs at least one target")

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible form that `fault_from_json` reads back."""
        data: dict[str, Any] = {
            "id": self.id,
            "fault": self.fault,
            "targets": list(self.targets),
            "at_ms": self.at_ms,
        }
        if self.for_ms is not None:
            data["for_ms"] = self.for_ms
        if self.params:
            data["params"] = {key: _plain(value) for key, value in sorted(self.params.items())}
        return data


def _plain(value: Any) -> Any:
    """Returns a parameter with lists for tuples, as JSON has them."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


_KEYS = ("id", "fault", "targets", "at_ms", "for_ms", "params")


def fault_from_json(data: Mapping[str, Any], *, default_id: str) -> Fault:
    """Reads a fault from a schedule entry (TOML table or JSON object).

    Raises:
        UsageError: A key is unknown, missing or of the wrong type.
    """
    for key in data:
        if key not in _KEYS:
            raise UsageError(unknown_name("key of a scheduled fault", key, _KEYS))
    if "fault" not in data:
        raise UsageError(f"scheduled fault {default_id} has no key 'fault'")
    if not isinstance(data["fault"], str) or not isinstance(data.get("id", ""), str):
        raise UsageError(f"scheduled fault {default_id}: 'fault' and 'id' must be strings")
    targets = data.get("targets", ())
    params = data.get("params", {})
    if not isinstance(targets, list | tuple) or not all(isinstance(t, str) for t in targets):
        raise UsageError(f"scheduled fault {default_id}: 'targets' must be a list of strings")
    if not isinstance(params, Mapping):
        raise UsageError(f"scheduled fault {default_id}: 'params' must be a table")
    for key in ("at_ms", "for_ms"):
        value = data.get(key, 1)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise UsageError(f"scheduled fault {default_id}: {key!r} must be a whole number")
    return Fault(
        id=data.get("id", default_id),
        fault=data["fault"],
        targets=tuple(targets),
        at_ms=data.get("at_ms", 0),
        for_ms=data.get("for_ms"),
        params=dict(params),
    )
