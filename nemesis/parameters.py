"""The parameters of every fault: which it takes, which it needs, and what they may be.

A schedule is checked against this table when it is read, long before anything is injected. An environment may
therefore take a parameter for what the table says it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.names import unknown_name

PLANES = ("inter-broker", "controller", "client")
POWER_MODES = ("lose_all", "prefix", "torn_sector", "zero_tail", "pages", "keep_all")
SHAPES = ("halves", "minority", "bridge", "majorities_ring", "groups")
DIRECTIONS = ("both", "one-way")
PLACES = ("receiver", "sender")
IO_OPERATIONS = ("fsync", "all")

LONGEST_MS = 600_000
"""No packet and no fsync is late by more than ten minutes: nobody waits that long for either."""

LARGEST_STEP_MS = 315_360_000_000
"""No clock is wrong by more than ten years."""

EVERY_MAX = 65_535
"""A tracer counts calls no further."""

PPM_MIN, PPM_MAX = -999_999, 10_000_000
"""From a clock that all but stands to one that runs eleven times as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What a parameter may be.

    Attributes:
        legal: In words, for the sentence "... must be <legal>".
        is_legal: Whether a value is.
        is_needed: Whether the fault is nothing without it.
    """

    legal: str
    is_legal: Callable[[object], bool]
    is_needed: bool = False


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_count(value: object) -> bool:
    return _is_whole(value, 0, 1 << 62)


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _are_groups(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) >= 2
        and all(_are_names(group) and group for group in value)
    )


def _are_counts(value: object) -> bool:
    return _is_count(value) or (
        isinstance(value, Mapping) and all(_is_count(count) for count in value.values())
    )


def _word() -> Parameter:
    return Parameter(legal="a word", is_legal=lambda value: isinstance(value, str))


def _count() -> Parameter:
    return Parameter(legal="a whole number, 0 or more", is_legal=_is_count)


def _from_to(least: int, most: int, *, is_needed: bool = False) -> Parameter:
    return Parameter(
        legal=f"a whole number from {least} to {most}",
        is_legal=lambda value: _is_whole(value, least, most),
        is_needed=is_needed,
    )


def _not_zero(least: int, most: int) -> Parameter:
    return Parameter(
        legal=f"a whole number from {least} to {most}, and not 0",
        is_legal=lambda value: _is_whole(value, least, most) and value != 0,
        is_needed=True,
    )


_NAMES = Parameter(legal="a list of planes", is_legal=_are_names)
_PACKETS = {"planes": _NAMES, "at": _word()}

PARAMETERS: dict[str, dict[str, Parameter]] = {
    "cut": {**_PACKETS, "direction": _word()},
    "isolate": _PACKETS,
    "partition": {
        **_PACKETS,
        "shape": _word(),
        "groups": Parameter(
            legal="a list of two or more lists of nodes or selectors", is_legal=_are_groups
        ),
    },
    "reject": {"planes": _NAMES},
    "reset_connections": {},
    "loss": {"planes": _NAMES, "percent": _from_to(1, 100, is_needed=True)},
    "delay": {
        "planes": _NAMES,
        "ms": _from_to(1, LONGEST_MS, is_needed=True),
        "jitter_ms": _from_to(0, LONGEST_MS),
    },
    "bandwidth": {"rate_kib_s": _from_to(1, 1 << 30, is_needed=True)},
    "pause": {},
    "stop": {"grace_ms": _count()},
    "kill": {},
    "restart": {"grace_ms": _count()},
    "oom": {},
    "slow_cpu": {"percent": _from_to(1, 99, is_needed=True)},
    "power": {
        "mode": _word(),
        "keep_records": Parameter(
            legal="a whole number, 0 or more, or a table of one per node", is_legal=_are_counts
        ),
        "torn_bytes": _count(),
    },
    "clock_step": {"ms": _not_zero(-LARGEST_STEP_MS, LARGEST_STEP_MS)},
    "clock_drift": {"ppm": _not_zero(PPM_MIN, PPM_MAX)},
    "clock_strobe": {
        "ms": _not_zero(-LARGEST_STEP_MS, LARGEST_STEP_MS),
        "period_ms": _from_to(1, LONGEST_MS, is_needed=True),
    },
    "wipe": {},
    "disk_full": {"free_bytes": _count()},
    "io_error": {"op": _word(), "every": _from_to(1, EVERY_MAX)},
    "slow_disk": {"ms": _from_to(1, LONGEST_MS, is_needed=True)},
    "stuck_disk": {},
    "read_only": {},
    "bit_flip": {},
    "start": {},
    "heal": {"faults": Parameter(legal="a list of fault ids", is_legal=_are_names)},
}
"""Fault to the parameters that it takes."""

_CHOICES = (
    ("mode", "power mode", POWER_MODES),
    ("direction", "direction", DIRECTIONS),
    ("at", "place to drop packets", PLACES),
    ("shape", "shape of a partition", SHAPES),
    ("op", "disk operation", IO_OPERATIONS),
)


def check_params(fault_id: str, fault: str, params: Mapping[str, Any]) -> None:
    """Checks the parameters of one fault.

    Raises:
        UsageError: One is unknown, missing or impossible; the sentence says what is possible.
    """
    known = PARAMETERS[fault]
    for name, value in params.items():
        if name not in known:
            raise UsageError(unknown_name(f"parameter of fault {fault!r}", name, known))
        if not known[name].is_legal(value):
            raise UsageError(f"fault {fault_id}: {name} must be {known[name].legal}, not {value!r}")
    for name, parameter in known.items():
        if parameter.is_needed and name not in params:
            raise UsageError(
                f"fault {fault_id} ({fault}) needs the parameter {name}: {parameter.legal}"
            )
    for plane in params.get("planes", ()):
        if plane not in PLANES:
            raise UsageError(unknown_name("plane", plane, PLANES))
    for name, kind, choices in _CHOICES:
        if name in params and params[name] not in choices:
            raise UsageError(unknown_name(kind, params[name], choices))
    if "jitter_ms" in params and params["jitter_ms"] > params["ms"]:
        raise UsageError(f"fault {fault_id}: jitter_ms must not be more than ms")
    _check_groups(fault_id, params)


def _check_groups(fault_id: str, params: Mapping[str, Any]) -> None:
    if ("groups" in params) != (params.get("shape") == "groups"):
        raise UsageError(
            f"fault {fault_id}: a partition of shape 'groups' needs the parameter groups, "
            "and no other shape takes it"
        )
