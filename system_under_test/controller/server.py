"""A controller node: a voter of the metadata quorum, and the controller state machine on top of it."""

from collections.abc import Iterator
from typing import Any

from system_under_test.config import NodeConfig
from system_under_test.controller.controller import Controller
from system_under_test.controller.metrics import controller_metrics
from system_under_test.features import levels_of
from system_under_test.log.directory import identify
from system_under_test.protocol.feature_levels import FeatureLevels
from system_under_test.protocol.messages import message_name
from system_under_test.raft.metrics import raft_metrics
from system_under_test.raft.node import RaftNode
from system_under_test.runtime import Host, RequestContext
from system_under_test.runtime.metrics import Sample


class ControllerNode:
    """One incarnation of a controller.

    Args:
        host: The node's interfaces.
        config: The node's configuration.

    Attributes:
        raft: The voter.
        controller: The state machine; active while the voter leads.
    """

    def __init__(self, host: Host, config: NodeConfig) -> None:
        self.node_id = config.node_id
        self._host = host
        self._config = config
        self._accepting = False
        self.controller = Controller(host, config)
        self.raft = RaftNode(host, config, self.controller)
        self.controller.attach(self.raft)

    async def start(self) -> None:
        """Marks a new log directory as this node's, loads the metadata log, then starts serving.

        Raises:
            LogDirectoryError: The directory belongs to another node or cluster, or is damaged.
        """
        host = self._host
        # Kafka refuses a directory without meta.properties, also that of a controller (KIP-631).
        identify(
            host.storage,
            self._config,
            self._config.log_dirs[0],
            host.random.stream("log-directories"),
        )
        await self.raft.start()
        self.controller.start()
        self._accepting = True
        self._host.network.listen(self.handle)

    async def stop(self) -> None:
        """Leaves the quorum cleanly: a leader resigns first, so that the others need not wait for a timeout."""
        await self.raft.stop()
        self.controller.stop()
        self._accepting = False

    def metrics(self) -> Iterator[Sample]:
        """Yields the metrics of this node."""
        yield from controller_metrics(self.controller.gauges())
        yield from raft_metrics(self.raft)

    def feature_levels(self) -> FeatureLevels:
        """Returns the feature levels that this node supports, and those in force as far as it knows."""
        return levels_of(self._config.features, self.controller.image)

    def handle(self, message: Any, context: RequestContext) -> Any:
        """Handles one request of a broker or of another voter; see `runtime.network.Handler`."""
        if not self._accepting:
            raise ConnectionAbortedError(f"controller {self.node_id} is stopping")
        if self.raft.handles(message):
            return self.raft.handle_request(message, context)
        if self.controller.handles(message):
            return self.controller.handle_request(message, context)
        raise ConnectionAbortedError(f"a controller does not serve {message_name(message)}")
