"""Which examples the kinds of evidence run, and with which seeds."""

from typing import Any

import pytest

from tests.evidence.cases import UNTESTED
from tests.evidence.kinds import (
    CLUSTER_CHANGES,
    EXAMPLES,
    EXAMPLES_LEFT_OUT,
    EXAMPLES_WITH_GROUPS,
    LONG_EXAMPLE,
    LONG_TRANSACTIONS,
    ROOT,
    TRANSACTIONS,
    judge,
    seeds_of,
    unknown_reason,
)


def test_every_example_is_run_or_left_out_for_a_reason() -> None:
    names = [*EXAMPLES, *EXAMPLES_WITH_GROUPS, LONG_EXAMPLE]
    files = {ROOT / f"examples/{name}.toml" for name in [*names, *EXAMPLES_LEFT_OUT]}
    files |= {ROOT / runs.file for runs in (CLUSTER_CHANGES, TRANSACTIONS, LONG_TRANSACTIONS)}
    assert set((ROOT / "examples").glob("*.toml")) == files
    assert not set(names) & EXAMPLES_LEFT_OUT.keys()


@pytest.mark.parametrize(
    ("first", "count", "seeds"),
    [
        (0, 6, {"a": [0, 1], "b": [0, 1], "c": [0, 1]}),
        (6, 3, {"a": [2], "b": [2], "c": [2]}),
        (0, 1, {"a": [0]}),
        (1, 3, {"a": [1], "b": [0], "c": [0]}),
        (5, 2, {"a": [2], "c": [1]}),
    ],
)
def test_cases_have_as_many_seeds_as_are_counted(
    first: int, count: int, seeds: dict[str, list[int]]
) -> None:
    assert {
        name: list(found) for name, found in seeds_of(("a", "b", "c"), first, count).items()
    } == seeds


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"reasons": ["no cut"], "unknown_reason": "", "error": ""}, f"no cut: {UNTESTED}"),
        ({"reasons": ["no cut", "a gap"], "unknown_reason": "a gap", "error": ""}, "a gap"),
        ({"reasons": ["too slow"], "unknown_reason": "", "error": "too slow"}, "too slow"),
    ],
)
def test_a_run_is_untested_only_if_it_ended_and_has_no_other_reason(
    row: dict[str, Any], reason: str
) -> None:
    assert unknown_reason(row) == reason


@pytest.mark.long
def test_one_seed_of_two_examples_is_right() -> None:
    place = EXAMPLES.index("compacted")
    assert EXAMPLES[place + 1] == "faults-on-messages"
    assert judge("examples", place, 2).wrong == []
