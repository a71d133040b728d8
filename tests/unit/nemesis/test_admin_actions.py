"""Administrative actions as faults: what is requested, what the evidence says, what reaches the table faults."""

import asyncio
import json
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

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
from harness.history.schema import FAULTS
from nemesis import administration
from nemesis.administration import action_of, inject_action
from nemesis.driver import Nemesis
from nemesis.fault import Fault
from nemesis.mechanism import Injection

T0 = PartitionState(
    topic="t", partition=0, replicas=(1, 2, 3), leader=-1, leader_epoch=4, partition_epoch=7, isr=()
)
ACCEPTED = ActionOutcome(broker=2, is_accepted=True, evidence={"codes": {"t-0": "NONE"}})
REFUSED = ActionOutcome(broker=2, is_accepted=False, evidence={"codes": {"t-0": "NOT_NEEDED"}})
UNKNOWN = ActionOutcome(broker=2, is_accepted=False, is_known=False)
ELECTED: dict[str, Any] = {"leader": 1, "leader_epoch": 5, "isr": (1,)}


class Cluster:
    """A cluster of four brokers that answers every action with one outcome, and then commits a change."""

    def __init__(self, outcome: ActionOutcome, **change: Any) -> None:
        self.metadata = CommittedMetadata(partitions={"t-0": T0})
        self.outcome = outcome
        self.change = change
        self.requested: list[Action] = []
        self.supported_faults = frozenset(administration.ACTIONS)

    def population(self) -> Population:
        return Population(
            brokers=tuple((f"b{number}", number) for number in (1, 2, 3, 4)), controllers=()
        )

    def now_ns(self) -> int:
        return 5

    async def administer(self, action: Action) -> ActionOutcome:
        self.requested.append(action)
        asyncio.get_running_loop().call_soon(self._commit)
        return self.outcome

    def _commit(self) -> None:
        if self.change:
            self.metadata.partitions["t-0"] = replace(
                self.metadata.partitions["t-0"], **self.change
            )
            self.metadata.offset += 1
            self.metadata.changed()

    async def inject(self, fault: Fault, nodes: tuple[str, ...]) -> Injection:
        return await inject_action(self, fault, nodes)


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "SEEN_LIMIT_MS", 50)


def fault(name: str, *targets: str, **params: Any) -> Fault:
    return Fault(id="f0", fault=name, targets=targets, params=params)


UNCLEAN = fault("elect_leader", partition="t-0", election="unclean")


def row_of(cluster: Cluster, made: Fault) -> dict[str, Any]:
    """Injects a fault through the nemesis and returns its row of the table faults."""
    rows: list[tuple[Any, ...]] = []
    nemesis = Nemesis(cluster, cluster, rows.append, Random(1))  # type: ignore[arg-type]
    asyncio.run(nemesis.inject(made))
    (row,) = rows
    columns = dict(zip(FAULTS.names, row, strict=True))
    found: dict[str, Any] = pa.Table.from_pylist([columns], schema=FAULTS).to_pylist()[0]
    return found


@pytest.mark.parametrize(
    ("made", "action"),
    [
        (
            fault("alter_config", topic="t", key="k", value=1),
            AlterConfig(topic="t", key="k", value="1"),
        ),
        (
            fault("alter_config", broker=2, key="k", value=True),
            AlterConfig(broker=2, key="k", value="true"),
        ),
        (fault("alter_config", key="k"), AlterConfig(key="k", value=None)),
        (fault("alter_feature", feature="f", level=2), AlterFeature(feature="f", level=2)),
        (
            fault("reassign", partition="a-b-12", replicas=[3, 1]),
            Reassign(topic="a-b", partition=12, replicas=(3, 1)),
        ),
        (UNCLEAN, ElectLeader(topic="t", partition=0, unclean=True)),
        (
            fault("elect_leader", partition="t-0"),
            ElectLeader(topic="t", partition=0, unclean=False),
        ),
    ],
)
def test_a_fault_is_the_action_that_it_names(made: Fault, action: Action) -> None:
    assert action_of(made) == action
    assert action.name == made.fault


@pytest.mark.parametrize("partition", ["t", "t-", "-0", "t-x"])
def test_a_partition_is_a_topic_and_a_number(partition: str) -> None:
    with pytest.raises(UsageError, match="partition must be a topic and a number"):
        action_of(fault("reassign", partition=partition))


def test_an_unclean_election_that_took_place_is_recorded_with_its_partition() -> None:
    row = row_of(Cluster(ACCEPTED, **ELECTED), UNCLEAN)
    assert (row["elects_uncleanly"], row["resolved"], row["took_effect"]) == (["t-0"], ["b2"], True)
    change = json.loads(row["evidence"])["committed"]["t-0"]
    assert (change["before"]["leader"], change["after"]["leader"]) == (-1, 1)
    assert not row["failed"]


def test_an_accepted_election_that_metadata_do_not_show_took_no_effect_and_still_excuses() -> None:
    row = row_of(Cluster(ACCEPTED), UNCLEAN)
    assert (row["elects_uncleanly"], row["took_effect"]) == (["t-0"], False)


def test_a_refused_election_excuses_nothing_and_does_not_count() -> None:
    row = row_of(Cluster(REFUSED, **ELECTED), UNCLEAN)
    assert (row["elects_uncleanly"], row["resolved"], row["took_effect"]) == ([], [], False)
    assert not row["failed"]


def test_an_election_without_a_response_may_excuse_and_makes_the_verdict_unknown() -> None:
    row = row_of(Cluster(UNKNOWN, **ELECTED), UNCLEAN)
    assert (row["elects_uncleanly"], row["failed"], row["took_effect"]) == (["t-0"], True, False)


@pytest.mark.parametrize("outcome", [ACCEPTED, UNKNOWN])
def test_a_preferred_election_excuses_nothing(outcome: ActionOutcome) -> None:
    row = row_of(Cluster(outcome, **ELECTED), fault("elect_leader", partition="t-0"))
    assert (row["elects_uncleanly"], row["failed"]) == ([], False)


def test_another_action_without_a_response_is_no_failure_of_the_environment() -> None:
    row = row_of(Cluster(UNKNOWN), fault("alter_config", topic="t", key="k", value=1))
    assert (row["resolved"], row["took_effect"], row["failed"]) == (["b2"], False, False)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [((1, 2, 3), (2, 3, 4)), ((2, 3, 4), (3, 4, 1)), ((3, 1, 4, 2), (1, 4, 2, 3)), ((4,), (1,))],
)
def test_a_reassignment_without_replicas_moves_the_first_one(
    replicas: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    cluster = Cluster(ACCEPTED, replicas=expected)
    cluster.metadata.partitions["t-0"] = replace(T0, replicas=replicas)
    row = row_of(cluster, fault("reassign", partition="t-0"))
    assert cluster.requested == [Reassign(topic="t", partition=0, replicas=expected)]
    assert row["took_effect"]


def test_a_reassignment_to_the_present_replicas_takes_no_effect() -> None:
    made = fault("reassign", partition="t-0", replicas=[1, 2, 3])
    assert not row_of(Cluster(ACCEPTED, isr=(1,)), made)["took_effect"]


def test_a_replica_is_moved_on_every_broker_that_is_named() -> None:
    cluster = Cluster(ACCEPTED)
    row = row_of(cluster, fault("move_replica", "b1", "b3", partition="t-0"))
    assert cluster.requested == [
        MoveReplica(topic="t", partition=0, broker=number) for number in (1, 3)
    ]
    assert set(json.loads(row["evidence"])) == {"b1", "b3"}
    assert row["took_effect"]


def test_without_a_broker_nothing_is_moved() -> None:
    cluster = Cluster(ACCEPTED)
    made = fault("move_replica", "leader:t-0", partition="t-0")
    row = row_of(cluster, made)
    assert (cluster.requested, row["resolved"], row["took_effect"]) == ([], [], False)


def test_what_an_altered_setting_changes_is_in_the_evidence() -> None:
    cluster = Cluster(ACCEPTED, min_isr=2, partition_epoch=8)
    row = row_of(cluster, fault("alter_config", topic="t", key="min.insync.replicas", value=2))
    assert row["took_effect"]
    assert json.loads(row["evidence"])["committed"]["t-0"]["after"]["min_isr"] == 2


@pytest.mark.parametrize(
    ("made", "column"),
    [
        (fault("alter_config", topic="t", key="min.insync.replicas", value=2), "reconfigures"),
        (fault("alter_config", key="min.insync.replicas"), "reconfigures"),
        (fault("alter_feature", feature="f", level=0), "reconfigures"),
        (fault("reassign", partition="t-0", replicas=[3]), "reconfigures"),
        (
            fault("alter_config", topic="t", key="unclean.leader.election.enable", value=True),
            "allows_unclean",
        ),
        (fault("alter_config", topic="t", key="unclean.leader.election.enable"), "allows_unclean"),
        (
            fault("alter_config", topic="t", key="unclean.leader.election.enable", value=False),
            "",
        ),
        (fault("alter_config", topic="t", key="retention.ms", value=9), ""),
        (fault("move_replica", "b1", partition="t-0"), ""),
        (UNCLEAN, "elects_uncleanly"),
    ],
)
def test_verdicts_learn_what_an_action_changed(made: Fault, column: str) -> None:
    for outcome, happened in ((ACCEPTED, True), (UNKNOWN, True), (REFUSED, False)):
        row = row_of(Cluster(outcome), made)
        found = {name: row[name] for name in administration.FOR_VERDICTS}
        assert found == {
            name: ["t-0"] if happened and name == column else []
            for name in administration.FOR_VERDICTS
        }
