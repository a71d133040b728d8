"""Everything that injects faults in the simulated world, in one object."""

from nemesis.fault import Fault
from nemesis.mechanism import Injection
from nemesis.simulated.administration import AdminFaults
from nemesis.simulated.clocks import ClockFaults
from nemesis.simulated.disks import DiskFaults
from nemesis.simulated.mechanism import Inject, Mechanism, SimulatedNodes
from nemesis.simulated.messages import MessageFaults, check_messages
from nemesis.simulated.metadata import MetadataFaults
from nemesis.simulated.network import NetworkFaults
from nemesis.simulated.processes import ProcessFaults


class SimulatedInjector:
    """Implements `nemesis.mechanism.Injector`.

    Args:
        nodes: The cluster whose faults are injected.
    """

    def __init__(self, nodes: SimulatedNodes) -> None:
        world = nodes.world
        self._nodes = nodes
        processes = ProcessFaults(world, nodes.log_ends)
        self._mechanisms: tuple[Mechanism, ...] = (
            NetworkFaults(world.network, nodes.population),
            processes,
            ClockFaults(world),
            DiskFaults(world, processes.count_pauses),
            AdminFaults(nodes),
            MessageFaults(nodes),
            MetadataFaults(nodes),
        )
        self._injections: dict[str, Inject] = {}
        for mechanism in self._mechanisms:
            self._injections |= mechanism.injections()

    @property
    def supported_faults(self) -> frozenset[str]:
        """Names of the faults that can be injected."""
        return frozenset(self._injections)

    def check(self, fault: Fault) -> None:
        """Raises `UsageError` if a fault is about messages that do not exist, or that it cannot be about."""
        check_messages(fault, self._nodes)

    async def inject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        """Injects a fault; returns when it is in force on all nodes that it can affect."""
        return await self._injections[fault.fault](fault, nodes)

    async def settle(self) -> None:
        """Removes whatever is still wrong, of all injections."""
        for mechanism in self._mechanisms:
            mechanism.settle()
