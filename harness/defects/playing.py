"""Plays a story as a run, and judges it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from checkers.final_reads import judge_with_final_reads
from checkers.transaction_anomalies import OF_TRANSACTIONS
from harness.contracts.run_context import context_from_facts
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.defects.story import TOPIC, Plot, Story
from harness.runs.experiment import ClusterConfig, Experiment, TopicConfig
from harness.runs.promises import promised_context
from harness.runs.result import RunResult
from system_under_test.config import DEFAULT_PROFILE
from workloads.append_config import AppendConfig
from workloads.transactions import TRANSACTIONS

SEGMENT_BYTES = ClusterConfig().segment_bytes
"""Without a schedule that needs another size."""
CODE_OF = {
    "lost-acked-write": "A",
    "visible-regress": "V",
    "divergent-value": "D",
    "corrupt-record": "C",
    "committed-offset-regressed": "G",
    "double-ownership": "G",
    "phantom-commit": "G",
    "group-skipped-record": "G",
    "lost-record": "R",
    "skipped-offset": "R",
    "unordered-poll": "R",
    "nonmonotonic-poll": "R",
    "misplaced-record": "R",
    "failed-append-visible": "E",
    "impossible-offset": "O",
    **dict.fromkeys(OF_TRANSACTIONS, "T"),
}
"""Letters of `defects.LETTERS` for what checkers call by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a story came to.

    Attributes:
        verdict: As of any run.
        complaints: What the schedule itself found unavailable or too late.
        codes: Letters of `defects.LETTERS` for what clients saw.
    """

    result: RunResult
    verdict: Verdict
    complaints: tuple[str, ...]
    codes: frozenset[str]

    @property
    def is_clean(self) -> bool:
        """Whether the run has no problem."""
        return self.verdict.validity is Validity.VALID and not self.complaints

    @property
    def forbidden(self) -> frozenset[str]:
        """Identifiers of the anomalies that break a promise."""
        return forbidden(self.verdict)

    @property
    def invariants(self) -> frozenset[str]:
        """Identifiers of the invariants that were found broken."""
        return frozenset(
            word.rstrip(":")
            for text in self.result.violations
            for word in text.split()
            if word.startswith("INV-")
        )

    def mark_counts(self) -> Counter[str]:
        """Returns how often each rare branch was taken."""
        return Counter(self.result.tables["marks"].column("mark").to_pylist())

    def __str__(self) -> str:
        return "; ".join(
            [
                str(self.verdict.validity),
                *self.verdict.reasons,
                *self.result.violations,
                *self.complaints,
            ]
        )


def play(
    plot: Plot,
    *off: str,
    profile: str = DEFAULT_PROFILE,
    min_isr: int = 2,
    brokers: int = 3,
    log_dirs: int = 1,
    is_watched: bool = True,
    final_phase_ms: int = 8000,
    partitions: int = 1,
    segment_bytes: int = SEGMENT_BYTES,
    properties: Mapping[str, str] | None = None,
    workload: Mapping[str, Any] | None = None,
) -> Ending:
    """Plays a story and judges it.

    Args:
        plot: What happens.
        off: Rules that are switched off.
        profile: Of the cluster.
        min_isr: Of the topic.
        brokers: How many there are; the partition begins on the first three.
        log_dirs: Of each broker.
        is_watched: Whether the invariant monitor is active; a violation ends the run.
        final_phase_ms: Bound on healing and catching up.
        partitions: Of the topic; schedules are about the first one.
        segment_bytes: Of every segment.
        properties: Kafka's properties of the nodes.
        workload: Settings of the clients (`AppendConfig`).
    """
    experiment = Experiment(
        name="defect",
        profile=profile,
        weather="calm",
        final_phase_ms=final_phase_ms,
        cluster=ClusterConfig(brokers=brokers, log_dirs=log_dirs, segment_bytes=segment_bytes),
        topic=TopicConfig(name=TOPIC, partitions=partitions, min_insync_replicas=min_isr),
        workload=replace(AppendConfig(processes=12, request_timeout_ms=4000), **(workload or {})),
        disabled_rules=tuple(off),
        properties=properties or {},
    )
    story = Story(plot, experiment, is_watched=is_watched)
    result = story.to_its_end()
    verdict = _judged_story(story, result)
    codes = letters(verdict) | story.codes | ({"L"} if result.stuck else set())
    return Ending(
        result=result, verdict=verdict, complaints=tuple(story.complaints), codes=frozenset(codes)
    )


def _judged_story(story: Story, result: RunResult) -> Verdict:
    tables, checkers = result.tables, promised_context(story.experiment).checkers
    events = story.transaction_history.close()["transaction_events"]
    if events.num_rows:
        tables = {**tables, "transaction_events": events}
        checkers = tuple(dict.fromkeys((*checkers, *TRANSACTIONS.checkers)))
    # A schedule decides itself how much is acknowledged during its faults.
    return judged(tables, acked_during_faults_min=0, checkers=checkers)


def judged(tables: Mapping[str, Any], **changes: Any) -> Verdict:
    """Judges the tables of a run.

    Args:
        tables: Of a run, `run_facts` among them.
        changes: Values that replace those of its context.
    """
    recorded = context_from_facts(tables["run_facts"])
    assert recorded is not None, "a simulated run records its facts"
    return judge_with_final_reads(tables, replace(recorded, **changes))


def forbidden(verdict: Verdict) -> frozenset[str]:
    """Returns the identifiers of the anomalies that break a promise."""
    return frozenset(
        anomaly.id for anomaly in verdict.anomalies if anomaly.judgement is Judgement.FORBIDDEN
    )


def letters(verdict: Verdict) -> set[str]:
    """Returns the letters of `defects.LETTERS` for the promises that a run broke."""
    return {CODE_OF[identifier] for identifier in forbidden(verdict) if identifier in CODE_OF}
