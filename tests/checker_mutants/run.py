"""Judges mutants one after the other."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checker_mutants.children import Ended
from tests.checker_mutants.fresh import FreshProcess
from tests.checker_mutants.lines import Measured, keep, kept, measured
from tests.checker_mutants.mutants import ROOT, Mutant, mutants_of
from tests.checker_mutants.outcome import Ending, Outcome, Outcomes, source_of
from tests.checker_mutants.session import ARGUMENTS, WarmSession
from tests.checker_mutants.targets import DEFINITIONS, TESTS, WARM_UP, is_about, modules

FRESH_START_S = 10.0
"""Processor time that importing and collecting may take in a child that begins anew."""
PROGRESS_S = 30.0
KILLS_EXPECTED = 10
"""Of a test that compares with a definition, before anything is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which tests judge a mutant.

    Attributes:
        seconds_max: Processor time that they take together without mutants.
        is_thorough: Whether to run all of them, however long they take.
    """

    seconds_max: float
    is_thorough: bool


class Judge:
    """Chooses tests and runs them. Mutable: learns which tests kill."""

    def __init__(
        self,
        session: WarmSession,
        fresh: FreshProcess,
        lines: dict[str, Measured],
        judged: Iterable[tuple[Mutant, Outcome]],
        choice: Choice,
    ) -> None:
        self._session = session
        self._fresh = fresh
        self._lines = lines
        self._choice = choice
        self._kills: Counter[tuple[str, str]] = Counter()
        for mutant, outcome in judged:
            if outcome.by:
                self._learn(mutant, outcome.by)

    def outcome_of(self, mutant: Mutant) -> Outcome:
        """Judges one mutant."""
        tests = self._tests(mutant)
        if not tests:
            return self._outcome(mutant, "not executed", Ended(report=None, cpu_s=0.0))
        expected_s = sum(self._lines[test].seconds for test in tests)
        limit_s = 5 + 4 * expected_s
        if self._session.can_replace(mutant):
            ended = self._session.judge(mutant, tests, limit_s)
        else:
            ended = self._fresh.judge(mutant, tests, limit_s + FRESH_START_S)
        if ended.report is None:
            return self._outcome(mutant, "endless", ended)
        killer = ended.report["by"]
        if not killer:
            return self._outcome(mutant, "survived", ended)
        self._learn(mutant, killer)
        return self._outcome(mutant, "killed", ended)

    def _weight(self, test: str) -> float:
        is_definition = test.partition("::")[0] in DEFINITIONS
        return 1 + self._kills["", test] + KILLS_EXPECTED * is_definition

    def _learn(self, mutant: Mutant, killer: str) -> None:
        for scope in ("", mutant.module, mutant.module + mutant.function):
            self._kills[scope, killer] += 1

    def _outcome(self, mutant: Mutant, ending: Ending, ended: Ended) -> Outcome:
        report = ended.report or {}
        return Outcome(
            source=source_of(mutant.module),
            mutant=mutant.name,
            ending=ending,
            by=report.get("by", ""),
            tests=report.get("tests", 0),
            cpu_s=ended.cpu_s,
            thorough=self._choice.is_thorough,
        )

    def _tests(self, mutant: Mutant) -> list[str]:
        """Returns the tests that execute the mutant, the most promising first.

        These are killers of its function, of its module, tests named after the module, and tests that killed much
        in little time. Comparisons with definitions and with exhaustive search count as if they had killed before.
        """
        tests = [test for test, found in self._lines.items() if found.executes(mutant)]
        in_function, in_module = mutant.module + mutant.function, mutant.module
        tests.sort(
            key=lambda test: (
                -self._kills[in_function, test],
                -self._kills[in_module, test],
                not is_about(test, mutant.module),
                (0.02 + self._lines[test].seconds) / self._weight(test),
            )
        )
        if self._choice.is_thorough:
            return tests
        chosen, seconds = [], 0.0
        for test in tests:
            seconds += self._lines[test].seconds
            is_in_time = seconds <= self._choice.seconds_max or not chosen
            # A slow test that killed once must not keep away the quick ones that are about the module.
            if is_in_time or is_about(test, mutant.module):
                chosen.append(test)
        return chosen


def judge_all(
    mutants: Sequence[Mutant], outcomes: Outcomes, choice: Choice, *, lines_path: Path
) -> None:
    """Judges mutants and keeps the outcomes.

    Args:
        mutants: Which.
        outcomes: Where the outcomes go, each as soon as it is known.
        choice: Which tests run.
        lines_path: The file with the lines that each test executes, which is written if it is out of date.

    Raises:
        RuntimeError: A test cannot be collected or fails without any mutant; the sentence names it.
    """
    if not mutants:
        return
    fresh = FreshProcess()

    problems: list[str] = []

    def judge_in(session: WarmSession) -> None:
        try:
            session.warm_up(WARM_UP)
            lines = _lines(session, lines_path)
        except RuntimeError as problem:
            problems.append(str(problem))
            return
        judge = Judge(session, fresh, lines, _judged(outcomes), choice)
        began = noted = time.monotonic()
        # Those outside of functions take seconds each.
        for done, mutant in enumerate(sorted(mutants, key=lambda m: not m.is_in_function)):
            outcomes.add(judge.outcome_of(mutant))
            if time.monotonic() - noted > PROGRESS_S:
                noted = time.monotonic()
                pace = (noted - began) / (done + 1)
                message = f"{done + 1} of {len(mutants)} mutants, {pace:.2f} s each"
                print(message, file=sys.stderr, flush=True)

    try:
        paths = [str(ROOT / test) for test in TESTS]
        code = pytest.main([*ARGUMENTS, *paths], plugins=[WarmSession(modules(), judge_in)])
    finally:
        fresh.close()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        problems.append("the tests cannot be collected; run them with pytest")
    if problems:
        raise RuntimeError(problems[0])


def _judged(outcomes: Outcomes) -> Iterable[tuple[Mutant, Outcome]]:
    for module in modules():
        for mutant in mutants_of(module):
            outcome = outcomes.get(mutant)
            if outcome is not None:
                yield mutant, outcome


def _lines(session: WarmSession, path: Path) -> dict[str, Measured]:
    tests = kept(path, modules())
    missing = [test for test in session.tests if test not in tests]
    if missing:
        message = f"running {len(missing)} tests once, to see which lines each executes"
        print(message, file=sys.stderr, flush=True)
        tests |= session.measure(missing)
        keep(path, tests, modules())
    return measured({test: tests[test] for test in session.tests})
