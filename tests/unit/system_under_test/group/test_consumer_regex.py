"""Regular expressions of subscriptions: they match what Python matches, and never take long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from system_under_test.group.consumer.regex import RegexError, TopicRegex

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        r"\.",
        "[ab]",
        "[^a]",
        "[a-c]",
        r"\d",
        r"\w",
        r"\W",
        "(a|bc)",
        "(?:ab|a|)",
        "^",
        "$",
    ]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    def piece() -> str:
        atom = draw(ATOMS)
        return atom if atom in "^$" else atom + draw(REPEATS)

    def sequence() -> str:
        return "".join(piece() for _ in range(draw(st.integers(0, 4))))

    inner = "|".join(sequence() for _ in range(draw(st.integers(1, 3))))
    return f"({inner}){draw(REPEATS)}{sequence()}"


@given(pattern=patterns(), name=st.text("abc.1-", max_size=6))
def test_a_pattern_matches_what_it_matches_in_python(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern, name, re.ASCII) is not None
    assert TopicRegex(pattern).matches(name) is expected


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("orders-.*", "orders-1", True),
        ("orders", "orders-1", False),
        ("(?i)Orders", "oRDERS", True),
        ("(?i:o)rders", "ORDERS", False),
        (r"\Aa\Z", "a", True),
        ("", "", True),
        ("[^a]", "b", True),
        ("[^a-c]", "b", False),
        ("a{0}b", "b", True),
    ],
)
def test_examples(pattern: str, name: str, expected: bool) -> None:
    assert TopicRegex(pattern).matches(name) is expected


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing \\)"),
        ("*", "nothing to repeat"),
        (r"(a)\1", "groupref is not supported"),
        ("(?=a)b", "assert is not supported"),
        ("(?<!a)b", "assert not is not supported"),
        (r"\bx", "at is not supported"),
        ("a{1001}", "more than 1000 times"),
        ("((a{100}){100}){100}", "too large"),
        ("a++", "possessive repeat is not supported"),
        ("(" * 3000 + ")" * 3000, "deep|recursion"),
    ],
)
def test_what_re2_does_not_have_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(RegexError, match=problem):
        TopicRegex(pattern)


def test_a_pattern_that_takes_other_matchers_forever_is_matched_in_linear_time() -> None:
    assert not TopicRegex("(a*)*(a|aa)+(.*a){20}b").matches("a" * 249)
