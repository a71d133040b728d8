"""When a run in another world confirms a finding: the anomaly counts, not its company."""

from typing import Any

import pytest

from harness.runs.outcomes import confirms, finding_of


def summary(*forbidden: str, **more: Any) -> dict[str, Any]:
    anomalies = [{"id": name, "judgement": "forbidden", "count": 1} for name in sorted(forbidden)]
    anomalies.append({"id": "stale-end", "judgement": "informational", "count": 3})
    return {
        "verdict": "invalid" if forbidden else "valid",
        "reasons": [f"{name} in t-0 (5): because" for name in forbidden],
        "anomalies": anomalies,
        **more,
    }


@pytest.mark.parametrize(
    ("stored", "finding"),
    [
        (summary("lost-acked-write", "divergent-value"), "lost-acked-write"),
        (summary("invariant-broken", reasons=["invariant-broken: b1 ended"]), "invariant-broken"),
        (summary(), "valid"),
        (
            {
                "verdict": "unknown",
                "reasons": ["the fault 'delay' never took effect"],
                "anomalies": [],
            },
            "unknown",
        ),
        (summary("lost-acked-write", outcome="loss(f)"), "loss(f)"),
    ],
)
def test_the_finding_is_the_first_anomaly_of_the_verdict(
    stored: dict[str, Any], finding: str
) -> None:
    assert finding_of(stored) == finding


def test_additional_anomalies_do_not_matter() -> None:
    assert confirms(summary("phantom", "lost-acked-write"), "lost-acked-write")
    assert not confirms(summary("phantom"), "lost-acked-write")
    assert not confirms(summary(), "lost-acked-write")
    assert confirms(summary(), "valid")
