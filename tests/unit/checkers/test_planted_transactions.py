"""What the self-test plants into a valid run of the workload `transactions` is found."""

from dataclasses import replace

import pytest

from checkers.planting.table import PLANTS
from checkers.planting.transactions import CHANGES
from checkers.selftest import Outcome, self_test
from harness.contracts.verdict import Judgement, Validity
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer, valid_run


def test_the_run_is_valid() -> None:
    verdict = valid_run().verdict()
    assert verdict.validity is Validity.VALID, verdict.reasons
    assert {one.judgement for one in verdict.anomalies} <= {Judgement.ALLOWED}


def test_every_planted_anomaly_of_transactions_is_found() -> None:
    tables = {"transaction_events": valid_run().table()}
    results = {one.anomaly: one for one in self_test(tables, CONTEXT)}
    planted = {anomaly for anomaly, _, _ in CHANGES}
    assert {
        name: results[name].detail for name in planted if results[name].outcome != Outcome.FOUND
    } == {}
    assert results["invariant-broken"].outcome is Outcome.FOUND
    others = {plant.anomaly for plant in PLANTS} - planted - {"invariant-broken"}
    assert {results[name].outcome for name in others} == {Outcome.NOT_PLANTED}


@pytest.mark.parametrize(
    ("independent", "clock_error_ns", "outcome"),
    [
        (False, 0, Outcome.NOT_PLANTED),
        (True, 0, Outcome.FOUND),
        (True, 10**6, Outcome.FOUND),
        (True, 10**9, Outcome.NOT_PLANTED),
    ],
)
def test_only_time_connects_two_transactions_whose_order_in_time_a_plant_breaks(
    independent: bool, clock_error_ns: int, outcome: Outcome
) -> None:
    events = Events()
    one = producer(events, 1)
    first = events.send(one, 0, A, 0)
    events.commit(one)
    events.initialised(2, "processor")
    other = events.begin(2, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(other, 0, A, [(0, first)])
    records = [(0, events.send(other, 1, B, 0))]
    events.commit(other)
    if independent:
        another = producer(events, 3, "q")
        records.append((2, events.send(another, 0, B, 2)))
        events.commit(another)
    events.closing(a=[(0, first)], b=records)
    tables = {"transaction_events": events.table()}
    context = replace(CONTEXT, clock_error_ns=clock_error_ns)
    results = {one.anomaly: one for one in self_test(tables, context)}
    assert results["circular-reads-realtime"].outcome is outcome


def test_a_run_without_transactions_says_what_is_missing() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.closing(a=[(0, value)])
    results = {
        one.anomaly: one for one in self_test({"transaction_events": events.table()}, CONTEXT)
    }
    for anomaly, _, _ in CHANGES:
        if anomaly != "zombie-commit":
            assert results[anomaly].outcome is Outcome.NOT_PLANTED, anomaly
            assert results[anomaly].detail.startswith("it has no "), anomaly
