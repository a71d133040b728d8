"""A broker's life as the controller sees it: registration, heartbeats, fencing, orderly stop (section 5).

One task does all the talking, so at most one registration or heartbeat is outstanding. What must happen at a
change of state (the first publish, the exit) is done by callbacks of the broker node; what must be known
(which metadata was applied) is asked from it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from system_under_test.broker.channel import Channel
from system_under_test.broker.tasks import Waker
from system_under_test.config import NodeConfig
from system_under_test.protocol.errors import ErrorCode
from system_under_test.protocol.messages import (
    broker_heartbeat_request,
    broker_heartbeat_response,
    broker_registration_request,
)
from system_under_test.runtime import Host

FIRST_BACKOFF_MS = 100
"""First delay after a failed registration or heartbeat, doubled up to the session timeout (5.1 step 4)."""
BACKOFF_JITTER = 0.02
SECURITY_PLAINTEXT = 0


class BrokerState(Enum):
    """Where a broker is in its life; names are Kafka's."""

    NOT_RUNNING = "not-running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending-controlled-shutdown"
    SHUTTING_DOWN = "shutting-down"


class BrokerExit(SystemExit):
    """The broker ends its own process: it was superseded, never registered, or lost its disk.

    A `SystemExit`, so that it leaves the event loop, and with it the process, from whatever task decides it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleHooks:
    """What the lifecycle asks of, and tells to, the broker node.

    Attributes:
        metadata_offset: Offset of the last metadata record that was applied, or loaded before the first publish.
        on_caught_up: The controller says that our registration is among what we loaded (step 6): publish.
        on_leaving: A controlled shutdown begins (LIFE-3 step 2).
    """

    metadata_offset: Callable[[], int]
    on_caught_up: Callable[[], None]
    on_leaving: Callable[[], None]


class BrokerLifecycle:
    """Registers the broker and keeps its session.

    Args:
        host: The node's doors.
        config: Identity and timings.
        channel: A channel to the active controller that nothing else uses (AP-2).
        directory_ids: Identifiers of the online log directories.
        previous_broker_epoch: The epoch in the clean-shutdown markers, -1 when absent (CS-2).
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
        self.state = BrokerState.NOT_RUNNING
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
        # Kept in memory only: a new process is a new incarnation (5.2).
        self.incarnation_id = UUID(int=self._random.getrandbits(128), version=4)
        self._waker = Waker()
        self._failures = 0
        self._request_timeout_ms = config.timings.broker_session_timeout_ms / 2
        self._shutdown_answers = 0
        self._may_stop: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Registers, then heartbeats until cancelled.

        Raises:
            BrokerExit: Not registered in time, or superseded by a newer incarnation.
        """
        self.state = BrokerState.STARTING
        await self._register()
        while self.state is not BrokerState.SHUTTING_DOWN:
            delay_ms = await self._heartbeat()
            await self._waker.wait(delay_ms)

    async def controlled_shutdown(self) -> None:
        """[LIFE-3] step 1: asks to leave and waits for the controller's consent, within its time.

        Returns at once for a broker that is not in service: nobody depends on it.
        """
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
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
        self.state = BrokerState.SHUTTING_DOWN
        self._waker.wake()

    # --- registration --------------------------------------------------------------------------------

    async def _register(self) -> None:
        """[LIFE-1] steps 4 and 5."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timings.initial_broker_registration_timeout_ms / 1000
        request = self._registration_request()
        last_refusal = "no controller answered"
        while True:
            if loop.time() >= deadline_s:
                raise BrokerExit(
                    f"broker {self._config.node_id} could not register in time: {last_refusal}"
                )
            response = await self._ask(request)
            if response is None:
                await self._waker.wait(self._backoff_ms())
                continue
            error = ErrorCode(int(response.error_code))
            if error is ErrorCode.NONE:
                break
            last_refusal = error.name
            self._observer.mark("registration-refused", error=error.name)
            # DUPLICATE_BROKER_REGISTRATION is the usual one: the session of the incarnation before us
            # has to expire first (REG-1). Others may pass, too: a controller that failed over, a feature
            # that is about to be finalized. Kafka retries them all until its time is up.
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
        """Sends one heartbeat and acts on the answer; returns the delay until the next one."""
        request = broker_heartbeat_request.BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._hooks.metadata_offset(),
            want_fence=self.state is BrokerState.STARTING,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        )
        response = await self._ask(request)
        if response is None:
            return self._backoff_ms()
        error = response.error_code
        if error == ErrorCode.STALE_BROKER_EPOCH:
            # The registration was committed before we learnt our epoch, so a controller that knows
            # another one knows a newer one (5.3): somebody runs under our id.
            self._observer.mark("broker-superseded", broker_epoch=self.broker_epoch)
            raise BrokerExit(
                f"broker {self._config.node_id} with epoch {self.broker_epoch} was superseded "
                "by a newer incarnation"
            )
        if error != ErrorCode.NONE:
            return self._backoff_ms()
        self._failures = 0
        return self._next_step(response)

    def _next_step(self, response: broker_heartbeat_response.BrokerHeartbeatResponse) -> float:
        """Moves through the states of 5.1 and 5.4; returns the delay until the next heartbeat."""
        timings = self._timings
        self.is_fenced = bool(response.is_fenced)
        if self.state is BrokerState.STARTING:
            if not response.is_caught_up:
                return timings.broker_startup_heartbeat_interval_ms
            self.state = BrokerState.RECOVERY
            self._hooks.on_caught_up()  # [LIFE-1] steps 6 and 7
            return 0
        if self.state is BrokerState.RECOVERY:
            if not self.is_fenced:
                self.state = BrokerState.RUNNING  # step 8
                self._observer.mark("broker-unfenced", broker_epoch=self.broker_epoch)
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self._allow_stop("consent")
                return timings.broker_heartbeat_interval_ms
            self._shutdown_answers += 1
            if self._shutdown_answers == 1:
                # Leadership usually moves within milliseconds; ask again sooner than usual, once.
                return timings.controlled_shutdown_retry_ms
        return timings.broker_heartbeat_interval_ms

    async def _ask(self, request: Any) -> Any:
        """Returns the active controller's answer, None when there is none in time.

        A controller that just changed is found within this one attempt, as in Kafka, whose back-off between
        attempts may be as long as the session and would cost the broker its place.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._request_timeout_ms / 1000
        while True:
            remaining_ms = (deadline_s - loop.time()) * 1000
            if remaining_ms <= 0:
                return None
            try:
                response = await self.channel.send(request, remaining_ms)
            except TimeoutError:
                return None
            except ConnectionError:
                response = None
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
