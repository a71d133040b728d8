"""Messages from what nodes recorded: both ends are matched, and a message that nobody read is lost."""

from typing import Any

from harness.contracts.messages import MessageEnd, NodeMessages
from harness.runs.message_matching import CLOCK_ERROR_NS, match_messages


def end(at_ns: int, src: str, dst: str, *, sent: bool, **changes: Any) -> MessageEnd:
    values: dict[str, Any] = {
        "is_response": False,
        "kind": "heartbeat",
        "text": "Heartbeat",
        "connection": "b1:5 c11:9",
        "correlation_id": 1,
        **changes,
    }
    return MessageEnd(at_ns=at_ns, is_sent=sent, src=src, dst=dst, **values)


def recorded(*ends: MessageEnd, since: int | None = 0) -> NodeMessages:
    return NodeMessages(ends=ends, complete_from_ns=since)


def times(rows: list[dict[str, Any]]) -> list[tuple[int | None, int | None, bool]]:
    return [(row["sent_ns"], row["arrived_ns"], row["lost"]) for row in rows]


def test_both_ends_of_a_message_are_one_row() -> None:
    rows = match_messages(
        {
            "b1": recorded(
                end(10, "b1", "c11", sent=True),
                end(40, "c11", "b1", sent=False, is_response=True, text="Heartbeat response"),
            ),
            "c11": recorded(
                end(20, "b1", "c11", sent=False),
                end(30, "c11", "b1", sent=True, is_response=True, text="Heartbeat response"),
            ),
        }
    )
    assert times(rows) == [(10, 20, False), (30, 40, False)]
    assert rows[0] == {
        "kind": "heartbeat",
        "src": "b1",
        "dst": "c11",
        "text": "Heartbeat",
        "sent_ns": 10,
        "arrived_ns": 20,
        "lost": False,
    }


def test_ends_of_different_messages_are_not_matched() -> None:
    sent = end(10, "b1", "c11", sent=True)
    for other in (
        {"correlation_id": 2},
        {"connection": "b1:6 c11:9"},
        {"is_response": True},
    ):
        rows = match_messages(
            {"b1": recorded(sent), "c11": recorded(end(20, "b1", "c11", sent=False, **other))}
        )
        assert times(rows) == [(10, None, True), (None, 20, False)]


def test_a_message_that_its_receiver_never_read_is_lost() -> None:
    sent = {"b1": recorded(end(10, "b1", "c11", sent=True))}
    assert times(match_messages({**sent, "c11": recorded()})) == [(10, None, True)]
    assert times(match_messages({**sent, "c11": recorded(since=10)})) == [(10, None, True)]


def test_a_message_of_which_the_receiver_keeps_no_record_is_not_called_lost() -> None:
    sent = {"b1": recorded(end(10, "b1", "c11", sent=True))}
    assert times(match_messages({**sent, "c11": recorded(since=11)})) == [(10, None, False)]
    assert times(match_messages({**sent, "c11": recorded(since=None)})) == [(10, None, False)]
    assert times(match_messages(sent)) == [(10, None, False)]
    to_client = recorded(end(10, "b1", "client-0", sent=True, is_response=True))
    assert times(match_messages({"b1": to_client})) == [(10, None, False)]


def test_a_connection_that_reuses_a_port_is_matched_by_time() -> None:
    rows = match_messages(
        {
            "b1": recorded(
                end(10, "b1", "c11", sent=True, text="first"),
                end(50, "b1", "c11", sent=True, text="second"),
            ),
            "c11": recorded(end(60, "b1", "c11", sent=False, text="second")),
        }
    )
    assert times(rows) == [(10, None, True), (50, 60, False)]


def test_clocks_of_two_hosts_may_differ_a_little() -> None:
    for error_ns, expected in (
        (CLOCK_ERROR_NS, [(CLOCK_ERROR_NS + 5, 5, False)]),
        (CLOCK_ERROR_NS + 1, [(None, 5, False), (CLOCK_ERROR_NS + 6, None, True)]),
    ):
        rows = match_messages(
            {
                "b1": recorded(end(5 + error_ns, "b1", "c11", sent=True)),
                "c11": recorded(end(5, "b1", "c11", sent=False)),
            }
        )
        assert times(rows) == expected


def test_ends_without_a_connection_match_nothing() -> None:
    rows = match_messages(
        {
            "b1": recorded(end(10, "b1", "b2", sent=True, connection=""), since=None),
            "b2": recorded(end(20, "b1", "b2", sent=False, connection=""), since=None),
        }
    )
    assert times(rows) == [(10, None, False), (None, 20, False)]
