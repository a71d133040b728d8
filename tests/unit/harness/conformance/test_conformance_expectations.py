"""The list of expected differences: how it is read, what it covers, and that it is sound."""

import pytest

from harness.conformance.catalogue import catalogue
from harness.conformance.comparison import Difference
from harness.conformance.expectations import (
    ExpectedDifference,
    assess,
    expected_behaviours,
    expected_differences,
    matches,
    read_behaviours,
    read_expected,
)
from harness.systems.apache_kafka.versions import parse_version

ENTRY = """
[[difference]]
request = "fetch/*"
field = "1.*.error_code"
apache_kafka = "NONE"
reference = "*"
reason = "A reason."
"""


def difference(**changes: str) -> Difference:
    values = {
        "request": "fetch/a",
        "field": "1.topics.d.error_code",
        "apache_kafka": "NONE",
        "reference": "INVALID_REQUEST",
    }
    return Difference(**(values | changes))


def entry(**changes: str) -> ExpectedDifference:
    values = {
        "request": "fetch/a",
        "field": "*",
        "apache_kafka": "*",
        "reference": "*",
        "reason": "A reason.",
    }
    return ExpectedDifference(**(values | changes))


BEHAVIOUR = """
[[behaviour]]
subject = "Expiry"
apache_kafka = "Expires."
reference = "Does not."
reason = "A reason."
"""


def test_behaviours_are_read_beside_differences_and_cover_nothing():
    (one,) = read_behaviours(ENTRY + BEHAVIOUR)
    assert (one.subject, one.apache_kafka, one.reference) == ("Expiry", "Expires.", "Does not.")
    assert len(read_expected(ENTRY + BEHAVIOUR)) == 1
    assert expected_behaviours()
    with pytest.raises(ValueError, match=r"behaviour 1 \(Expiry\): unknown key since"):
        read_behaviours(BEHAVIOUR + 'since = "4.0.0"')
    with pytest.raises(ValueError, match=r"behaviour 1 \(without a subject\): subject is missing"):
        read_behaviours('[[behaviour]]\nreason = "A reason."')


def test_a_star_stands_for_any_text_and_nothing_else_is_special():
    assert matches("1.*.code", "1.a.b.code")
    assert matches("a.c", "a.c")
    assert not matches("a.c", "abc")
    assert not matches("a", "ab")
    assert matches("<x>*[0]", "<x> any [0]")


def test_an_entry_covers_a_difference_in_all_four_parts():
    (one,) = read_expected(ENTRY)
    assert one.covers(difference())
    assert not one.covers(difference(request="produce/a"))
    assert not one.covers(difference(field="1.topics.d.offset"))
    assert not one.covers(difference(apache_kafka="INVALID_REQUEST"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY.replace('reason = "A reason."', ""), "reason is missing"),
        (ENTRY.replace('"A reason."', '"  "'), "reason is missing"),
        (ENTRY + 'severity = "high"', "unknown key severity"),
        (ENTRY + 'since = "4.1.9"', "since is '4.1.9', which is no supported version"),
        (ENTRY + "until = 4", "until is 4, which is no supported version"),
        ("[other]", "unknown table other"),
    ],
)
def test_a_damaged_list_is_refused_and_the_entry_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        read_expected(text)


def test_entries_hold_for_versions():
    text = ENTRY + 'since = "4.0.0"\nuntil = "4.1.2"'
    (one,) = read_expected(text)
    holds = {
        version: one.holds_for(parse_version(version)) for version in ("3.9.2", "4.0.0", "4.2.0")
    }
    assert holds == {"3.9.2": False, "4.0.0": True, "4.2.0": False}


def test_differences_are_expected_or_new_and_entries_may_be_gone():
    covered, other = difference(), difference(request="fetch/b")
    ids = {"fetch/a", "fetch/b"}
    used, unused = entry(), entry(request="fetch/b", field="9.*")
    result = assess([covered, other], [used, unused], sent=ids, catalogue=ids)
    assert result.expected == ((covered, used),)
    assert result.new == (other,)
    assert result.gone == (unused,)


def test_an_entry_that_depends_on_time_still_holds_if_it_did_not_occur():
    assert (
        assess([], [entry(depends_on_time=True)], sent={"fetch/a"}, catalogue={"fetch/a"}).gone
        == ()
    )
    with pytest.raises(ValueError, match="depends_on_time is 'yes', which is not true or false"):
        read_expected(
            """
            [[difference]]
            request = "a"
            field = "b"
            apache_kafka = "c"
            reference = "d"
            reason = "e"
            depends_on_time = "yes"
            """
        )


def test_an_entry_about_requests_that_were_not_all_sent_is_not_judged():
    result = assess(
        [], [entry(request="fetch/*")], sent={"fetch/a"}, catalogue={"fetch/a", "fetch/b"}
    )
    assert result.gone == ()


def test_of_two_entries_that_cover_a_difference_neither_is_gone():
    ids = {"fetch/a"}
    result = assess([difference()], [entry(), entry(field="1.*")], sent=ids, catalogue=ids)
    assert (result.new, result.gone) == ((), ())


# --- the list itself


def test_every_entry_is_about_a_request_of_the_catalogue():
    ids = [case.id for case in catalogue()]
    for one in expected_differences():
        assert any(matches(one.request, case_id) for case_id in ids), one.request


def test_every_reason_is_a_sentence():
    for one in expected_differences():
        assert one.reason[0].isupper(), one.reason
        assert one.reason.endswith("."), one.reason
        assert len(one.reason) > 30, one.reason


def test_no_entry_covers_a_whole_family_whatever_the_field():
    for one in expected_differences():
        is_wide = one.request.endswith("/*") or one.request == "*"
        assert not (is_wide and one.field in ("*", "1.*")), one.request


def test_no_entry_occurs_twice():
    keys = [
        (one.request, one.field, one.apache_kafka, one.reference, one.since, one.until)
        for one in expected_differences()
    ]
    assert len(keys) == len(set(keys))
