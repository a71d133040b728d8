"""What the self-test plants into a valid run of the workload `transactions` is found."""

from checkers.planting.table import PLANTS
from checkers.planting.transactions import CHANGES
from checkers.selftest import Outcome, self_test
from harness.contracts.verdict import Judgement, Validity
from tests.anomalies.recorded_transactions import CONTEXT, A, Events, producer, valid_run


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
    others = {plant.anomaly for plant in PLANTS} - planted
    assert {results[name].outcome for name in others} == {Outcome.NOT_PLANTED}


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
