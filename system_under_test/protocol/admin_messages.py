"""Messages for the administration of Apache Kafka that the reference system does not serve, for clients only.

As in `messages.py`, there is one version of each. Every one of them is served by Apache Kafka 3.4 to 4.4.
"""

from typing import Any

from kio.schema.update_features.v1 import request as update_features_request
from kio.schema.update_features.v1 import response as update_features_response

__all__ = [
    "RESPONSES",
    "update_features_request",
]

RESPONSES: dict[type[Any], type[Any]] = {
    update_features_request.UpdateFeaturesRequest: update_features_response.UpdateFeaturesResponse,
}
"""The response to each of these requests."""
