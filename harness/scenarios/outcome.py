"""The outcome of a scripted scenario, in the terms of its table of expected outcomes."""

from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.scenarios.steps import ELECTS_NO_CONTROLLER, Scenario

LOST_WEAK = "lost-acked-write-acks1"
VISIBLE = "visible-regress"
INVARIANT = "invariant-broken"
STUCK = "stuck"
STAYS_LEADERLESS = "stays without a leader"
"""Part of the reason of a run whose final phase could not end because a partition got no leader."""


def predicted_outcome(
    scenario: Scenario, outcome_family: str, *, system: str = "", version: str = ""
) -> str:
    """Returns the outcome word that the scenario's table predicts; "" if it has none for this version.

    Args:
        scenario: Which one.
        outcome_family: See `Promises.outcome_family`.
        system: Name of the system.
        version: Its version; "" if it has none.

    Raises:
        KeyError: The table has no such column.
    """
    if version and scenario.versions:  # a table by version says more than one by profile
        rows = scenario.versions.get(system, ())
        return next((row.outcome for row in rows if row.covers(version)), "")
    return scenario.expected[outcome_family] if scenario.expected else ""


def outcome_word(verdict: Verdict) -> str:
    """Returns the outcome word of a verdict.

    A record that was read and is gone is mentioned only where it is not the same acknowledged record that "loss"
    names already: the tables list it for records that were never acknowledged with acks=all. A run is "stuck" if
    it has that anomaly and lost nothing, or if it is unknown because a partition stayed without a leader after
    everything was healed, or the cluster without an active controller. Any other run that cannot be judged, and
    one whose white-box invariants were broken, has none of the outcomes in the tables.
    """
    if any(anomaly.id == INVARIANT for anomaly in verdict.anomalies):
        return INVARIANT
    if verdict.validity is Validity.UNKNOWN:
        is_stuck = any(
            what in reason
            for reason in verdict.reasons
            for what in (STAYS_LEADERLESS, ELECTS_NO_CONTROLLER)
        )
        return STUCK if is_stuck else "unknown"
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
    if not outcomes and any(anomaly.id == STUCK for anomaly in verdict.anomalies):
        return STUCK
    return "+".join(outcomes) or "ok"
