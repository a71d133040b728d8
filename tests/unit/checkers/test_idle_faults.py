"""The reason of a run names the faults that took no effect, and why."""

import json
from typing import Any

import pytest

from checkers.idle_faults import NAMED_MAX, beginnings, why_all_idle, why_idle, without_effect


def row(number: int = 1, fault: str = "cut", **values: Any) -> dict[str, Any]:
    evidence = values.pop("evidence", {})
    text = evidence if isinstance(evidence, str) else json.dumps(evidence)
    return {
        "fault_id": f"f{number}",
        "fault": fault,
        "resolved": [],
        "failed": False,
        "took_effect": False,
        "evidence": text,
        **values,
    }


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"evidence": {"not_started": "the event did not happen"}}, "the event did not happen"),
        ({"evidence": {"hit": "nobody"}}, "it met no target"),
        ({"resolved": ["b1"], "evidence": {"packets": 0}}, "no evidence shows an effect"),
        (
            {"failed": True, "evidence": {"error": "tc said no"}},
            "it could not be injected: tc said no",
        ),
        ({"failed": True}, "it could not be injected: no error is recorded"),
        ({"evidence": ""}, "it met no target"),
        ({"params": '{"messages": "Fetch from b1"}'}, "no message matched 'Fetch from b1'"),
        ({"params": '{"ms": 5}'}, "it met no target"),
        ({"evidence": "{"}, "it met no target"),
        ({"evidence": "[" * 100_000}, "it met no target"),
        ({"evidence": "[1]", "resolved": ["b1"]}, "no evidence shows an effect"),
    ],
)
def test_a_fault_without_effect_has_a_reason(values: dict[str, Any], why: str) -> None:
    assert why_idle(row(**values)) == why


def test_a_sentence_names_the_first_faults_and_counts_the_others() -> None:
    rows = [row(number) for number in range(1, NAMED_MAX + 3)]
    assert why_all_idle([]) == ""
    assert why_all_idle(rows[:1]) == "f1 cut: it met no target"
    named = "; ".join(f"f{number} cut: it met no target" for number in (1, 2, 3))
    assert why_all_idle(rows[:NAMED_MAX]) == named
    assert why_all_idle(rows) == f"{named}; and 2 more"


def test_the_reason_of_one_fault_leaves_the_others_out() -> None:
    rows = [row(1), row(2, "kill"), row(3, "pause", took_effect=True)]
    kill = "the fault 'kill' never took effect (f2 kill: it met no target)"
    assert without_effect("kill", rows, ["kill"]) == kill
    assert without_effect("kill", rows, ["kill f2", "cut f1"]) == kill
    # A template is no fault.
    for name in ("power", "catch-up"):
        missing = f"{name!r} never took effect (none was injected)"
        assert without_effect(name, rows, [f"{name} f9"]) == missing
        assert missing.startswith(beginnings(name))


def test_a_reason_names_the_faults_that_are_needed_if_others_of_their_name_took_effect() -> None:
    rows = [row(1, took_effect=True), row(2), row(3), row(4, took_effect=True)]
    some = "some of the faults 'cut' never took effect"
    needed = ["cut f1", "cut f3", "kill f2"]
    assert without_effect("cut", rows, needed) == f"{some} (f3 cut: it met no target)"
    assert without_effect("cut", rows, ["cut f1", "cut f9"]) == f"{some} (one was not injected)"
    assert {some, "the fault 'cut' never took effect"} < set(beginnings("cut"))
