"""Consumer groups with members that poll with read_committed, and others that poll with read_uncommitted."""

from itertools import product

import pytest

from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.recorded_anomalies import judgements
from tests.anomalies.recorded_transactions import A, B, Events, producer

ISOLATIONS = ("read_committed", "read_uncommitted")


def _consumed(isolations: tuple[str, ...], inputs: tuple[tuple[int, ...], ...]) -> Verdict:
    """The members of a group, one for each isolation level, consume records of three, given by their offsets."""
    events = Events()
    one = producer(events, 1)
    records = [(offset, events.send(one, offset, A, offset)) for offset in range(3)]
    events.commit(one)
    outputs = []
    for process, (isolation, offsets) in enumerate(zip(isolations, inputs, strict=True), 2):
        name = f"processor-{process}"
        events.initialised(process, name)
        number = events.begin(process, transactional_id=name, group="g", isolation=isolation)
        events.poll(number, 0, A, [records[offset] for offset in offsets])
        outputs.append((2 * len(outputs), events.send(number, 1, B, 2 * len(outputs))))
        events.note(number, "offset", A, number=2, offset=offsets[-1] + 1)
        events.commit(number)
    events.closing(a=records, b=outputs)
    return events.verdict()


def _forbidden(verdict: Verdict) -> list[str]:
    found = judgements(verdict).items()
    return [name for name, judgement in found if judgement is Judgement.FORBIDDEN]


@pytest.mark.parametrize("isolations", list(product(ISOLATIONS, repeat=3)))
def test_a_record_that_any_member_consumed_is_not_skipped(isolations: tuple[str, ...]) -> None:
    found = _consumed(isolations, ((0,), (1,), (2,)))
    assert found.validity is Validity.VALID, found.reasons


@pytest.mark.parametrize("isolations", list(product(ISOLATIONS, repeat=2)))
def test_a_record_that_no_member_consumed_is_skipped(isolations: tuple[str, ...]) -> None:
    found = _consumed(isolations, ((0,), (2,)))
    assert _forbidden(found) == ["input-skipped"]


@pytest.mark.parametrize("isolations", list(product(ISOLATIONS, repeat=2)))
def test_a_record_that_two_members_consumed_is_processed_twice(isolations: tuple[str, ...]) -> None:
    found = _consumed(isolations, ((0, 1), (1, 2)))
    assert _forbidden(found) == ["input-processed-twice"]
