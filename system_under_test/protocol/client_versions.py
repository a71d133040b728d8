"""Which version of each API a client sends to one node, and how it converts to and from the canonical version.

    canonical request --older or newer--> request on the wire --> node --> response --> canonical response

A client uses one version of each message, the canonical one (`apis.py`). A connection sends the highest version
that both sides know, by the node's own table (ApiVersions). Most versions differ by fields that were added;
these are converted by name (`versions.py`). Converted by hand are topics, which some versions identify by name and
others by id, and the replica id of Fetch.

Nothing is dropped silently, in neither direction: a field that the other version cannot express must be at its
default, unless `IGNORABLE` gives the reason why it may be lost.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from system_under_test.protocol.apis import APIS, Api, Canonical
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.lost import check_for_losses
from system_under_test.protocol.messages import api_versions_request
from system_under_test.protocol.releases import oldest_release
from system_under_test.protocol.reshaped import TIMESTAMPS_SINCE
from system_under_test.protocol.versions import converter, wire_type

PRODUCE_KEY, FETCH_KEY, LIST_OFFSETS_KEY, METADATA_KEY, API_VERSIONS_KEY = 0, 1, 2, 3, 18
OLDEST_KAFKA = "3.4"
SOFTWARE_NAME, SOFTWARE_VERSION = "laststand", "1"


class UnsupportedVersionError(Exception):
    """The node does not know a version of a request that can express it; the message names node and versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """The versions of one API that a client knows.

    Attributes:
        api: Its row in the table of the reference system.
        first, last: Inclusive range of versions.
        canonical: Which of the canonical versions in the row clients use.
    """

    api: Api
    first: int
    last: int
    canonical: Canonical

    @property
    def request(self) -> type[Any]:
        """Type of the canonical request."""
        return self.canonical.request

    @property
    def response(self) -> type[Any]:
        """Type of the canonical response."""
        return self.canonical.response


BY_NAME, BY_ID = 0, -1
"""Which canonical version of an API that has two: that with names of topics, or that with ids."""


def _spoken(name: str, first: int, last: int, which: int = BY_NAME) -> Spoken:
    api = next(api for api in APIS if api.name == name)
    return Spoken(api=api, first=first, last=last, canonical=api.canonical[which])


SPOKEN: dict[int, Spoken] = {
    one.api.key: one
    for one in (
        _spoken("Produce", 9, 13),
        _spoken("Fetch", 12, 18, BY_ID),
        _spoken("ListOffsets", 7, 11),
        _spoken("Metadata", 12, 13),
        # Version 10 identifies topics by id, which a member of a group does not need to know.
        _spoken("OffsetCommit", 8, 9),
        _spoken("OffsetFetch", 8, 9),
        _spoken("FindCoordinator", 4, 6),
        _spoken("InitProducerId", 4, 5),
        _spoken("AddOffsetsToTxn", 3, 4),
        # Up to version 4 the producer keeps its epoch, and the response does not name one.
        _spoken("EndTxn", 3, 5),
        _spoken("TxnOffsetCommit", 3, 5),
        _spoken("AlterPartitionReassignments", 0, 1),
        _spoken("DescribeQuorum", 1, 2),
        _spoken("DescribeCluster", 0, 2),
    )
}
"""By API key. Each range begins with the newest version of Apache Kafka 3.4, Fetch with the last that has names.
An API that is not listed is sent in the version of its own class: JoinGroup 9, SyncGroup 5, Heartbeat 4,
LeaveGroup 5, CreateTopics 7 and others have had no new version since 3.4."""

IGNORABLE: dict[int, Mapping[str, str]] = {
    FETCH_KEY: {
        "replica_directory_id": "it identifies a voter of the metadata quorum, and a client is none",
    },
}
"""Fields that an older version may lose, by API key, each with the reason."""


class TopicIds:
    """Names and ids of topics, as Metadata responses reported them. Mutable; it grows with the topics."""

    def __init__(self) -> None:
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}

    def learn(self, metadata: Any) -> None:
        """Takes what a canonical Metadata response reports."""
        for topic in metadata.topics:
            if topic.name is not None and topic.topic_id is not None:
                self._ids[topic.name] = topic.topic_id
                self._names[topic.topic_id] = topic.name

    def has_id(self, name: str) -> bool:
        """Whether the id of a topic is known."""
        return name in self._ids

    def other(self, topic: str | UUID | None) -> Any:
        """Returns the id of a name, or the name of an id.

        Raises:
            ValueError: No Metadata response reported it.
        """
        found = self._ids.get(topic) if isinstance(topic, str) else self._names.get(_uuid(topic))
        if found is None:
            raise ValueError(f"no Metadata response reported the topic {topic}")
        return found


def _uuid(topic_id: UUID | None) -> UUID:
    return UUID(int=0) if topic_id is None else topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicFields:
    """Where a message identifies topics, and how canonical and wire version do it."""

    arrays: tuple[str, ...]
    canonical: str
    wire: str


_FETCHED_BY_NAME = range(0, 13)
_PRODUCED_BY_ID = range(13, 14)
_REPLICA_ID_ALONE = range(0, 15)

_TOPICS_OF_REQUESTS: dict[int, tuple[range, _TopicFields]] = {
    FETCH_KEY: (
        _FETCHED_BY_NAME,
        _TopicFields(
            arrays=("topics", "forgotten_topics_data"), canonical="topic_id", wire="topic"
        ),
    ),
    PRODUCE_KEY: (
        _PRODUCED_BY_ID,
        _TopicFields(arrays=("topic_data",), canonical="name", wire="topic_id"),
    ),
}
_TOPICS_OF_RESPONSES: dict[int, tuple[range, _TopicFields]] = {
    FETCH_KEY: (
        _FETCHED_BY_NAME,
        _TopicFields(arrays=("responses",), canonical="topic_id", wire="topic"),
    ),
    PRODUCE_KEY: (
        _PRODUCED_BY_ID,
        _TopicFields(arrays=("responses",), canonical="name", wire="topic_id"),
    ),
}

_Convert = Callable[[Any, TopicIds], Any]
_COMPILED: dict[tuple[int, int], tuple[_Convert, _Convert]] = {}


def to_wire(request: Any, version: int, topics: TopicIds) -> Any:
    """Returns a canonical request as another version of it.

    Raises:
        ValueError: That version cannot express it, or a topic's name or id is not known.
    """
    return _compiled(request.__api_key__, version)[0](request, topics)


def from_wire(response: Any, topics: TopicIds) -> Any:
    """Returns a response of any spoken version as a canonical one.

    Raises:
        ValueError: The canonical version cannot express it, or a topic's name or id is not known.
    """
    return _compiled(response.__api_key__, response.__version__)[1](response, topics)


def _compiled(key: int, version: int) -> tuple[_Convert, _Convert]:
    found = _COMPILED.get((key, version))
    if found is None:
        spoken = SPOKEN[key]
        found = _COMPILED[(key, version)] = (
            _request_converter(spoken, version),
            _response_converter(spoken, version),
        )
    return found


def _request_converter(spoken: Spoken, version: int) -> _Convert:
    key = spoken.api.key
    target = wire_type(spoken.api, version, "request")
    if target is spoken.request:
        return _as_it_is
    spared = set(IGNORABLE.get(key, ()))
    topics = _topic_fields(_TOPICS_OF_REQUESTS, key, version)
    if topics is not None:
        spared.add(topics.canonical)
    has_replica_id_alone = key == FETCH_KEY and version in _REPLICA_ID_ALONE
    if has_replica_id_alone:
        spared.add("replica_state")
    check = check_for_losses(spoken.request, target, frozenset(spared))
    convert = converter(spoken.request, target)
    too_new = {
        timestamp
        for timestamp, since in TIMESTAMPS_SINCE.items()
        if key == LIST_OFFSETS_KEY and version < since
    }

    def convert_request(request: Any, known: TopicIds) -> Any:
        if check is not None:
            check(request)
        if too_new:
            _check_timestamps(request, too_new)
        made = convert(request)
        if topics is not None:
            made = _with_topics(made, request, topics.arrays, topics.canonical, topics.wire, known)
        if has_replica_id_alone:
            made = _with_replica_id(made, request.replica_state)
        return made

    return convert_request


def _response_converter(spoken: Spoken, version: int) -> _Convert:
    key = spoken.api.key
    source = wire_type(spoken.api, version, "response")
    if source is spoken.response:
        return _as_it_is
    topics = _topic_fields(_TOPICS_OF_RESPONSES, key, version)
    spared = frozenset() if topics is None else frozenset({topics.wire})
    check = check_for_losses(source, spoken.response, spared)
    convert = converter(source, spoken.response)

    def convert_response(response: Any, known: TopicIds) -> Any:
        if check is not None:
            check(response)
        made = convert(response)
        if topics is not None:
            made = _with_topics(made, response, topics.arrays, topics.wire, topics.canonical, known)
        return made

    return convert_response


def _as_it_is(message: Any, _known: TopicIds) -> Any:
    return message


def _topic_fields(
    table: Mapping[int, tuple[range, _TopicFields]], key: int, version: int
) -> _TopicFields | None:
    versions, found = table.get(key, (range(0), None))
    return found if version in versions else None


def _with_topics(
    made: Any, origin: Any, arrays: Iterable[str], given: str, wanted: str, known: TopicIds
) -> Any:
    """Returns a message whose topics have names instead of ids, or ids instead of names."""
    return replace(
        made,
        **{
            array: tuple(
                replace(topic, **{wanted: known.other(getattr(one, given))})
                for topic, one in zip(getattr(made, array), getattr(origin, array), strict=True)
            )
            for array in arrays
        },
    )


def _with_replica_id(made: Any, state: Any) -> Any:
    """Up to version 14 of Fetch the replica id is a field of its own, and there is no broker epoch."""
    if state.replica_epoch != -1:
        raise ValueError(f"replica_epoch of FetchRequest is {state.replica_epoch!r}")
    return replace(made, replica_id=state.replica_id)


def _check_timestamps(request: Any, too_new: set[int]) -> None:
    for topic in request.topics:
        for one in topic.partitions:
            if one.timestamp in too_new:
                raise ValueError(f"timestamp of ListOffsetsRequest is {one.timestamp}")


class NodeVersions:
    """The versions of one node, by its ApiVersions response, and what is sent to it in which of them.

    Args:
        address: The node, for messages.
        served: Smallest and largest version that it serves, by API key.
        topics: Names and ids of the cluster's topics; shared by all connections to the cluster.
    """

    def __init__(
        self, address: str, served: Mapping[int, tuple[int, int]], topics: TopicIds
    ) -> None:
        self._address = address
        self._served = dict(served)
        self._topics = topics

    def outgoing(self, request: Any) -> Any:
        """Returns a request in the highest version that both sides know.

        Raises:
            UnsupportedVersionError: There is none, or it cannot express the request.
        """
        spoken = SPOKEN.get(request.__api_key__)
        if spoken is None or spoken.request is not type(request):
            self._check_own_version(request)
            return request
        version = self._version_of(spoken, request)
        try:
            return to_wire(request, version, self._topics)
        except ValueError as error:
            raise UnsupportedVersionError(
                f"{self._address}: {spoken.api.name} version {version} cannot express a request: {error}"
            ) from None

    def incoming(self, request: Any, response: Any) -> Any:
        """Returns the canonical version of a response.

        Args:
            request: The canonical request.
            response: What the node sent.

        Raises:
            ValueError: The canonical version cannot express it.
        """
        spoken = SPOKEN.get(response.__api_key__)
        if spoken is not None and spoken.request is type(request):
            response = from_wire(response, self._topics)
            if spoken.api.key == METADATA_KEY:
                self._topics.learn(response)
        return response

    def _version_of(self, spoken: Spoken, request: Any) -> int:
        last = spoken.last
        if spoken.api.key == PRODUCE_KEY and not all(
            self._topics.has_id(topic.name) for topic in request.topic_data
        ):
            # The id is not known yet; older versions have names.
            last = _PRODUCED_BY_ID.start - 1
        low, high = self._served.get(spoken.api.key, (0, -1))
        version = min(last, high)
        if version < max(spoken.first, low):
            raise self._unsupported(spoken.api.key, spoken.api.name, spoken.first, last)
        return version

    def _check_own_version(self, request: Any) -> None:
        key, version = request.__api_key__, request.__version__
        low, high = self._served.get(key, (0, -1))
        if not low <= version <= high:
            raise self._unsupported(
                key, type(request).__name__.removesuffix("Request"), version, version
            )

    def _unsupported(self, key: int, name: str, first: int, last: int) -> UnsupportedVersionError:
        spoken = f"version {first}" if first == last else f"versions {first} to {last}"
        if key not in self._served:
            return UnsupportedVersionError(
                f"{self._address} does not serve {name}; is it a broker of Apache Kafka {OLDEST_KAFKA} or later?"
            )
        low, high = self._served[key]
        return UnsupportedVersionError(
            f"{self._address} serves {name} in versions {low} to {high}, and this client sends {spoken};"
            f" it needs Apache Kafka {oldest_release(name, first) or OLDEST_KAFKA} or later"
        )


# --- ApiVersions itself ----------------------------------------------------------------------------------


def api_versions_of(version: int) -> Any:
    """Returns an ApiVersions request of a version."""
    newest = api_versions_request.ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    api = next(one for one in APIS if one.key == API_VERSIONS_KEY)
    # Versions up to 2 have no fields, so the name of the software is lost.
    return converter(type(newest), wire_type(api, version, "request"))(newest)


NEWEST_API_VERSIONS: int = api_versions_request.ApiVersionsRequest.__version__


def version_to_send_instead(version: int, response: Any) -> int | None:
    """Returns in which version to repeat an ApiVersions request; None if the response is a table.

    Args:
        version: In which the request was sent.
        response: The response to it. A node that does not know the version responds in version 0, with the range
            to use (KIP-511).

    Raises:
        ValueError: The node reports another error, or knows no version at all.
    """
    if not response.error_code:
        return None
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
        raise ValueError(f"ApiVersions version {version} has error {response.error_code}")
    # Old nodes report no range; version 0 is then the only one that is certain.
    highest = served_versions(response).get(API_VERSIONS_KEY, (0, 0))[1]
    return max(0, min(highest, version - 1))


def served_versions(response: Any) -> dict[int, tuple[int, int]]:
    """Returns smallest and largest version by API key."""
    return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
