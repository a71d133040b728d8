"""Messages for the administration of Apache Kafka that the reference system does not serve, for clients only.

As in `messages.py`, there is one version of each. Every one of them is served by Apache Kafka 3.4 to 4.4.
"""

from typing import Any

from kio.schema.alter_partition_reassignments.v0 import request as alter_reassignments_request
from kio.schema.alter_partition_reassignments.v0 import response as alter_reassignments_response
from kio.schema.elect_leaders.v2 import request as elect_leaders_request
from kio.schema.elect_leaders.v2 import response as elect_leaders_response
from kio.schema.update_features.v1 import request as update_features_request
from kio.schema.update_features.v1 import response as update_features_response

__all__ = [
    "RESPONSES",
    "alter_reassignments_request",
    "elect_leaders_request",
    "update_features_request",
]

RESPONSES: dict[type[Any], type[Any]] = {
    alter_reassignments_request.AlterPartitionReassignmentsRequest: (
        alter_reassignments_response.AlterPartitionReassignmentsResponse
    ),
    elect_leaders_request.ElectLeadersRequest: elect_leaders_response.ElectLeadersResponse,
    update_features_request.UpdateFeaturesRequest: update_features_response.UpdateFeaturesResponse,
}
"""The response to each of these requests."""
