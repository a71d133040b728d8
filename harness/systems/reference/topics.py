"""Creates topics of the reference system through the Kafka protocol."""

import asyncio
from collections.abc import Sequence

from harness.contracts.cluster import Topic
from harness.contracts.host import ClientHost
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import create_topics_request, millis

RETRY_MS = 20
CONNECT_TIMEOUT_MS = 500
REQUEST_TIMEOUT_MS = 5000


async def create_topic(host: ClientHost, bootstrap: Sequence[str], topic: Topic) -> None:
    """Creates a topic with explicit assignments; tries one broker after the other until it exists."""
    request = _request(topic)
    while True:
        for address in bootstrap:
            try:
                connection = await host.network.connect(address, CONNECT_TIMEOUT_MS)
                response = await connection.request(request, REQUEST_TIMEOUT_MS)
            except OSError:
                continue
            code = ErrorCode(response.topics[0].error_code)
            connection.close()
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        await asyncio.sleep(RETRY_MS / 1e3)


def _request(topic: Topic) -> create_topics_request.CreateTopicsRequest:
    assignments = tuple(
        create_topics_request.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(topic.assignments)
    )
    min_isr = create_topics_request.CreatableTopicConfig(
        name="min.insync.replicas", value=str(topic.min_insync_replicas)
    )
    return create_topics_request.CreateTopicsRequest(
        topics=(
            create_topics_request.CreatableTopic(
                name=topic.name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=assignments,
                configs=(min_isr,),
            ),
        ),
        timeout=millis(REQUEST_TIMEOUT_MS),
        validate_only=False,
    )
