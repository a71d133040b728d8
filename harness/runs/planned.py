"""The faults of a run, known before it begins."""

from collections.abc import Sequence
from dataclasses import replace

from harness.contracts.administration import ElectLeader, MoveReplica
from harness.contracts.cluster import CONTROLLER_ID_FIRST
from harness.contracts.system import (
    Administrable,
    FlushesInTime,
    HasElectionTimeout,
    RestartedAfter,
    System,
    TargetLimits,
)
from harness.runs.experiment import Experiment
from harness.scenarios import find_by_name
from harness.simulation.randomness import RandomTree
from nemesis.attainable import Attainable
from nemesis.fault import Fault
from nemesis.faults import FAULTS
from nemesis.schedule import random_schedule
from nemesis.targets import OF_CONTROLLERS


def planned_schedule(experiment: Experiment, seed: int) -> tuple[Fault, ...]:
    """Returns the faults of a run: the explicit schedule, or one drawn from the seed; none for a scenario."""
    nemesis = experiment.nemesis
    if not _is_drawn(experiment):
        return _scaled(experiment.schedule, experiment.time_scale)
    system = experiment.system_under_test
    drawn = random_schedule(
        RandomTree(seed).stream("fault"),
        families=experiment.nemesis.faults,
        duration_ms=experiment.duration_ms,
        partitions=experiment.topic.partition_names(),
        rhythm=experiment.nemesis.rhythm(),
        every_family=experiment.nemesis.every_family,
        actions=_actions(experiment, system) if isinstance(system, Administrable) else (),
        has_controllers=system.has_controllers,
        templates=nemesis.templates,
        brokers=[f"b{number}" for number in range(1, experiment.cluster.brokers + 1)],
        controllers=[
            f"c{CONTROLLER_ID_FIRST + index}"
            for index in range(experiment.cluster.controllers if system.has_controllers else 0)
        ],
        observes_nodes=experiment.environment.is_simulated,
        log_dirs=experiment.cluster.log_dirs,
    )
    return _attainable(experiment).of(_scaled(drawn, experiment.time_scale))


def drawn_families(experiment: Experiment) -> Sequence[str]:
    """Returns the families of which the seeds of an experiment draw faults; none if it lists its faults."""
    return experiment.nemesis.faults if _is_drawn(experiment) else ()


def _is_drawn(experiment: Experiment) -> bool:
    nemesis = experiment.nemesis
    is_random = bool(nemesis.faults or nemesis.templates)
    return is_random and not experiment.schedule and not experiment.scenario


def _attainable(experiment: Experiment) -> Attainable:
    """Returns what the system of an experiment has of what drawn faults are about."""
    system, properties = experiment.system_under_test, experiment.properties
    found = Attainable(
        impossible_targets=tuple(impossible_targets(system)),
        has_controllers=system.has_controllers,
        has_unclean_elections=not _refuses_unclean(system),
        until_ms=experiment.main_phase_ms,
    )
    if not isinstance(system, FlushesInTime):
        return found
    election_ms = 0.0
    if isinstance(system, HasElectionTimeout):
        election_ms = system.election_timeout_ms(experiment.timings, properties)
    flush_ms = system.flush_interval_ms(properties)
    return replace(found, flush_interval_ms=flush_ms, election_timeout_ms=election_ms)


def restarted_after(experiment: Experiment) -> frozenset[str]:
    """Returns the faults after which nodes are restarted, as an operator would do.

    A broker whose only log directory failed has ended, and is started anyway.
    """
    system = experiment.system_under_test
    names = frozenset(system.restarted_after if isinstance(system, RestartedAfter) else ())
    if experiment.cluster.log_dirs == 1:
        return names
    return names | {fault.name for fault in FAULTS.values() if fault.may_fail_directory}


def _refuses_unclean(system: System) -> bool:
    """Whether a system elects leaders on request, but never an unclean one."""
    if not isinstance(system, Administrable) or ElectLeader.name not in system.actions:
        return False
    return bool(system.refusal(ElectLeader(topic="t", partition=0, unclean=True)))


def impossible_targets(system: System) -> dict[str, str]:
    """Returns why selectors can mean no node of a system, by selector without a partition."""
    found = dict(system.impossible_targets()) if isinstance(system, TargetLimits) else {}
    if not system.has_controllers:
        found |= dict.fromkeys(OF_CONTROLLERS, f"the system {system.name!r} has no controllers")
    return found


def _actions(experiment: Experiment, system: Administrable) -> tuple[str, ...]:
    """Returns the actions that may be drawn; a replica moves only between several log directories."""
    has_directories = experiment.cluster.log_dirs > 1
    return tuple(name for name in system.actions if has_directories or name != MoveReplica.name)


def has_same_schedules(experiments: Sequence[Experiment]) -> bool:
    """Returns whether several experiments run the same faults at the same times for every seed.

    So they also have the same topics. Which node a target such as "leader:t-0" is, a run decides.
    """
    return all(_deciding(one) == _deciding(experiments[0]) for one in experiments[1:])


def _deciding(experiment: Experiment) -> tuple[object, ...]:
    """Returns everything but the seed that decides the schedule of a run, and what the schedule refers to."""
    return (
        experiment.scenario,
        experiment.schedule,
        experiment.nemesis,
        experiment.duration_ms,
        experiment.time_scale,
        experiment.topic,
        experiment.cluster.brokers,
        experiment.cluster.controllers,
        _attainable(experiment) if _is_drawn(experiment) else None,
        experiment.space,
    )


def _scaled(faults: Sequence[Fault], scale: float) -> tuple[Fault, ...]:
    """Returns the faults at times that are multiplied by a factor."""
    if scale == 1:
        return tuple(faults)
    return tuple(
        replace(
            fault,
            at_ms=round(fault.at_ms * scale),
            delay_ms=round(fault.delay_ms * scale),
            for_ms=None if fault.for_ms is None else max(round(fault.for_ms * scale), 1),
        )
        for fault in faults
    )


def unscaled(faults: Sequence[Fault], experiment: Experiment) -> tuple[Fault, ...]:
    """Returns the faults of a run as its experiment would list them: planned again, they have the same times."""
    scale = experiment.time_scale
    if scale == 1:
        return tuple(faults)
    return tuple(
        replace(
            fault,
            at_ms=min(round(fault.at_ms / scale), experiment.duration_ms - 1),
            delay_ms=round(fault.delay_ms / scale),
            for_ms=None if fault.for_ms is None else max(round(fault.for_ms / scale), 1),
        )
        for fault in faults
    )


def planned_faults(experiment: Experiment, seed: int) -> tuple[Fault, ...]:
    """Returns every fault that a run may inject, those of a scripted scenario included."""
    if experiment.scenario:
        steps = find_by_name(experiment.scenario).steps
        return tuple(step for step in steps if isinstance(step, Fault))
    return planned_schedule(experiment, seed)
