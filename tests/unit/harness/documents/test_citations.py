"""Where identifiers are found: switches, comments, docstrings, tests."""

import re

import pytest

from harness.documents import citations
from harness.documents.citations import Place, mention_places, naming_tests, switch_places

SYSTEM = '''\
"""The module names AA-1."""

class Log:
    """Names AA-2
    and, one line below, AA-3."""

    def append(self, rules):
        # AA-4
        def inner():
            return rules("AA-5")

        return self.config.rules("AA-6") and inner

    attribute = "AA-7"


is_on = rules("AA-8")
'''

TESTS = '''\
"""Stories about AA-1 and AA-2."""

CASES = ("AA-3",)


@shows("AA-1")
def test_one():
    """Names AA-4."""


class TestGroup:
    def test_two(self):
        assert rule("AA-5")
'''


@pytest.fixture
def two_files(tmp_path, monkeypatch):
    """A small system and a small test module instead of the repository's."""
    monkeypatch.setattr(citations, "ROOT", tmp_path)
    for name, folder, file, text in (
        ("SYSTEM", "system_under_test", "log.py", SYSTEM),
        ("TESTS", "tests", "test_log.py", TESTS),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(text, encoding="utf-8")
        monkeypatch.setattr(citations, name, tmp_path / folder)
    # The catalogue lists identifiers and applies none; helpers of tests are no tests.
    (tmp_path / "system_under_test" / "rules.py").write_text('rules("AA-9")', encoding="utf-8")
    (tmp_path / "tests" / "helpers.py").write_text("# AA-9", encoding="utf-8")


PATTERN = re.compile(r"AA-\d")
LOG = "system_under_test/log.py"


@pytest.mark.usefixtures("two_files")
def test_a_switch_belongs_to_the_innermost_function_that_reads_it():
    assert switch_places() == {
        "AA-5": [Place(LOG, "Log.append.inner")],
        "AA-6": [Place(LOG, "Log.append")],
        "AA-8": [Place(LOG, "")],
    }


@pytest.mark.usefixtures("two_files")
def test_comments_and_docstrings_name_rules_and_other_strings_do_not():
    assert mention_places(PATTERN) == {
        "AA-1": [Place(LOG, "")],
        "AA-2": [Place(LOG, "Log")],
        "AA-3": [Place(LOG, "Log")],
        "AA-4": [Place(LOG, "Log.append")],
    }


@pytest.mark.usefixtures("two_files")
def test_a_test_names_rules_anywhere_and_a_module_counts_only_without_such_a_test():
    tests = "tests/test_log.py"
    assert naming_tests(PATTERN) == {
        "AA-1": [Place(tests, "test_one")],
        "AA-2": [Place(tests, "")],
        "AA-3": [Place(tests, "")],
        "AA-4": [Place(tests, "test_one")],
        "AA-5": [Place(tests, "TestGroup.test_two")],
    }
