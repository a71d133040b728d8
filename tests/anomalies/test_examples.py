"""Every anomaly has a definition, a smallest history with a near miss, and a defect or a reason for none."""

import re
from pathlib import Path

import pytest

from checkers.anomalies import ANOMALIES, LEVELS
from checkers.examples import EXAMPLES, LAWFUL, NOT_PRODUCED, PRODUCED_BY
from checkers.transaction_anomalies import OF_TRANSACTIONS
from harness.documents.anomalies import IncompleteCatalogueError, document, shown_by
from harness.errors import HistoryError
from system_under_test.defects import DEFECTS
from system_under_test.rules import SWITCHABLE_RULES
from tests.anomalies.example_histories import Example

LINES_MAX = 5
"""A history of more lines is not the smallest one."""


@pytest.mark.parametrize("identifier", EXAMPLES)
def test_the_smallest_history_has_the_anomaly_and_the_near_miss_has_not(identifier: str) -> None:
    example = EXAMPLES[identifier]
    assert identifier in Example(example.smallest).anomalies()
    assert identifier not in Example(example.near_miss).anomalies()
    assert len(example.smallest.splitlines()) <= LINES_MAX


@pytest.mark.parametrize("identifier", EXAMPLES)
def test_every_line_of_the_smallest_history_is_needed(identifier: str) -> None:
    """Without a line the anomaly is not there, or another one is: the line explains what the others show."""
    whole = Example(EXAMPLES[identifier].smallest).anomalies()
    lines = EXAMPLES[identifier].smallest.splitlines()
    for left_out in range(len(lines)):
        rest = "\n".join(lines[:left_out] + lines[left_out + 1 :])
        try:
            found = Example(rest).anomalies()
        except (IndexError, HistoryError):  # what a line refers to is gone
            continue
        assert identifier not in found or found - whole, lines[left_out]


def test_every_smallest_history_is_printed_except_those_of_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ANOMALIES.keys() - EXAMPLES.keys() == OF_TRANSACTIONS - EXAMPLES.keys()
    introduction, _, entries = document().partition("\n## ")
    count = (
        entries.count("\nSmallest history:\n"),
        entries.count("\n- Smallest history and near miss: "),
    )
    assert sum(count) == len(ANOMALIES)
    assert " ".join(introduction.split()).count(
        f"{count[0]} of the {len(ANOMALIES)} entries print them. The other {count[1]} are"
    )
    monkeypatch.delitem(EXAMPLES, "unseen")
    with pytest.raises(IncompleteCatalogueError, match="unseen has no smallest history that can"):
        document()


def test_every_anomaly_that_random_search_shows_has_a_test_of_a_defect() -> None:
    assert not [reason for reason in NOT_PRODUCED.values() if " shows it with " in reason]


@pytest.mark.parametrize("identifier", ANOMALIES)
def test_the_catalogue_is_complete(identifier: str) -> None:
    kind = ANOMALIES[identifier]
    assert kind.id == identifier
    assert kind.level in LEVELS
    assert kind.definition.endswith(".")
    assert kind.counts
    assert kind.source
    assert identifier in EXAMPLES or shown_by(identifier), "it has no smallest history"
    assert sum(identifier in each for each in (PRODUCED_BY, LAWFUL, NOT_PRODUCED)) == 1, (
        "name the defects that produce it, or the reason why none does"
    )


def test_the_tables_name_known_anomalies_defects_and_rules() -> None:
    assert EXAMPLES.keys() <= ANOMALIES.keys()
    assert (PRODUCED_BY.keys() | LAWFUL.keys() | NOT_PRODUCED.keys()) <= ANOMALIES.keys()
    known = DEFECTS.keys() | SWITCHABLE_RULES
    assert all(PRODUCED_BY.values())
    assert {one for several in PRODUCED_BY.values() for one in several} <= known


def test_the_text_of_an_example_is_read_completely() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Example("0 p0 append -> ok at 0")


def test_a_test_of_another_file_shows_what_is_not_in_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "anomalies"
    folder.mkdir(parents=True)
    (folder / "test_other.py").write_text('CASES = {\n    "G9": (1, 2),\n}\n')
    assert shown_by("G9", tmp_path) == ("tests/anomalies/test_other.py",)
    assert shown_by("G8", tmp_path) == ()
    assert re.fullmatch(r"[a-z_/]+\.py", shown_by("G9", tmp_path)[0])
