"""The switch that turns a protocol rule off.

A rule (`rule_catalogue`) is implemented in exactly one place, which calls `rules("HW-1")` before it applies it.
All rules apply unless a test or a defect (`defects.py`) switches one off; a defect *is* "rule X is not applied".

A rule becomes switchable as soon as code reads its switch. Naming a rule that is not switchable is an error, so
that a misspelt switch cannot silently do nothing.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from system_under_test.rule_catalogue import RULES
from system_under_test.rule_catalogue.rule import Rule

SWITCHABLE_RULES: dict[str, Rule] = {rule.id: rule for rule in RULES.values() if rule.is_switchable}
"""The rules that can be switched off, by identifier."""


class Rules:
    """Decides whether a rule applies in this node.

    Args:
        disabled: Identifiers of rules that are switched off.

    Raises:
        ValueError: An identifier is not in `SWITCHABLE_RULES`; the message suggests one.
    """

    def __init__(self, disabled: Iterable[str] = ()) -> None:
        self.disabled = frozenset(disabled)
        for rule in sorted(self.disabled):
            if rule not in SWITCHABLE_RULES:
                near = get_close_matches(rule, SWITCHABLE_RULES, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"no switchable rule is called {rule!r}{hint}")

    def __call__(self, rule: str) -> bool:
        """Returns whether the rule applies."""
        if rule not in SWITCHABLE_RULES:
            raise ValueError(f"no switchable rule is called {rule!r}")
        return rule not in self.disabled


ALL_RULES = Rules()
"""Every rule applies."""
