"""The code checks every switch, and every switch and every listed defect has a test that shows it."""

import importlib
from pathlib import Path

import pytest

from harness.documents.citations import switch_places
from system_under_test.defects import DEFECTS, LETTERS, find_defect
from system_under_test.related_bugs import RELATED_BUGS
from system_under_test.rule_catalogue import FAMILIES, RULES
from system_under_test.rule_catalogue.cluster import CLUSTER_RULES
from system_under_test.rule_catalogue.partitions import PARTITION_RULES
from system_under_test.rule_catalogue.transactions import TRANSACTION_RULES
from system_under_test.rules import SWITCHABLE_RULES, Rules
from tests.mutations.coverage import DEFECTS_SHOWN, RULES_SHOWN

HERE = Path(__file__).parent


def import_all() -> None:
    """Imports every test module here, so that their decorators have run."""
    for path in sorted(HERE.glob("test_mutations_*.py")):
        importlib.import_module(f"tests.mutations.{path.stem}")


def test_the_code_checks_every_switchable_rule_and_no_others() -> None:
    assert set(switch_places()) == set(SWITCHABLE_RULES)


def test_for_every_switchable_rule_a_test_shows_what_happens_without_it() -> None:
    import_all()
    assert set(RULES_SHOWN) == set(SWITCHABLE_RULES)


def test_every_listed_defect_is_shown_by_a_test() -> None:
    import_all()
    assert set(DEFECTS_SHOWN) == set(DEFECTS)


def test_defects_are_well_formed() -> None:
    for identifier, defect in DEFECTS.items():
        assert defect.id == identifier
        Rules(defect.rules)
        assert set(defect.anomalies) <= set(LETTERS)
        assert defect.anomalies or defect.invariants
        assert defect.sentence.endswith(".")
    assert list(DEFECTS) == sorted(DEFECTS)
    assert len({defect.name for defect in DEFECTS.values()}) == len(DEFECTS)


def test_related_bugs_are_well_formed_and_not_defects() -> None:
    assert not set(RELATED_BUGS) & set(DEFECTS)
    assert list(RELATED_BUGS) == sorted(RELATED_BUGS)
    for bug in RELATED_BUGS.values():
        assert bug.rule in RULES
        assert bug.sentence.endswith(".")
        assert bug.reason.endswith(".")


def test_every_rule_has_a_statement_and_a_family() -> None:
    for identifier, rule in RULES.items():
        assert rule.id == identifier
        assert identifier.split("-")[0] in FAMILIES
        assert rule.statement.endswith((".", ")"))
    assert set(FAMILIES) == {identifier.split("-")[0] for identifier in RULES}
    assert len(RULES) == len(PARTITION_RULES) + len(CLUSTER_RULES) + len(TRANSACTION_RULES)


def test_a_defect_is_found_by_identifier_and_by_name() -> None:
    assert find_defect("B-18") is find_defect("b-18") is find_defect("hw-not-gated")


def test_an_unknown_defect_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean hw-not-gated"):
        find_defect("hw-not-gatd")
    with pytest.raises(ValueError, match=r"no defect is called 'B-47' \(known: B-00, "):
        find_defect("B-47")
