"""Decisions of rules: every switch is covered, and recording changes no run."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.environments.simulated import rule_decisions
from system_under_test.rules import SWITCHABLE_RULES

SCRIPT = """
import json, sys
from harness.environments.simulated import rule_decisions
from harness.runs.coverage import coverage_of
from harness.runs.experiment_file import loads
from harness.runs.simulated import simulate

text = "duration_ms = 2000\\nfinal_phase_ms = 60000\\ndisabled_rules = %s\\n[nemesis]\\n"
text += "faults = ['kill', 'isolate']\\ngap_ms = 300"
plain = loads(text % [], origin="x")
before = simulate(plain, 3)
asked = simulate(plain, 3, records_decisions=True)
again = simulate(plain, 3, records_decisions=True)
unasked = simulate(plain, 3)
disabled = simulate(loads(text % ["PROD-2"], origin="x"), 3, records_decisions=True)
print(json.dumps({
    "hashes": [one.trace_hash for one in (before, asked, again, unasked)],
    "decisions": [list(one.rule_decisions) for one in (before, asked, again, unasked)],
    "disabled": list(disabled.rule_decisions),
    "features": list(coverage_of(asked).features),
}))
"""


def recorded(source: str) -> Any:
    """Returns the names of the places, and the values that a function with this source records."""
    seen: list[tuple[str, Any]] = []

    def decided(place: str, value: Any) -> Any:
        seen.append((place, value))
        return value

    tree = ast.fix_missing_locations(rule_decisions._Recorded("m").visit(ast.parse(source)))
    names: dict[str, Any] = {"__decided__": decided, "rules": lambda _: True}
    exec(compile(tree, "m.py", "exec"), names)
    return names["f"], seen


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ('rules("HW-1")', True),
        ('not rules("HW-1")', False),
        ('x and rules("HW-1")', 0),
        ('(x or rules("HW-1")) and not x', True),
    ],
)
def test_the_largest_condition_with_a_switch_is_recorded(condition: str, value: object) -> None:
    function, seen = recorded(f"def f(x):\n    return g({condition})\ndef g(y): return y")
    assert function(0) == value
    assert seen == [("HW-1 in m:f", value)]


def test_a_condition_of_two_rules_is_one_decision_and_other_calls_are_none() -> None:
    function, seen = recorded(
        'def f(x):\n    if rules("HW-1") and not rules("HW-5"):\n        return 1\n    return len("HW-1")'
    )
    assert function(0) == 4
    assert seen == [("HW-1, HW-5 in m:f", False)]


def test_a_name_that_is_no_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="'HW-99' is no switchable rule"):
        recorded('def f(x):\n    return rules("HW-99")')


def test_every_switch_that_code_reads_is_recorded() -> None:
    found = set()
    for path in rule_decisions._modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found.update(rule_decisions._read_in(node))
    assert found == set(SWITCHABLE_RULES)


def test_a_run_records_decisions_on_request_only_and_stays_the_same() -> None:
    """In a process of its own, because recording replaces code."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout)
    assert len(set(found["hashes"])) == 1
    before, asked, again, unasked = found["decisions"]
    assert before == unasked == []
    assert asked == again == sorted(asked)
    assert len(asked) > 40
    assert {f"rule {one}" for one in asked} <= set(found["features"])
    # A rule that is off decides nothing.
    assert not any(one.startswith("PROD-2 ") and one.endswith("yes") for one in found["disabled"])
