"""Seeds of the correct broker whose verdicts are compared with what is left on the disks."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.campaigns.effects import row_of_effects
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.errors import HarnessFailure
from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.judge import judge_record
from harness.runs.resolved import resolve
from harness.runs.result import RunResult
from tests.evidence.cases import AS_ON_DISKS, UNTESTED, Cases
from tests.evidence.known_finding import known_reason
from tests.evidence.recorded_runs import RecordedRun, recorded_run, simulated_run

STUCK_AFTER_FLAGGED = "stuck after a flagged election"
STUCK_BELOW_MIN_ISR = "stuck with fewer replicas than min ISR"
EXPLAINED = (UNTESTED, AS_ON_DISKS, STUCK_AFTER_FLAGGED, STUCK_BELOW_MIN_ISR)
"""Reasons of verdicts that are as they should be."""
FLAGGED = {"elected-unclean", "elected-last-known-leader"}
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRuns:
    """Numbered runs: each seed runs with every profile, one after the other.

    Attributes:
        file: The experiment.
        profiles: Which releases of Kafka the broker behaves like.
        changes: Other values for some keys of the experiment, by table.
    """

    file: str
    profiles: tuple[str, ...]
    changes: dict[str, Any] = field(default_factory=dict)

    def judge(self, first: int, count: int) -> Cases:
        """Runs and judges cases `first` to `first + count - 1`."""
        cases = Cases()
        experiments = [(profile, self.experiment(profile)) for profile in self.profiles]
        for number in range(first, first + count):
            seed, index = divmod(number, len(self.profiles))
            profile, planned = experiments[index]
            wrong, reason = judged_run(planned, seed)
            if not _is_settled(wrong, reason):
                known = known_finding(planned, seed, is_wrong=bool(wrong))
                wrong, reason = ("", known) if known else (wrong, reason)
            if wrong:
                cases.wrong.append(f"{profile}, seed {seed}: {wrong}")
            elif reason:
                reason = f"{profile}: {reason}"
                cases.unknown[reason] = cases.unknown.get(reason, 0) + 1
        return cases

    def experiment(self, profile: str) -> Experiment:
        """Returns what runs with a profile, before the seed draws its configuration."""
        data = experiment_file.to_data(experiment_file.load(ROOT / self.file, on="simulation"))
        data["profile"] = profile
        for key, value in self.changes.items():
            data[key] = {**data[key], **value} if isinstance(value, dict) else value
        return experiment_file.from_data(data)


def _is_settled(wrong: str, reason: str) -> bool:
    """Whether a verdict is right, and valid or for a known reason not."""
    return not wrong and (not reason or reason.endswith(EXPLAINED))


def known_finding(planned: Experiment, seed: int, *, is_wrong: bool) -> str:
    """Returns why a run is as it should be although it is wrong or unknown; "" if it is not."""

    def is_right(otherwise: Experiment) -> bool:
        wrong, reason = judged_run(otherwise, seed, runs=simulated_run)
        return _is_settled(wrong, reason) or (is_wrong and not wrong)

    return known_reason(planned, seed, is_right)


def judged_run(
    planned: Experiment,
    seed: int,
    *,
    runs: Callable[[Experiment, int], RecordedRun] = recorded_run,
) -> tuple[str, str]:
    """Runs one seed.

    Args:
        planned: The experiment, before the seed draws its configuration.
        seed: Of the run.
        runs: Runs a resolved experiment.

    Returns:
        What is wrong with the run or its verdict, and why its verdict is not valid; each "" if there is nothing.
    """
    experiment, _ = resolve(planned, seed)
    run = runs(experiment, seed)
    result = run.result
    marks = set(result.tables["marks"].column("mark").to_pylist())
    if result.stuck:
        # It may lose a coordinator's state, and a transaction then stays open for good, as in Kafka.
        if marks & FLAGGED:
            return "", STUCK_AFTER_FLAGGED
        return ("", STUCK_BELOW_MIN_ISR) if _has_too_few_replicas(result) else (result.stuck, "")
    try:
        verdict = judge_record(result.tables, experiment)
    except HarnessFailure as error:
        return str(error), ""
    if result.violations:
        return f"violations: {result.violations[:2]}", ""
    (elr_on,) = result.tables["run_facts"].column("elr_on").to_pylist()
    destroyed = any(
        row["took_effect"] and row["can_lose_data"] for row in result.tables["faults"].to_pylist()
    )
    if (
        verdict.validity is Validity.UNKNOWN
        and not row_of_effects(experiment, verdict)["unknown_reason"]
    ):
        return "", UNTESTED
    return compare(verdict, run.missing, may_lose=destroyed and not elr_on)


def _has_too_few_replicas(result: RunResult) -> bool:
    """Whether a leader refused appends at the end because a reassignment left it fewer replicas than min ISR.

    Releases without KIP-966 ask for as many replicas as the topic's configuration says.
    """
    replicas = {
        (row["topic"], row["partition"]): row["replicas"]
        for row in result.tables["partition_states"].sort_by("metadata_offset").to_pylist()
    }
    marks = result.tables["marks"].sort_by("at_ns")
    refused = marks.filter(pc.equal(marks.column("mark"), "not-enough-replicas"))
    last = [json.loads(text) for text in refused.column("details").to_pylist()[-1:]]
    return any(len(replicas[row["topic"], row["partition"]]) < row["min_isr"] for row in last)


def compare(verdict: Verdict, missing: int | None, *, may_lose: bool) -> tuple[str, str]:
    """Compares a verdict with the number of acknowledged records that are not on the disks of the last leaders.

    Args:
        verdict: Of the run.
        missing: That number; None if it is not known.
        may_lose: Whether the release has no ELR, and a fault destroyed data: the only member of the ISR may lose
            its tail and lead.

    Returns:
        What is wrong, and why the verdict is not valid; each "" if there is nothing.
    """
    undecided = sum(
        one.count
        for one in verdict.anomalies
        if one.id == "lost-acked-write" and one.judgement is Judgement.UNDECIDED
    )
    lost = verdict.unexcused_lost_records + verdict.excused_lost_records + undecided
    if verdict.validity is Validity.UNKNOWN:
        # What follows a colon names operations of this run.
        return "", "; ".join(reason.partition(":")[0] for reason in verdict.reasons)
    if missing is not None and missing != lost:
        return (
            f"{verdict.validity}, {lost} lost records, but {missing} are missing on the disks",
            "",
        )
    if verdict.validity is Validity.VALID:
        return "", ""
    forbidden = sorted(
        {one.id for one in verdict.anomalies if one.judgement is Judgement.FORBIDDEN}
    )
    if not may_lose:
        return f"invalid: {forbidden}", ""
    return "", AS_ON_DISKS
