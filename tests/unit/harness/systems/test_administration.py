"""Administrative actions as requests: what is sent, in which order, and what the responses mean."""

import asyncio
import io
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.alter_partition_reassignments.v1 import response as reassignments_response
from kio.schema.alter_replica_log_dirs.v2 import response as log_dirs_response
from kio.schema.describe_log_dirs.v4 import response as described_response
from kio.schema.elect_leaders.v2 import response as election_response
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import response as altered_response
from kio.schema.update_features.v1 import response as features_response
from kio.serial import entity_writer

from harness.contracts.administration import (
    ActionOutcome,
    AlterConfig,
    AlterFeature,
    ElectLeader,
    MoveReplica,
    Reassign,
)
from harness.systems import administration
from harness.systems.administration import administer
from system_under_test.protocol.admin_messages import RESPONSES
from system_under_test.protocol.messages import NO_THROTTLE
from system_under_test.protocol.wire import ClientCodec

BROKERS = {1: "b1:9092", 2: "b2:9092", 3: "b3:9092"}
NONE, NOT_NEEDED = ErrorCode.none, ErrorCode.election_not_needed
Respond = Callable[[str, Any], Any]
"""Returns the response of an address to a request, or raises."""


class Host:
    """A client host whose network is a function, and whose clock moves a second with every look at it."""

    name = "harness"
    random: Any = None

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.sent: list[tuple[str, Any]] = []
        self.clock: Any = self
        self.network: Any = self
        self._now_s = 0

    def monotonic_ns(self) -> int:
        self._now_s += 1
        return self._now_s * 1_000_000_000

    def wall_ms(self) -> int:
        return 0

    async def connect(self, address: str, timeout_ms: float) -> Any:
        return _Connection(self, address)


class _Connection:
    def __init__(self, host: Host, address: str) -> None:
        self.host, self.address = host, address
        self.is_open = True

    async def request(self, message: Any, timeout_ms: float) -> Any:
        self.host.sent.append((self.address, message))
        return self.host.respond(self.address, message)

    def close(self) -> None:
        self.is_open = False


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "RETRY_MS", 0)


def done(respond: Respond, action: Any) -> tuple[ActionOutcome, Host]:
    host = Host(respond)
    return asyncio.run(administer(host, BROKERS, action)), host


def elected(code: ErrorCode) -> Any:
    result = election_response.PartitionResult(partition_id=0, error_code=code, error_message=None)
    return election_response.ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=NONE,
        replica_election_results=(
            election_response.ReplicaElectionResult(topic="t", partition_result=(result,)),
        ),
    )


UNCLEAN = ElectLeader(topic="t", partition=0, unclean=True)


def test_the_first_broker_that_responds_decides() -> None:
    outcome, host = done(lambda address, request: elected(NONE), UNCLEAN)
    assert (outcome.broker, outcome.is_accepted, outcome.is_known) == (1, True, True)
    assert outcome.evidence == {"requests": 1, "codes": {"request": "NONE", "t-0": "NONE"}}
    ((_, request),) = host.sent
    assert (request.election_type, request.topic_partitions[0].partitions) == (1, (0,))


def test_a_refused_election_is_known_not_to_have_happened() -> None:
    outcome, _ = done(lambda address, request: elected(NOT_NEEDED), UNCLEAN)
    assert (outcome.is_accepted, outcome.is_known) == (False, True)
    assert outcome.evidence["codes"]["t-0"] == "ELECTION_NOT_NEEDED"


def test_a_request_without_a_response_may_have_been_executed() -> None:
    """Broker 1 is silent. That broker 2 refuses proves nothing: broker 1 may have had the leader elected."""

    def respond(address: str, request: Any) -> Any:
        if address == BROKERS[1]:
            raise TimeoutError("no response in time")
        return elected(NOT_NEEDED)

    outcome, host = done(respond, UNCLEAN)
    assert [address for address, _ in host.sent] == [BROKERS[1], BROKERS[2]]
    assert (outcome.is_accepted, outcome.is_known) == (False, False)
    assert outcome.evidence["without_response"] == 1


def test_a_request_that_timed_out_at_the_controller_is_sent_again_and_may_have_been_executed() -> (
    None
):
    codes = iter([ErrorCode.request_timed_out, NOT_NEEDED])
    outcome, host = done(lambda address, request: elected(next(codes)), UNCLEAN)
    assert len(host.sent) == 2
    assert not outcome.is_known


def test_a_broker_that_cannot_be_reached_is_skipped() -> None:
    class Refusing(Host):
        async def connect(self, address: str, timeout_ms: float) -> Any:
            if address != BROKERS[3]:
                raise ConnectionRefusedError
            return await super().connect(address, timeout_ms)

    host = Refusing(lambda address, request: elected(NONE))
    outcome = asyncio.run(administer(host, BROKERS, UNCLEAN))
    assert (outcome.broker, outcome.is_accepted, outcome.is_known) == (3, True, True)


def test_without_any_broker_nothing_was_requested() -> None:
    class Alone(Host):
        async def connect(self, address: str, timeout_ms: float) -> Any:
            raise ConnectionRefusedError

    outcome = asyncio.run(administer(Alone(lambda *_: None), BROKERS, UNCLEAN))
    assert (outcome.broker, outcome.is_accepted, outcome.is_known) == (None, False, True)


def altered(code: ErrorCode) -> Any:
    result = altered_response.AlterConfigsResourceResponse(
        error_code=code, error_message=None, resource_type=4, resource_name="3"
    )
    return altered_response.IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=(result,)
    )


def test_the_setting_of_one_broker_is_sent_to_that_broker() -> None:
    action = AlterConfig(broker=3, key="log.cleaner.threads", value="2")
    outcome, host = done(lambda address, request: altered(NONE), action)
    assert (outcome.broker, outcome.is_accepted) == (3, True)
    ((address, request),) = host.sent
    assert address == BROKERS[3]
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (4, "3")
    assert (resource.configs[0].config_operation, resource.configs[0].value) == (0, "2")


def test_a_setting_without_a_value_is_deleted() -> None:
    action = AlterConfig(topic="t", key="min.insync.replicas", value=None)
    _, host = done(lambda address, request: altered(NONE), action)
    ((_, request),) = host.sent
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name) == (2, "t")
    assert (resource.configs[0].config_operation, resource.configs[0].value) == (1, None)


def features(code: ErrorCode) -> Any:
    return features_response.UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE,
        error_code=NONE,
        error_message=None,
        results=(
            features_response.UpdatableFeatureResult(
                feature="f", error_code=code, error_message=None
            ),
        ),
    )


@pytest.mark.parametrize("is_upgrade", [True, False])
def test_a_level_is_changed_in_the_direction_that_is_possible(is_upgrade: bool) -> None:
    def respond(address: str, request: Any) -> Any:
        kind = request.feature_updates[0].upgrade_type
        fits = (kind == administration.UPGRADE) is is_upgrade
        return features(NONE if fits else ErrorCode.invalid_update_version)

    outcome, host = done(respond, AlterFeature(feature="f", level=1))
    assert outcome.is_accepted
    assert len(host.sent) == (1 if is_upgrade else 2)


@pytest.mark.parametrize(("replicas", "sent"), [((1, 2, 3), (1, 2, 3)), ((), None)])
def test_a_reassignment_names_the_partition_and_its_replicas_or_cancels_without_any(
    replicas: tuple[int, ...], sent: tuple[int, ...] | None
) -> None:
    def respond(address: str, request: Any) -> Any:
        (topic,) = request.topics
        assert (topic.name, topic.partitions[0].replicas) == ("t", sent)
        return reassignments_response.AlterPartitionReassignmentsResponse(
            throttle_time=NO_THROTTLE,
            error_code=NONE,
            error_message=None,
            responses=(
                reassignments_response.ReassignableTopicResponse(
                    name="t",
                    partitions=(
                        reassignments_response.ReassignablePartitionResponse(
                            partition_index=1, error_code=NONE, error_message=None
                        ),
                    ),
                ),
            ),
        )

    outcome, _ = done(respond, Reassign(topic="t", partition=1, replicas=replicas))
    assert outcome.evidence["codes"] == {"request": "NONE", "t-1": "NONE"}


def described(directories: dict[str, str]) -> Any:
    """Returns the description of log directories that have the replica ("x"), a copy ("+") or nothing ("")."""

    def topics(content: str) -> tuple[Any, ...]:
        partition = described_response.DescribeLogDirsPartition(
            partition_index=0, partition_size=0, offset_lag=0, is_future_key=content == "+"
        )
        return (described_response.DescribeLogDirsTopic(name="t", partitions=(partition,)),)

    return described_response.DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=NONE,
        results=tuple(
            described_response.DescribeLogDirsResult(
                error_code=NONE,
                log_dir=path,
                topics=topics(content) if content else (),
                total_bytes=1,
                usable_bytes=1,
            )
            for path, content in directories.items()
        ),
    )


def moved(code: ErrorCode = NONE) -> Any:
    result = log_dirs_response.AlterReplicaLogDirPartitionResult(partition_index=0, error_code=code)
    return log_dirs_response.AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=(
            log_dirs_response.AlterReplicaLogDirTopicResult(topic_name="t", partitions=(result,)),
        ),
    )


MOVE = MoveReplica(topic="t", partition=0, broker=2)


def test_a_replica_has_moved_when_the_other_directory_has_it() -> None:
    answers = iter(
        [
            described({"/a": "x", "/b": ""}),
            moved(),
            described({"/a": "x", "/b": "+"}),
            described({"/a": "", "/b": "x"}),
        ]
    )
    outcome, host = done(lambda address, request: next(answers), MOVE)
    assert {address for address, _ in host.sent} == {BROKERS[2]}, "only the replica's broker"
    assert outcome.is_accepted
    assert outcome.broker == 2
    assert outcome.evidence["codes"] == {"t-0": "NONE"}
    facts = {key: outcome.evidence[key] for key in ("from", "to", "moved")}
    assert facts == {"from": "/a", "to": "/b", "moved": True}


def test_a_copy_that_never_ends_is_not_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([described({"/a": "x", "/b": ""}), moved()])
    outcome, _ = done(
        lambda address, request: next(answers, described({"/a": "x", "/b": "+"})), MOVE
    )
    assert not outcome.is_accepted
    assert outcome.evidence["moved"] is False


def test_with_one_log_directory_nothing_is_requested() -> None:
    outcome, host = done(lambda address, request: described({"/a": "x"}), MOVE)
    assert (outcome.is_accepted, outcome.is_known, len(host.sent)) == (False, True, 1)
    assert outcome.evidence["log_dirs"] == ["/a"]


@pytest.mark.parametrize("request_type", RESPONSES, ids=lambda kind: str(kind.__name__))
def test_the_client_codec_reads_the_response_to_every_such_request(request_type: Any) -> None:
    example = {
        "UpdateFeaturesRequest": features(NONE),
        "DescribeLogDirsRequest": described({"/a": "x"}),
        "AlterReplicaLogDirsRequest": moved(),
    }[request_type.__name__]
    buffer = io.BytesIO()
    buffer.write((7).to_bytes(4, "big") + b"\0")
    entity_writer(type(example))(buffer, example)
    assert ClientCodec().decode_response(request_type, buffer.getvalue()) == (7, example)
