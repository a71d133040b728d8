"""What a group's coordinator may report, against an exhaustive search, and what the search can notice."""

import random
from dataclasses import replace

import pytest

from tests.parts import parts
from tests.property.group_histories import (
    ACCEPTED,
    NOTHING,
    REFUSED,
    UNKNOWN,
    Step,
    disagreements,
    judge_says,
    kernel_says,
    random_history,
)

HISTORIES = 500
"""In each part; parts run side by side. `python -m tests.property.group_histories` runs any number."""

ELECTIONS = (0.0, 0.2)


@pytest.mark.parametrize("elections", ELECTIONS)
@pytest.mark.parametrize("part", parts(range(4), quick=1))
def test_kernel_and_exhaustive_search_agree_on_small_histories(part: int, elections: float) -> None:
    found = disagreements(part * HISTORIES, HISTORIES, seed=7, elections=elections)
    assert next(found, None) is None


@pytest.mark.parametrize("elections", ELECTIONS)
def test_enough_random_histories_are_right_wrong_and_unknown(elections: float) -> None:
    histories = [
        random_history(random.Random(f"7/{number}"), elections=elections) for number in range(1000)
    ]
    says = [judge_says(history) for history in histories]
    assert says.count(ACCEPTED) > 500
    assert says.count(REFUSED) > 100
    assert (says.count(UNKNOWN) > 20) == (elections > 0)
    # What the kernel does not know although the search does.
    vague = [
        h for h, said in zip(histories, says, strict=True) if said == REFUSED != kernel_says(h)
    ]
    assert len(vague) <= 5


def test_the_exhaustive_search_judges_simple_histories_correctly() -> None:
    commit = Step(kind="commit", process=1, offset=3, begin=1, end=2)
    report = Step(kind="report", process=2, offset=3, begin=3, end=4)
    assert judge_says([commit, report]) == ACCEPTED
    assert judge_says([commit, replace(report, offset=NOTHING)]) == REFUSED
    assert judge_says([replace(commit, end=None), replace(report, offset=NOTHING)]) == ACCEPTED
    election = Step(kind="election", process=0, offset=NOTHING, begin=0, end=None)
    assert judge_says([election, commit, replace(report, offset=NOTHING)]) == UNKNOWN
    assert judge_says([election, commit, replace(report, offset=2)]) == REFUSED
