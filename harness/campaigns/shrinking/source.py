"""From a stored run to what is shrunk: an explicit schedule for the simulation, and the finding to keep."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.campaigns.shrinking.finding import identity
from harness.campaigns.shrinking.trial import Trial, explicit
from harness.campaigns.signature import Finding, findings_of
from harness.environments.registry import DEFAULT
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.code_version import code_version
from harness.runs.experiment import Experiment
from harness.runs.outcomes import stored_verdict
from harness.runs.replay import load_replay
from harness.systems.registry import REFERENCE, SYSTEMS
from results.history_files import read_tables
from results.layout import RunFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stored run that can be shrunk.

    Attributes:
        run: Its name, for people.
        trial: What it ran, with the faults that it injected as an explicit schedule, in the simulation.
        finding: The finding to keep.
        wanted: The identity of the finding in the simulation.
        is_changed: Why the simulation may show something else; empty if it repeats the run exactly.
    """

    run: str
    trial: Trial
    finding: Mapping[str, Any]
    wanted: tuple[str, ...]
    is_changed: str


def load_source(directory: Path, run: str, *, signature: str = "") -> Source:
    """Reads a stored run and chooses the finding to keep.

    Args:
        directory: The run.
        run: Its name, for messages.
        signature: Of the finding, or its beginning; empty for the most severe one.

    Raises:
        HistoryError: The run is damaged.
        UsageError: It cannot be shrunk; the sentence states the reason.
    """
    experiment, seed, stored = load_replay(directory)
    if experiment.scenario:
        raise UsageError(
            f"{run} runs the scripted scenario {experiment.scenario!r}, whose steps wait for one another, so none "
            "can be left out; only runs with a schedule can be shrunk"
        )
    finding = _chosen(directory, run, experiment, signature)
    simulated = _simulated(experiment, run)
    # What is left at the end is needed, so none of it is optional.
    schedule = [
        replace(fault, optional=False)
        for fault in sorted(experiment.schedule, key=lambda fault: fault.at_ms)
    ]
    wanted = identity({**finding.parts, "system": simulated.system})
    return Source(
        run=run,
        trial=explicit(simulated, schedule, seed),
        finding=finding.to_json(),
        wanted=wanted,
        is_changed=_changes(experiment, simulated, str(stored["code"])),
    )


def _chosen(directory: Path, run: str, experiment: Experiment, signature: str) -> Finding:
    if not RunFiles(directory).verdict.is_file():
        raise UsageError(f"{run} was not judged; say `laststand check {shlex.quote(run)}` first")
    verdict = stored_verdict(directory)
    findings = findings_of(experiment, read_tables(directory), verdict)
    if not findings:
        raise UsageError(
            f"{run} has no finding to keep: its verdict is {verdict.validity}, without a forbidden anomaly or a "
            "broken invariant"
        )
    for finding in findings:
        if finding.signature.startswith(signature):
            return finding
    known = ", ".join(f"{one.signature} ({one.title})" for one in findings)
    raise UsageError(f"{run} has no finding {signature!r}; it has {known}")


def _simulated(experiment: Experiment, run: str) -> Experiment:
    """Returns the experiment in the simulation, on the reference system if its own cannot run there."""
    if experiment.environment.is_simulated:
        return experiment
    system = SYSTEMS.get(experiment.system)
    other = {} if DEFAULT in system.environments else {"system": REFERENCE, "version": ""}
    try:
        return experiments.changed(experiment, on=DEFAULT, inventory="", **other)
    except UsageError as error:
        raise UsageError(
            f"{run} ran on {experiment.on}, and runs are shrunk in the simulation, where it cannot run: {error}"
        ) from None


def _changes(experiment: Experiment, simulated: Experiment, code: str) -> str:
    if not experiment.environment.is_simulated:
        system = "" if simulated.system == experiment.system else ", on the reference system"
        return f"the run took place on {experiment.on}, and this was the simulation{system}"
    return "the code has changed since that run" if code != code_version() else ""
