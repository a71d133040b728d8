"""The interfaces between a node and the outside world: clock, network, storage, randomness, observer."""

from system_under_test.runtime.clock import Clock
from system_under_test.runtime.host import Host
from system_under_test.runtime.network import Connection, Handler, Network, RequestContext
from system_under_test.runtime.observer import Observer, SilentObserver
from system_under_test.runtime.random import RandomSource, RandomStream
from system_under_test.runtime.storage import Storage

__all__ = [
    "Clock",
    "Connection",
    "Handler",
    "Host",
    "Network",
    "Observer",
    "RandomSource",
    "RandomStream",
    "RequestContext",
    "SilentObserver",
    "Storage",
]
