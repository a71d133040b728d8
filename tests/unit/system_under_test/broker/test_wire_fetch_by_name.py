"""Fetch by topic names: names become ids on the way in and names again on the way out."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from system_under_test.broker.fetch_by_name import FetchByName
from system_under_test.protocol.entities import (
    fetch_response_of,
    fetched_data,
    fetched_topic,
    produce_of,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import fetch_by_name_request as by_name
from system_under_test.protocol.messages import fetch_request, fetch_response, millis
from tests.unit.system_under_test.broker.node_fakes import run_virtually
from tests.unit.system_under_test.broker.replica_fakes import NATIVE, TOPIC, Broker, batch

IDS = {"a": UUID(int=1), "b": UUID(int=2)}


def asked(*topics: tuple[str, int], **options: Any) -> Any:
    """Returns a fetch of one partition per (topic, partition)."""
    values = {
        "replica_id": -1,
        "max_wait": millis(500),
        "min_bytes": 3,
        "max_bytes": 1000,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": (),
        "rack_id": "rack",
    }
    return by_name.FetchRequest(
        topics=tuple(
            by_name.FetchTopic(
                topic=topic,
                partitions=(
                    by_name.FetchPartition(
                        partition=partition,
                        current_leader_epoch=4,
                        fetch_offset=7,
                        last_fetched_epoch=3,
                        log_start_offset=2,
                        partition_max_bytes=99,
                    ),
                ),
            )
            for topic, partition in topics
        ),
        **(values | options),
    )


class Handler:
    """A handler by ids that keeps its request."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.request: Any = None

    def __call__(self, request: Any, *, knows_followers_serve: bool = True) -> Any:
        self.request = request
        self.knows_followers_serve = knows_followers_serve
        if self.answer is not None:
            return self.answer
        return fetch_response_of(
            ErrorCode.NONE,
            tuple(
                fetched_topic(
                    topic.topic_id,
                    tuple(
                        fetched_data(one.partition, ErrorCode.NONE, 9, 1, b"records")
                        for one in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )


def test_every_request_field_reaches_the_handler():
    handler = Handler()
    FetchByName(IDS.get, handler).handle(asked(("a", 0), ("b", 5), session_epoch=0))
    request = handler.request
    assert request == fetch_request.FetchRequest(
        replica_state=fetch_request.ReplicaState(replica_id=-1, replica_epoch=-1),
        max_wait=millis(500),
        min_bytes=3,
        max_bytes=1000,
        isolation_level=1,
        session_id=0,
        session_epoch=0,
        topics=tuple(
            fetch_request.FetchTopic(
                topic_id=IDS[name],
                partitions=(
                    fetch_request.FetchPartition(
                        partition=index,
                        current_leader_epoch=4,
                        fetch_offset=7,
                        last_fetched_epoch=3,
                        log_start_offset=2,
                        partition_max_bytes=99,
                    ),
                ),
            )
            for name, index in (("a", 0), ("b", 5))
        ),
        forgotten_topics_data=(),
        rack_id="rack",
    )


@pytest.mark.parametrize(
    ("version", "is_known"), [(4, False), (10, False), (11, True), (12, True), (-1, True)]
)
def test_consumers_may_read_from_followers_from_version_11_on(version, is_known):
    handler = Handler()
    FetchByName(IDS.get, handler).handle(asked(("a", 0)), version)
    assert handler.knows_followers_serve is is_known


def test_the_response_names_the_topics():
    response = FetchByName(IDS.get, Handler()).handle(asked(("b", 5), ("a", 0)))
    assert [(topic.topic, topic.partitions[0].partition_index) for topic in response.responses] == [
        ("b", 5),
        ("a", 0),
    ]
    (data,) = response.responses[0].partitions
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (9, 9, 1)
    assert (data.records, data.aborted_transactions) == (b"records", None)


def test_an_unknown_topic_gets_an_error_in_the_same_response():
    handler = Handler()
    response = FetchByName(IDS.get, handler).handle(asked(("gone", 1), ("a", 0)))
    assert handler.request.max_wait == millis(0)
    assert {
        topic.topic: (one.partition_index, one.error_code, one.high_watermark)
        for topic in response.responses
        for one in topic.partitions
    } == {"a": (0, 0, 9), "gone": (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID])
def test_errors_about_ids_are_not_sent_to_clients_that_use_names(error):
    data = fetched_data(0, error, -1, -1, b"")
    handler = Handler(fetch_response_of(ErrorCode.NONE, (fetched_topic(IDS["a"], (data,)),)))
    response = FetchByName(IDS.get, handler).handle(asked(("a", 0)))
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_divergence_is_passed_on_and_the_current_leader_is_for_later_versions():
    data = fetched_data(
        0,
        ErrorCode.NONE,
        9,
        1,
        b"",
        current_leader=fetch_response.LeaderIdAndEpoch(leader_id=3, leader_epoch=8),
        diverging_epoch=fetch_response.EpochEndOffset(epoch=2, end_offset=6),
    )
    handler = Handler(fetch_response_of(ErrorCode.NONE, (fetched_topic(IDS["a"], (data,)),)))
    (reported,) = FetchByName(IDS.get, handler).handle(asked(("a", 0))).responses[0].partitions
    assert (reported.diverging_epoch.epoch, reported.diverging_epoch.end_offset) == (2, 6)
    assert (reported.current_leader.leader_id, reported.current_leader.leader_epoch) == (-1, -1)


@pytest.mark.parametrize("ending", ["answer", "cancelled", "error"])
def test_a_parked_fetch_gets_the_handlers_result(ending):
    async def story() -> None:
        parked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        handler = Handler(parked)
        later = FetchByName(IDS.get, handler).handle(asked(("a", 0)))
        assert isinstance(later, asyncio.Future)
        await asyncio.sleep(0)
        assert not later.done()
        if ending == "answer":
            parked.set_result(Handler()(handler.request))
            assert (await later).responses[0].topic == "a"
        elif ending == "cancelled":
            parked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await later
        else:
            parked.set_exception(ConnectionAbortedError("the broker stops"))
            with pytest.raises(ConnectionAbortedError):
                await later

    run_virtually(story())


def test_a_disconnected_client_does_not_affect_others():
    async def story() -> None:
        parked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        handler = Handler(parked)
        later = FetchByName(IDS.get, handler).handle(asked(("a", 0)))
        later.cancel()
        parked.set_result(Handler()(handler.request))
        await asyncio.sleep(0)
        assert later.cancelled()

    run_virtually(story())


# --- sessions (KIP-227), with the broker's own handler


def led() -> tuple[Broker, FetchByName]:
    broker = Broker()
    broker.lead(isr=(1,), replicas=(1,))
    broker.send(produce_of(TOPIC, 0, batch("r0"), 1, millis(100)))
    names = {TOPIC: broker.registration.topic_id}
    return broker, FetchByName(
        names.get, lambda message, **_: broker.manager.handle_request(message, NATIVE)
    )


def session_fetch(session_id: int, session_epoch: int, **options: Any) -> Any:
    topic = by_name.FetchTopic(
        topic=TOPIC,
        partitions=(by_name.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=99),),
    )
    values = {"topics": (topic,), "forgotten_topics_data": ()} | options
    return by_name.FetchRequest(
        replica_id=-1,
        max_wait=millis(0),
        min_bytes=3,
        isolation_level=0,
        session_id=session_id,
        session_epoch=session_epoch,
        **values,
    )


@pytest.mark.parametrize(
    ("session_id", "session_epoch"),
    [(0, -1), (0, 0), (77, 0), (77, -1)],
    ids=["none", "wants-one", "wants-another", "closes-one"],
)
def test_a_full_fetch_is_served_without_a_session(session_id, session_epoch):
    broker, by_names = led()
    response = by_names.handle(session_fetch(session_id, session_epoch))
    assert (response.error_code, response.session_id) == (0, 0)
    assert response.responses[0].partitions[0].records != b""
    assert broker.partition.is_leader


@pytest.mark.parametrize(
    ("session_id", "session_epoch"), [(77, 1), (77, 2**31 - 1), (0, 1), (77, -2), (-5, 3)]
)
def test_a_fetch_in_an_unknown_session_gets_an_error(session_id, session_epoch):
    """FETCH-0: no session is granted, so a fetch in one is refused."""
    _, by_names = led()
    forgotten = by_name.ForgottenTopic(topic=TOPIC, partitions=(0,))
    unknown = by_name.FetchTopic(topic="unknown", partitions=())
    for options in (
        {},
        {"topics": (), "forgotten_topics_data": (forgotten,)},
        {"topics": (unknown,)},
    ):
        response = by_names.handle(session_fetch(session_id, session_epoch, **options))
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (response.session_id, response.responses) == (0, ())


def test_sessions_are_declined_by_id_as_well():
    broker, _ = led()
    request = fetch_request.FetchRequest(
        max_wait=millis(0),
        min_bytes=3,
        session_id=5,
        session_epoch=1,
        topics=(),
        forgotten_topics_data=(),
    )
    assert broker.send(request).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
