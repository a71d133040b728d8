"""Messages for the administration of Apache Kafka that the reference system does not serve, for clients only.

As in `messages.py`, there is one version of each. Every one of them is served by Apache Kafka 3.4 to 4.4.
"""

from typing import Any

from kio.schema.alter_replica_log_dirs.v2 import request as alter_replica_log_dirs_request
from kio.schema.alter_replica_log_dirs.v2 import response as alter_replica_log_dirs_response
from kio.schema.describe_log_dirs.v4 import request as describe_log_dirs_request
from kio.schema.describe_log_dirs.v4 import response as describe_log_dirs_response
from kio.schema.update_features.v1 import request as update_features_request
from kio.schema.update_features.v1 import response as update_features_response

__all__ = [
    "RESPONSES",
    "alter_replica_log_dirs_request",
    "describe_log_dirs_request",
    "update_features_request",
]

RESPONSES: dict[type[Any], type[Any]] = {
    alter_replica_log_dirs_request.AlterReplicaLogDirsRequest: (
        alter_replica_log_dirs_response.AlterReplicaLogDirsResponse
    ),
    describe_log_dirs_request.DescribeLogDirsRequest: (
        describe_log_dirs_response.DescribeLogDirsResponse
    ),
    update_features_request.UpdateFeaturesRequest: update_features_response.UpdateFeaturesResponse,
}
"""The response to each of these requests."""
