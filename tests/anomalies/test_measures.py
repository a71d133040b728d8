"""Numbers that break no promise, and the one limit that an experiment can set to them."""

import json
from typing import Any

import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.cut_partition import can_be_cut
from checkers.kernels.measures import POINTS, RECOVERIES_MAX
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from tests.anomalies.runs import MS, Call, append, fault, final_read, read, run


def context(limit_ms: int = 0, error_ms: int = 0) -> RunContext:
    return RunContext(
        checkers=(*LOG_CHECKERS, "measures"),
        acked_during_faults_min=0,
        recovery_max_ms=limit_ms,
        clock_error_ns=error_ms * MS,
    )


def judged(calls: list[Call], limit_ms: int = 0, error_ms: int = 0, **tables: Any) -> Verdict:
    """Judges calls whose times are milliseconds."""
    scaled = [
        Call(
            **{
                **{name: getattr(call, name) for name in Call.__slots__},
                "inv": call.inv * MS,
                "res": None if call.res is None else call.res * MS,
            }
        )
        for call in calls
    ]
    return judge_run(run(scaled, **tables), context(limit_ms, error_ms))


def measures(verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = verdict.coverage["by_partition"]["t-0"]["measures"]
    return found


def cut(at_ms: int, healed_ms: int) -> dict[str, Any]:
    return fault(at_ms * MS, "cut", ["b1"], healed=healed_ms * MS)


def slow(verdict: Verdict) -> list[Anomaly]:
    return [anomaly for anomaly in verdict.anomalies if anomaly.id == "slow-recovery"]


TWO = [append(0, 0, at=10), append(1, 1, at=20)]


def test_the_number_of_unseen_records_grows_and_falls() -> None:
    """Both are acknowledged by 21; the final read returns both at 901."""
    found = measures(judged([*TWO, *final_read(80, 0, 1)]))
    series = dict(zip(found["unseen"]["at_ms"], found["unseen"]["count"], strict=True))
    assert len(series) == POINTS
    assert found["unseen_max"] == 2
    assert {count for at, count in series.items() if at > 901} == {0}
    assert {count for at, count in series.items() if 40 < at < 900} == {2}
    assert series[0] == 0


def test_records_that_are_read_before_they_are_acknowledged_are_never_unseen() -> None:
    early = [Call(op=0, kind="append", process=0, inv=1, res=600, offset=0), read(5, 10, 0)]
    assert measures(judged([*early, *final_read(80, 0)]))["unseen_max"] == 0


@pytest.mark.parametrize(
    ("poll", "lag_ms"),
    [
        (read(5, 40, 1, start=1), 19),  # offset 1 was known at 21
        (read(5, 40, start=1), 19),  # also if it returned nothing
        (read(5, 21, 1, start=1), 0),
        (read(5, 40, start=2), 0),  # nothing is there yet
        (read(5, 40, 0, final=True), 0),  # the final phase starts over
    ],
)
def test_the_lag_of_a_poll_counts_from_when_its_next_record_was_known(
    poll: Call, lag_ms: float
) -> None:
    assert measures(judged([*TWO, poll, *final_read(80, 0, 1)]))["worst_lag_ms"] == lag_ms


def test_the_time_from_each_heal_to_an_append_and_to_a_poll() -> None:
    calls = [append(0, 0, at=60), read(5, 80, 0), append(1, 1, at=190), *final_read(80, 0, 1)]
    verdict = judged(calls, faults=[cut(10, 50), cut(100, 150)])
    found = measures(verdict)
    assert found["recoveries"] == [[150.0, 41.0, 751.0], [50.0, 11.0, 31.0]]
    assert found["recovery_append_ms_max"] == 41.0
    assert found["recovery_poll_ms_max"] == 751.0
    assert verdict.validity == Validity.VALID
    json.dumps(verdict.coverage)


def test_the_size_of_the_measures_does_not_depend_on_the_run() -> None:
    calls = [append(n, n, at=10 * n) for n in range(80)]
    many = [cut(10 * n, 10 * n + 5) for n in range(80)]
    found = measures(judged([*calls, *final_read(90, *range(80))], faults=many))
    assert len(found["recoveries"]) == RECOVERIES_MAX
    assert len(found["unseen"]["count"]) == POINTS


def test_a_run_without_faults_has_no_recoveries() -> None:
    found = measures(judged([*TWO, *final_read(80, 0, 1)]))
    assert found["recoveries"] == []
    assert found["recovery_append_ms_max"] is None


SLOW = [
    Call(op=0, kind="append", process=0, inv=52, res=61, offset=0),
    append(1, 1, at=190),
    *final_read(80, 0, 1),
]
"""After a heal at 50 the first append is acknowledged at 61."""


def test_a_recovery_beyond_the_limit_is_an_anomaly_only_if_there_is_a_limit() -> None:
    faults = [cut(10, 50)]
    assert not slow(judged(SLOW, faults=faults))
    verdict = judged(SLOW, 10, faults=faults)
    (anomaly,) = slow(verdict)
    assert verdict.validity == Validity.INVALID
    assert (anomaly.judgement, anomaly.count) == (Judgement.FORBIDDEN, 1)
    assert anomaly.sentence == (
        "the last fault in force was healed at 0.050 s, and the next append was acknowledged only after 11 ms; the"
        " experiment allows 10 ms"
    )
    assert not slow(judged(SLOW, 11, faults=faults))


def test_a_fault_that_found_no_target_disturbs_no_recovery() -> None:
    nowhere = fault(1 * MS, "kill", [], took_effect=False)
    assert slow(judged(SLOW, 10, faults=[nowhere, cut(10, 50)]))


def test_a_fault_that_was_over_at_once_disturbs_no_later_recovery_and_has_one_of_its_own() -> None:
    reset = fault(20 * MS, "reset_connections", ["b1"], healed=20 * MS)
    assert slow(judged(SLOW, 10, faults=[reset, cut(10, 50)]))
    verdict = judged([append(0, 0, at=30), append(1, 1, at=40)], faults=[reset])
    assert measures(verdict)["recoveries"] == [[20.0, 11.0, None]]


@pytest.mark.parametrize(
    ("calls", "faults"),
    [
        (SLOW, [cut(10, 50), cut(20, 55)]),  # another fault was in force, and its heal is at 55
        (SLOW, [cut(10, 50), cut(59, 70)]),  # another fault began before the limit
        (SLOW, [cut(10, 50), fault(20 * MS, "kill", ["b2"])]),  # never healed
        ([append(0, 0, at=30), append(1, 1, at=90)], [cut(10, 50)]),  # no client tried
        ([append(0, None, at=52, outcome="info")], [cut(10, 50)]),  # the run ended before the limit
        (
            [append(0, None, at=52, outcome="info", acks=0), append(1, 0, at=90)],
            [cut(10, 50)],
        ),  # nothing to acknowledge
    ],
)
def test_a_recovery_counts_only_if_nothing_disturbed_it_and_clients_tried(
    calls: list[Call], faults: list[dict[str, Any]]
) -> None:
    assert not slow(judged(calls, 10, faults=faults))


def test_polls_have_to_recover_too() -> None:
    failed = Call(op=3, kind="poll", process=3, inv=52, res=58, outcome="fail", position=0)
    calls = [append(0, 0, at=51), failed, append(1, 1, at=70), *final_read(80, 0, 1)]
    (anomaly,) = slow(judged(calls, 10, faults=[cut(10, 50)]))
    assert "the next poll succeeded only after 851 ms" in anomaly.sentence


def lost_response(begin: int, end: int | None, op: int = 1) -> Call:
    return Call(op=op, kind="append", process=op, inv=begin, res=end, outcome="info")


@pytest.mark.parametrize(
    ("tries", "count"),
    [
        ([lost_response(51, None)], 1),
        ([lost_response(50, 56)], 1),
        ([lost_response(50, 55)], 0),  # none in the last quarter
        ([lost_response(51, 53), lost_response(55, 56, op=2)], 1),
        ([lost_response(51, 53), lost_response(56, 58, op=2)], 0),  # none in the third quarter
        ([lost_response(49, None)], 0),  # it was invoked before the heal
        ([lost_response(52, None)], 0),  # none in the first quarter
    ],
)
def test_clients_tried_until_the_limit_if_something_was_in_progress_in_every_quarter(
    tries: list[Call], count: int
) -> None:
    """The heal is at 50, the limit 8: the quarters begin at 50, 52, 54 and 56."""
    calls = [append(0, 0, at=1), *tries, read(9, 55, 0), *final_read(80, 0)]
    assert len(slow(judged(calls, 8, faults=[cut(10, 50)]))) == count


def test_a_recovery_that_never_came_is_the_worst() -> None:
    calls = [append(0, 0, at=1), lost_response(52, 58), *final_read(80, 0)]
    (anomaly,) = slow(judged(calls, 10, faults=[cut(10, 50)]))
    assert "and no append was acknowledged afterwards" in anomaly.sentence


@pytest.mark.parametrize(
    ("error_ms", "first_ms", "judgement"),
    [
        (0, 61, Judgement.FORBIDDEN),
        (1, 61, Judgement.UNDECIDED),
        (1, 62, Judgement.FORBIDDEN),
        (5, 65, Judgement.UNDECIDED),
        (5, 66, Judgement.FORBIDDEN),
        (5, 60, None),
    ],
)
def test_a_recovery_is_slow_only_if_clocks_cannot_explain_it(
    error_ms: int, first_ms: int, judgement: Judgement | None
) -> None:
    """The heal is at 50, the limit 10."""
    calls = [
        append(0, 0, at=5),
        Call(op=1, kind="append", process=1, inv=55, res=first_ms, offset=1),
    ]
    calls += [*(lost_response(at, None, op=at) for at in (50, 51, 55)), *final_read(80, 0, 1)]
    found = slow(judged(calls, 10, error_ms, faults=[cut(10, 50)]))
    assert [each.judgement for each in found] == ([judgement] if judgement else [])


@pytest.mark.parametrize(
    ("tried_ms", "succeeded_ms", "ended_ms", "judgement"),
    [
        (55, 44, 75, Judgement.FORBIDDEN),
        (54, 44, 75, Judgement.UNDECIDED),  # perhaps no client tried since the heal
        (55, 45, 75, Judgement.FORBIDDEN),
        (55, 46, 75, Judgement.UNDECIDED),  # perhaps it was after the heal
        (55, 50, 75, Judgement.UNDECIDED),
        (55, 44, 64, Judgement.UNDECIDED),  # perhaps the run ended before the limit
        (55, 44, 59, None),
    ],
)
def test_a_heal_may_have_been_earlier_or_later_than_clocks_of_clients_show(
    tried_ms: int, succeeded_ms: int, ended_ms: int, judgement: Judgement | None
) -> None:
    """The heal is at 50, the limit 10, and clocks differ by 5."""
    calls = [
        append(0, 0, at=succeeded_ms - 1),
        lost_response(50, 52),
        lost_response(tried_ms, ended_ms, op=2),
        lost_response(50, ended_ms - 1, op=3),
        Call(op=4, kind="latest", process=4, inv=50, res=ended_ms, offset=1),
    ]
    found = slow(judged(calls, 10, 5, faults=[cut(10, 50)]))
    assert [each.judgement for each in found] == ([judgement] if judgement else [])


@pytest.mark.parametrize(
    ("failed_ms", "judgement"),
    [(5, Judgement.UNDECIDED), (59, Judgement.UNDECIDED), (60, Judgement.FORBIDDEN)],
)
@pytest.mark.parametrize("healed_ms", [None, 6])
def test_a_fault_whose_injection_failed_may_have_been_in_force_since_then(
    failed_ms: int, healed_ms: int | None, judgement: Judgement
) -> None:
    """The heal is at 50, the limit 10, and the first append is acknowledged at 61."""
    healed_ns = None if healed_ms is None else max(healed_ms, failed_ms) * MS
    failed = fault(failed_ms * MS, "cut", ["b2"], healed=healed_ns, took_effect=False)
    faults = [cut(10, 50), {**failed, "failed": True}]
    assert [each.judgement for each in slow(judged(SLOW, 10, faults=faults))] == [judgement]
    # A start that failed leaves nothing behind but a node that is down, which is a fault of its own.
    faults[1] = {**faults[1], "heals": True}
    assert [each.judgement for each in slow(judged(SLOW, 10, faults=faults))] == [
        Judgement.FORBIDDEN
    ]


def test_certain_and_uncertain_recoveries_are_counted_apart() -> None:
    calls = [append(0, 0, at=5), *(lost_response(each, each + 40, op=each) for each in (50, 150))]
    calls.append(Call(op=999, kind="latest", process=4, inv=150, res=190, offset=1))
    failed = {**fault(160 * MS, "cut", ["b2"], took_effect=False), "failed": True}
    found = slow(judged(calls, 20, faults=[cut(10, 50), cut(100, 150), failed]))
    assert [(each.judgement, each.count) for each in found] == [
        (Judgement.FORBIDDEN, 1),
        (Judgement.UNDECIDED, 1),
    ]


def test_measures_do_not_keep_a_huge_partition_from_being_cut() -> None:
    assert can_be_cut(context())
    assert can_be_cut(context(5))
