"""What every kind of fault on hosts builds on: whom to ask, and what is in force."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.environments.real import HARNESS_HOST
from nemesis.adapter import InForce
from nemesis.faults import FAULTS

if TYPE_CHECKING:
    from harness.environments.hosts.cluster import HostCluster, HostNode

Inject = Callable[[tuple[str, ...], Mapping[str, Any], str], Awaitable[InForce]]
Follow = Callable[[InForce, str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """How one fault is done.

    Attributes:
        inject: Takes nodes, parameters (with the fault's name as "fault") and a token; returns when in force.
        heal: Removes what that added; None if there is nothing to remove but to start the nodes again.
        effect: Completes the evidence; None if it is complete when the fault is in force.
    """

    inject: Inject
    heal: Follow | None = None
    effect: Follow | None = None


def is_kept_down(name: str, in_force: Mapping[str, InForce]) -> bool:
    """Whether an outage is among what is in force on a node; healing that one starts it."""
    return any(
        name in other.nodes and FAULTS[other.token["fault"]].is_outage
        for other in in_force.values()
        if other.token
    )


class FaultKind:
    """Faults of one kind.

    Args:
        cluster: Whose nodes.
        in_force: All faults in force, by token; shared by all kinds.
    """

    def __init__(self, cluster: "HostCluster", in_force: dict[str, InForce]) -> None:
        self._cluster = cluster
        self._in_force = in_force

    def handlers(self) -> dict[str, Handler]:
        """Returns how each fault of this kind is done."""
        raise NotImplementedError

    def forget(self, name: str, token: str) -> None:
        """Forgets what is remembered of a node beside what is in force; for injections that failed half-way."""

    def _of(self, name: str) -> list[InForce]:
        """Returns what is in force on a node."""
        return [entry for entry in self._in_force.values() if name in entry.nodes and entry.token]

    def _excused_by(self, nodes: Iterable[str], fault: str, token: str) -> tuple[str, ...]:
        """Marks nodes as allowed to die of a fault; those that have it already are not hit again."""
        free = []
        for name in nodes:
            node = self._node(name)
            if fault not in node.excuses.values():
                node.excuses[token] = fault
                free.append(name)
        return tuple(free)

    def _alive(self, nodes: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in nodes if self._cluster.is_alive(name))

    async def _end(self, nodes: Iterable[str], how: str, limit_s: float = 15.0) -> dict[str, Any]:
        names = list(nodes)
        answers = await asyncio.gather(
            *(self._cluster.end_process(name, how, limit_s) for name in names)
        )
        return dict(zip(names, answers, strict=True))

    async def _ask(self, name: str, command: str, **arguments: Any) -> Any:
        return await self._node(name).agent.ask(command, node=name, **arguments)

    async def _each(self, nodes: Iterable[str], command: str, **arguments: Any) -> dict[str, Any]:
        names = list(nodes)
        answers = await asyncio.gather(*(self._ask(name, command, **arguments) for name in names))
        return dict(zip(names, answers, strict=True))

    async def _at(
        self,
        nodes: list[str],
        command: str,
        arguments: Callable[[list[str]], dict[str, Any]],
        *,
        whole: bool = False,
    ) -> Any:
        """Sends one command to every agent that has some of the nodes, at one instant."""
        by_agent: dict[int, list[str]] = {}
        for name in nodes:
            by_agent.setdefault(id(self._agent(name)), []).append(name)
        futures = [
            self._agent(names[0]).ask(command, **arguments(names)) for names in by_agent.values()
        ]
        answers = await asyncio.gather(*futures)
        if whole:
            return answers
        return {name: value for answer in answers for name, value in answer.items()}

    def _agent(self, name: str) -> Any:
        node = self._cluster.nodes.get(name)
        if node is not None:
            return node.agent
        return next(iter(self._cluster.nodes.values())).agent  # the one that sees clients' packets

    def _address(self, name: str) -> str:
        node = self._cluster.nodes.get(name)
        if node is not None:
            return node.address
        addresses = self._cluster.placement.client_addresses
        return addresses.get(name, addresses[HARNESS_HOST])

    def _node(self, name: str) -> "HostNode":
        return self._cluster.nodes[name]
