"""Verdicts on a correct broker, whatever a run declares; `tests.property.declared_runs` judges more runs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels import free_appends, real_time
from checkers.kernels.compose import judge_run
from checkers.kernels.excuses import Excuses, fates_of
from checkers.kernels.facts import Facts
from checkers.kernels.fates import EXCUSED, UNEXCUSED, Fates
from checkers.kernels.findings import Finding
from checkers.kernels.history import PartitionHistory
from checkers.kernels.real_time import NotAfter, not_after
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity
from tests.anomalies.runs import run
from tests.parts import parts
from tests.property import declared_simulation
from tests.property.brute_force import Call
from tests.property.declared_runs import run_of, wrong_verdicts
from tests.property.declared_simulation import Declaration

RUNS = 240
"""In parts, so that they can run side by side."""

EFFECTS = (
    "acks=0",
    "acks=1",
    "clock error",
    "copies",
    "epochs",
    "fail-over",
    "gaps",
    "hidden offset",
    "idempotence",
    "log start",
    "pipelining",
    "unclean election",
)
"""What must really happen, alone and in pairs."""

IMPOSSIBLE = {("acks=0", "idempotence"), ("acks=1", "idempotence"), ("copies", "idempotence")}
"""Idempotent producers use acks=all, and no record of them is in the log twice."""


@pytest.mark.parametrize("part", parts(range(4), quick=2))
def test_a_correct_broker_is_never_invalid_and_a_loss_without_excuse_never_valid(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4)) == []


def test_enough_runs_have_each_effect_and_each_pair_of_them() -> None:
    count: Counter[tuple[str, ...]] = Counter()
    for number in range(1000):
        declared = run_of(number)
        effects = [effect for effect in EFFECTS if effect in declared.effects]
        count.update((effect,) for effect in effects)
        count.update(combinations(effects, 2))
        if declared.lost():
            count.update((effect, "loss") for effect in effects)
    assert {effect: count[effect,] for effect in EFFECTS if count[effect,] < 100} == {}
    pairs = [*combinations(EFFECTS, 2), *((effect, "loss") for effect in EFFECTS)]
    assert {pair for pair in pairs if count[pair] < 10} == IMPOSSIBLE
    assert all(count[pair] == 0 for pair in IMPOSSIBLE)


def test_enough_runs_are_valid_or_unknown_and_enough_losses_are_noticed() -> None:
    """If all verdicts were unknown, none could be wrong."""
    with_metadata: Counter[Validity] = Counter()
    without: Counter[Validity] = Counter()
    for number in range(80):
        declared = run_of(number)
        if declared.lost():
            tables = declared.tables(with_metadata=False)
            without[judge_run(tables, declared.context).validity] += 1
        else:
            with_metadata[judge_run(declared.tables(), declared.context).validity] += 1
    assert with_metadata[Validity.VALID] > 40
    assert with_metadata[Validity.UNKNOWN] > 5
    assert without[Validity.INVALID] > 5


# --- broken rules: the comparison must notice every one ---


def _is_noticed(first: int) -> bool:
    return any(True for _ in wrong_verdicts(first, 20))


UNDECLARED: dict[str, tuple[dict[str, Any], int]] = {
    "producers send again": ({"at_least_once": False}, 0),
    "offsets may be missing": ({"sparse_offsets": False}, 0),
    "clocks differ": ({"clock_error_ns": 0}, 230),
}
"""What is declared instead of the truth, and the first run to try."""


@pytest.mark.parametrize("fact", UNDECLARED)
def test_the_comparison_notices_a_declaration_without_effect(
    fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, first = UNDECLARED[fact]
    truth = Declaration.context

    def context(self: Declaration, log_start_offset: int) -> RunContext:
        return replace(truth(self, log_start_offset), **changes)

    monkeypatch.setattr(Declaration, "context", context)
    assert _is_noticed(first)


def _always(outcome: int) -> Callable[..., Fates]:
    def fates(self: Excuses, finding: Finding) -> Fates:
        return fates_of(finding.count, outcome)

    return fates


def _of_every_copy(history: PartitionHistory, facts: Facts, **_: bool) -> list[NotAfter]:
    return not_after(history, facts)


def _nothing_below(*_: Any) -> None:
    return None


def _all_with_acks_all(calls: list[Call], **rows: Any) -> dict[str, pa.Table]:
    return run([replace(call, acks=-1) if call.acks == 1 else call for call in calls], **rows)


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any], int]] = {
    "elections excuse nothing": (Excuses, "fates", _always(UNEXCUSED), 0),
    "elections excuse everything": (Excuses, "fates", _always(EXCUSED), 0),
    "an acknowledgement holds for every copy": (real_time, "not_after", _of_every_copy, 30),
    "retention removes nothing": (free_appends, "_below", _nothing_below, 300),
    "acks=1 promises as much as acks=all": (declared_simulation, "run", _all_with_acks_all, 20),
}
"""What is replaced by what, and the first run to try."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_notices_a_broken_rule(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, value, first = MUTANTS[mutant]
    monkeypatch.setattr(place, name, value)
    assert _is_noticed(first)
