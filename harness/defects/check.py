"""Runs the schedule of a defect with the defect off and on, and compares what is found with its description."""

from dataclasses import dataclass

from checkers.examples import PRODUCED_BY
from harness.defects.groups import broken, verdicts
from harness.defects.playing import Ending, letters, play
from harness.defects.table import GROUP_FAULTS, SCHEDULES, Schedule
from system_under_test.config import DEFAULT_PROFILE
from system_under_test.defects import DEFECTS, Defect


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the schedule of one defect showed.

    Attributes:
        id: Of the defect.
        control: What was found with the defect off; empty if nothing was.
        invariants: What the invariant monitor found with the defect on.
        codes: Letters of `defects.LETTERS` for what clients saw with the defect on, without the monitor.
        anomalies: What the checkers reported then, allowed anomalies included.
        problems: In sentences, how that differs from the description of the defect; empty if it does not.
        marks: How often each rare branch was taken then.
    """

    id: str
    control: tuple[str, ...]
    invariants: frozenset[str]
    codes: frozenset[str]
    anomalies: frozenset[str]
    problems: tuple[str, ...]
    marks: dict[str, int]


def check_defect(identifier: str) -> Checked:
    """Runs the schedule of a defect.

    With the defect off the run must be valid, and nothing unavailable. With it on the monitor must find one of the
    listed invariants broken, and, where no monitor ends the run, clients must see all listed harm.

    Args:
        identifier: Of a defect.
    """
    defect = DEFECTS[identifier]
    if identifier in GROUP_FAULTS:
        return _check_groups(defect, GROUP_FAULTS[identifier])
    schedule = SCHEDULES[identifier]
    # A defect without rules is a property of its profile; the newest release is the control.
    control = _play(schedule, profile=defect.profile if defect.rules else DEFAULT_PROFILE)
    watched = _play(schedule, *defect.rules, profile=defect.profile) if defect.invariants else None
    unwatched = _play(schedule, *defect.rules, profile=defect.profile, is_watched=False)
    return _compared(
        defect,
        control=() if control.is_clean else (str(control),),
        invariants=watched.invariants if watched else frozenset(),
        codes=unwatched.codes,
        anomalies=frozenset(anomaly.id for anomaly in unwatched.verdict.anomalies),
        marks=unwatched.mark_counts(),
    )


def _play(schedule: Schedule, *off: str, profile: str, is_watched: bool = True) -> Ending:
    return play(
        schedule.plot,
        *off,
        profile=profile,
        min_isr=schedule.min_isr,
        brokers=schedule.brokers,
        log_dirs=schedule.log_dirs,
        partitions=schedule.partitions,
        segment_bytes=schedule.segment_bytes,
        properties=schedule.properties,
        workload=schedule.workload,
        is_watched=is_watched,
    )


def _check_groups(defect: Defect, fault: str) -> Checked:
    """As `check_defect`, for consumer groups, which the invariant monitor does not know."""
    found = verdicts(fault, *defect.rules)
    return _compared(
        defect,
        control=tuple(sorted(broken(fault))),
        invariants=frozenset(),
        codes=frozenset().union(*map(letters, found)),
        anomalies=frozenset(anomaly.id for verdict in found for anomaly in verdict.anomalies),
        marks={},
    )


def _compared(
    defect: Defect,
    *,
    control: tuple[str, ...],
    invariants: frozenset[str],
    codes: frozenset[str],
    anomalies: frozenset[str],
    marks: dict[str, int],
) -> Checked:
    problems = [f"with the defect off: {finding}" for finding in control]
    if defect.invariants and not invariants & set(defect.invariants):
        seen = ", ".join(sorted(invariants)) or "nothing"
        problems.append(f"the monitor found {seen} and not {' or '.join(defect.invariants)}")
    missing = set(defect.anomalies) - codes
    if missing:
        problems.append(
            f"clients saw {', '.join(sorted(codes)) or 'nothing'} and not {', '.join(sorted(missing))}"
        )
    named = {name for name, producers in PRODUCED_BY.items() if defect.id in producers}
    if named - anomalies:
        problems.append(
            f"not found: {', '.join(sorted(named - anomalies))}, which docs/anomalies.md names"
        )
    return Checked(
        id=defect.id,
        control=control,
        invariants=invariants,
        codes=codes,
        anomalies=anomalies,
        problems=tuple(problems),
        marks=marks,
    )
