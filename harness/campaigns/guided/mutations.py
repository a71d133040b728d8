"""Mutations: small changes of a run that was new, each drawn from one random stream.

A mutant keeps the root seed of its parent, so up to the first changed fault both runs are the same, weather and
clients included. Every mutant is an experiment with an explicit schedule, which `laststand run` takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from harness.campaigns.shrinking.trial import Trial, changed, with_fault, with_faults
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.planned import planned_schedule, unscaled
from harness.runs.space import draw
from nemesis.drawing import DELAYS_MS
from nemesis.fault import Fault
from nemesis.fault_type import Targets
from nemesis.schedule import FAULT_COUNT_MAX
from nemesis.trigger import COMMITTED_EVENTS, EVENTS

SHIFTS_MS = (1, 5, 20, 100, 500, 2000)
INSERTED_MAX = 4
"""A burst that is inserted has at most so many faults."""

MESSAGES = (
    *("Fetch", "FetchResponse", "AlterPartition", "AlterPartitionResponse", "Produce"),
    *("BrokerRegistration", "BrokerRegistrationResponse", "BrokerHeartbeatResponse"),
    *("Vote", "BeginQuorumEpoch", "OffsetForLeaderEpochResponse"),
)
"""Messages about which a new trigger may be: those that carry decisions."""

_OF_PARTITIONS = ("leader", "isr_follower", "isr_member", "follower", "last_in_isr", "elr_member")
_OF_CLUSTER = ("one", "active_controller", "one_controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a mutation is made of.

    Attributes:
        parent: The trial to change.
        drawn: What the parent's configuration drew from the space, by key.
        other: Another trial, from which faults may come.
        marks: Marks that the parent reached, sorted.
        base: The experiment of the arm, with its space, families and templates.
        kinds: Weights of families and templates that may be inserted, by "family NAME" and "template NAME".
        name: Of the mutant; part of the identifiers of its new faults.
    """

    parent: Trial
    drawn: Mapping[str, Any]
    other: Trial
    marks: Sequence[str]
    base: Experiment
    kinds: Mapping[str, float]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed trial.

    Attributes:
        trial: What runs.
        drawn: What its configuration draws from the space, by key.
        kind: The family or template that was inserted, as in `Material.kinds`; empty for other operators.
    """

    trial: Trial
    drawn: Mapping[str, Any]
    kind: str = ""


def weighted(stream: Random, weights: Mapping[str, float]) -> str:
    """Returns one of several names; each with a probability in proportion to its weight."""
    rest = stream.random() * sum(weights.values())
    for name, weight in weights.items():
        rest -= weight
        if rest < 0:
            return name
    return list(weights)[-1]


def with_kinds(experiment: Experiment, nemesis: NemesisConfig, kinds: Sequence[str]) -> Experiment:
    """Returns an experiment that draws faults of some families and templates only.

    Args:
        experiment: Without an explicit schedule.
        nemesis: Has the rhythm of its faults.
        kinds: What it draws, each "family NAME" or "template NAME".
    """
    pairs = [kind.partition(" ") for kind in kinds]
    named = replace(
        nemesis,
        every_family=len(kinds) > 1,
        faults=tuple(name for group, _, name in pairs if group == "family"),
        templates=tuple(name for group, _, name in pairs if group == "template"),
    )
    return replace(experiment, nemesis=named)


def _pick(stream: Random, items: Sequence[Any]) -> Any:
    return items[int(stream.random() * len(items))]


def _index(stream: Random, trial: Trial) -> int:
    return int(stream.random() * len(trial.schedule))


def _same(material: Material, trial: Trial | None) -> Mutant | None:
    return None if trial is None else Mutant(trial=trial, drawn=material.drawn)


def _with_schedule(trial: Trial, faults: Sequence[Fault]) -> Trial | None:
    """Returns the trial with these faults, in order of time; None if that is no experiment."""
    if len(faults) > FAULT_COUNT_MAX:
        return None
    last_ms = trial.experiment.duration_ms - 1
    in_time = [replace(fault, at_ms=max(0, min(fault.at_ms, last_ms))) for fault in faults]
    return changed(trial, schedule=tuple(sorted(in_time, key=lambda fault: fault.at_ms)))


def _move(stream: Random, material: Material) -> Mutant | None:
    trial = material.parent
    index = _index(stream, trial)
    fault = trial.schedule[index]
    if fault.for_ms is not None and stream.random() < 0.3:
        for_ms = max(1, int(fault.for_ms * (0.25 + 2 * stream.random())))
        return _same(material, with_fault(trial, index, for_ms=for_ms))
    shift_ms = _pick(stream, SHIFTS_MS) * (1 if stream.random() < 0.5 else -1)
    moved = replace(fault, at_ms=max(0, fault.at_ms + shift_ms))
    rest = (*trial.schedule[:index], *trial.schedule[index + 1 :])
    return _same(material, _with_schedule(trial, (*rest, moved)))


def _drop(stream: Random, material: Material) -> Mutant | None:
    trial = material.parent
    if len(trial.schedule) < 2:
        return None
    gone = trial.schedule[_index(stream, trial)].id
    kept = [fault.id for fault in trial.schedule if fault.id != gone]
    return _same(material, with_faults(trial, kept))


def _duplicate(stream: Random, material: Material) -> Mutant | None:
    trial = material.parent
    fault = trial.schedule[_index(stream, trial)]
    later_ms = _pick(stream, SHIFTS_MS) + (fault.for_ms or 0)
    twin = replace(fault, id=f"{material.name}-0", at_ms=fault.at_ms + later_ms)
    return _same(material, _with_schedule(trial, (*trial.schedule, twin)))


def _splice(stream: Random, material: Material) -> Mutant | None:
    """Keeps the parent's faults up to a time, and takes those of the other trial from then on."""
    trial, other = material.parent, material.other
    at_ms = int(stream.random() * trial.experiment.duration_ms)
    before = [fault for fault in trial.schedule if fault.at_ms < at_ms]
    after = [
        replace(fault, id=f"{material.name}-{index}")
        for index, fault in enumerate(other.schedule)
        if fault.at_ms >= at_ms and "faults" not in fault.params
    ]
    if not after:
        return None
    ids = {fault.id for fault in before}
    before = [one for one in before if set(one.params.get("faults", ())) <= ids]
    return _same(material, _with_schedule(trial, (*before, *after)))


def _retarget(stream: Random, material: Material) -> Mutant | None:
    trial = material.parent
    index = _index(stream, trial)
    fault = trial.schedule[index]
    if not fault.targets or fault.type.targets not in (
        Targets.HOSTS,
        Targets.LINKS,
        Targets.SERVERS,
        Targets.BROKERS,
    ):
        return None
    partition = _pick(stream, trial.experiment.topic.partition_names())
    choices = [f"{role}:{partition}" for role in _OF_PARTITIONS]
    if fault.type.targets is not Targets.BROKERS:
        choices += _OF_CLUSTER
    targets = list(fault.targets)
    targets[int(stream.random() * len(targets))] = _pick(stream, choices)
    return _same(material, with_fault(trial, index, targets=tuple(targets)))


def _retrigger(stream: Random, material: Material) -> Mutant | None:
    trial = material.parent
    index = _index(stream, trial)
    fault = trial.schedule[index]
    if fault.on and stream.random() < 0.5:
        delay_ms = _pick(stream, DELAYS_MS)
        nth = 1 + int(stream.random() * 3)
        return _same(material, with_fault(trial, index, delay_ms=delay_ms, nth=nth))
    on = _trigger(stream, trial, material.marks)
    delay_ms, nth = _pick(stream, DELAYS_MS), 1 + int(stream.random() * 3)
    return _same(material, with_fault(trial, index, on=on, nth=nth, delay_ms=delay_ms))


def _trigger(stream: Random, trial: Trial, marks: Sequence[str]) -> str:
    """Returns a trigger: a mark that the parent reached, a committed change, or a message."""
    choice = stream.random()
    if choice < 0.5 and marks:
        return f"mark:{_pick(stream, marks)}"
    if choice < 0.75:
        kind = _pick(stream, COMMITTED_EVENTS)
        partition = _pick(stream, trial.experiment.topic.partition_names())
        return f"{kind} of {partition}" if "of" in EVENTS[kind].qualifiers else kind
    return f"{_pick(stream, ('sent', 'received'))}:{_pick(stream, MESSAGES)}"


def _reconfigure(stream: Random, material: Material) -> Mutant | None:
    """Draws one key of the configuration again."""
    space = material.base.space
    if not space:
        return None
    key = _pick(stream, sorted(space))
    try:
        data = experiments.to_data(material.base)
        value = draw(space, data, lambda _: stream)[key]
        drawn = {**material.drawn, key: list(value) if isinstance(value, tuple) else value}
        bare = experiments.with_drawn(material.base, drawn)
    except UsageError:
        return None
    parent = material.parent
    trial = changed(
        Trial(experiment=replace(bare, nemesis=NemesisConfig()), seed=parent.seed),
        schedule=parent.schedule,
    )
    is_new = trial is not None and trial.experiment != parent.experiment
    return Mutant(trial=trial, drawn=drawn) if trial is not None and is_new else None


def _insert(stream: Random, material: Material) -> Mutant | None:
    """Adds a burst of one family or one template, drawn as in a random schedule."""
    if not material.kinds:
        return None
    trial, kind = material.parent, weighted(stream, material.kinds)
    drawing = with_kinds(replace(trial.experiment, schedule=()), material.base.nemesis, (kind,))
    burst = unscaled(planned_schedule(drawing, stream.getrandbits(32)), drawing)[:INSERTED_MAX]
    if not burst:
        return None
    shift_ms = int(stream.random() * trial.experiment.duration_ms) - burst[0].at_ms
    inserted = [
        replace(fault, id=f"{material.name}-{index}", at_ms=max(0, fault.at_ms + shift_ms))
        for index, fault in enumerate(burst)
    ]
    mutated = _with_schedule(trial, (*trial.schedule, *inserted))
    return None if mutated is None else Mutant(trial=mutated, drawn=material.drawn, kind=kind)


OPERATORS: Mapping[str, Callable[[Random, Material], Mutant | None]] = {
    "move": _move,
    "drop": _drop,
    "duplicate": _duplicate,
    "splice": _splice,
    "retarget": _retarget,
    "retrigger": _retrigger,
    "reconfigure": _reconfigure,
    "insert": _insert,
}
"""Every operator by name; each returns None if it cannot change the parent."""

_NEEDS_FAULTS = frozenset({"move", "drop", "duplicate", "splice", "retarget", "retrigger"})


def mutate(stream: Random, material: Material, operator: str) -> Mutant | None:
    """Returns a mutant, or None if the operator cannot change the parent."""
    if operator in _NEEDS_FAULTS and not material.parent.schedule:
        return None
    try:
        return OPERATORS[operator](stream, material)
    except UsageError:  # a changed fault that no schedule can have
        return None
