"""Every mechanism of the table at the end of docs/rules.md names code and tests that exist."""

import pytest

from harness.documents.citations import Place, is_defined, place_of
from harness.documents.mechanisms import Mechanism, mechanisms, section
from system_under_test.rule_catalogue import RULES

ROW_COUNT = 184


def test_the_table_has_every_row_once_and_in_order() -> None:
    rows = [one.row for one in mechanisms()]
    assert len(rows) == ROW_COUNT
    assert rows == sorted(set(rows))


@pytest.mark.parametrize("one", mechanisms(), ids=lambda one: str(one.row))
def test_a_mechanism_is_carried_by_what_exists(one: Mechanism) -> None:
    assert one.rules or (one.code and one.tests)
    assert set(one.rules) <= set(RULES)
    assert [place for place in one.code_places if not is_defined(place)] == []
    assert [place for place in one.test_places if not is_defined(place)] == []
    assert all(place.file.startswith("tests/") for place in one.test_places)
    assert all(place.name.startswith("test_") for place in one.test_places)
    assert one.statement.endswith(".")


def test_the_table_counts_only_what_holds() -> None:
    complete = sum(not one.missing for one in mechanisms())
    assert f"{complete} of {ROW_COUNT} have code and tests." in section()


def test_what_does_not_exist_is_not_defined() -> None:
    assert place_of("log.log:Log.append") == Place("system_under_test/log/log.py", "Log.append")
    assert not is_defined(place_of("log.log:Log.append"))
    assert is_defined(place_of("log.log:Log.append_as_leader"))
    assert is_defined(place_of("harness.documents:"))
    assert not is_defined(place_of("harness.documentation:"))
