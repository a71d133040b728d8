"""The kinds of parameters that faults take, and how they are checked.

`nemesis.faults` lists the parameters of each fault. A schedule is checked when it is read, long before anything is
injected, so mechanisms can rely on the types.
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
ELECTIONS = ("preferred", "unclean")
REFUSALS = (
    *("UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER", "REQUEST_TIMED_OUT"),
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
)
"""Errors with which a server may refuse a request unprocessed; none of them is a statement about the request."""
BROKER_ID_MAX = 10
LOG_DIRS_MAX = 4
LEVEL_MAX = 2**15 - 1

STOP_GRACE_MS = 20_000
"""How long a node has to stop cleanly, unless a fault sets another limit."""

LONGEST_MS = 600_000
"""No packet and no fsync is late by more than ten minutes; no test waits that long for either."""

STOP_GRACE_MS = 20_000
"""How long a real node may take to stop cleanly before it is killed, unless the fault sets `grace_ms`."""

LARGEST_STEP_MS = 315_360_000_000
"""No clock is wrong by more than ten years."""

COUNT_MAX = 1 << 30
"""How many messages a fault may count; more than a run has."""

REORDER_MS = 1_000
"""How long a message waits for one that overtakes it, unless the fault sets another limit."""

EVERY_MAX = 65_535
"""The largest number up to which a tracer counts calls."""

PPM_MIN, PPM_MAX = -999_999, 10_000_000
"""From a clock that almost stands still to one that runs eleven times as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What a parameter may be.

    Attributes:
        legal: The legal values, as text for the sentence "... must be <legal>".
        is_legal: Whether a value is.
        is_needed: Whether the fault cannot be injected without it.
        kind: What a word is, where it must be one of `choices`.
        choices: The words that are possible; empty if any value that `is_legal` accepts is.
        default: The value if it is not given; None if its absence has its own meaning (see `absent`).
        absent: As text, what its absence means where there is no default.
    """

    legal: str
    is_legal: Callable[[object], bool]
    is_needed: bool = False
    kind: str = ""
    choices: tuple[str, ...] = ()
    default: int | str | None = None
    absent: str = ""


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


def count(*, default: int = 0) -> Parameter:
    """Returns a parameter that is a whole number, 0 or more."""
    return Parameter(legal="a whole number, 0 or more", is_legal=_is_count, default=default)


def whole_number(
    least: int,
    most: int,
    *,
    is_needed: bool = False,
    default: int | None = None,
    absent: str = "",
) -> Parameter:
    """Returns a parameter that is a whole number between two ends, both included."""
    return Parameter(
        default=default,
        absent=absent,
        legal=f"a whole number from {least} to {most}",
        is_legal=lambda value: _is_whole(value, least, most),
        is_needed=is_needed,
    )


def non_zero(least: int, most: int) -> Parameter:
    """Returns a parameter that is needed and is a whole number between two ends, but not 0."""
    return Parameter(
        legal=f"a whole number from {least} to -1 or from 1 to {most}",
        is_legal=lambda value: _is_whole(value, least, most) and value != 0,
        is_needed=True,
    )


def choice(kind: str, choices: tuple[str, ...]) -> Parameter:
    """Returns a parameter that is one of several words, the first by default; `kind` names them in messages."""
    return Parameter(
        default=choices[0],
        legal="a word",
        is_legal=lambda value: isinstance(value, str),
        kind=kind,
        choices=choices,
    )


def planes() -> Parameter:
    """Returns a parameter that is a list of planes."""
    return Parameter(
        legal="a list of planes",
        is_legal=_are_names,
        kind="plane",
        choices=PLANES,
        absent="all planes",
    )


def groups() -> Parameter:
    """Returns the parameter that lists the groups of a partition."""
    return Parameter(
        legal="a list of two or more lists of nodes or selectors",
        is_legal=_are_groups,
        absent="the groups are drawn",
    )


def counts_by_node() -> Parameter:
    """Returns a parameter that is one count, or a table of one per node."""
    return Parameter(
        legal="a whole number, 0 or more, or a table of one per node",
        is_legal=_are_counts,
        absent="the mode decides what is kept",
    )


def text(*, is_needed: bool = False, absent: str = "") -> Parameter:
    """Returns a parameter that is a name; `absent` is what its absence means."""
    return Parameter(
        legal="text that is not empty",
        is_legal=lambda value: isinstance(value, str) and bool(value),
        is_needed=is_needed,
        absent=absent,
    )


def setting() -> Parameter:
    """Returns a parameter that is the value of a setting, which may be deleted instead."""
    return Parameter(
        legal="text, a whole number, true or false",
        is_legal=lambda value: isinstance(value, str | int),
        absent="the setting is deleted, so that its default applies",
    )


def broker_id(*, absent: str) -> Parameter:
    """Returns a parameter that is the id of a broker; `absent` is what its absence means."""
    return Parameter(
        legal=f"a whole number from 1 to {BROKER_ID_MAX}",
        is_legal=lambda value: _is_whole(value, 1, BROKER_ID_MAX),
        absent=absent,
    )


def broker_ids(*, absent: str) -> Parameter:
    """Returns a parameter that is a list of brokers without repetition; `absent` is what its absence means."""
    return Parameter(
        legal="a list of different broker ids",
        is_legal=lambda value: (
            isinstance(value, list | tuple)
            and all(_is_whole(one, 1, BROKER_ID_MAX) for one in value)
            and len(set(value)) == len(value)
        ),
        absent=absent,
    )


def fault_ids() -> Parameter:
    """Returns a parameter that is a list of fault ids."""
    return Parameter(legal="a list of fault ids", is_legal=_are_names, absent="all faults")


def check_params(
    fault_id: str, fault: str, known: Mapping[str, Parameter], params: Mapping[str, Any]
) -> None:
    """Checks the parameters of one fault.

    Args:
        fault_id: Its id, for messages.
        fault: Its name, for messages.
        known: The parameters that it takes.
        params: The parameters that it was given.

    Raises:
        UsageError: One is unknown, missing or impossible; the sentence lists what is possible.
    """
    for name, value in params.items():
        if name not in known:
            sentence = unknown_name(f"parameter of fault {fault!r}", name, known)
            raise UsageError(f"fault {fault_id}: {sentence}")
        if not known[name].is_legal(value):
            raise UsageError(f"fault {fault_id}: {name} must be {known[name].legal}, not {value!r}")
    for name, parameter in known.items():
        if parameter.is_needed and name not in params:
            raise UsageError(
                f"fault {fault_id} ({fault}) needs the parameter {name}: {parameter.legal}"
            )
    for name, value in params.items():
        choices = known[name].choices
        for word in value if isinstance(value, list | tuple) else (value,):
            if choices and word not in choices:
                sentence = unknown_name(known[name].kind, word, choices)
                raise UsageError(f"fault {fault_id}: {sentence}")
    if "topic" in params and "broker" in params:
        raise UsageError(
            f"fault {fault_id}: a setting is that of a topic or of a broker, not of both"
        )
    if "jitter_ms" in params and params["jitter_ms"] > params["ms"]:
        raise UsageError(f"fault {fault_id}: jitter_ms must not be more than ms")
    if ("groups" in params) != (params.get("shape") == "groups"):
        raise UsageError(
            f"fault {fault_id}: a partition of shape 'groups' needs the parameter groups, "
            "and no other shape takes it"
        )
