"""Correct compacted logs are valid, and the loss of a record that nothing replaced never is."""

import pytest

from tests.parts import parts
from tests.property.compacted_histories import wrong_verdicts


@pytest.mark.parametrize("first", parts(range(1, 41, 5), quick=1))
def test_random_compacted_logs_are_valid_unless_a_record_that_nothing_replaced_is_damaged(
    first: int,
) -> None:
    assert [text for number in range(first, first + 5) for text in wrong_verdicts(number)] == []


@pytest.mark.parametrize("number", [275, 1949, 2035])
def test_an_append_without_an_offset_has_no_room_where_others_were(number: int) -> None:
    """What was acknowledged counted as removed, at an offset before the log or of another record of a batch."""
    assert wrong_verdicts(number) == []
