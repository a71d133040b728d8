"""What a shrinker changes: an experiment with an explicit schedule, and its seed.

All functions here return changed trials. A trial that is no experiment, for example because a fault names
a partition that is gone, is None.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment, NemesisConfig
from nemesis.fault import MESSAGES, Fault
from nemesis.trigger import RECEIVED, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run that may show the finding.

    Attributes:
        experiment: What to run. It has an explicit schedule and draws no faults.
        seed: Its root seed.
    """

    experiment: Experiment
    seed: int

    @property
    def schedule(self) -> tuple[Fault, ...]:
        """Its faults."""
        return self.experiment.schedule

    @property
    def key(self) -> str:
        """What decides its run, as text: trials with the same key are the same run."""
        return json.dumps([experiments.to_data(self.experiment), self.seed], sort_keys=True)


def explicit(experiment: Experiment, schedule: Sequence[Fault], seed: int) -> Trial:
    """Returns the trial that injects exactly these faults.

    Args:
        experiment: What was run; its random faults are replaced.
        schedule: The faults of that run, as the experiment would list them.
        seed: Its root seed.
    """
    return Trial(
        experiment=replace(experiment, schedule=tuple(schedule), nemesis=NemesisConfig()),
        seed=seed,
    )


def changed(trial: Trial, **values: Any) -> Trial | None:
    """Returns the trial with other values of its experiment; None if that is no experiment, or no change."""
    try:
        experiment = replace(trial.experiment, **values)
    except UsageError:
        return None
    return replace(trial, experiment=experiment) if experiment != trial.experiment else None


def given(trial: Trial | None) -> Iterator[Trial]:
    """Yields a trial, if there is one."""
    if trial is not None:
        yield trial


def with_faults(trial: Trial, ids: Collection[str]) -> Trial | None:
    """Returns the trial with only these faults. Repairs then name only faults that are left."""
    kept = [fault for fault in trial.schedule if fault.id in ids]
    return changed(trial, schedule=tuple(_naming_only(kept)))


def with_fault(trial: Trial, index: int, **values: Any) -> Trial | None:
    """Returns the trial with other values of one fault."""
    schedule = list(trial.schedule)
    try:
        schedule[index] = replace(schedule[index], **values)
    except UsageError:
        return None
    return changed(trial, schedule=tuple(schedule))


def with_workload(trial: Trial, **values: Any) -> Trial | None:
    """Returns the trial with other settings of its workload."""
    settings: Any = trial.experiment.workload
    try:
        workload = replace(settings, **values)
    except UsageError:
        return None
    return changed(trial, workload=workload)


def with_table(trial: Trial, table: str, **values: Any) -> Trial | None:
    """Returns the trial with other values of the table "cluster" or "topic"."""
    try:
        return changed(trial, **{table: replace(getattr(trial.experiment, table), **values)})
    except UsageError:
        return None


def with_partitions(trial: Trial, topics: int, partitions: int) -> Trial | None:
    """Returns the trial with fewer topics and partitions; faults aim at partitions that are left."""
    old = trial.experiment.topic
    try:
        new = replace(old, count=topics, partitions=partitions)
    except UsageError:
        return None
    names = {
        f"{topic}-{index}": f"{new.names()[number % topics]}-{index % partitions}"
        for number, topic in enumerate(old.names())
        for index in range(old.partitions)
    }
    topic_names = {name: new.names()[n % topics] for n, name in enumerate(old.names())}
    schedule = tuple(_renamed(fault, names, topic_names) for fault in trial.schedule)
    return changed(trial, topic=new, schedule=schedule)


def numbers_of(trial: Trial, appends: int) -> dict[str, int | float | str]:
    """Returns how large a trial is, by what a user would call it.

    Args:
        trial: The trial.
        appends: How many appends its clients invoked.
    """
    experiment = trial.experiment
    clients = getattr(experiment.workload, "processes", experiment.workload.client_hosts)
    return {
        "faults": len(trial.schedule),
        "duration_ms": experiment.duration_ms,
        "clients": int(clients),
        "partitions": experiment.topic.count * experiment.topic.partitions,
        "records": appends,
        "brokers": experiment.cluster.brokers,
        "controllers": experiment.cluster.controllers,
        "weather": experiment.weather,
    }


def _naming_only(faults: Sequence[Fault]) -> list[Fault]:
    """Returns faults of which none names one that is not among them; a repair without any left is dropped."""
    ids = {fault.id for fault in faults}
    kept = []
    for fault in faults:
        named = fault.params.get("faults")
        if named is not None:
            left = [name for name in named if name in ids]
            if not left:
                continue
            fault = replace(fault, params={**fault.params, "faults": left})
        kept.append(fault)
    return kept


def _renamed(fault: Fault, names: Mapping[str, str], topics: Mapping[str, str]) -> Fault:
    def selector(text: str) -> str:
        name, separator, partition = text.partition(":")
        return f"{name}:{names.get(partition, partition)}" if separator else text

    params = dict(fault.params)
    if "partition" in params:
        params["partition"] = names.get(params["partition"], params["partition"])
    if "topic" in params:
        params["topic"] = topics.get(params["topic"], params["topic"])
    if "groups" in params:
        params["groups"] = [[selector(one) for one in group] for group in params["groups"]]

    def text(trigger: Trigger | None) -> str:
        if trigger is None:
            return ""
        qualifiers = {
            word: names.get(value, value) if word == "of" else selector(value)
            for word, value in trigger.qualifiers.items()
        }
        return replace(trigger, qualifiers=qualifiers).text()

    if fault.messages is not None:
        params[MESSAGES] = text(fault.messages).removeprefix(f"{RECEIVED}:")
    return replace(
        fault,
        targets=tuple(map(selector, fault.targets)),
        params=params,
        on=text(fault.trigger),
        until=text(fault.healing_trigger),
    )
