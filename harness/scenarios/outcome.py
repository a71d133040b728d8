"""The outcome of a scripted scenario, in the terms of its table of expected outcomes."""

from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.scenarios.steps import Scenario

LOST_WEAK = "lost-acked-write-acks1"
VISIBLE = "visible-regress"
INVARIANT = "invariant-broken"


def predicted_outcome(scenario: Scenario, outcome_family: str) -> str:
    """Returns the outcome word that the scenario's table predicts; see `Promises.outcome_family`.

    Raises:
        KeyError: The table has no such column.
    """
    return scenario.expected[outcome_family]


def outcome_word(verdict: Verdict) -> str:
    """Returns the outcome word of a verdict.

    A record that was read and is gone is mentioned only where it is not the same acknowledged record that "loss"
    names already: the tables list it for records that were never acknowledged with acks=all. A run that cannot
    be judged, or whose white-box invariants were broken, has none of the outcomes in the tables.
    """
    if any(anomaly.id == INVARIANT for anomaly in verdict.anomalies):
        return INVARIANT
    if verdict.validity is Validity.UNKNOWN:
        return "unknown"
    outcomes = []
    if verdict.unexcused_lost_records:
        outcomes.append("loss")
    elif verdict.excused_lost_records:
        outcomes.append("loss(f)")
    if any(anomaly.id == LOST_WEAK for anomaly in verdict.anomalies):
        outcomes.append("weak")
    regress = [
        anomaly
        for anomaly in verdict.anomalies
        if anomaly.id == VISIBLE and anomaly.judgement is Judgement.FORBIDDEN
    ]
    if regress and "loss" not in outcomes:
        outcomes.append("visible")
    return "+".join(outcomes) or "ok"
