"""The broker's lifecycle: registration, heartbeats, fencing, controlled shutdown.

One task sends all registrations and heartbeats, so at most one of them is outstanding. `LifecycleHooks`
connects it with the broker node: callbacks for changes of state, and a query for the metadata offset.

Theory. A broker moves forward only. NOT_RUNNING becomes STARTING when the registration begins, RECOVERY when
the broker has loaded its own registration record and may publish metadata (LIFE-1), RUNNING when the controller
has unfenced it. A later fencing changes `is_fenced`, not the state. A broker in service leaves through
PENDING_CONTROLLED_SHUTDOWN, in which it requests the controller's consent (LIFE-3). A broker that is not in
service shuts down without consent, because no client and no partition depends on it. SHUTTING_DOWN is final: a
restart is a new process with a new incarnation id.

Source:
    Kafka's `BrokerState` and `BrokerLifecycleManager`. Kafka returns to NOT_RUNNING at the end of a shutdown;
    here the process ends instead.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from system_under_test.broker.channel import Channel
from system_under_test.broker.tasks import Waker
from system_under_test.config import NodeConfig
from system_under_test.invariants import check_transition
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    broker_heartbeat_request,
    broker_heartbeat_response,
    broker_registration_request,
)
from system_under_test.runtime import Host

FIRST_BACKOFF_MS = 100
"""First delay after a failed registration or heartbeat, doubled up to the session timeout."""
BACKOFF_JITTER = 0.02
SECURITY_PLAINTEXT = 0


class BrokerState(Enum):
    """State of a broker, with Kafka's names."""

    NOT_RUNNING = "not-running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending-controlled-shutdown"
    SHUTTING_DOWN = "shutting-down"


LEGAL_TRANSITIONS: Mapping[BrokerState, frozenset[BrokerState]] = {
    BrokerState.NOT_RUNNING: frozenset({BrokerState.STARTING, BrokerState.SHUTTING_DOWN}),
    BrokerState.STARTING: frozenset({BrokerState.RECOVERY, BrokerState.SHUTTING_DOWN}),
    BrokerState.RECOVERY: frozenset({BrokerState.RUNNING, BrokerState.SHUTTING_DOWN}),
    BrokerState.RUNNING: frozenset({BrokerState.PENDING_CONTROLLED_SHUTDOWN}),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset({BrokerState.SHUTTING_DOWN}),
    BrokerState.SHUTTING_DOWN: frozenset(),
}
"""For every state, its legal successors."""


def check_broker_transition(
    broker_id: int, broker_epoch: int, old: BrokerState, new: BrokerState
) -> None:
    """Refuses a transition that is not listed.

    Raises:
        InvariantViolation: INV-12, the table does not list the transition.
    """
    check_transition(
        LEGAL_TRANSITIONS, old, new, of="a broker", broker_id=broker_id, broker_epoch=broker_epoch
    )


class BrokerExit(SystemExit):
    """The broker ends its own process: it was superseded, never registered, or lost its disk.

    A `SystemExit`, so that it leaves the event loop, and with it the process, from whatever task decides it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleHooks:
    """Connections from the lifecycle to the broker node.

    Attributes:
        metadata_offset: Offset of the last metadata record that was applied, or loaded before the first publish.
        on_caught_up: Called when the broker has loaded its own registration and may publish metadata (LIFE-1).
        on_leaving: Called when a controlled shutdown begins (LIFE-3).
    """

    metadata_offset: Callable[[], int]
    on_caught_up: Callable[[], None]
    on_leaving: Callable[[], None]


class BrokerLifecycle:
    """Registers the broker and keeps its session.

    Args:
        host: The node's interfaces.
        config: Identity and timings.
        channel: A channel to the active controller, for the lifecycle alone (AP-2).
        directory_ids: Identifiers of the online log directories.
        previous_broker_epoch: Epoch in the clean-shutdown markers, -1 without markers (CS-2).
        hooks: See `LifecycleHooks`.
    """

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        channel: Channel,
        *,
        directory_ids: tuple[UUID, ...],
        previous_broker_epoch: int,
        hooks: LifecycleHooks,
    ) -> None:
        self._state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.is_fenced = True
        self._observer = host.observer
        self._config = config
        self._timings = config.timings
        self.channel = channel
        self._directory_ids = directory_ids
        self._previous_broker_epoch = previous_broker_epoch
        self._hooks = hooks
        self._random = host.random.stream("lifecycle")
        # Kept in memory only: a new process is a new incarnation.
        self.incarnation_id = UUID(int=self._random.getrandbits(128), version=4)
        self._waker = Waker()
        # Directories that failed since the start, with the time until which the controller must have been told.
        self._offline_directories: dict[UUID, float] = {}
        self._reported_directories: frozenset[UUID | None] = frozenset()
        self._failures = 0
        self._request_timeout_ms = config.timings.broker_session_timeout_ms / 2
        self._shutdown_responses = 0
        self._may_stop: asyncio.Future[None] | None = None
        # Whether no request waits for its response.
        self._is_answered = asyncio.Event()
        self._is_answered.set()

    @property
    def state(self) -> BrokerState:
        """The current state; it changes along `LEGAL_TRANSITIONS` only."""
        return self._state

    @property
    def is_starting(self) -> bool:
        """Whether the broker has not been in service yet."""
        return self._state in (
            BrokerState.NOT_RUNNING,
            BrokerState.STARTING,
            BrokerState.RECOVERY,
        )

    def _enter(self, state: BrokerState) -> None:
        check_broker_transition(self._config.node_id, self.broker_epoch, self._state, state)
        self._state = state

    async def run(self) -> None:
        """Registers, then sends heartbeats until it is cancelled or the broker shuts down.

        Raises:
            BrokerExit: Not registered in time, superseded by a newer incarnation, or a failed log directory could
                not be reported in time.
        """
        if self._state is BrokerState.SHUTTING_DOWN:
            # The node was stopped before this task ran for the first time.
            return
        self._enter(BrokerState.STARTING)
        await self._register()
        while self.state is not BrokerState.SHUTTING_DOWN:
            delay_ms = await self._heartbeat()
            self._check_reports()
            await self._waker.wait(delay_ms)

    async def controlled_shutdown(self) -> None:
        """Requests a controlled shutdown and waits for the controller's consent, up to a timeout (LIFE-3).

        For a broker that is not in service nothing depends on that. It only waits until it knows its epoch if a
        registration is on its way, because the next start needs that epoch (CS-5).
        """
        if self._config.rules("CS-5") and self.broker_epoch < 0:
            await self._is_answered.wait()
        if self.state is BrokerState.RUNNING:
            self._enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._hooks.on_leaving()
            loop = asyncio.get_running_loop()
            self._may_stop = loop.create_future()
            timer = loop.call_later(
                self._timings.controlled_shutdown_timeout_ms / 1000, self._allow_stop, "timeout"
            )
            self._waker.wake()
            try:
                await self._may_stop
            finally:
                timer.cancel()
        self._enter(BrokerState.SHUTTING_DOWN)
        self._waker.wake()

    def directory_failed(self, directory_id: UUID) -> None:
        """Reports a failed log directory with the next heartbeat, which is sent at once (DIR-1)."""
        # DIR-1: without the rule the controller leaves ISR and leadership as they are.
        if not self._config.rules("DIR-1"):
            return
        timeout_s = self._timings.log_dir_failure_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        self._offline_directories[directory_id] = loop.time() + timeout_s
        loop.call_later(timeout_s, self._waker.wake)
        self._waker.wake()

    def _check_reports(self) -> None:
        """Ends the broker if the controller was not told of a failed directory in time (DIR-1)."""
        # A comparison of sizes first: it is the only one of a broker whose directories are all online.
        if len(self._reported_directories) == len(self._offline_directories):
            return
        now_s = asyncio.get_running_loop().time()
        for directory_id, deadline_s in self._offline_directories.items():
            if directory_id not in self._reported_directories and now_s >= deadline_s:
                # The controller would leave leaderships here that nothing serves.
                raise BrokerExit(
                    f"broker {self._config.node_id} could not report the failure of log directory "
                    f"{directory_id} in time"
                )

    # --- registration --------------------------------------------------------------------------------

    async def _register(self) -> None:
        """Registers this incarnation; the controller assigns the broker epoch (LIFE-1)."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timings.initial_broker_registration_timeout_ms / 1000
        request = self._registration_request()
        last_refusal = "no controller responded"
        while True:
            if loop.time() >= deadline_s:
                raise BrokerExit(
                    f"broker {self._config.node_id} could not register in time: {last_refusal}"
                )
            response = await self._request(request)
            if response is None:
                await self._waker.wait(self._backoff_ms())
                continue
            error = ErrorCode(int(response.error_code))
            if error is ErrorCode.NONE:
                break
            last_refusal = error.name
            self._observer.mark("registration-refused", error=error.name)
            # DUPLICATE_BROKER_REGISTRATION is the usual error: the session of the previous incarnation has
            # to expire first (REG-1). Others may be temporary as well: a controller fail-over, a feature that
            # is about to be finalized. Like Kafka, the broker retries all of them until the timeout.
            await self._waker.wait(self._backoff_ms())
        self._failures = 0
        self.broker_epoch = int(response.broker_epoch)
        self._observer.mark("registered", broker_epoch=self.broker_epoch)

    def _registration_request(self) -> broker_registration_request.BrokerRegistrationRequest:
        address = self._config.advertised_address or self._config.address
        host, _, port = address.rpartition(":")
        return broker_registration_request.BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._config.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=(
                broker_registration_request.Listener(
                    name="PLAINTEXT",
                    host=host,
                    port=int(port),
                    security_protocol=SECURITY_PLAINTEXT,
                ),
            ),
            features=(
                broker_registration_request.Feature(
                    name="eligible.leader.replicas.version",
                    min_supported_version=0,
                    max_supported_version=1,
                ),
            ),
            rack=None,
            log_dirs=self._directory_ids,
            previous_broker_epoch=self._previous_broker_epoch,
        )

    # --- heartbeats ----------------------------------------------------------------------------------

    async def _heartbeat(self) -> float:
        """Sends one heartbeat and acts on the response; returns the delay until the next one."""
        request = broker_heartbeat_request.BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._hooks.metadata_offset(),
            want_fence=self.state is BrokerState.STARTING,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=tuple(self._offline_directories),
        )
        response = await self._request(request)
        if response is None:
            return self._backoff_ms()
        error = response.error_code
        if error == ErrorCode.STALE_BROKER_EPOCH:
            # The registration was committed before this broker learnt its epoch, so a controller that knows
            # another epoch knows a newer one: another process has registered under the same id.
            self._observer.mark("broker-superseded", broker_epoch=self.broker_epoch)
            raise BrokerExit(
                f"broker {self._config.node_id} with epoch {self.broker_epoch} was superseded "
                "by a newer incarnation"
            )
        if error != ErrorCode.NONE:
            return self._backoff_ms()
        self._failures = 0
        if request.offline_log_dirs:
            self._reported_directories = frozenset(request.offline_log_dirs)
        return self._next_step(response)

    def _next_step(self, response: broker_heartbeat_response.BrokerHeartbeatResponse) -> float:
        """Changes the state as the response allows; returns the delay until the next heartbeat."""
        timings = self._timings
        self.is_fenced = bool(response.is_fenced)
        if self.state is BrokerState.STARTING:
            if not response.is_caught_up:
                return timings.broker_startup_heartbeat_interval_ms
            self._enter(BrokerState.RECOVERY)
            # [LIFE-1] The broker's own registration is loaded, and with it every fencing and ISR change before it.
            self._hooks.on_caught_up()
            return 0
        if self.state is BrokerState.RECOVERY:
            if not self.is_fenced:
                self._enter(BrokerState.RUNNING)
                self._observer.mark("broker-unfenced", broker_epoch=self.broker_epoch)
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self._allow_stop("consent")
                return timings.broker_heartbeat_interval_ms
            self._shutdown_responses += 1
            if self._shutdown_responses == 1:
                # Leadership usually moves within milliseconds, so the first repetition comes sooner.
                return timings.controlled_shutdown_retry_ms
        return timings.broker_heartbeat_interval_ms

    async def _request(self, request: Any) -> Any:
        """Returns the active controller's response, None without a response in time.

        One attempt also finds a controller that has just changed, as in Kafka. The back-off between attempts
        may be as long as the session, so a second attempt could come too late for the broker to stay unfenced.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._request_timeout_ms / 1000
        while True:
            remaining_ms = (deadline_s - loop.time()) * 1000
            if remaining_ms <= 0:
                return None
            self._is_answered.clear()
            try:
                response = await self.channel.send(request, remaining_ms)
            except TimeoutError:
                return None
            except ConnectionError:
                response = None
            finally:
                self._is_answered.set()
            if response is not None and response.error_code != ErrorCode.NOT_CONTROLLER:
                return response
            await asyncio.sleep(self._timings.alter_partition_retry_ms / 1000)

    def _allow_stop(self, reason: str) -> None:
        if self._may_stop is not None and not self._may_stop.done():
            if reason != "consent":
                self._observer.mark("controlled-shutdown-timed-out")
            self._may_stop.set_result(None)

    def _backoff_ms(self) -> float:
        limit_ms = self._timings.broker_session_timeout_ms
        delay_ms: float = min(FIRST_BACKOFF_MS * 2 ** min(self._failures, 16), limit_ms)
        self._failures += 1
        return delay_ms * (1 - BACKOFF_JITTER + 2 * BACKOFF_JITTER * self._random.random())
