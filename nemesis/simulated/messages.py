"""Faults on single messages in the simulated world, by API and roles.

`harness.simulation.message_rules` does to a message what each fault says. Roles are those of committed metadata at
the arrival of each message.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import usage_errors_of
from harness.simulation.network import SimNetwork
from harness.simulation.network_faults import DUPLICATE, REFUSE, Concerns
from nemesis.fault import Fault
from nemesis.mechanism import Effect, Injection
from nemesis.message_rules import RULES, affected_nodes, check_message_fault
from nemesis.simulated.mechanism import Inject, SimulatedNodes
from nemesis.simulated.network import NS_PER_MS, RulesInForce
from nemesis.targets import CLIENT, check_role, kinds_of
from nemesis.trigger import Trigger
from system_under_test.protocol.apis import MESSAGE_NAMES
from system_under_test.protocol.errors import ErrorCode
from system_under_test.whole_refusals import WHOLLY_REFUSABLE, refusal


@dataclass(slots=True, kw_only=True)
class MessagesInForce:
    """A fault on messages. Mutable: which nodes it affected is known once it is healed.

    Attributes:
        rules: The rule, and the nodes that may send or receive its messages.
        is_over: Whether it was healed.
    """

    rules: RulesInForce
    is_over: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it affects; none if it is over and there was no such message."""
        has_acted = any(rule.dropped_or_stalled for rule in self.rules.rules)
        return () if self.is_over and not has_acted else self.rules.nodes

    async def heal(self) -> None:
        """Removes the rule."""
        await self.rules.heal()
        self.is_over = True

    async def effect(self) -> Effect:
        """Returns how many messages it affected; one is enough."""
        return await self.rules.effect()


class MessageFaults:
    """Holds, delays, drops, duplicates, reorders and refuses messages. Implements `Mechanism`.

    Args:
        nodes: The cluster whose messages these are.
    """

    def __init__(self, nodes: SimulatedNodes) -> None:
        self._nodes = nodes
        self._network: SimNetwork = nodes.world.network

    def injections(self) -> Mapping[str, Inject]:
        """Returns how each of its faults is injected."""
        return dict.fromkeys(RULES, self._inject)

    def settle(self) -> None:
        """Does nothing: the network faults remove all rules."""

    async def _inject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        pattern = fault.messages
        assert pattern is not None
        kind, counted_as = RULES[fault.fault]
        affected = affected_nodes(pattern, self._nodes.population(), self._nodes.metadata)
        rules = []
        if affected:
            error = ErrorCode[fault.value("error")] if kind == REFUSE else ErrorCode.NONE
            rule = self._network.intercept(
                kind,
                f"{fault.fault} {fault.params['messages']}",
                self._concerns(pattern, from_clients=kind != DUPLICATE),
                count=fault.value("count"),
                delay_ns=(fault.value("ms") or 0) * NS_PER_MS,
                refusal=lambda message: refusal(message, error),
            )
            rules.append(rule)
        in_force = RulesInForce(
            network=self._network, nodes=affected, rules=tuple(rules), counted_as=counted_as
        )
        return MessagesInForce(rules=in_force)

    def _concerns(self, pattern: Trigger, *, from_clients: bool) -> Concerns:
        wanted = pattern.message

        def concerns(source: str, target: str, message: str) -> bool:
            if message != wanted:
                return False
            population = self._nodes.population()
            if not from_clients and kinds_of(population)[source] == CLIENT:
                return False
            return pattern.is_between(
                source, target, population=population, metadata=self._nodes.metadata
            )

        return concerns


def check_messages(fault: Fault, nodes: SimulatedNodes) -> None:
    """Raises `UsageError` if a fault names messages or nodes that do not exist, or that it cannot be about."""
    pattern = fault.messages
    if pattern is None:
        return
    check_message_fault(fault, MESSAGE_NAMES, WHOLLY_REFUSABLE)
    with usage_errors_of(fault.place):
        for role in pattern.roles:
            check_role(role, nodes.population())
