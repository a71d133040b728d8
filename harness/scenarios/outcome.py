"""What a scripted scenario came to, in the words of its table of expected outcomes."""

from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.scenarios.last_replica_standing import OFF, OFF_NO_GATE, ON
from harness.scenarios.steps import Scenario
from system_under_test.config import profile_features

LOST = "lost-acked-write"
LOST_WEAK = "lost-acked-write-acks1"
VISIBLE = "visible-regress"
INVARIANT = "invariant-broken"


def predicted_outcome(scenario: Scenario, profile: str) -> str:
    """Returns the outcome word that the table predicts for a profile.

    Raises:
        UsageError: There is no such profile.
    """
    features = profile_features(profile)
    if features.elr_on:
        return scenario.expected[ON]
    return scenario.expected[OFF if features.hw_min_isr_gate else OFF_NO_GATE]


def outcome_word(verdict: Verdict) -> str:
    """Returns the outcome word of a verdict.

    A record that was read and is gone is mentioned only where it is not the same acknowledged record that "loss"
    names already: the tables list it for records that were never acknowledged with acks=all. A run that cannot
    be judged, or whose white-box invariants were broken, is none of the outcomes of the tables.
    """
    if any(anomaly.id == INVARIANT for anomaly in verdict.anomalies):
        return INVARIANT
    if verdict.validity is Validity.UNKNOWN:
        return "unknown"
    words = []
    if verdict.unexcused_lost_records:
        words.append("loss")
    elif verdict.excused_lost_records:
        words.append("loss(f)")
    if any(anomaly.id == LOST_WEAK for anomaly in verdict.anomalies):
        words.append("weak")
    regress = [
        anomaly
        for anomaly in verdict.anomalies
        if anomaly.id == VISIBLE and anomaly.judgement is Judgement.FORBIDDEN
    ]
    if regress and "loss" not in words:
        words.append("visible")
    return "+".join(words) or "ok"
