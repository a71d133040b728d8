"""What the client on the Java process makes of results: an outcome is never better than what is known."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.history.op import Completion, Outcome
from workloads.clients import java_client
from workloads.clients.java_client import JavaClient, JavaError, classify_append_error
from workloads.clients.java_process import JavaEndedError

NEVER_ENDS: list[str] = []


class Results:
    """Stands for the Java process: gives out prepared results, and keeps what was requested."""

    def __init__(self, *results: list[str] | Exception) -> None:
        self.results = list(results)
        self.requests: list[tuple[object, ...]] = []
        self.closed: list[str] = []

    def open_client(self, *settings: object) -> str:
        self.requests.append(("open", *settings))
        return "7"

    def close_client(self, name: str) -> None:
        self.closed.append(name)

    async def request(self, kind: str, *fields: object) -> list[str]:
        self.requests.append((kind, *fields))
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        if result is NEVER_ENDS:
            await asyncio.Event().wait()
        return result


def use(process: Results, story: Callable[[JavaClient], Awaitable[Any]]) -> Any:
    client = JavaClient(
        None, ("a:1", "b:2"), request_timeout_ms=10, connect_timeout_ms=3, process=process
    )

    async def run() -> Any:
        return await story(client)

    return asyncio.run(run())


def append(process: Results, acks: int = -1) -> Completion:
    completion: Completion = use(process, lambda c: c.append("t", 3, b"key", b"\0\xff", acks))
    return completion


def polled(process: Results, *positions: int) -> list[Any]:
    async def story(client: JavaClient) -> list[Any]:
        return [
            await client.poll("t", 0, position, max_bytes=100, max_wait_ms=5)
            for position in positions
        ]

    found: list[Any] = use(process, story)
    return found


def record(offset: int, epoch: int, value: bytes = b"v") -> list[str]:
    return [str(offset), str(epoch), "-", base64.b64encode(value).decode()]


def failure(name: str, code: object = "-", sent: str = "maybe") -> list[str]:
    return ["error", sent, name, str(code), "a message"]


# --- appends


def test_an_append_is_sent_whole_and_returns_its_offset() -> None:
    process = Results(["offset", "41"])
    assert append(process) == Completion(outcome=Outcome.OK, offset=41)
    assert process.requests == [
        ("open", "a:1,b:2", 10, 3, 40),
        ("append", "7", "t", 3, -1, "a2V5", "AP8="),
    ]


def test_an_acknowledged_append_may_have_no_known_offset() -> None:
    assert append(Results(["offset", "-1"])) == Completion(outcome=Outcome.OK, offset=None)


def test_an_append_without_acks_is_indeterminate() -> None:
    completion = append(Results(["offset", "-1"]), acks=0)
    assert (completion.outcome, completion.error) == (Outcome.INFO, "no-ack-requested")


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (JavaEndedError("it ended"), "java-process-ended"),
        (NEVER_ENDS, "no-delivery-report"),
        (failure("TimeoutException"), "TIMEOUT"),
        (failure("NotEnoughReplicasException", 19), "NOT_ENOUGH_REPLICAS"),
    ],
)
def test_an_append_whose_end_is_unknown_is_indeterminate(
    monkeypatch: pytest.MonkeyPatch, result: Any, error: str
) -> None:
    monkeypatch.setattr(java_client, "MARGIN_MS", 0)
    completion = append(Results(result))
    assert (completion.outcome, completion.error) == (Outcome.INFO, error)


@pytest.mark.parametrize(
    ("acks", "never_sent", "code", "outcome"),
    [
        (-1, False, 19, Outcome.INFO),
        (-1, False, 3, Outcome.INFO),
        (-1, False, None, Outcome.INFO),
        (-1, True, None, Outcome.FAIL),
        (1, True, None, Outcome.FAIL),
        (1, False, None, Outcome.INFO),
        (1, False, 2, Outcome.FAIL),
        (1, False, 3, Outcome.FAIL),
        (1, False, 5, Outcome.FAIL),
        (1, False, 6, Outcome.INFO),
        (1, False, 7, Outcome.INFO),
        (1, False, 10, Outcome.FAIL),
        (1, False, 13, Outcome.INFO),
        (1, False, 19, Outcome.FAIL),
        (1, False, 20, Outcome.INFO),
        (1, False, 56, Outcome.INFO),
        (0, False, 87, Outcome.FAIL),
    ],
)
def test_an_error_is_definite_only_for_a_record_that_was_sent_at_most_once(
    acks: int, never_sent: bool, code: int | None, outcome: Outcome
) -> None:
    error = JavaError(was_never_sent=never_sent, word="WORD", code=code)
    completion = classify_append_error(acks, error)
    assert completion == Completion(outcome=outcome, error_code=code, error="WORD")


def test_a_record_that_was_never_queued_certainly_was_not_appended() -> None:
    completion = append(Results(failure("TimeoutException", sent="never")))
    assert completion == Completion(outcome=Outcome.FAIL, error_code=None, error="TIMEOUT")
    completion = append(Results(failure("RecordTooLargeException", 10, sent="never")))
    assert (completion.outcome, completion.error) == (Outcome.FAIL, "MESSAGE_TOO_LARGE")


def test_errors_have_kafkas_names() -> None:
    words = {
        "NotLeaderOrFollowerException": "NOT_LEADER_OR_FOLLOWER",
        "LogTruncationException": "LOG_TRUNCATION",
        "OffsetOutOfRangeException": "OFFSET_OUT_OF_RANGE",
        "KafkaException": "KAFKA",
        "NullPointerException": "NULL_POINTER",
    }
    for name, word in words.items():
        assert append(Results(failure(name))).error == word


# --- reads


def test_a_poll_returns_records_by_epoch_and_the_log_end() -> None:
    fields = [*record(5, 1, b"a"), *record(6, 1, b""), *record(9, 2, b"c")]
    (result,) = polled(Results(["records", "12", *fields]), 5)
    assert result.completion == Completion(outcome=Outcome.OK, end_offset=12)
    assert [batch.leader_epoch for batch in result.batches] == [1, 2]
    found = [(one.offset, one.key, one.value) for batch in result.batches for one in batch.records]
    assert found == [(5, None, b"a"), (6, None, b""), (9, None, b"c")]


def test_a_log_end_that_the_consumer_does_not_know_is_not_claimed() -> None:
    (result,) = polled(Results(["records", "-1", *record(5, 1)]), 5)
    assert result.completion == Completion(outcome=Outcome.OK, end_offset=None)
    (result,) = polled(Results(["records", "5"]), 5)
    assert result.completion == Completion(outcome=Outcome.OK, end_offset=5)


@pytest.mark.parametrize(
    ("results", "positions", "epochs"),
    [
        # The epoch of the last record goes with the position behind it, and with no other.
        ([["records", "7", *record(5, 1), *record(6, 4)], ["records", "7"]], (5, 7), [-1, 4]),
        ([["records", "7", *record(6, 4)], ["records", "7"]], (6, 3), [-1, -1]),
        # An empty poll and a lost response change nothing about what was read.
        (
            [["records", "7", *record(6, 4)], ["records", "7"], ["records", "7"]],
            (6, 7, 7),
            [-1, 4, 4],
        ),
        (
            [["records", "7", *record(6, 4)], failure("TimeoutException"), ["records", "7"]],
            (6, 7, 7),
            [-1, 4, 4],
        ),
        # After a truncation was reported the position is read as it is.
        (
            [["records", "7", *record(6, 4)], failure("LogTruncationException"), ["records", "7"]],
            (6, 7, 7),
            [-1, 4, -1],
        ),
    ],
)
def test_a_position_is_sent_with_the_epoch_of_the_record_before_it(
    results: list[list[str]], positions: tuple[int, ...], epochs: list[int]
) -> None:
    process = Results(*results)
    polled(process, *positions)
    sent = [request for request in process.requests if request[0] == "poll"]
    assert [request[4] for request in sent] == list(positions)
    assert [request[5] for request in sent] == epochs


@pytest.mark.parametrize(
    ("result", "code", "error"),
    [
        (JavaEndedError("it ended"), None, "java-process-ended"),
        (NEVER_ENDS, None, "client-timeout"),
        (failure("OffsetOutOfRangeException"), 1, "OFFSET_OUT_OF_RANGE"),
        (failure("TimeoutException"), None, "TIMEOUT"),
    ],
)
def test_a_read_without_a_result_failed(
    monkeypatch: pytest.MonkeyPatch, result: Any, code: int | None, error: str
) -> None:
    monkeypatch.setattr(java_client, "MARGIN_MS", 0)
    expected = Completion(outcome=Outcome.FAIL, error_code=code, error=error)
    (read,) = polled(Results(result), 0)
    assert read.completion == expected
    assert use(Results(result), lambda client: client.latest("t", 0)) == expected


def test_latest_returns_the_log_end() -> None:
    process = Results(["offset", "9"])
    assert use(process, lambda c: c.latest("t", 2)) == Completion(outcome=Outcome.OK, offset=9)
    assert process.requests[-1] == ("latest", "7", "t", 2)


def test_closing_twice_closes_once() -> None:
    process = Results()

    async def story(client: JavaClient) -> None:
        client.close()
        client.close()

    use(process, story)
    assert process.closed == ["7"]
