"""The file of known failures: what it may contain, and how errors are reported."""

from datetime import date

import pytest

from harness.campaigns.known_failures import KnownFailure, load_known_failures
from harness.errors import UsageError

GOOD = """
[[failure]]
signature = "3fa9c1d27b04"
reason = "the last replica standing loses its tail with ELR off"
ticket = "KAFKA-15332"
expiry = 2027-03-31

[[failure]]
signature = "000000000001"
reason = "slow"
expiry = "2026-11-22"
"""


def load(tmp_path, text):
    path = tmp_path / "known-failures.toml"
    path.write_text(text)
    return load_known_failures(path)


def test_entries_are_found_by_their_signature(tmp_path):
    known = load(tmp_path, GOOD)
    assert list(known) == ["3fa9c1d27b04", "000000000001"]
    assert known["3fa9c1d27b04"] == KnownFailure(
        signature="3fa9c1d27b04",
        reason="the last replica standing loses its tail with ELR off",
        ticket="KAFKA-15332",
        expiry=date(2027, 3, 31),
    )
    assert known["000000000001"].ticket == ""


def test_an_entry_counts_on_the_day_of_its_expiry_and_no_longer_on_the_next(tmp_path):
    entry = load(tmp_path, GOOD)["000000000001"]
    assert not entry.is_expired(date(2026, 11, 22))
    assert entry.is_expired(date(2026, 11, 23))


def test_an_empty_file_lists_nothing(tmp_path):
    assert load(tmp_path, "") == {}


ENTRY = '[[failure]]\nsignature = "3fa9c1d27b04"\nreason = "r"\nexpiry = 2027-03-31\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[failure]\n", "known-failures.toml is not valid TOML"),
        (
            "[[failures]]\n",
            "no table of known failures is called 'failures'; did you mean 'failure'?",
        ),
        ("[failure]\nreason = 'x'\n", "'failure' must be an array of tables, [[failure]]"),
        ("failure = [1]\n", "'failure' must be an array of tables, [[failure]]"),
        (ENTRY + "expire = 1\n", "failure 1: no key of a known failure is called 'expire'"),
        (ENTRY.replace('reason = "r"\n', ""), "failure 1 has no reason"),
        (ENTRY.replace("expiry = 2027-03-31\n", ""), "failure 1 has no expiry"),
        (ENTRY.replace('"r"', "7"), "failure 1: reason: expected str, got int"),
        (ENTRY.replace('"r"', '"  "'), "failure 1: reason is empty"),
        (
            ENTRY.replace("2027-03-31", "2027-03-31T10:00:00"),
            "expiry must be a date like 2027-03-31",
        ),
        (ENTRY.replace("2027-03-31", '"soon"'), "failure 1: expiry: Invalid"),
        (
            ENTRY.replace("3fa9c1d27b04", "INV-2"),
            "signature is 'INV-2'; use the 12 letters and digits",
        ),
        (ENTRY + ENTRY, "lists the signature 3fa9c1d27b04 twice"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, text, sentence):
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert sentence in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_missing_or_unreadable_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="there is no file of known failures"):
        load_known_failures(tmp_path / "nothing.toml")
    with pytest.raises(UsageError, match="cannot read the known failures"):
        load_known_failures(tmp_path)
