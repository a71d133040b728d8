"""All interfaces of a node on a real machine."""

import ipaddress
from collections.abc import Callable
from pathlib import Path

from system_under_test.real.clock import RealClock
from system_under_test.real.fault_point import FaultPoint
from system_under_test.real.limits import Limits
from system_under_test.real.message_log import MessageLog
from system_under_test.real.network import RealNetwork
from system_under_test.real.observer import EventLog, NoEvents, open_events
from system_under_test.real.randomness import EntropySource
from system_under_test.real.storage import RealStorage


class RealHost:
    """Implements `runtime.host.Host` for one process. Close it after the node has ended.

    Args:
        name: The node's name, for example "b1".
        data_dir: The node's data directory; it is locked.
        address: Address on which the node listens, "host:port".
        role: "broker" or "controller".
        clock: The node's clock; its event loop follows it too.
        limits: Limits of the listener.
        events_path: Path of the event log; None for no log.
        messages_path: Path of the message log; None for no log.
        fault_point_path: Path of the file of the fault point; None for no fault point.
        on_failure: Called when a handler raises an unexpected error.

    Raises:
        DirectoryInUseError: Another process uses the data directory.
        OSError: The directory or a log cannot be opened.
    """

    def __init__(
        self,
        name: str,
        *,
        data_dir: Path,
        address: str,
        role: str,
        clock: RealClock,
        limits: Limits,
        events_path: Path | None,
        messages_path: Path | None = None,
        fault_point_path: Path | None = None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.clock = clock
        self.random = EntropySource()
        self.storage = RealStorage(data_dir)
        self.observer: EventLog | NoEvents = open_events(events_path, name)
        self._messages = None if messages_path is None else MessageLog(messages_path)
        self.faults: FaultPoint | None = None
        if fault_point_path is not None:
            self.faults = FaultPoint(fault_point_path, name, self.observer.report)
            self.storage.on_fsync = self.faults.sync_began
        self.network = RealNetwork(
            address=address,
            role=role,
            client_id=name,
            limits=limits,
            mark=self.observer.mark,
            on_failure=on_failure,
            source=own_address(address),
            messages=self._messages,
            faults=self.faults,
        )

    def close(self) -> None:
        """Closes network, files and logs; idempotent."""
        self.network.close()
        self.storage.close()
        self.observer.close()
        if self._messages is not None:
            self._messages.close()


class ClientHost:
    """The interfaces of a host that only connects, for the clients of a workload. It has no disk.

    It negotiates versions, so that it also works with other systems that speak Kafka's protocol.

    Args:
        name: Client id of the requests.
        clock: None for a clock without skew.
        source: Address from which it connects; None lets the kernel choose.
        reads_end_before_records: Whether brokers take a response's high watermark before its records.
    """

    def __init__(
        self,
        name: str,
        clock: RealClock | None = None,
        *,
        source: str | None = None,
        reads_end_before_records: bool = False,
    ) -> None:
        self.name = name
        self.reads_end_before_records = reads_end_before_records
        self.clock = clock or RealClock()
        self.random = EntropySource()
        self.observer = NoEvents()
        self.network = RealNetwork(
            address=None,
            role=None,
            client_id=name,
            limits=Limits(),
            mark=self.observer.mark,
            on_failure=_raise,
            source=source,
            negotiates_versions=True,
        )

    @property
    def storage(self) -> RealStorage:
        """Raises `NotImplementedError`: a client has no disk."""
        raise NotImplementedError("a client host has no disk")

    def close(self) -> None:
        """Closes its connections."""
        self.network.close()


def own_address(listen: str) -> str | None:
    """Returns the address from which a node that listens on "host:port" connects; None if any is suitable."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None  # a name may stand for several addresses
    return None if address.is_unspecified or address.is_loopback else host


def _raise(error: BaseException) -> None:
    raise error
