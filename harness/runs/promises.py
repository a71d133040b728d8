"""What a run promises and how far it got, written into its own record.

The first row of `run_facts` goes into the history before anything else happens: a harness that is killed leaves a
record that shows it. The second row records how the run ended.
"""

from collections.abc import Sequence
from dataclasses import replace

from harness.contracts.run_context import RunContext, context_to_row, one_fault
from harness.contracts.system import HasElectionTimeout, Promises
from harness.contracts.workload import HasCheckers, LeavesTransactionsOpen
from harness.history.writer import HistoryWriter
from harness.runs.experiment import Experiment
from harness.systems.properties import is_compacted
from nemesis.fault import Fault

HARNESS_DIED = "the harness died before the run was over"
STUCK_TIMEOUTS = 10
"""After so many election timeouts without progress a healed partition is stuck. Nothing that works takes two."""
STUCK_REAL_MS_MIN = 30_000
"""In real environments a process on a busy machine may take seconds to start."""

CLEANUP_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
CLEANUP_INTERVAL_MS = 10_000
"""How often a coordinator looks for transactions whose time is over; Kafka's default."""


def promises_of(experiment: Experiment) -> Promises:
    """Returns what the system of an experiment promises with its profile."""
    return experiment.system_under_test.profiles[experiment.profile]


def checkers_of(experiment: Experiment) -> tuple[str, ...]:
    """Returns the checkers of the workload, and those that its settings need, each of them once."""
    settings = experiment.workload
    more = settings.checkers if isinstance(settings, HasCheckers) else ()
    return tuple(dict.fromkeys((*experiment.workload_type.checkers, *more)))


def promised_context(experiment: Experiment, schedule: Sequence[Fault] | None = None) -> RunContext:
    """Returns what an experiment declares, for a run that has not ended.

    Args:
        experiment: What is run.
        schedule: Its faults; without them, those that the experiment lists.
    """
    promises = promises_of(experiment)
    topic = experiment.topic
    return RunContext(
        profile=experiment.profile,
        elr_on=promises.elr_on,
        min_isr=min(topic.min_insync_replicas, topic.replication_factor),
        replication_factor=topic.replication_factor,
        unclean_election_enabled=experiment.cluster.unclean_leader_election,
        checkers=checkers_of(experiment),
        enabled_faults=_enabled_faults(experiment, schedule),
        # A script makes a partition unavailable on purpose, and an unreplicated one is down with its only replica.
        acked_during_faults_min=0 if experiment.scenario or topic.replication_factor == 1 else 1,
        recovery_max_ms=experiment.recovery_max_ms,
        stuck_after_ms=_stuck_after_ms(experiment),
        compacted=is_compacted(experiment.properties),
        final_phase_complete=False,
        incomplete_reason=HARNESS_DIED,
    )


def _enabled_faults(
    experiment: Experiment, schedule: Sequence[Fault] | None
) -> tuple[str, ...] | None:
    """Returns what must take effect: what the user wrote, or what is drawn if a seed draws nothing of it."""
    nemesis = experiment.nemesis
    if schedule is not None and not schedule and not experiment.scenario:
        return (*nemesis.faults, *nemesis.templates) or None
    faults = experiment.schedule if schedule is None else schedule
    needed = [one for one in faults if not one.optional and not one.type.is_repair]
    return tuple(sorted(one_fault(one.fault, one.id) for one in needed)) or None


def _stuck_after_ms(experiment: Experiment) -> int:
    system = experiment.system_under_test
    if not isinstance(system, HasElectionTimeout):
        return 0
    timeout_ms = system.election_timeout_ms(experiment.timings, experiment.properties)
    least_ms = 0 if experiment.environment.is_simulated else STUCK_REAL_MS_MIN
    scaled_ms = max(STUCK_TIMEOUTS * timeout_ms, least_ms) * experiment.time_scale
    return round(scaled_ms) + _left_open_ms(experiment)


def _left_open_ms(experiment: Experiment) -> int:
    """Returns how long a correct system may wait before it ends a transaction that its producer left open."""
    settings = experiment.workload
    if not isinstance(settings, LeavesTransactionsOpen) or not settings.left_open_ms:
        return 0
    interval_ms = experiment.properties.get(CLEANUP_INTERVAL, "")
    # The system itself refuses to start with what is no number.
    return settings.left_open_ms + (
        int(interval_ms) if interval_ms.isdecimal() else CLEANUP_INTERVAL_MS
    )


def without_end(context: RunContext) -> RunContext:
    """Returns a context as that of a run whose harness died before its history was finished."""
    return replace(context, final_phase_complete=False, incomplete_reason=HARNESS_DIED)


def record_promises(
    history: HistoryWriter, experiment: Experiment, schedule: Sequence[Fault]
) -> None:
    """Records what a run with some faults promises; the first thing that its history holds."""
    history.add("run_facts", context_to_row(promised_context(experiment, schedule)))
    history.flush()


def record_end(
    history: HistoryWriter,
    experiment: Experiment,
    schedule: Sequence[Fault],
    *,
    final_phase_complete: bool,
    incomplete_reason: str,
    healed_ns: int | None,
    ended_ns: int | None,
) -> None:
    """Records how a run ended; the last thing that its history holds.

    Args:
        history: The run's history.
        experiment: What was run.
        schedule: Its faults.
        final_phase_complete: Whether the final phase ended as planned.
        incomplete_reason: Why the run ended early; empty if it did not.
        healed_ns: When everything had been healed and started; None if never.
        ended_ns: When the run ended; None if it was not observed until then.
    """
    context = replace(
        promised_context(experiment, schedule),
        final_phase_complete=final_phase_complete,
        incomplete_reason=incomplete_reason,
        healed_ns=healed_ns,
        ended_ns=ended_ns,
    )
    history.add("run_facts", context_to_row(context))
