"""One fault of a schedule: its type, targets, time, parameters and duration.

A fault is a value. It means the same in every world, and stays the same value from the TOML file to the row of the
history: mechanisms receive it, and the report prints it. `nemesis.faults` lists all faults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError, usage_errors_of
from harness.names import unknown_name
from nemesis.faults import FAULT_NAMES, FAULTS, FaultType, Targets
from nemesis.parameters import check_params
from nemesis.trigger import Trigger, parse_messages, parse_trigger

MESSAGES = "messages"
"""The parameter that names messages, as in "AlterPartition from leader:t-0 to controller"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        id: Unique in the schedule, for example "f3".
        fault: Its name in the fault table.
        targets: Selectors (`nemesis.targets`), resolved when the fault is injected. A partition of shape "groups"
            may leave them out; then it splits all nodes that its groups name.
        at_ms: When, in milliseconds since the start of the workload. With `on`, from when on events count.
        on: The event that begins it, for example "isr-shrink of t-0" (docs/faults.md); without it the fault begins
            at `at_ms`.
        nth: It begins at this occurrence of the event, counted from 1.
        delay_ms: It begins this long after the event.
        for_ms: Healed after this long; None lasts until a `heal` or `start`.
        until: The event that heals it before `for_ms` is over, counted from when the fault is in force.
        until_nth: It is healed at this occurrence of that event, counted from 1.
        params: As the fault table lists them.
        is_drawn: Whether the driver has drawn what the fault leaves open: a partition of any shape then has the
            parameter `groups`, the names of the nodes in each group; without groups it separates no two nodes.
        optional: Whether the run may be valid although the fault came to nothing: its event did not happen, or its
            targets meant no node. Faults that a seed draws are optional.

    Raises:
        UsageError: A name, a parameter or a number is wrong; the sentence names it and lists what is possible.
    """

    id: str
    fault: str
    targets: tuple[str, ...] = ()
    at_ms: int = 0
    on: str = ""
    nth: int = 1
    delay_ms: int = 0
    for_ms: int | None = None
    until: str = ""
    until_nth: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    is_drawn: bool = False
    optional: bool = False

    def __post_init__(self) -> None:
        """Checks names, parameters and numbers."""
        if self.fault not in FAULTS:
            raise UsageError(f"{self.place}: {unknown_name('fault', self.fault, FAULT_NAMES)}")
        if not self.is_drawn:  # otherwise they were checked before the draw, which may add some
            check_params(self.id, self.fault, self.type.parameters, self.params)
        self._check_times()
        with usage_errors_of(self.place):
            _ = self.trigger, self.healing_trigger, self.messages
        if self.type.targets is Targets.LINKS and len(self.targets) < 2:
            raise UsageError(f"fault {self.id}: a {self.fault} needs at least two targets")
        has_targets = bool(self.targets) or "groups" in self.params
        if self.type.targets in (Targets.CLUSTER, Targets.MESSAGES):
            if self.targets:
                raise UsageError(f"fault {self.id} ({self.fault}) takes no targets")
        elif self.type.targets is not Targets.NONE and not has_targets:
            raise UsageError(f"fault {self.id} ({self.fault}) needs at least one target")

    def _check_times(self) -> None:
        if self.at_ms < 0 or (self.for_ms is not None and self.for_ms <= 0):
            raise UsageError(f"fault {self.id}: at_ms must be >= 0 and for_ms must be > 0")
        if self.nth < 1 or self.delay_ms < 0:
            raise UsageError(f"fault {self.id}: nth must be > 0 and delay_ms must be >= 0")
        if not self.on and (self.nth, self.delay_ms) != (1, 0):
            raise UsageError(
                f"fault {self.id}: nth and delay_ms need an event; set on, or at_ms alone"
            )
        if self.until and (self.for_ms is None or self.type.is_momentary):
            raise UsageError(
                f"fault {self.id}: until needs a fault that lasts, and for_ms, which says for how long at most"
            )
        if self.until_nth < 1 or (not self.until and self.until_nth != 1):
            raise UsageError(f"fault {self.id}: until_nth must be > 0, and needs until")

    @property
    def place(self) -> str:
        """What an error calls it."""
        return f"fault {self.id}"

    @property
    def trigger(self) -> Trigger | None:
        """The event that begins it; None if it begins at `at_ms`."""
        return parse_trigger(self.on) if self.on else None

    @property
    def healing_trigger(self) -> Trigger | None:
        """The event that heals it; None if only time does."""
        return parse_trigger(self.until) if self.until else None

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """The events that it waits for, to begin or to be healed."""
        found = (self.trigger, self.healing_trigger)
        return tuple(trigger for trigger in found if trigger is not None)

    @property
    def messages(self) -> Trigger | None:
        """The messages that it is about, as the trigger of their arrival; None if it is about no messages."""
        text = self.params.get(MESSAGES)
        return parse_messages(text) if text and MESSAGES in self.type.parameters else None

    @property
    def type(self) -> FaultType:
        """Its row of the fault table."""
        return FAULTS[self.fault]

    def value(self, parameter: str) -> Any:
        """Returns a parameter, or its default; None if the fault has neither."""
        if parameter in self.params or parameter not in self.type.parameters:
            return self.params.get(parameter)
        return self.type.parameters[parameter].default

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-compatible form that `fault_from_json` reads back."""
        data: dict[str, Any] = {
            "id": self.id,
            "fault": self.fault,
            "targets": list(self.targets),
            "at_ms": self.at_ms,
        }
        if self.on:
            data |= {"on": self.on, "nth": self.nth, "delay_ms": self.delay_ms}
        if self.for_ms is not None:
            data["for_ms"] = self.for_ms
        if self.until:
            data |= {"until": self.until, "until_nth": self.until_nth}
        if self.params:
            data["params"] = {key: _plain(value) for key, value in sorted(self.params.items())}
        if self.optional:
            data["optional"] = True
        return data


def _plain(value: Any) -> Any:
    """Returns a parameter with lists for tuples, as JSON has them."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


_STRINGS = ("fault", "id", "on", "until")
_NUMBERS = ("at_ms", "nth", "delay_ms", "for_ms", "until_nth")
_KEYS = (*_STRINGS, *_NUMBERS, "targets", "params", "optional")


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
    if not all(isinstance(data.get(key, ""), str) for key in _STRINGS):
        names = ", ".join(map(repr, _STRINGS))
        raise UsageError(f"scheduled fault {default_id}: {names} must be strings")
    for key in ("on", "until"):
        if data.get(key) == "":
            raise UsageError(
                f"scheduled fault {default_id}: {key!r} is empty; write an event, or leave it out"
            )
    _check_types(data, default_id)
    return Fault(
        id=data.get("id", default_id),
        fault=data["fault"],
        targets=tuple(data.get("targets", ())),
        at_ms=data.get("at_ms", 0),
        on=data.get("on", ""),
        nth=data.get("nth", 1),
        delay_ms=data.get("delay_ms", 0),
        for_ms=data.get("for_ms"),
        until=data.get("until", ""),
        until_nth=data.get("until_nth", 1),
        params=dict(data.get("params", {})),
        optional=data.get("optional", False),
    )


def _check_types(data: Mapping[str, Any], default_id: str) -> None:
    """Raises UsageError if a value other than a string is of the wrong type."""
    targets = data.get("targets", ())
    params = data.get("params", {})
    if not isinstance(targets, list | tuple) or not all(isinstance(t, str) for t in targets):
        raise UsageError(f"scheduled fault {default_id}: 'targets' must be a list of strings")
    if not isinstance(params, Mapping):
        raise UsageError(f"scheduled fault {default_id}: 'params' must be a table")
    if not isinstance(data.get("optional", False), bool):
        raise UsageError(f"scheduled fault {default_id}: 'optional' must be true or false")
    for key in _NUMBERS:
        value = data.get(key, 1)
        if value is None and key == "for_ms":
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"scheduled fault {default_id}: {key!r} must be a whole number")
