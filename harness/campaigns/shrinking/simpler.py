"""Simpler forms of a trial, each in the order in which they are tried."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from harness.campaigns.shrinking.trial import (
    Trial,
    changed,
    with_fault,
    with_partitions,
    with_table,
    with_workload,
)
from harness.runs.experiment import ClusterConfig, Experiment, TopicConfig
from nemesis.fault import MESSAGES, Fault
from nemesis.trigger import RECEIVED, Trigger

CHOOSING = (
    *("follower", "isr_member", "isr_follower", "elr_member"),
    *("one", "minority", "majority", "one_controller", "majority_controllers"),
)
"""Selectors for which a random stream chooses nodes."""

_SIMPLE_WEATHERS = ("calm", "light")
LEAST_CLIENTS = {
    "processes": 1,
    "members": 1,
    "producers": 1,
    "processors": 0,
    "readers": 0,
    "uncommitted_readers": 0,
}
"""Settings of workloads that say how many clients there are, and the least that is tried."""
RATES = ("queries_per_s", "latests_per_s", "polls_per_s", "appends_per_s", "transactions_per_s")
"""Settings of workloads that say how often clients do something."""

_KEPT_SETTINGS = ("client", *LEAST_CLIENTS)
"""Settings of workloads that are numbers to make smaller, or that decide what kind of test it is."""


def without_settings(trial: Trial) -> Iterator[Trial]:
    """Yields the trial without one of its special settings each: weather, properties, rules, other values."""
    experiment = trial.experiment
    found: list[Trial | None] = [
        changed(trial, weather=weather)
        for weather in _SIMPLE_WEATHERS[: _index(_SIMPLE_WEATHERS, experiment.weather)]
    ]
    found += [
        changed(trial, disabled_rules=tuple(r for r in experiment.disabled_rules if r != rule))
        for rule in experiment.disabled_rules
    ]
    for name in ("properties", "features"):
        table: Mapping[str, Any] = getattr(experiment, name)
        found += [
            changed(trial, **{name: {k: v for k, v in table.items() if k != key}}) for key in table
        ]
    for name in ("sim_wire", "recovery_max_ms", "stop_on_violation"):
        found.append(changed(trial, **{name: _default(Experiment, name)}))
    for name in ("log_dirs", "segment_bytes", "flush_messages", "disk"):
        found.append(with_table(trial, "cluster", **{name: _default(ClusterConfig, name)}))
    found.append(with_table(trial, "topic", assignment=_default(TopicConfig, "assignment")))
    found += _without_workload_settings(trial)
    yield from (one for one in found if one is not None)


def fewer_partitions(trial: Trial) -> Iterator[Trial]:
    """Yields the trial with fewer topics and partitions, the fewest first."""
    topic = trial.experiment.topic
    for topics in _smaller(topic.count):
        for partitions in _smaller(topic.partitions):
            found = with_partitions(trial, topics, partitions)
            if found is not None:
                yield found


def fewer_nodes(trial: Trial) -> Iterator[Trial]:
    """Yields the trial with fewer brokers, or with fewer controllers."""
    cluster = trial.experiment.cluster
    for brokers in range(trial.experiment.topic.replication_factor, cluster.brokers):
        found = with_table(trial, "cluster", brokers=brokers)
        if found is not None:
            yield found
    for controllers in range(1, cluster.controllers, 2):
        found = with_table(trial, "cluster", controllers=controllers)
        if found is not None:
            yield found


def plainer_fault(
    trial: Trial, index: int, nodes: Sequence[str], partitions: Sequence[str]
) -> Iterator[Trial]:
    """Yields the trial with one plainer fault: fewer targets, parameters and conditions, no random choice.

    Args:
        trial: The trial.
        index: Which of its faults.
        nodes: The nodes that the fault affected in the trial's run.
        partitions: The names of its partitions.
    """
    fault = trial.schedule[index]
    found: list[Trial | None] = [
        with_fault(trial, index, targets=fault.targets[:at] + fault.targets[at + 1 :])
        for at in range(len(fault.targets))
        if len(fault.targets) > 1
    ]
    found += [
        with_fault(trial, index, params={k: v for k, v in fault.params.items() if k != name})
        for name in sorted(fault.params)
    ]
    found += [with_fault(trial, index, on=text) for text in _less_exact(fault.trigger)]
    if fault.until:
        found.append(with_fault(trial, index, until="", until_nth=1))
    found += [with_fault(trial, index, until=text) for text in _less_exact(fault.healing_trigger)]
    prefix = f"{RECEIVED}:"
    found += [
        with_fault(trial, index, params={**fault.params, MESSAGES: text.removeprefix(prefix)})
        for text in _less_exact(fault.messages)
    ]
    found += [
        with_fault(trial, index, targets=_replaced(fault, at, selector))
        for at, target in enumerate(fault.targets)
        if target.partition(":")[0] in CHOOSING
        for selector in _definite(fault, at, nodes, partitions)
    ]
    yield from (one for one in found if one is not None)


def _less_exact(trigger: Trigger | None) -> Iterator[str]:
    """Yields a trigger without one of its qualifiers each."""
    if trigger is not None:
        for word in trigger.qualifiers:
            kept = {one: value for one, value in trigger.qualifiers.items() if one != word}
            yield replace(trigger, qualifiers=kept).text()


def _without_workload_settings(trial: Trial) -> list[Trial | None]:
    settings: Any = trial.experiment.workload
    return [
        with_workload(trial, **{item.name: _default(type(settings), item.name)})
        for item in fields(settings)
        if item.name not in _KEPT_SETTINGS
        and not item.name.endswith("_per_s")
        and item.default is not MISSING
    ]


def _definite(
    fault: Fault, at: int, nodes: Sequence[str], partitions: Sequence[str]
) -> Iterator[str]:
    """Yields selectors without a random choice: roles first, because they mean the same in every world."""
    name, _, partition = fault.targets[at].partition(":")
    if name == "one_controller":
        yield "active_controller"
    elif name not in ("minority", "majority", "majority_controllers"):
        for place in (partition,) if partition else partitions:
            yield f"leader:{place}"
            yield f"last_in_isr:{place}"
    if len(nodes) == len(fault.targets):
        yield nodes[at]


def _replaced(fault: Fault, at: int, selector: str) -> tuple[str, ...]:
    return (*fault.targets[:at], selector, *fault.targets[at + 1 :])


def _smaller(number: int) -> list[int]:
    """Returns the numbers from 1 to a number: all up to 4, then powers of two, and the number itself."""
    some = [1, 2, 3, *(1 << power for power in range(2, number.bit_length()))]
    return [*(one for one in some if one < number), number]


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _default(kind: type[Any], name: str) -> Any:
    return next(item.default for item in fields(kind) if item.name == name)
