"""Administrative actions as requests of the Kafka protocol, to the reference system and to Apache Kafka.

A request goes to one broker after the other until one responds. A broker that cannot reach the active controller
responds late or not at all; then it is unknown whether the action was executed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.administration import (
    Action,
    ActionOutcome,
    AlterConfig,
    AlterFeature,
    ElectLeader,
    MoveReplica,
    Reassign,
)
from harness.contracts.host import ClientHost
from system_under_test.protocol.admin_messages import (
    update_features_request,
)
from system_under_test.protocol.client_versions import UnsupportedVersionError
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    alter_reassignments_request,
    alter_replica_log_dirs_request,
    describe_log_dirs_request,
    elect_leaders_request,
    incremental_alter_configs_request,
    millis,
)

CONNECT_TIMEOUT_MS = 500
REQUEST_TIMEOUT_MS = 5000
RETRY_MS = 100
LIMIT_MS = 15_000
"""How long brokers are tried; a request that was begun in time may take `REQUEST_TIMEOUT_MS` more."""
MOVE_LIMIT_MS = 30_000
"""How long a replica may take to be copied to another log directory."""

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
PREFERRED, UNCLEAN = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2
INVALID_UPDATE_VERSION = 95

NOT_EXECUTED = (ErrorCode.NOT_CONTROLLER,)
"""Codes after which the same request is sent again: the action was certainly not executed."""
PERHAPS_EXECUTED = (ErrorCode.REQUEST_TIMED_OUT,)
"""Codes after which the same request is sent again, and the action may have been executed before."""

Codes = dict[str, Any]
"""Error codes (`kio`'s or ours, both integers with names) by what they are about."""


@dataclass(slots=True, kw_only=True)
class _Attempts:
    """What happened to the requests of one action. Mutable.

    Attributes:
        broker: The last broker to which a request was sent.
        sent: How many requests were sent.
        unknown: How many of them may have been executed without a response that says so.
        codes: Of the last response.
        facts: Further evidence.
    """

    broker: int | None = None
    sent: int = 0
    unknown: int = 0
    codes: Codes = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_accepted(self) -> bool:
        return bool(self.codes) and not any(int(code) for code in self.codes.values())

    def outcome(self, *, is_done: bool = True) -> ActionOutcome:
        is_accepted = self.is_accepted and is_done
        names = {what or "request": name_of(code) for what, code in self.codes.items()}
        evidence: dict[str, Any] = {"requests": self.sent, "codes": names, **self.facts}
        if self.unknown:
            evidence["without_response"] = self.unknown
        return ActionOutcome(
            broker=self.broker,
            is_accepted=is_accepted,
            is_known=is_accepted or not self.unknown,
            evidence=evidence,
        )


async def administer(host: ClientHost, brokers: Mapping[int, str], action: Action) -> ActionOutcome:
    """Requests an action; see `harness.contracts.system.Administrable`."""
    attempts = _Attempts()
    if isinstance(action, MoveReplica):
        return await _move(host, brokers, action, attempts)
    if isinstance(action, AlterFeature):
        for kind in (UPGRADE, SAFE_DOWNGRADE):
            await _send(host, brokers, attempts, _feature(action, kind), _feature_codes)
            if INVALID_UPDATE_VERSION not in attempts.codes.values():
                break
    elif isinstance(action, AlterConfig):
        if not action.topic and action.broker is not None:
            # A broker refuses to forward changes of another broker's own settings.
            brokers = {action.broker: brokers[action.broker]}
        await _send(host, brokers, attempts, _config(action), _config_codes)
    elif isinstance(action, Reassign):
        await _send(host, brokers, attempts, _reassignment(action), _reassignment_codes)
    else:
        await _send(host, brokers, attempts, _election(action), _election_codes)
    return attempts.outcome()


def name_of(code: Any) -> str:
    """Returns the name of an error code, for example "NOT_CONTROLLER"."""
    return str(code.name).upper()


async def _send(
    host: ClientHost,
    brokers: Mapping[int, str],
    attempts: _Attempts,
    request: Any,
    codes_of: Callable[[Any], Codes],
) -> Any:
    """Sends a request to one broker after the other until one of them decides; returns its response or None."""
    deadline_ns = host.clock.monotonic_ns() + LIMIT_MS * 1_000_000
    while True:
        for broker, address in brokers.items():
            response = await _ask(host, address, broker, attempts, request)
            if response is None:
                continue
            attempts.codes = codes_of(response)
            if any(code in PERHAPS_EXECUTED for code in attempts.codes.values()):
                attempts.unknown += 1
            elif not any(code in NOT_EXECUTED for code in attempts.codes.values()):
                return response
        if host.clock.monotonic_ns() >= deadline_ns:
            return None
        await asyncio.sleep(RETRY_MS / 1e3)


async def _ask(
    host: ClientHost, address: str, broker: int, attempts: _Attempts, request: Any
) -> Any:
    """Sends one request; returns the response, or None if there is none."""
    try:
        connection = await host.network.connect(address, CONNECT_TIMEOUT_MS)
    except OSError:
        return None
    attempts.sent += 1
    attempts.broker = broker
    try:
        return await connection.request(request, REQUEST_TIMEOUT_MS)
    except UnsupportedVersionError as error:
        attempts.facts["not_sent"] = str(error)
        return None
    except OSError:
        attempts.unknown += 1
        return None
    finally:
        connection.close()


# -- requests and what their responses say


def _config(action: AlterConfig) -> Any:
    m = incremental_alter_configs_request
    broker = "" if action.broker is None else str(action.broker)
    return m.IncrementalAlterConfigsRequest(
        resources=(
            m.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE if action.topic else BROKER_RESOURCE,
                resource_name=action.topic or broker,
                configs=(
                    m.AlterableConfig(
                        name=action.key,
                        config_operation=DELETE if action.value is None else SET,
                        value=action.value,
                    ),
                ),
            ),
        ),
        validate_only=False,
    )


def _config_codes(response: Any) -> Codes:
    return {one.resource_name: one.error_code for one in response.responses}


def _feature(action: AlterFeature, kind: int) -> Any:
    m = update_features_request
    return m.UpdateFeaturesRequest(
        timeout=millis(REQUEST_TIMEOUT_MS),
        feature_updates=(
            m.FeatureUpdateKey(
                feature=action.feature, max_version_level=action.level, upgrade_type=kind
            ),
        ),
        validate_only=False,
    )


def _feature_codes(response: Any) -> Codes:
    return {"": response.error_code} | {one.feature: one.error_code for one in response.results}


def _reassignment(action: Reassign) -> Any:
    m = alter_reassignments_request
    partition = m.ReassignablePartition(
        partition_index=action.partition, replicas=tuple(action.replicas) or None
    )
    return m.AlterPartitionReassignmentsRequest(
        timeout=millis(REQUEST_TIMEOUT_MS),
        topics=(m.ReassignableTopic(name=action.topic, partitions=(partition,)),),
    )


def _reassignment_codes(response: Any) -> Codes:
    return {"": response.error_code} | {
        f"{topic.name}-{one.partition_index}": one.error_code
        for topic in response.responses
        for one in topic.partitions
    }


def _election(action: ElectLeader) -> Any:
    m = elect_leaders_request
    return m.ElectLeadersRequest(
        election_type=UNCLEAN if action.unclean else PREFERRED,
        topic_partitions=(m.TopicPartitions(topic=action.topic, partitions=(action.partition,)),),
        timeout=millis(REQUEST_TIMEOUT_MS),
    )


def _election_codes(response: Any) -> Codes:
    return {"": response.error_code} | {
        f"{topic.topic}-{one.partition_id}": one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


# -- log directories


async def _move(
    host: ClientHost, brokers: Mapping[int, str], action: MoveReplica, attempts: _Attempts
) -> ActionOutcome:
    """Moves a replica to the broker's other log directory; returns when it is there, or after a limited time."""
    one = {action.broker: brokers[action.broker]}
    directories = await _directories(host, one, action, attempts)
    source = next((path for path, has_it in directories.items() if has_it), None)
    others = [path for path, has_it in directories.items() if not has_it]
    attempts.unknown = 0  # until here nothing was requested but a description
    if source is None or not others:
        attempts.codes = {}
        attempts.facts["log_dirs"] = sorted(directories)
        return attempts.outcome()
    m = alter_replica_log_dirs_request
    topic = m.AlterReplicaLogDirTopic(name=action.topic, partitions=(action.partition,))
    request = m.AlterReplicaLogDirsRequest(
        dirs=(m.AlterReplicaLogDir(path=others[0], topics=(topic,)),)
    )
    await _send(host, one, attempts, request, _move_codes)
    attempts.facts |= {"from": source, "to": others[0]}
    codes, is_moved = attempts.codes, False
    deadline_ns = host.clock.monotonic_ns() + MOVE_LIMIT_MS * 1_000_000
    while attempts.is_accepted and not is_moved and host.clock.monotonic_ns() < deadline_ns:
        await asyncio.sleep(RETRY_MS / 1e3)
        is_moved = (await _directories(host, one, action, attempts)).get(others[0], False)
        attempts.codes = codes
    attempts.facts["moved"] = is_moved
    return attempts.outcome(is_done=is_moved)


def _move_codes(response: Any) -> Codes:
    return {
        f"{topic.topic_name}-{one.partition_index}": one.error_code
        for topic in response.results
        for one in topic.partitions
    }


async def _directories(
    host: ClientHost, brokers: Mapping[int, str], action: MoveReplica, attempts: _Attempts
) -> dict[str, bool]:
    """Returns whether each usable log directory of a broker has the replica; an unfinished copy does not count."""
    m = describe_log_dirs_request
    request = m.DescribeLogDirsRequest(
        topics=(m.DescribableLogDirTopic(topic=action.topic, partitions=(action.partition,)),)
    )
    response = await _send(host, brokers, attempts, request, lambda read: {"": read.error_code})
    return {
        result.log_dir: any(
            not partition.is_future_key
            for topic in result.topics
            if topic.name == action.topic
            for partition in topic.partitions
            if partition.partition_index == action.partition
        )
        for result in (response.results if response is not None else ())
        if not int(result.error_code)
    }
