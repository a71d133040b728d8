"""The kernel against an exhaustive search, and the comparison against broken kernels."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels import facts, free_appends, history, linearizability, real_time
from checkers.kernels.facts import Facts
from checkers.kernels.history import FAIL, INF_NS, INFO, PartitionHistory
from tests.parts import shares
from tests.property.brute_force import (
    Call,
    disagreements,
    judge_accepts,
    kernel_accepts,
    numbered_history,
    random_history,
)

SMALL_HISTORIES = 5_000
"""In each part; parts run side by side. `python -m tests.property.brute_force` runs any number."""


@pytest.mark.parametrize("part", range(4))
def test_kernel_and_exhaustive_search_agree_on_random_small_histories(part: int) -> None:
    count = SMALL_HISTORIES
    assert next(disagreements(part * count, count, seed=1000), None) is None


def test_enough_random_histories_are_valid_and_enough_are_invalid() -> None:
    rng = random.Random(5)
    says = [judge_accepts(random_history(rng)) for _ in range(1000)]
    assert 300 < sum(says) < 850


def _without_what_is_below(start: int, calls: list[Call]) -> list[Call]:
    """Returns a history in which nothing is said of offsets below a log start."""
    kept = []
    for call in calls:
        is_below = call.offset is not None and call.offset < start
        if call.kind == "append" and is_below:
            kept.append(replace(call, offset=None, outcome="info", res=None))
        elif not is_below:
            records = tuple(pair for pair in call.records if pair[0] >= start)
            kept.append(replace(call, records=records))
    return kept


def test_some_random_histories_contradict_themselves_below_their_log_start_only() -> None:
    found = 0
    for number in range(500):
        calls, sparse, start = numbered_history(3, number)
        if start and not judge_accepts(calls, sparse=sparse, start=start):
            above = _without_what_is_below(start, calls)
            found += judge_accepts(above, sparse=sparse, start=start)
    assert found > 20


def test_below_a_log_start_the_search_lets_records_be_missing_but_not_differ() -> None:
    first = Call(op=0, kind="append", process=0, inv=1, res=2, offset=1)
    last = Call(op=1, kind="append", process=1, inv=3, res=4, offset=3)
    poll = Call(op=2, kind="poll", process=2, inv=5, res=6, position=0, records=((3, 1),))
    for start, accepted in ((3, True), (2, False)):
        assert judge_accepts([first, last, poll], start=start) == accepted
    for wrong in (replace(last, offset=0), replace(last, offset=1)):
        assert not judge_accepts([first, wrong], start=3)
    other = replace(poll, records=((1, 1), (3, 0)))
    assert not judge_accepts([first, last, other], start=3)
    somewhere = Call(op=3, kind="append", process=3, inv=1, res=2)
    assert judge_accepts([first, replace(last, offset=2), somewhere], start=1)


def test_the_exhaustive_search_judges_simple_histories_correctly() -> None:
    one = Call(op=0, kind="append", process=0, inv=1, res=5, offset=0)
    stale = Call(op=1, kind="latest", process=1, inv=6, res=7, offset=0)
    assert judge_accepts([one])
    assert not judge_accepts([one, stale])
    assert judge_accepts([one, replace(stale, inv=5)])
    assert judge_accepts([replace(one, offset=4)], sparse=True)
    assert not judge_accepts([replace(one, offset=4)])


# --- broken kernels: the comparison must notice every one ---


def _without(*names: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Returns a mutant that never reports the named anomalies."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        hidden = frozenset(names) | linearizability.NOT_ABOUT_THE_LOG
        patch.setattr(linearizability, "NOT_ABOUT_THE_LOG", hidden)

    return mutate


def _patched(module: object, name: str, change: Callable[..., object]) -> Callable[..., None]:
    """Returns a mutant whose function `name` returns `change` applied to its arguments and result."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)

        def changed(*args: object, **kwargs: object) -> object:
            return change(original(*args, **kwargs), *args)

        for user in (facts, free_appends, history, linearizability, real_time):
            if getattr(user, name, None) is original:
                patch.setattr(user, name, changed)

    return mutate


def _ends_one_too_high(bounds: tuple, *_: object) -> tuple:
    appends, ends = bounds
    return appends, replace(ends, place=ends.place + (ends.place < ends.place.max(initial=0)))


def _drop_group(kind: int) -> Callable[..., list]:
    def change(groups: list, *_: object) -> list:
        empty = np.empty(0, dtype=np.int64)
        return [
            replace(g, place=empty, offset=empty, res=empty, append=empty, rows=empty)
            if g.kind == kind
            else g
            for g in groups
        ]

    return change


def _no_not_before(level: int) -> Callable[..., tuple]:
    def change(bounds: tuple, *_: object) -> tuple:
        gone = bounds[level]
        empty = np.empty(0, dtype=np.int64)
        gone = replace(
            gone, rows=empty, place=empty, offset=empty, inv=empty, weak=np.empty(0, dtype=np.bool_)
        )
        return (gone, bounds[1]) if level == 0 else (bounds[0], gone)

    return change


def _fails_may_have_happened(result: tuple, *_: object) -> tuple:
    status, impossible = result
    return np.where(status == FAIL, INFO, status), impossible


def _no_pinning(result: tuple[Facts, list], *_: object) -> tuple:
    derived, findings = result
    none = np.empty(0, dtype=np.int64)
    return replace(derived, pinned=none, pinned_place=none), findings


def _no_deadlines(read: PartitionHistory, *_: object) -> PartitionHistory:
    certain = read.append_status == history.OK_SOMEWHERE
    return replace(read, append_res=np.where(certain, INF_NS, read.append_res))


def _gaps_do_not_close_slots(result: tuple[Facts, list], *_: object) -> tuple:
    derived, findings = result
    none = np.empty(0, dtype=np.int64)
    return replace(derived, gap_first=none, gap_last=none), findings


def _latest_deadline_first(patch: pytest.MonkeyPatch) -> None:
    """Reverses the deadlines: of the released appends the one with the most time is taken."""

    class Reversed:
        @staticmethod
        def heappush(heap: list, item: tuple) -> None:
            heap.append(item)
            heap.sort(reverse=True)

        @staticmethod
        def heappop(heap: list) -> tuple:
            return heap.pop(0)

    patch.setattr(free_appends, "heapq", Reversed)


def _ties_are_violations(patch: pytest.MonkeyPatch) -> None:
    original = real_time._running
    patch.setattr(real_time, "_running", lambda a, error: original(a, error) + 1)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an end counts one too high": _patched(real_time, "not_before", _ends_one_too_high),
    "acknowledgements prove nothing": _patched(
        real_time, "not_after", _drop_group(real_time.APPEND)
    ),
    "reads prove nothing": _patched(real_time, "not_after", _drop_group(real_time.READ)),
    "ends prove nothing": _patched(real_time, "not_after", _drop_group(real_time.END)),
    "appends bound nothing": _patched(real_time, "not_before", _no_not_before(0)),
    "ends bound nothing": _patched(real_time, "not_before", _no_not_before(1)),
    "no C1": _without("divergent-value", "two-acks-one-offset"),
    "no C2": _without("duplicate"),
    "no C3": _without("phantom-value", "failed-append-visible"),
    "no C4": _without("lost-record", "skipped-offset"),
    "no C5": _without("torn-fetch"),
    "failed appends may have happened": _patched(
        history, "_append_status", _fails_may_have_happened
    ),
    "revealed appends are not pinned": _patched(facts, "derive_facts", _no_pinning),
    "holes need no filling": _without("unfilled-hole", "hole-before-append"),
    "certain appends have no deadline": _patched(history, "read_history", _no_deadlines),
    "latest deadline first": _latest_deadline_first,
    "slots that a read skipped stay open": _patched(
        facts, "derive_facts", _gaps_do_not_close_slots
    ),
    "equal times are ordered": _ties_are_violations,
}


SKIPPED_SLOT = [
    Call(op=0, kind="append", process=0, inv=1, res=9, offset=0),
    Call(op=1, kind="append", process=1, inv=1, res=9, offset=2),
    Call(op=2, kind="append", process=2, inv=1, res=5),
    Call(op=3, kind="poll", process=3, inv=1, res=9, position=0, records=((0, 0), (2, 1))),
    Call(op=4, kind="latest", process=4, inv=6, res=9, offset=3),
]
"""Sparse: op 2 fits nowhere, since a read showed that offset 1 stays empty. Chance finds such histories rarely."""


def _until_caught(limit: int) -> Iterator[bool]:
    yield kernel_accepts(SKIPPED_SLOT, sparse=True) != judge_accepts(SKIPPED_SLOT, sparse=True)
    rng = random.Random(77)
    for _ in range(limit):
        sparse = rng.random() < 0.4
        calls = random_history(rng, sparse=sparse)
        yield kernel_accepts(calls, sparse=sparse) != judge_accepts(calls, sparse=sparse)


@pytest.mark.parametrize("mutant", shares([*MUTANTS], quick_of=3))
def test_the_comparison_catches_a_broken_kernel(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[mutant](monkeypatch)
    assert any(_until_caught(3000))
