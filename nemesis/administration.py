"""Administrative actions as faults: the same in every world, because the cluster's system executes them.

A fault becomes an action (`harness.contracts.administration`), which the cluster requests. The nodes of the fault
are the broker that executed it; none if the request was refused, so that what did not happen counts for nothing.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from harness.contracts.administration import (
    Action,
    ActionOutcome,
    AlterConfig,
    AlterFeature,
    ElectLeader,
    MoveReplica,
    Reassign,
)
from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata, PartitionState
from harness.errors import UsageError
from nemesis.fault import Fault
from nemesis.faults import FAULTS, Group
from nemesis.mechanism import Moment
from nemesis.parameters import ELECTIONS

ACTIONS = tuple(name for name, row in FAULTS.items() if row.group is Group.ADMIN)
"""Names of the faults that are administrative actions."""

SEEN_LIMIT_MS = 10_000
"""How long it may take until committed metadata shows what an accepted action changed."""

UNCLEAN_ELECTIONS = "elects_uncleanly"
"""Key of the evidence: partitions whose unclean election was requested and not refused."""
UNCLEAN_ALLOWED = "allows_unclean"
"""Key of the evidence: partitions for which unclean elections are allowed from then on."""
RECONFIGURED = "reconfigures"
"""Key of the evidence: partitions whose min ISR, replicas or feature levels were changed."""
FOR_VERDICTS = (UNCLEAN_ELECTIONS, UNCLEAN_ALLOWED, RECONFIGURED)
"""What verdicts need to know of an action, all lists of partitions; columns of the table `faults` as well."""

MIN_ISR_KEY, UNCLEAN_KEY = "min.insync.replicas", "unclean.leader.election.enable"


class Administered(Protocol):
    """What is needed of the cluster."""

    @property
    def metadata(self) -> CommittedMetadata:
        """Committed metadata, kept up to date by the cluster."""
        ...

    def population(self) -> Population:
        """Returns all hosts, and which nodes are down."""
        ...

    async def administer(self, action: Action) -> ActionOutcome:
        """Requests an action; returns what became of it after a limited time."""
        ...


def action_of(fault: Fault, *, broker: int = -1, replicas: tuple[int, ...] = ()) -> Action:
    """Returns the action that a fault requests.

    Args:
        fault: One of `ACTIONS`.
        broker: The broker that it is for, if it is for one.
        replicas: The replicas of a reassignment that names none.

    Raises:
        UsageError: Its partition is not written as "topic-number".
    """
    if fault.fault == AlterConfig.name:
        return AlterConfig(
            topic=fault.params.get("topic", ""),
            broker=fault.params.get("broker"),
            key=fault.params["key"],
            value=_setting(fault.params.get("value")),
        )
    if fault.fault == AlterFeature.name:
        return AlterFeature(feature=fault.params["feature"], level=fault.params["level"])
    topic, _, number = fault.params["partition"].rpartition("-")
    if not topic or not number.isdecimal():
        raise UsageError(
            f"fault {fault.id}: partition must be a topic and a number, for example t-0, not "
            f"{fault.params['partition']!r}"
        )
    partition = int(number)
    if fault.fault == MoveReplica.name:
        return MoveReplica(topic=topic, partition=partition, broker=broker)
    if fault.fault == Reassign.name:
        chosen = tuple(fault.params.get("replicas", replicas))
        return Reassign(topic=topic, partition=partition, replicas=chosen)
    unclean = fault.value("election") == ELECTIONS[1]
    return ElectLeader(topic=topic, partition=partition, unclean=unclean)


async def inject_action(cluster: Administered, fault: Fault, nodes: tuple[str, ...]) -> Moment:
    """Requests what a fault is; returns once it is executed and visible, or certainly or probably will not be."""
    population = cluster.population()
    brokers = dict(population.brokers)
    targets = [brokers[name] for name in nodes if name in brokers]
    if fault.fault == MoveReplica.name and not targets:
        return Moment(nodes=(), facts={}, took_effect=False)
    done: list[Moment] = []
    for broker in targets or [-1]:
        action = action_of(fault, broker=broker, replicas=_next_replicas(cluster, fault))
        done.append(await _one(cluster, action))
    if len(done) == 1:
        return done[0]
    return Moment(
        nodes=tuple(name for one in done for name in one.nodes),
        facts={
            population.name_of(broker): dict(one.facts)
            for broker, one in zip(targets, done, strict=True)
        },
        took_effect=all(one.took_effect for one in done),
    )


async def _one(cluster: Administered, action: Action) -> Moment:
    view = cluster.metadata
    names = _partitions_of(action, view)
    before, offset = {name: view.partitions.get(name) for name in names}, view.offset
    outcome = await cluster.administer(action)
    is_seen = outcome.is_accepted
    if outcome.is_accepted:
        # A response may arrive before the metadata that it is about.
        is_seen = await view.comes_to(lambda: _shows(action, view, before, offset), SEEN_LIMIT_MS)
    facts: dict[str, Any] = dict(outcome.evidence)
    changed = {
        name: {"before": _state(old), "after": _state(view.partitions.get(name))}
        for name, old in before.items()
        if old != view.partitions.get(name)
    }
    if changed:
        facts["committed"] = changed
    may_have_happened = outcome.is_accepted or not outcome.is_known
    if may_have_happened:
        facts |= {key: names for key in _meanings(action)}
        if isinstance(action, ElectLeader) and action.unclean and not outcome.is_known:
            # Whether an election that follows was the operator's is then unknown, and so is the verdict.
            facts["error"] = (
                "the unclean election was requested, and no response says whether it took place"
            )
    who = (cluster.population().name_of(outcome.broker),) if outcome.broker is not None else ()
    return Moment(
        nodes=who if may_have_happened else (),
        facts=facts,
        took_effect=outcome.is_accepted and is_seen,
    )


def _meanings(action: Action) -> tuple[str, ...]:
    """Returns what an action means for verdicts, of `FOR_VERDICTS`."""
    if isinstance(action, ElectLeader):
        return (UNCLEAN_ELECTIONS,) if action.unclean else ()
    if isinstance(action, AlterConfig):
        if action.key == UNCLEAN_KEY and action.value != "false":
            return (UNCLEAN_ALLOWED,)
        return (RECONFIGURED,) if action.key == MIN_ISR_KEY else ()
    return (RECONFIGURED,) if isinstance(action, AlterFeature | Reassign) else ()


def _partitions_of(action: Action, view: CommittedMetadata) -> list[str]:
    """Returns the partitions that an action may change, as far as it names them."""
    if isinstance(action, AlterFeature) or (isinstance(action, AlterConfig) and not action.topic):
        return sorted(view.partitions)
    if isinstance(action, AlterConfig):
        return sorted(name for name, one in view.partitions.items() if one.topic == action.topic)
    return [f"{action.topic}-{action.partition}"]


def _shows(
    action: Action,
    view: CommittedMetadata,
    before: Mapping[str, PartitionState | None],
    offset: int,
) -> bool:
    """Whether committed metadata shows what an accepted action must change."""
    if isinstance(action, Reassign | ElectLeader):
        ((name, old),) = before.items()
        new = view.partitions.get(name)
        if old is None or new is None:
            return False
        if isinstance(action, ElectLeader):
            return new.leader >= 0 and new.leader_epoch > old.leader_epoch
        return new.replicas != old.replicas
    # A setting or a level is a record without a partition, and a directory is the broker's own matter.
    return isinstance(action, MoveReplica) or view.offset > offset


def _next_replicas(cluster: Administered, fault: Fault) -> tuple[int, ...]:
    """Returns the replicas of a reassignment that names none; () for other faults.

    The first broker leaves, the others move up, and the next broker that is no replica comes last; without one,
    the first becomes the last.
    """
    if fault.fault != Reassign.name:
        return ()
    state = cluster.metadata.partitions.get(fault.params["partition"])
    if state is None:
        return ()
    brokers = [node_id for _, node_id in cluster.population().brokers]
    spare = [node_id for node_id in brokers if node_id not in state.replicas]
    later = [node_id for node_id in spare if node_id > state.replicas[-1]]
    return (*state.replicas[1:], (later or spare or [state.replicas[0]])[0])


def _state(state: PartitionState | None) -> dict[str, Any]:
    """Returns a partition's state for the evidence."""
    if state is None:
        return {}
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "elr": list(state.elr),
        "replicas": list(state.replicas),
        "min_isr": state.min_isr,
    }


def _setting(value: Any) -> str | None:
    """Returns the value of a setting as Kafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
