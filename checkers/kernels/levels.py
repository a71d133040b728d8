"""Whether each level of promises holds in a run."""

from collections.abc import Iterable

from checkers.anomalies import FRESH, LEVELS
from harness.contracts.verdict import Anomaly

HOLDS, ALLOWED, EXCUSED, UNKNOWN, BROKEN = "holds", "allowed", "excused", "unknown", "broken"

_STATES = (HOLDS, ALLOWED, EXCUSED, UNKNOWN, BROKEN)
"""The worst one counts."""

_STATE_OF = {
    "forbidden": BROKEN,
    "undecided": UNKNOWN,
    "allowed by configuration": ALLOWED,
    "excused by the faults": EXCUSED,
}
"""What an anomaly makes of its level, by judgement."""


def levels_of(anomalies: Iterable[Anomaly], unknown_reasons: Iterable[str]) -> dict[str, str]:
    """Returns the state of every level, the most important level first.

    - `broken`: the run has a forbidden anomaly of the level;
    - `unknown`: it has none, but the run could not show all of them, or what it shows is undecided;
    - `excused`, `allowed`: it has anomalies of the level that the faults excuse, or that no promise forbids;
    - `holds`: it has none.

    Args:
        anomalies: Everything found.
        unknown_reasons: Why the verdict cannot be better than unknown; they concern every level.
    """
    state = UNKNOWN if any(True for _ in unknown_reasons) else HOLDS
    states = dict.fromkeys(LEVELS, state)
    for anomaly in anomalies:
        # Nothing promises fresh observations; of the other levels, what is only reported is not known.
        of_level = ALLOWED if anomaly.level == FRESH else UNKNOWN
        found = _STATE_OF.get(str(anomaly.judgement), of_level)
        states[anomaly.level] = max(states[anomaly.level], found, key=_STATES.index)
    return states
