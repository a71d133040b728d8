"""The API table matches the nodes: they respond to exactly the requests that their role advertises."""

import asyncio
import importlib
from dataclasses import replace
from typing import Any

import pytest
from cluster_story import Cluster

from system_under_test.protocol import messages
from system_under_test.protocol.apis import APIS, BROKER, CONTROLLER, Api
from system_under_test.protocol.metadata_codec import METADATA_TOPIC_ID
from system_under_test.protocol.wire import ServerCodec
from system_under_test.runtime import RequestContext
from tests.unit.system_under_test.protocol.wire_examples import (
    VERSIONS,
    answer_of,
    arbitrary_request,
    frame_of,
)

CONTEXT = RequestContext(peer="client:1", connection_id=1)
ANSWERS_BY_ITSELF = "ApiVersions"
ONLY_SENT: set[type[Any]] = set()
"""Requests that the harness sends to another system, and that our nodes do not serve."""


def request_types() -> list[type[Any]]:
    """Returns every canonical request type of the code."""
    found = []
    for name in messages.__all__:
        if name.endswith("_request"):
            module = getattr(messages, name)
            kinds = [
                value
                for value in vars(module).values()
                if isinstance(value, type)
                and value.__module__ == module.__name__
                and getattr(getattr(value, "__type__", None), "name", "") == "request"
            ]
            assert len(kinds) == 1, name
            found += kinds
    return found


def node_of(cluster: Cluster, role: str) -> Any:
    if role == BROKER:
        return "b1", cluster.node(1).process
    for name in ("c11", "c12", "c13"):
        process = cluster.world.nodes[name].process
        if process.controller.is_active:
            return name, process
    raise AssertionError("there is no active controller")


def on_node(cluster: Cluster, role: str, work: Any) -> Any:
    """Runs work(node) on the node's own loop and returns what it returns."""
    name, node = node_of(cluster, role)
    task = cluster.world.spawn(name, work(node))
    cluster.world.run(task.done, limit_ns=60 * 10**9)
    return task.result()


async def asked(node: Any, frame: bytes, codec: ServerCodec) -> tuple[Any, Any]:
    request = codec.decode_request(frame)
    try:
        response = node.handle(request.message, CONTEXT)
    except ConnectionAbortedError:
        # The only way to report that an append without acknowledgement failed.
        assert (request.api.name, request.message.acks) == ("Produce", 0)
        return request, None
    if isinstance(response, asyncio.Future):
        response = await response
    return request, response


def question(api: Api, version: int, seed: int, role: str) -> bytes:
    request = arbitrary_request(api, version, seed)
    if role == CONTROLLER and api.name == "Fetch":
        # A controller has one log only, and closes the connection of a client that requests another.
        kinds = importlib.import_module(type(request).__module__)
        wanted = kinds.FetchPartition(partition=0, fetch_offset=seed, partition_max_bytes=1000)
        topic = kinds.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(wanted,))
        request = replace(request, topics=(topic,))
    return frame_of(api, request)


@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
def test_every_advertised_version_gets_a_response_in_that_version(role):
    codec = ServerCodec(role)
    cluster, served = None, ""
    for at_role, api, version in VERSIONS:
        if at_role != role or api.name == ANSWERS_BY_ITSELF:
            continue
        if cluster is None or served != api.name:
            # A client that registers as a broker, or votes, changes the responses to others.
            cluster, served = Cluster().start(), api.name
            cluster.create_topic()
        frames = [question(api, version, seed, role) for seed in range(4)]

        async def ask_all(node: Any, frames: Any = frames) -> list[Any]:
            return [await asked(node, frame, codec) for frame in frames]

        for request, response in on_node(cluster, role, ask_all):
            if response is None:
                assert (api.name, request.message.acks) == ("Produce", 0)
                continue
            correlation_id, read = answer_of(api, version, codec.encode_response(request, response))
            assert correlation_id == 7
            assert read is not None


@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
def test_requests_that_are_not_advertised_get_no_response(role):
    advertised = {
        canonical.request for api in APIS if role in api.roles for canonical in api.canonical
    }
    others = [kind for kind in request_types() if kind not in advertised]
    assert others, "every request of the code is served by both roles?"
    cluster = Cluster().start()

    async def ask_all(node: Any) -> None:
        for kind in others:
            with pytest.raises(ConnectionAbortedError, match="does not serve"):
                # Code that inspects more than its type would serve it.
                node.handle(object.__new__(kind), CONTEXT)

    on_node(cluster, role, ask_all)


def test_every_request_type_is_in_the_table():
    in_table = {canonical.request for api in APIS for canonical in api.canonical}
    assert set(request_types()) == in_table | ONLY_SENT
