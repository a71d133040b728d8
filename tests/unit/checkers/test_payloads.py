"""Which records contradict the append that wrote their value."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from checkers.kernels.payloads import contradicting

Claim = tuple[int, int, str]
"""Process, sequence and key."""


def table(*claims: Claim) -> Any:
    columns = zip(*claims, strict=True)
    return pa.table(dict(zip(("process", "sequence", "key"), columns, strict=True)))


def contradicted(
    sent: list[Claim], *read: tuple[int, Claim], appends: list[int] | None = None
) -> list[bool]:
    """Returns for each record that was read, with its append, whether it contradicts it."""
    append = np.array([append for append, _ in read], dtype=np.int64)
    rows = None if appends is None else np.array(appends, dtype=np.int64)
    found = contradicting(table(*(one for _, one in read)), table(*sent), append, rows)
    return [bool(one) for one in found]


SENT = [(7, 0, "a"), (7, 1, "b")]


@pytest.mark.parametrize("changed", [(8, 0, "a"), (7, 9, "a"), (7, 0, "c")])
def test_another_process_sequence_or_key_contradicts_the_append(changed: Claim) -> None:
    assert contradicted(SENT, (0, SENT[0]), (1, SENT[1])) == [False, False]
    assert contradicted(SENT, (0, changed), (1, SENT[1])) == [True, False]
    # Beside a record whose value nothing wrote.
    assert contradicted(SENT, (-1, changed), (0, changed)) == [False, True]


def test_appends_may_be_numbered_without_other_operations() -> None:
    poll = (9, -1, "")
    assert contradicted([poll, *SENT], (0, SENT[0]), (1, SENT[0]), appends=[1, 2]) == [False, True]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (["x", "x"], ["y", "y"]),
        (["x", "x"], ["x", "y"]),
        (["x", "z"], ["x", "y"]),
        (["x", "z"], ["y", "y"]),
        (["a key of many letters"] * 2, ["a key of many numbers"] * 2),
        (["a key of many letters", "b"], ["a key of many letters", "c"]),
        (["a key of many letters", "b"], ["b", "a key of many letters"]),
    ],
)
def test_keys_are_compared_row_by_row_whether_they_are_equal_or_long(
    sent: list[str], read: list[str]
) -> None:
    appends = [(7, row, key) for row, key in enumerate(sent)]
    records = [(row, (7, row, key)) for row, key in enumerate(read)]
    expected = [one != other for one, other in zip(sent, read, strict=True)]
    assert contradicted(appends, *records) == expected
    assert contradicted(appends, *enumerate(appends)) == [False, False]
