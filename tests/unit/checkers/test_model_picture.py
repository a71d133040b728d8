"""The drawing of a failure is well-formed, complete where it matters, and safe to put into a page."""

import random
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from checkers.models import Operation, check_model, draw_failure, find_model
from checkers.models.picture import OPERATIONS_MAX
from harness.contracts.verdict import Validity
from tests.property.model_histories import corrupted, large_history

SVG = "{http://www.w3.org/2000/svg}"


def write(value: object, begin: int, end: int | None, process: int | str = 0) -> Operation:
    outcome = "info" if end is None else "ok"
    return Operation(
        process=process,
        function="write",
        input=value,
        invoked_ns=begin,
        completed_ns=end,
        outcome=outcome,
    )


def read(value: object, begin: int, end: int, process: int | str = 1) -> Operation:
    return replace(write(None, begin, end, process), function="read", output=value)


def drawing(history: list[Operation], name: str = "register") -> ElementTree.Element:
    result = check_model(history, find_model(name), time_limit_s=None, configurations_max=20_000)
    assert result.validity == Validity.INVALID
    return ElementTree.fromstring(draw_failure(history, result.partitions[0]))


def bars(root: ElementTree.Element, kind: str) -> list[str]:
    return [
        shape.findtext(f"{SVG}title", "")
        for shape in root.iter(f"{SVG}rect")
        if shape.get("class") == kind
    ]


def texts(root: ElementTree.Element) -> list[str]:
    return [shape.text or "" for shape in root.iter(f"{SVG}text")]


def test_a_stale_read_is_red_and_the_partial_linearization_goes_through_the_writes() -> None:
    root = drawing([write(1, 1, 2), write(2, 3, 4), write(3, 3, None, "x"), read(1, 5, 6)])
    (blocked,) = bars(root, "blocked")
    assert blocked.startswith("operation 3: process 1 read -> 1")
    assert len(bars(root, "done")) == 2
    (unused,) = bars(root, "open")
    assert "process x write 3 -> info" in unused
    assert len(list(root.iter(f"{SVG}circle"))) == 2
    assert "   2. process 0 write 2 -> ok; state 2" in texts(root)
    assert texts(root)[-1] == "   no. process 1 read -> 1 [0.000000 s, 0.000000 s]; state 2"


def test_dots_are_inside_their_bars_and_in_order() -> None:
    for number in range(20):
        rng = random.Random(number)
        history = corrupted(
            rng, "register", large_history(rng, "register", operations=60, domain=9)
        )
        result = check_model(history, find_model("register"), time_limit_s=None)
        if result.validity == Validity.VALID:
            continue
        root = ElementTree.fromstring(draw_failure(history, result.partitions[0]))
        dots = [
            (float(dot.get("cx", "")), float(dot.get("cy", "")))
            for dot in root.iter(f"{SVG}circle")
        ]
        assert dots == sorted(dots, key=lambda dot: dot[0])
        shapes = [shape for shape in root.iter(f"{SVG}rect") if shape.get("class") == "done"]
        assert 0 < len(shapes) <= OPERATIONS_MAX
        assert len(dots) == len(shapes)
        for shape in shapes:
            x, y, width = (float(shape.get(name, "")) for name in ("x", "y", "width"))
            assert any(x <= dot[0] <= x + width and abs(dot[1] - y - 6) < 1 for dot in dots)


@pytest.mark.parametrize("name", ["queue", "set"])
def test_histories_that_a_procedure_decided_can_be_drawn(name: str) -> None:
    drawn = 0
    for number in range(10):
        rng = random.Random(number)
        history = corrupted(rng, name, large_history(rng, name, operations=40, domain=None))
        result = check_model(history, find_model(name), time_limit_s=None, configurations_max=2_000)
        for partition in result.partitions:
            root = ElementTree.fromstring(draw_failure(history, partition))
            drawn += 1
            assert bool(bars(root, "blocked")) == (partition.validity == Validity.INVALID)
    assert drawn


def test_hostile_values_are_escaped_and_cut() -> None:
    hostile = "</title><script>alert(1)</script>&" + "x" * 500
    source = [write(hostile, 1, 2, "<p>"), read("other", 3, 4)]
    root = drawing(source)
    assert not list(root.iter("script")) and not list(root.iter(f"{SVG}script"))
    assert max(len(text) for text in texts(root)) <= 130


def test_the_same_history_gives_the_same_drawing() -> None:
    history = [write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)]
    (partition,) = check_model(history, find_model("register")).partitions
    assert draw_failure(history, partition) == draw_failure(history, partition)
    assert "http" not in draw_failure(history, partition).replace("http://www.w3.org/2000/svg", "")
