"""Selectors: the nodes that a fault is for, by name, by role or by state.

A selector is resolved against committed metadata at the moment of injection, so a schedule written before the
run can aim at "the leader of t-0" without knowing which node that will be. The nodes it resolves to are recorded.

| selector                    | nodes                                                         |
|-----------------------------|---------------------------------------------------------------|
| `b1`, `c11`, `client-0`     | that node                                                     |
| `leader:t-0`                | the partition's leader; none while it has none                |
| `leader_or_replica:t-0`     | the leader; while there is none, one replica (seeded choice)  |
| `follower:t-0`              | one replica that is not the leader (seeded choice)            |
| `followers:t-0`             | all replicas that are not the leader                          |
| `isr_member:t-0`            | one member of the ISR (seeded choice)                         |
| `isr_follower:t-0`          | one member of the ISR that is not the leader (seeded choice)  |
| `last_in_isr:t-0`           | the only member of the ISR; none while there are more         |
| `elr_member:t-0`            | one eligible leader replica (seeded choice)                   |
| `last_known_leader:t-0`     | the last-known leader                                         |
| `active_controller`         | the quorum leader                                             |
| `one`, `minority`, `majority`, `all` | that many brokers (seeded choice)                    |
| `one_controller`            | one controller (seeded choice)                                |
| `majority_controllers`      | a majority of the controllers (seeded choice)                 |
| `controllers`               | all controllers                                               |
| `down`                      | all nodes that are down                                       |

A choice of one prefers nodes that are up.

`leader`, `follower` ... without a partition mean the first partition of the run.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from harness.contracts.cluster import HARNESS_HOST, Population
from harness.contracts.metadata import CommittedMetadata, PartitionState
from harness.errors import UsageError
from harness.names import unknown_name

BROKER, CONTROLLER, CLIENT = "broker", "controller", "client"

OF_CONTROLLERS = ("active_controller", "one_controller", "majority_controllers", "controllers")
"""The selectors that mean controllers."""


def kinds_of(population: Population) -> dict[str, str]:
    """Returns every host and its kind: brokers, controllers, clients, and the host of the harness."""
    return {
        **{name: BROKER for name, _ in population.brokers},
        **{name: CONTROLLER for name, _ in population.controllers},
        **dict.fromkeys(population.clients, CLIENT),
        HARNESS_HOST: CLIENT,
    }


class Chooser(Protocol):
    """The part of a random stream that selectors use."""

    def random(self) -> float:
        """Returns a float in [0, 1)."""
        ...


def _leader(state: PartitionState) -> Sequence[int]:
    return [state.leader] if state.leader >= 0 else []


def _followers(state: PartitionState) -> Sequence[int]:
    return [broker for broker in state.replicas if broker != state.leader]


def _leader_or_replicas(state: PartitionState) -> Sequence[int]:
    return _leader(state) or state.replicas


def _last_in_isr(state: PartitionState) -> Sequence[int]:
    return state.isr if len(state.isr) == 1 else []


_BY_STATE: dict[str, tuple[Callable[[PartitionState], Sequence[int]], bool]] = {
    "leader": (_leader, False),
    "leader_or_replica": (_leader_or_replicas, True),
    "follower": (_followers, True),
    "followers": (_followers, False),
    "isr_member": (lambda state: sorted(state.isr), True),
    "isr_follower": (lambda state: sorted(set(state.isr) - {state.leader}), True),
    "last_in_isr": (_last_in_isr, False),
    "elr_member": (lambda state: sorted(state.elr), True),
    "last_known_leader": (lambda state: state.last_known_elr, False),
}
_BY_COUNT: dict[str, Callable[[int], int]] = {
    "one": lambda n: 1,
    "minority": lambda n: (n - 1) // 2,
    "majority": lambda n: n // 2 + 1,
    "all": lambda n: n,
}
SELECTORS = (
    *_BY_STATE,
    *_BY_COUNT,
    *(*OF_CONTROLLERS, "down"),
)


def check_selector(selector: str, population: Population) -> None:
    """Raises `UsageError` if a selector can never resolve in this population."""
    name, _, _ = selector.partition(":")
    nodes = [node for node, _ in (*population.brokers, *population.controllers)]
    nodes.extend(population.clients)
    if name not in SELECTORS and selector not in nodes:
        raise UsageError(unknown_name("node or selector", selector, [*nodes, *SELECTORS]))


def resolve(
    selector: str,
    population: Population,
    metadata: CommittedMetadata,
    chooser: Chooser,
    taken: Collection[str] = (),
) -> tuple[str, ...]:
    """Returns the names of the nodes that a selector means now; may be empty.

    A choice of one replica is one that is not `taken`, if there is another.

    Raises:
        UsageError: The selector names nothing that exists in this cluster.
    """
    check_selector(selector, population)
    name, _, partition = selector.partition(":")
    if name in _BY_STATE:
        return _resolve_state(name, partition, population, metadata, chooser, taken)
    if name in _BY_COUNT:
        brokers = [broker for broker, _ in population.brokers]
        count = _BY_COUNT[name](len(brokers))
        return _sample(
            _preferably_up(brokers, population) if count == 1 else brokers, count, chooser
        )
    if name == "active_controller":
        return tuple(n for n, i in population.controllers if i == metadata.active_controller)
    if name == "one_controller":
        return _sample([controller for controller, _ in population.controllers], 1, chooser)
    if name == "majority_controllers":
        controllers = [controller for controller, _ in population.controllers]
        return _sample(controllers, _BY_COUNT["majority"](len(controllers)), chooser)
    if name == "controllers":
        return tuple(controller for controller, _ in population.controllers)
    if name == "down":
        return population.down
    return (selector,)


def resolve_all(
    selectors: Sequence[str],
    population: Population,
    metadata: CommittedMetadata,
    chooser: Chooser,
) -> tuple[str, ...]:
    """Resolves several selectors; every node once, in order of first mention."""
    names: dict[str, None] = {}
    for selector in selectors:
        for name in resolve(selector, population, metadata, chooser, names):
            names[name] = None
    return tuple(names)


def _resolve_state(
    name: str,
    partition: str,
    population: Population,
    metadata: CommittedMetadata,
    chooser: Chooser,
    taken: Collection[str],
) -> tuple[str, ...]:
    if not metadata.partitions:
        return ()
    if partition and partition not in metadata.partitions:
        raise UsageError(unknown_name("partition", partition, sorted(metadata.partitions)))
    state = metadata.partitions[partition or min(metadata.partitions)]
    candidates, choose_one = _BY_STATE[name]
    names = [population.name_of(broker) for broker in candidates(state)]
    if choose_one:
        names = [one for one in names if one not in taken] or names
        return _sample(_preferably_up(names, population), 1, chooser)
    return tuple(names)


def _preferably_up(names: list[str], population: Population) -> list[str]:
    """Returns those that are up, if any: most faults can have no effect on a node that is down."""
    return [name for name in names if name not in population.down] or names


ROLES = (
    *("broker", "controller", "client", "active_controller"),
    *("leader", "follower", "isr_member", "isr_follower", "last_in_isr", "elr_member"),
    "last_known_leader",
)
"""What a node can be besides its name, for what happens at it. Nothing is chosen: each node has a role or not."""


def check_role(role: str, population: Population) -> None:
    """Raises `UsageError` if no node of this population can have a role, or has that name."""
    name, _, partition = role.partition(":")
    kinds = kinds_of(population)
    if role in kinds or (name in ROLES and (name in _BY_STATE or not partition)):
        return
    raise UsageError(unknown_name("node or role", role, [*kinds, *ROLES]))


def kind_of_role(role: str, population: Population) -> str:
    """Returns which kind of node can have a role that `check_role` accepts, or has that name."""
    kinds = kinds_of(population)
    if role in kinds:
        return kinds[role]
    name = role.partition(":")[0]
    if name in (BROKER, CONTROLLER, CLIENT):
        return name
    return CONTROLLER if name == "active_controller" else BROKER


def has_role(node: str, role: str, population: Population, metadata: CommittedMetadata) -> bool:
    """Whether a node has a role now, or is the node of that name."""
    if node == role:
        return True
    name, _, partition = role.partition(":")
    if name in (BROKER, CONTROLLER, CLIENT):
        return kinds_of(population)[node] == name
    if name == "active_controller":
        return (node, metadata.active_controller) in population.controllers
    state = metadata.partitions.get(partition or min(metadata.partitions, default=""))
    if name not in _BY_STATE or state is None:
        return False
    return any((node, one) in population.brokers for one in _BY_STATE[name][0](state))


def _sample(names: Sequence[str], count: int, chooser: Chooser) -> tuple[str, ...]:
    remaining = list(names)
    chosen: list[str] = []
    while remaining and len(chosen) < count:
        chosen.append(remaining.pop(int(chooser.random() * len(remaining))))
    return tuple(sorted(chosen))
