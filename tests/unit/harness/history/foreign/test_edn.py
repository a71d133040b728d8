"""The EDN reader: what it reads, its memory and limits, and that garbage gives only its documented error."""

import tracemalloc
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.history.foreign import edn
from harness.history.foreign.edn import (
    DIGITS_MAX,
    NESTING_MAX,
    EdnError,
    Form,
    read_forms,
    read_one,
)
from harness.history.foreign.edn_values import (
    Character,
    EdnMap,
    Keyword,
    Symbol,
    Tagged,
    to_edn,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("true", True),
        ("-17", -17),
        ("+3", 3),
        ("123456789012345678901234567890N", 123456789012345678901234567890),
        ("-1.5e3", -1500.0),
        ("##-Inf", float("-inf")),
        ("1.10M", Decimal("1.10")),
        ("22/7", Fraction(22, 7)),
        ("0x1F", 31),
        ("-0xfN", -15),
        (
            '#object[java.lang.Object 0x1b2c3d "java.lang.Object@1b2c3d"]',
            Tagged("object", (Symbol("java.lang.Object"), 0x1B2C3D, "java.lang.Object@1b2c3d")),
        ),
        (
            '#object["[B" 0x1b "[B@1b"]',
            Tagged("object", ("[B", 0x1B, "[B@1b")),
        ),
        ("#:op{:f :send}", {Keyword("op/f"): Keyword("send")}),
        (
            "#:a , {:b/c 1 :_/d 2 e 3 4 #:f{:g :h}}",
            {
                Keyword("b/c"): 1,
                Keyword("d"): 2,
                Symbol("a/e"): 3,
                4: {Keyword("f/g"): Keyword("h")},
            },
        ),
        ("-4/2", -2),
        (":jepsen.history/type", Keyword("jepsen.history/type")),
        ("->Op", Symbol("->Op")),
        ("-", Symbol("-")),
        (r"\a", Character("a")),
        (r"\newline", Character("\n")),
        (r"\u00e9", Character("é")),
        (r"\(", Character("(")),
        (r'"a\"b\\\n\u00e9\101"', 'a"b\\\né' + "A"),
        (r'"\ud83d\ude00"', "😀"),
        ("[1 (2 3) []]", (1, (2, 3), ())),
        ("#{1 :a}", frozenset({1, Keyword("a")})),
        ("{:a 1, {:b 2} [3]}", {Keyword("a"): 1, EdnMap({Keyword("b"): 2}): (3,)}),
        ('#inst "1985-04-12"', Tagged("inst", "1985-04-12")),
        ("#jepsen.history.Op{:index 0}", Tagged("jepsen.history.Op", {Keyword("index"): 0})),
        ("[1 #_2 3]", (1, 3)),
        ("[#_ #_ 1 2 3]", (3,)),
        ("#_ #tag 1 2", 2),
        ("[1 #_ #tag {:a 1}]", (1,)),
        ("; first\n 5 ; second", 5),
        ("#tag #_ 1 2", Tagged("tag", 2)),
    ],
)
def test_a_text_is_read_as_its_value(text, value):
    assert read_one(text) == value


@pytest.mark.parametrize(
    "texts",
    [
        ("1.0M", "1.00M", "1M", "10E-1M"),
        ("100M", "1E+2M", "1e2M"),
        ("0M", "-0M", "0.00M", "0E+9M"),
        ("0.0", "-0.0", "0e5"),
        ("2", "4/2", "2N"),
        ("-3/6", "-1/2"),
        ("[#t 1.0M]", "(#t 1.00M)"),
        ("##NaN", "##NaN"),
        ("1E+999999999999999999M", "10E+999999999999999998M"),
    ],
)
def test_equal_values_have_equal_texts(texts):
    assert {to_edn(read_one(text)) for text in texts} == {to_edn(read_one(texts[0]))}


def test_different_values_have_different_texts():
    texts = [
        "1",
        "1.0",
        "1M",
        "true",
        "#t 1",
        "#t 1.0",
        "#t 1M",
        "#t true",
        "#u 1",
        "0",
        "0.0",
        "0M",
    ]
    texts += ["1E-1000000000000000018M", "1.00000000000000000000000000000000000001M"]
    values = [read_one(text) for text in texts]
    assert len({to_edn(value) for value in values}) == len(texts)
    assert len({value for value in values if isinstance(value, Tagged)}) == 5
    assert to_edn(read_one("1200.50M")) == "1200.5M"


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("[1 2", 1, 5, "the text ends inside of '['"),
        ("[1]\n[2\n[3]\n", 4, 1, "the text ends inside of the form that begins on line 2"),
        ("{:a 1}\n  ]", 2, 3, "']' closes nothing that is open"),
        ("(1 2]", 1, 5, "']' closes nothing that is open"),
        ("{:a}", 1, 4, "a key without a value"),
        ("{:a 1 :a 2}", 1, 11, "a map has a key twice"),
        ("#:a{:b 1 :a/b 2}", 1, 16, "a map has a key twice"),
        ("#:a/b{:c 1}", 1, 11, "'a/b' is not a namespace"),
        ("#:a{:b 1 ]", 1, 10, "']' closes nothing that is open"),
        ("#::a{:b 1}", 1, 1, "'#::a{:b 1}' is not EDN"),
        ("0x", 1, 1, "'0x' is not a number"),
        ("#{1 1}", 1, 6, "a set has an element twice"),
        ("#{1 true}", 1, 9, "a set has two elements that are not told apart, such as 1 and 1.0"),
        ('\n\n "abc', 3, 2, "ends inside of a string"),
        (r'"\q"', 1, 2, "is not an escape"),
        (r'"\ud83d"', 1, 2, "half of a surrogate pair"),
        (r"\bogus", 1, 2, "is not a character"),
        ("01", 1, 1, "'01' is not a number"),
        ("1x", 1, 1, "is not a number"),
        ("3/0", 1, 1, "is not a number"),
        ("1e9999999999999999999M", 1, 1, "too large an exponent"),
        ("##Nope", 1, 1, "is not one of ##Inf"),
        ("#", 1, 1, "is not EDN"),
        (":", 1, 1, "is not a keyword"),
        ("::a", 1, 1, "is not a keyword"),
        ("@a", 1, 1, "neither a number nor a symbol"),
        ("#_", 1, 3, "ends inside of '#_'"),
        ("9" * (DIGITS_MAX + 1), 1, 1, "digits"),
        ("[" * (NESTING_MAX + 1), 1, NESTING_MAX + 1, "nested too deeply"),
    ],
)
def test_an_error_names_the_place_in_one_sentence(text, line, column, problem):
    with pytest.raises(EdnError) as caught:
        read_one(text, origin="history.edn")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"history.edn, line {line}, column {column}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[{:a 1}\n {:a 2}]\n; end", "({:a 1}\n {:a 2})", "{:a 1}\n{:a 2}"]
)
def test_a_list_of_forms_is_the_same_as_its_forms(text):
    forms = list(read_forms([text], origin="text", unwrap=True))
    assert forms == [Form(1, {Keyword("a"): 1}), Form(2, {Keyword("a"): 2})]


def test_nothing_may_follow_or_be_missing_at_the_end_of_a_list():
    with pytest.raises(EdnError, match=r"line 2, column 1: .*after the end"):
        list(read_forms(["[1 2]\n3"], origin="text", unwrap=True))
    with pytest.raises(EdnError, match="ends before the ']'"):
        list(read_forms(["[1 2\n"], origin="text", unwrap=True))
    with pytest.raises(EdnError, match="does not close a list"):
        list(read_forms(["[1 2)"], origin="text", unwrap=True))


@pytest.mark.long
def test_a_long_history_on_one_line_is_read_in_the_memory_of_one_form():
    count = 20_000

    def pieces():
        yield "["
        for index in range(count):
            yield f'{{:type :ok, :f :write, :value "{index:0100}", :index {index}}} '
        yield "]"

    tracemalloc.start()
    try:
        forms = read_forms(pieces(), origin="text", unwrap=True)
        indexes = [form.value[Keyword("index")] for form in forms]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert indexes == list(range(count))
    assert peak < 3_000_000, (
        "the text has 2.8 million characters, and the list of indexes needs 0.8 MB"
    )


def test_a_form_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    # Reading as many elements as the real limit allows takes half a minute.
    limit = 2**20
    monkeypatch.setattr(edn, "FORM_CHARACTERS_MAX", limit)
    read = 0

    def pieces():
        nonlocal read
        while True:
            read += 2**16
            yield "1 " * 2**15

    with pytest.raises(EdnError, match="a form has more than 1 million characters"):
        list(_one_vector(pieces()))
    assert read < 3 * limit


def _one_vector(pieces):
    def text():
        yield "{:value ["
        yield from pieces

    return read_forms(text(), origin="text")


names = st.text("abcXYZ*+!-_?<>=.0123456789é", min_size=1, max_size=6).map(lambda text: f"n{text}")
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**200), 2**200),
    st.floats(allow_nan=False),
    st.fractions().filter(lambda ratio: ratio.denominator > 1),
    st.decimals(-(10**9), 10**9, places=4),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    names.map(Keyword),
    names.map(Symbol),
    st.characters(exclude_categories=["Cs", "Z", "Cc"]).map(Character),
)


@st.composite
def values(draw, depth=3):
    """Any value with at most `depth` levels of collections and tags."""
    kind = draw(st.integers(0, 4)) if depth else 4
    if kind == 4:
        return draw(scalars)
    if kind == 3:
        return Tagged(draw(names), draw(values(depth - 1)))
    items = [draw(values(depth - 1)) for _ in range(draw(st.integers(0, 4)))]
    if kind == 2:
        return EdnMap(dict.fromkeys(items, tuple(items)))
    return frozenset(items) if kind == 1 else tuple(items)


@settings(deadline=None)
@given(value=values(), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_what_is_written_is_read_back_wherever_the_text_is_cut(value, cuts):
    text = f" {to_edn(value)} ; end"
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:stop] for start, stop in pairwise(places)]
    (form,) = read_forms(pieces, origin="text")
    assert form.value == value
    assert to_edn(form.value) == to_edn(value)


@given(text=st.text())
def test_any_text_gives_forms_or_the_documented_error(text):
    _read_or_refuse(text)


@settings(max_examples=400)
@example(text='"\\\n"')
@given(text=st.text(st.sampled_from('[](){}#_"\\:;, \nnilu01a-/M.N@^'), max_size=40))
def test_text_of_edn_characters_gives_forms_or_the_documented_error(text):
    _read_or_refuse(text)


@given(value=values(), at=st.integers(0, 300), replacement=st.characters())
def test_a_damaged_text_gives_forms_or_the_documented_error(value, at, replacement):
    text = to_edn(value)
    at %= len(text)
    _read_or_refuse(text[:at] + replacement + text[at + 1 :])


def _read_or_refuse(text):
    """Reads a text as a whole and one character at a time; both ways give the same."""
    results = []
    for pieces in ([text], list(text)):
        try:
            forms = list(read_forms(pieces, origin="text", unwrap=True))
            results.append([(form.line, to_edn(form.value)) for form in forms])
        except EdnError as error:
            results.append(str(error))
    assert results[0] == results[1]
    assert isinstance(results[0], list) or "\n" not in results[0]
