"""Requests and responses as the fault point sees them. Implements `system_under_test.real.fault_point.Passage`."""

from collections.abc import Callable
from typing import Any, Protocol

from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.wire import WireRequest
from system_under_test.runtime import RequestContext
from system_under_test.whole_refusals import refusal


class Connection(Protocol):
    """A connection that the node has accepted, as far as passages need it (`real.listener.ServerConnection`)."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...

    @property
    def node(self) -> str:
        """The node's name."""
        ...

    def wait(self) -> None:
        """Handles no request until `resume`."""
        ...

    def resume(self, action: Callable[[], None]) -> None:
        """Does what a message had to wait for, and goes on with the requests behind it."""
        ...

    def drop(self, cause: str, **details: Any) -> None:
        """Closes the connection for a reason."""
        ...

    def context_of(self, request: WireRequest) -> RequestContext:
        """Describes the sender of a request."""
        ...

    def process(self, request: WireRequest) -> None:
        """Passes a request to the handler, and its response to the sender."""
        ...

    def process_copy(self, message: Any, context: RequestContext) -> None:
        """Processes a request as if it had come over another connection that nobody reads."""
        ...

    def respond(self, request: WireRequest, response: Any) -> None:
        """Sends a response, unless the fault point takes it."""
        ...

    def send(self, request: WireRequest, response: Any, data: bytes) -> None:
        """Writes a response."""
        ...


class _Passage:
    """The common part."""

    __slots__ = ("_connection", "_request", "message")

    def __init__(self, connection: Connection, request: WireRequest, message: Any) -> None:
        self._connection = connection
        self._request = request
        self.message = message

    @property
    def name(self) -> str:
        """Class name of the message."""
        return type(self.message).__name__

    @property
    def is_open(self) -> bool:
        """Whether its connection still exists."""
        return not self._connection.is_closed

    def wait(self) -> None:
        """Makes it wait, and everything behind it."""
        self._connection.wait()

    def lose(self) -> None:
        """Breaks the connection."""
        self._connection.drop("fault", api=self._request.api.name)


class Arrival(_Passage):
    """A request that has arrived."""

    __slots__ = ("is_request", "source", "target")

    def __init__(self, connection: Connection, request: WireRequest) -> None:
        super().__init__(connection, request, request.message)
        self.source = request.client_id
        self.target = connection.node
        self.is_request = True

    def go(self) -> None:
        """Processes it after it has waited."""
        self._connection.resume(lambda: self._connection.process(self._request))

    def copy(self) -> None:
        """Processes it a second time."""
        context = self._connection.context_of(self._request)
        self._connection.process_copy(self.message, context)

    def refusal(self, error: str) -> Any:
        """Returns the response that refuses all of it; None if there is none."""
        return refusal(self.message, ErrorCode[error])

    def answer(self, response: Any) -> None:
        """Responds to it without processing it."""
        self._connection.resume(lambda: self._connection.respond(self._request, response))


class Departure(_Passage):
    """A response that is about to leave."""

    __slots__ = ("_data", "is_request", "source", "target")

    def __init__(
        self, connection: Connection, request: WireRequest, response: Any, data: bytes
    ) -> None:
        super().__init__(connection, request, response)
        self.source = connection.node
        self.target = request.client_id
        self.is_request = False
        self._data = data

    def go(self) -> None:
        """Sends it after it has waited."""
        connection = self._connection
        connection.resume(lambda: connection.send(self._request, self.message, self._data))

    def copy(self) -> None:
        """Does nothing: only requests are processed."""

    def refusal(self, error: str) -> Any:
        """Returns None: only requests are refused."""

    def answer(self, response: Any) -> None:
        """Does nothing: it is a response itself."""
