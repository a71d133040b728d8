"""The kernel reports exactly the instances that the definitions give, with their operations, offsets and times."""

import random
from dataclasses import replace

import pytest

from checkers.kernels.linearizability import Options, check_tables
from tests.property.brute_force import (
    Call,
    ends_table,
    operations_table,
    random_history,
    records_table,
)
from tests.property.findings_by_definition import Definitions, Instance

HISTORIES = 1200
ABOUT_HOLES = frozenset(
    {"unfilled-hole", "hole-before-append", "unplaced-append", "unplaced-below-end"}
)


def history_of(number: int) -> tuple[list[Call], Options]:
    """Returns a random history in which processes append several times and some observations are final."""
    rng = random.Random(f"instances/{number}")
    options = Options(sparse=rng.random() < 0.4, clock_error_ns=rng.choice((0, 0, 3)))
    processes = rng.choice((1, 2, 300))
    final_share = rng.choice((0.0, 0.5))
    calls = [
        replace(call, process=rng.randrange(processes), final=rng.random() < final_share)
        for call in random_history(rng, sparse=options.sparse)
    ]
    return calls, options


def reported(calls: list[Call], options: Options) -> list[Instance]:
    report = check_tables(operations_table(calls), records_table(calls), ends_table(calls), options)
    names = ("first", "second", "third", "offset", "other", "since_ns", "weak", "gap_ns")
    return sorted(
        # Which of several records at an offset a poll skipped is not defined.
        Instance(id=f.id, **values | ({"second": -1} if f.id == "lost-record" else {}))
        for f in report.findings
        if f.id not in ABOUT_HOLES
        for row in range(f.count)
        for values in [{name: getattr(f, name)[row].item() for name in names}]
    )


@pytest.mark.parametrize("part", range(6))
def test_the_kernel_reports_what_the_definitions_give(part: int) -> None:
    count = HISTORIES // 6
    for number in range(part * count, (part + 1) * count):
        calls, options = history_of(number)
        definitions = Definitions(
            calls, sparse=options.sparse, clock_error_ns=options.clock_error_ns
        )
        assert reported(calls, options) == definitions.instances(), f"history {number}: {calls}"


def test_every_anomaly_occurs_in_these_histories() -> None:
    found = {
        (instance.id, instance.weak)
        for number in range(HISTORIES)
        for instance in Definitions(history_of(number)[0]).instances()
    }
    assert len(found) >= 22
