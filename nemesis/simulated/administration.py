"""Administrative actions in the simulation: requests of the harness to the simulated brokers."""

from collections.abc import Mapping

from nemesis.administration import ACTIONS, Administered, inject_action
from nemesis.fault import Fault
from nemesis.mechanism import Injection
from nemesis.simulated.mechanism import Inject


class AdminFaults:
    """Implements `nemesis.simulated.mechanism.Mechanism`.

    Args:
        cluster: The cluster that is administered.
    """

    def __init__(self, cluster: Administered) -> None:
        self._cluster = cluster

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected, by the fault's name."""
        return dict.fromkeys(ACTIONS, self._request)

    def settle(self) -> None:
        """Does nothing: an action is over when it has happened."""

    async def _request(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        return await inject_action(self._cluster, fault, nodes)
