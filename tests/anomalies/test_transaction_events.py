"""Events of transactions that no run can have recorded are refused."""

from collections.abc import Callable
from typing import Any

import pytest

from checkers.kernels.history import OFFSET_MAX
from harness.contracts.verdict import Validity
from harness.errors import HistoryError
from tests.anomalies.recorded_transactions import A, Events, producer

REFUSED: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "repeated index": (lambda rows: rows[1].update(event_index=0), "event_index 0 is in row 0"),
    "unknown event": (lambda rows: rows[4].update(event="ended"), "event is 'ended'"),
    "unknown isolation": (lambda rows: rows[1].update(isolation="snapshot"), "isolation is"),
    "unknown status": (lambda rows: rows[6].update(status="fine"), "status is 'fine'"),
    "time that goes back": (lambda rows: rows[3].update(at_ns=0), "before that of the event"),
    "event of no transaction": (lambda rows: rows[2].update(transaction=0), "transaction is 0"),
    "event of another process": (lambda rows: rows[2].update(process=8), "of process 8"),
    "takeover in a transaction": (lambda rows: rows[0].update(transaction=1), "transaction is 1"),
    "value of a send": (lambda rows: rows[2].update(value=1), "value is 1"),
    "acknowledgement without a send": (lambda rows: rows[3].update(value=1), "value is 1"),
    "trusted record without a value": (lambda rows: rows[7].update(value=-1), "value is -1"),
    "polled record without an offset": (lambda rows: rows[7].update(offset=None), "offset of poll"),
    "second end": (lambda rows: rows[4].update(event="committed"), "had ended before"),
    "partition -2": (lambda rows: rows[2].update(partition=-2), "partition is -2"),
    "acknowledgement of another partition": (
        lambda rows: rows[3].update(partition=1),
        "sent of value 2 in t-1",
    ),
    "commit that was not asked for": (lambda rows: rows.pop(4), "committed of transaction 1"),
    "commit although the abort was asked for": (
        lambda rows: rows[4].update(event="abort-asked"),
        "committed of transaction 1",
    ),
}


def test_a_send_is_acknowledged_once_and_comes_before_the_request_for_the_end() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.note(one, "sent", A, number=0, offset=5, value=value)
    events.commit(one)
    with pytest.raises(HistoryError, match=f"row 4: sent of value {value} in t-0"):
        events.verdict()
    events = Events()
    one = producer(events, 1)
    events.note(one, "commit-asked")
    late = events.send(one, 0, A, 0)
    events.note(one, "committed")
    with pytest.raises(HistoryError, match=f"row {late}: send of transaction {one}"):
        events.verdict()


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_no_run_can_have_recorded_is_refused(name: str) -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.closing(a=[(0, value)])
    assert events.verdict().validity is Validity.VALID
    change, sentence = REFUSED[name]
    change(events.rows)
    with pytest.raises(HistoryError, match=sentence) as refused:
        events.verdict()
    assert str(refused.value).startswith("transaction_events.parquet, row ")


def one_record() -> tuple[Events, dict[str, dict[str, Any]]]:
    """A run with one record that was read and consumed, and its rows by what they are."""
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    read = events.read(7, A, (0, value))
    events.initialised(3, "processor")
    number = events.begin(3, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(number, 0, A, [(0, value)])
    position = events.note(number, "offset", A, number=1, offset=1)
    events.commit(number)
    events.closing(a=[(0, value)])
    places = {"sent": value + 1, "poll": read + 1, "offset": position, "begin": number}
    return events, {name: events.rows[row] for name, row in places.items()}


@pytest.mark.parametrize("event", ["sent", "poll"])
@pytest.mark.parametrize(
    ("offset", "is_possible"),
    [(0, True), (OFFSET_MAX, True), (OFFSET_MAX + 1, False), (-2, False), (-(2**63), False)],
)
def test_a_broker_may_report_any_offset_and_some_no_record_can_have(
    event: str, offset: int, is_possible: bool
) -> None:
    events, rows = one_record()
    rows[event]["offset"] = offset
    verdict = events.verdict()
    found = {one.id for one in verdict.anomalies}
    assert ("impossible-offset" in found) is not is_possible
    assert is_possible or verdict.validity is Validity.INVALID


def test_an_offset_that_is_not_known_is_null() -> None:
    events, rows = one_record()
    rows["sent"]["offset"] = None
    assert events.verdict().validity is Validity.VALID
    rows["sent"]["offset"] = -1
    with pytest.raises(HistoryError, match="offset of sent is -1"):
        events.verdict()
    rows["sent"]["offset"], rows["poll"]["offset"] = 0, -1
    assert "impossible-offset" in {one.id for one in events.verdict().anomalies}


@pytest.mark.parametrize(
    ("offset", "is_legal"), [(0, True), (OFFSET_MAX, True), (OFFSET_MAX + 1, False), (-1, False)]
)
def test_a_position_that_a_client_commits_is_between_0_and_the_largest_offset(
    offset: int, is_legal: bool
) -> None:
    events, rows = one_record()
    rows["offset"]["offset"] = offset
    if is_legal:
        events.verdict()
    else:
        with pytest.raises(HistoryError, match=f"offset of offset is {offset}"):
            events.verdict()


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (
            "transactional_id",
            "offset belongs to transaction .*, which began without a transactional_id",
        ),
        ("isolation", "poll belongs to transaction .*, which began without an isolation"),
    ],
)
def test_a_transaction_has_an_id_if_it_writes_and_an_isolation_if_it_receives(
    column: str, sentence: str
) -> None:
    events, rows = one_record()
    rows["begin"][column] = ""
    with pytest.raises(HistoryError, match=sentence):
        events.verdict()


@pytest.mark.parametrize(("value", "is_legal"), [(0, True), (-1, False)])
def test_a_polled_record_has_a_value_from_0(value: int, is_legal: bool) -> None:
    events, rows = one_record()
    rows["poll"]["value"] = value
    if is_legal:
        events.verdict()
    else:
        with pytest.raises(HistoryError, match="value is -1"):
            events.verdict()
