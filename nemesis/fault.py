"""A fault is a value: what, to whom, when, how, for how long. The same value means the same in every world.

The vocabulary of the first path (nemeses.md lists what is still to come):

| fault     | targets              | parameters                                | evidence that it bit            |
|-----------|----------------------|-------------------------------------------|---------------------------------|
| `cut`     | two or more nodes    | `planes`, `direction` (both, one-way)     | frames held, connects refused   |
| `isolate` | nodes, each from all | `planes`                                  | frames held, connects refused   |
| `pause`   | nodes                |                                           | work that had to wait           |
| `stop`    | nodes (SIGTERM)      | `grace_ms`                                | the process ended in order      |
| `kill`    | nodes (SIGKILL)      |                                           | the process is gone             |
| `power`   | nodes, at one instant| `mode`, `keep_records`, `torn_bytes`      | process gone, bytes lost        |
| `start`   | nodes that are down  |                                           | a new incarnation               |
| `heal`    |                      | `faults` (ids; all when absent)           | the faults it healed            |

Planes are "inter-broker", "controller" and "client"; all when absent. Clients are part of the "client" plane.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.names import unknown_name

PLANES = ("inter-broker", "controller", "client")
POWER_MODES = ("lose_all", "prefix", "torn_sector", "zero_tail", "pages", "keep_all")

_PARAMETERS: dict[str, tuple[str, ...]] = {
    "cut": ("planes", "direction"),
    "isolate": ("planes",),
    "pause": (),
    "stop": ("grace_ms",),
    "kill": (),
    "power": ("mode", "keep_records", "torn_bytes"),
    "start": (),
    "heal": ("faults",),
}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _are_counts(value: object) -> bool:
    return _is_count(value) or (
        isinstance(value, Mapping) and all(_is_count(count) for count in value.values())
    )


_LEGAL = {
    "planes": "a list of planes",
    "direction": "a word",
    "grace_ms": "a whole number, 0 or more",
    "mode": "a word",
    "keep_records": "a whole number, 0 or more, or a table of one per node",
    "torn_bytes": "a whole number, 0 or more",
    "faults": "a list of fault ids",
}
_IS_LEGAL: dict[str, Callable[[object], bool]] = {
    "planes": _are_names,
    "direction": lambda value: isinstance(value, str),
    "grace_ms": _is_count,
    "mode": lambda value: isinstance(value, str),
    "keep_records": _are_counts,
    "torn_bytes": _is_count,
    "faults": _are_names,
}
FAULT_NAMES = tuple(_PARAMETERS)
HEALABLE = frozenset({"cut", "isolate", "pause", "stop", "kill", "power"})
"""Faults that last: a network fault until it is healed, a dead node until it is started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        id: Unique in the schedule, for example "f3".
        fault: One of `FAULT_NAMES`.
        targets: Selectors (`nemesis.targets`), resolved when the fault is injected.
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
        if self.fault not in _PARAMETERS:
            raise UsageError(unknown_name("fault", self.fault, FAULT_NAMES))
        self._check_params()
        if self.at_ms < 0 or (self.for_ms is not None and self.for_ms <= 0):
            raise UsageError(f"fault {self.id}: at_ms must be >= 0 and for_ms must be > 0")
        if self.fault != "heal" and not self.targets:
            raise UsageError(f"fault {self.id} ({self.fault}) needs at least one target")
        if self.fault == "cut" and len(self.targets) < 2:
            raise UsageError(f"fault {self.id}: a cut needs at least two targets")

    def _check_params(self) -> None:
        for name in self.params:
            if name not in _PARAMETERS[self.fault]:
                raise UsageError(
                    unknown_name(
                        f"parameter of fault {self.fault!r}", name, _PARAMETERS[self.fault]
                    )
                )
        for name, value in self.params.items():
            if not _IS_LEGAL[name](value):
                raise UsageError(f"fault {self.id}: {name} must be {_LEGAL[name]}, not {value!r}")
        for plane in self.params.get("planes", ()):
            if plane not in PLANES:
                raise UsageError(unknown_name("plane", plane, PLANES))
        if self.params.get("mode", "lose_all") not in POWER_MODES:
            raise UsageError(unknown_name("power mode", self.params["mode"], POWER_MODES))
        if self.params.get("direction", "both") not in ("both", "one-way"):
            raise UsageError(
                unknown_name("direction", self.params["direction"], ("both", "one-way"))
            )

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
            data["params"] = {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in sorted(self.params.items())
            }
        return data


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
