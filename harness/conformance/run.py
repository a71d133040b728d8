"""Runs the catalogue on both clusters and judges every difference."""

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.conformance.catalogue import catalogue
from harness.conformance.clusters import Side, reference_profile, running_sides
from harness.conformance.comparison import Difference, Observation, differences
from harness.conformance.connection import SILENT
from harness.conformance.expectations import Assessment, assess, expected_differences, matches
from harness.conformance.probe import Case, PreparationError, Probe, run_case
from harness.contracts.progress import ProgressDisplay
from harness.errors import UsageError
from harness.systems.apache_kafka.versions import Version

ALIVE_CHECK_EVERY = 20
"""Cases between two looks at the processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What both clusters did with one case.

    Attributes:
        case: Its id.
        apache_kafka, reference: What came back.
    """

    case: str
    apache_kafka: tuple[Observation, ...]
    reference: tuple[Observation, ...]

    @property
    def differences(self) -> list[Difference]:
        """Every field that differs."""
        return differences(self.case, self.apache_kafka, self.reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """The result of a comparison.

    Attributes:
        version: Of Apache Kafka.
        profile: Of the reference system.
        results: One per case.
        assessment: What the list of expected differences says.
        elapsed_s: Including the start of both clusters.
    """

    version: Version
    profile: str
    results: tuple[CaseResult, ...]
    assessment: Assessment
    elapsed_s: float

    @property
    def request_count(self) -> int:
        """How many requests were compared."""
        return sum(max(len(one.apache_kafka), len(one.reference)) for one in self.results)

    @property
    def is_as_expected(self) -> bool:
        """Whether every difference is expected and every expected one occurred."""
        return not self.assessment.new and not self.assessment.gone


def chosen_cases(patterns: Sequence[str]) -> list[tuple[int, Case]]:
    """Returns (number, case) of all cases that one of the patterns matches; all cases without a pattern.

    A pattern is a part of an id, or a whole id in which `*` stands for any text.

    Raises:
        UsageError: A pattern matches no case.
    """
    numbered = list(enumerate(catalogue(), 1))
    for pattern in patterns:
        if not any(_is_chosen(pattern, case.id) for _, case in numbered):
            raise UsageError(
                f"no request matches {pattern!r}; `laststand conformance --list` prints all of them"
            )
    if not patterns:
        return numbered
    return [
        (number, case)
        for number, case in numbered
        if any(_is_chosen(pattern, case.id) for pattern in patterns)
    ]


def _is_chosen(pattern: str, case_id: str) -> bool:
    return matches(pattern if "*" in pattern else f"*{pattern}*", case_id)


def compare(version: Version, patterns: Sequence[str], progress: ProgressDisplay) -> Conformance:
    """Starts both clusters, sends the chosen requests to both, and compares the responses.

    Args:
        version: Of Apache Kafka.
        patterns: Which cases; all if empty.
        progress: Gets a line per step and the number of cases.

    Raises:
        UsageError: A pattern matches nothing, or this version cannot be started here.
        HarnessFailure: A cluster did not start, or one of its nodes ended.
    """
    began_s = time.monotonic()
    cases = chosen_cases(patterns)
    partitions = _partitions(cases)
    with (
        tempfile.TemporaryDirectory(prefix="laststand-conformance-") as directory,
        running_sides(
            version, Path(directory), writers=len(partitions), progress=progress
        ) as sides,
    ):
        results = _run_all(cases, partitions, sides, progress)
    found = [difference for result in results for difference in result.differences]
    assessment = assess(
        found,
        expected_differences(version),
        sent={case.id for _, case in cases},
        catalogue={case.id for case in catalogue()},
    )
    return Conformance(
        version=version,
        profile=reference_profile(version),
        results=tuple(results),
        assessment=assessment,
        elapsed_s=time.monotonic() - began_s,
    )


def never_answered(version: Version, case: str, progress: ProgressDisplay) -> bool:
    """Whether Apache Kafka leaves the last request of a case without any response, its connection open.

    Args:
        version: Of Apache Kafka.
        case: Id of the case.
        progress: Gets a line per step.

    Raises:
        UsageError: There is no such case, or this version cannot be started here.
        HarnessFailure: A cluster did not start, or one of its nodes ended.
    """
    [result] = compare(version, [case], progress).results
    return result.apache_kafka[-1].outcome == SILENT


def _partitions(cases: Sequence[tuple[int, Case]]) -> dict[int, int]:
    """Returns the partition of each case that writes, by its number."""
    writers = [number for number, case in cases if case.writes]
    return {number: index for index, number in enumerate(writers)}


def _run_all(
    cases: Sequence[tuple[int, Case]],
    partitions: dict[int, int],
    sides: tuple[Side, Side],
    progress: ProgressDisplay,
) -> list[CaseResult]:
    results = []
    with ThreadPoolExecutor(2) as pool:
        for done, (number, case) in enumerate(cases, 1):
            run = _runner(number, case, partitions.get(number, -1))
            kafka, reference = pool.map(run, sides)
            results.append(CaseResult(case=case.id, apache_kafka=kafka, reference=reference))
            if done % ALIVE_CHECK_EVERY == 0 or done == len(cases):
                for side in sides:
                    side.check_alive(case.id)
            progress.update("requests", done / len(cases), f"{done}/{len(cases)} {case.id}")
    return results


def _runner(number: int, case: Case, partition: int) -> Callable[[Side], tuple[Observation, ...]]:
    def run(side: Side) -> tuple[Observation, ...]:
        try:
            probe = Probe(side.target, number, partition)
        except PreparationError as error:
            # A node that ended is the explanation, if there is one.
            side.check_alive(case.id)
            return (Observation(request="metadata v12", outcome=f"failed: {error}"),)
        return tuple(run_case(case, probe))

    return run
