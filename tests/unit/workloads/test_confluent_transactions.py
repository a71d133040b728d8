"""What the transactional producer of librdkafka reports."""

import pytest

from workloads.clients.confluent_transactions import first_offset


@pytest.mark.parametrize(
    ("offsets", "first"),
    [
        ({0: 7, 1: 8, 2: 9}, 7),
        ({0: 0}, 0),
        # The last one was not acknowledged.
        ({0: 7, 1: 8}, 7),
        # They left in two batches, and records of another producer are between them.
        ({0: 7, 1: 8, 2: 11}, None),
        ({0: 7, 2: 8}, None),
        # The broker had appended them before and does not know where.
        ({0: None, 1: None}, None),
        ({0: 7, 1: None}, None),
        ({1: 8}, None),
    ],
)
def test_a_batch_has_a_first_offset_if_its_records_follow_each_other(
    offsets: dict[int, int | None], first: int | None
) -> None:
    assert first_offset(offsets) == first
