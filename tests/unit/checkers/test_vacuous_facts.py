"""Declarations that leave nothing to judge: their borders, and what a partition spans."""

import random
from dataclasses import replace

import pytest

from checkers.kernels.compose import judge_run
from checkers.kernels.metadata_gaps import Shown
from checkers.kernels.vacuous_facts import (
    Extent,
    extent_of,
    hides_nothing,
    joined,
    shown_in,
    unfounded_excuses,
    vacuous_facts,
)
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Anomaly, Judgement
from tests.anomalies.runs import append, broker, final_read, run, table
from tests.property.brute_force import operations_table, records_table
from tests.property.test_findings_by_definition import history_of

SPAN = Extent(first_ns=10, last_ns=30, highest_acked=5, lowest_final=3)
NOTHING = Extent(first_ns=None, last_ns=None, highest_acked=None, lowest_final=None)


@pytest.mark.parametrize(("error", "count"), [(0, 0), (19, 0), (20, 1), (21, 1)])
def test_clocks_that_may_differ_by_the_whole_run_order_nothing(error: int, count: int) -> None:
    assert len(vacuous_facts(SPAN, RunContext(clock_error_ns=error))) == count
    assert not vacuous_facts(NOTHING, RunContext(clock_error_ns=error))


@pytest.mark.parametrize(
    ("acked", "begun", "error", "count"),
    [
        (12, 17, 4, 0),
        (12, 17, 5, 1),
        (12, 17, 19, 1),
        (12, 17, 20, 1),
        (12, 13, 1, 1),
        (12, 12, 19, 0),
        (13, 12, 19, 0),
        (None, 12, 19, 0),
        (12, None, 19, 0),
    ],
)
def test_without_an_append_that_is_certainly_later_than_another_one_no_order_was_judged(
    acked: int | None, begun: int | None, error: int, count: int
) -> None:
    """Appends that were all concurrent have no order anyway, whatever the clocks."""
    extent = replace(SPAN, first_acked_ns=acked, last_append_ns=begun)
    reasons = vacuous_facts(extent, RunContext(clock_error_ns=error))
    assert len(reasons) == count
    assert all("their order cannot be judged" in reason for reason in reasons)
    assert not vacuous_facts(extent, RunContext())


def test_the_final_reads_do_not_hide_that_no_order_of_appends_is_known() -> None:
    """Both appends are in the wrong order, but the clocks may differ by more than lies between them."""
    calls = [append(0, 1, at=10), append(1, 0, at=20), *final_read(1000, 1, 0)]
    context = RunContext(enabled_faults=(), acked_during_faults_min=0)
    verdicts = [
        judge_run(run(calls), replace(context, clock_error_ns=error)) for error in (0, 8, 9, 890)
    ]
    validities = [str(verdict.validity) for verdict in verdicts]
    assert validities == ["invalid", "invalid", "unknown", "unknown"]
    assert verdicts[-1].reasons == (
        "t-0: clock_error_ns is 890, but no append began more than that after another one was acknowledged, so"
        " their order cannot be judged",
    )
    assert set(verdicts[-1].levels.values()) == {"unknown"}


@pytest.mark.parametrize(
    ("start", "count"), [(0, 0), (1, 0), (3, 0), (4, 1), (5, 1), (6, 2), (7, 2)]
)
def test_a_log_start_above_what_is_there_is_refuted(start: int, count: int) -> None:
    assert len(vacuous_facts(SPAN, RunContext(log_start_offset=start))) == count
    assert not vacuous_facts(NOTHING, RunContext(log_start_offset=start))


def test_a_context_hides_something_if_it_declares_an_error_or_a_start() -> None:
    assert hides_nothing(RunContext())
    assert not hides_nothing(RunContext(clock_error_ns=1))
    assert not hides_nothing(RunContext(log_start_offset=1))


def test_an_extent_is_that_of_its_operations_and_extents_add_up() -> None:
    for number in range(150):
        calls, _ = history_of(number)
        acked = [c.offset for c in calls if c.kind == "append" and c.outcome == "ok"]
        known = [offset for offset in acked if offset is not None]
        final = [o for c in calls if c.final and c.outcome == "ok" for o, _ in c.records]
        appends = [c for c in calls if c.kind == "append"]
        ends = [c.res for c in appends if c.outcome == "ok" and c.res is not None]
        begins = [c.inv for c in appends if c.outcome != "fail"]
        times = [c.inv for c in calls] + [c.res for c in calls if c.res is not None]
        extent = extent_of(operations_table(calls), records_table(calls))
        assert extent == Extent(
            first_ns=min(c.inv for c in calls),
            last_ns=max(times),
            highest_acked=max(known, default=None),
            lowest_final=min(final, default=None),
            first_acked_ns=min(ends, default=None),
            last_append_ns=max(begins, default=None),
            final_end=max((offset + 1 for offset in final), default=None),
        )
        cut = random.Random(f"extents/{number}").randint(0, len(calls))
        parts = [
            extent_of(operations_table(part), records_table(part))
            for part in (calls[:cut], calls[cut:])
        ]
        assert joined(parts) == extent
    assert joined([]) == NOTHING


@pytest.mark.parametrize("has_brokers", [True, False])
@pytest.mark.parametrize("elr_on", [True, False])
@pytest.mark.parametrize("unclean", [True, False])
@pytest.mark.parametrize("judgement", [Judgement.EXCUSED, Judgement.FORBIDDEN])
def test_with_eligible_leader_replicas_an_excuse_needs_recorded_brokers(
    has_brokers: bool, elr_on: bool, unclean: bool, judgement: Judgement
) -> None:
    context = replace(RunContext(), elr_on=elr_on, unclean_election_enabled=unclean)
    anomaly = Anomaly(
        id="lost-acked-write",
        level="durability",
        topic="t",
        partition=0,
        count=1,
        judgement=judgement,
        rule="a rule",
        sentence="a sentence",
    )
    brokers = table("broker_states", [broker(0, 1, "registered")] if has_brokers else [])
    is_unfounded = not has_brokers and elr_on and not unclean and judgement == Judgement.EXCUSED
    assert len(unfounded_excuses([anomaly], brokers, context)) == is_unfounded
    assert not unfounded_excuses([], brokers, context)


def test_of_what_ranges_of_operations_show_of_epochs_the_first_appends_and_the_last_ends_count() -> (
    None
):
    parts = [
        replace(NOTHING, final_end=end, shown_ends=shown, appended_epochs=appended)
        for end, shown, appended in (
            (None, (), ((0, 5), (2, 7))),
            (4, ((1, 0), (4, 9)), ((2, 6), (3, 8))),
            (3, ((3, 2), (4, 8)), ((2, 9),)),
        )
    ]
    whole = joined(parts)
    assert whole.final_end == 4
    assert whole.shown_ends == ((1, 0), (3, 2), (4, 9))
    assert whole.appended_epochs == ((0, 5), (2, 6), (3, 8))
    assert shown_in(whole, RunContext()) == Shown(
        epochs=(0, 1, 2, 3, 4),
        appended_ns={0: 5, 2: 6},
        ends={1: 0, 3: 2, 4: 9},
        final_end=4,
    )


def test_a_partition_without_operations_spans_nothing() -> None:
    tables = run([])
    assert extent_of(tables["operations"], tables["records_read"]) == NOTHING
    tables = run([append(0, 0, at=1), *final_read(5, 0)])
    extent = extent_of(tables["operations"], tables["records_read"])
    assert (extent.lowest_final, extent.final_end) == (0, 1)
