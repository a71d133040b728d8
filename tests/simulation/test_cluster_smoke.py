"""Whole clusters in the simulated world: the stories that every broker must survive."""

import pytest
from cluster_story import Cluster

from harness.simulation.randomness import RandomTree
from harness.simulation.weather import draw_weather
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules
from tests.simulation.network_helpers import around, between, on_planes

VALUES = tuple(b"value-%d" % number for number in range(10))


def test_acknowledged_records_are_on_every_replica_and_are_read_back() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    assert cluster.produce(*VALUES) == [0] * 10
    assert cluster.read_all() == list(VALUES)
    cluster.run_for(0.2)
    assert cluster.log_of(1) == cluster.log_of(2) == cluster.log_of(3) != b""


def test_metadata_names_the_leader_and_the_address_of_every_broker() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.run_for(0.5)
    response = cluster.metadata(2)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (1, "b1", 9092),
        (2, "b2", 9092),
        (3, "b3", 9092),
    ]
    (partition,) = response.topics[0].partitions
    assert (partition.leader_id, partition.isr_nodes) == (1, (1, 2, 3))
    assert response.controller_id == 2


def test_an_isolated_follower_leaves_the_isr_and_comes_back_when_it_has_caught_up() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:3])
    token = cluster.world.network.stall("isolate", around(cluster.world, "b3"))
    cluster.await_isr(1, 2)
    assert cluster.produce(*VALUES[3:6]) == [0] * 3
    cluster.world.network.heal(token)
    cluster.await_isr(1, 2, 3)
    assert cluster.produce(*VALUES[6:]) == [0] * 4
    cluster.run_for(0.2)
    assert cluster.read_all() == list(VALUES)
    assert cluster.log_of(3) == cluster.log_of(1)


def test_a_follower_that_only_lags_is_taken_out_by_the_leader() -> None:
    """Heartbeats continue, replication does not: the AlterPartition path, shrink and expand."""
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:3])
    token = cluster.world.network.stall(
        "cut", on_planes(cluster.world, {"inter-broker"}, between("b1", "b3"))
    )
    # A follower that has everything is caught up however long it is silent; so there must be more to have.
    assert cluster.produce(VALUES[3], acks=1) == [0]
    cluster.await_isr(1, 2)
    assert not cluster.registration(3).fenced
    assert cluster.marks("isr-shrink-proposed")
    assert cluster.produce(*VALUES[4:6]) == [0] * 2
    cluster.world.network.heal(token)
    cluster.await_isr(1, 2, 3)
    assert cluster.marks("isr-expand-proposed")
    assert cluster.read_all() == list(VALUES[:6])


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:5])
    cluster.node(1).kill()
    cluster.await_partition(lambda partition: partition.leader in (2, 3))
    cluster.produce_eventually(*VALUES[5:])
    assert cluster.read_all() == list(VALUES)
    cluster.node(1).start()
    cluster.await_isr(1, 2, 3)
    cluster.run_for(0.2)
    assert cluster.log_of(1) == cluster.log_of(2) == cluster.log_of(3)


def test_a_controlled_shutdown_moves_leadership_first_and_registers_cleanly_afterwards() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:5])
    epoch = cluster.registration(1).broker_epoch
    cluster.node(1).stop(grace_ms=30_000)
    cluster.run_until(lambda: cluster.node(1).state == "dead")
    assert cluster.leader() in (2, 3)
    assert cluster.registration(1).fenced
    cluster.produce_eventually(*VALUES[5:])
    cluster.node(1).start()
    cluster.await_isr(1, 2, 3)
    assert cluster.registration(1).broker_epoch > epoch
    assert [mark["broker_id"] for mark in cluster.marks("clean-registration")] == [1]
    assert cluster.read_all() == list(VALUES)


def test_a_power_cut_makes_the_next_registration_unclean_and_the_log_is_copied_again() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:5])
    before = len(cluster.marks("unclean-registration"))
    report = cluster.node(3).power_off("lose_all")
    assert report is not None
    cluster.await_isr(1, 2)
    cluster.produce_eventually(*VALUES[5:])
    cluster.node(3).start()
    cluster.await_isr(1, 2, 3)
    assert len(cluster.marks("unclean-registration")) == before + 1
    cluster.run_for(0.2)
    assert cluster.log_of(3) == cluster.log_of(1) != b""
    assert cluster.read_all() == list(VALUES)


def test_the_cluster_survives_the_loss_of_its_active_controller() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:5])
    old = cluster.active_controller()
    name = next(
        f"c{n}" for n in (11, 12, 13) if cluster.world.nodes[f"c{n}"].process.controller is old
    )
    cluster.world.nodes[name].kill()
    cluster.run_until(lambda: cluster.active_controller() is not None)
    assert cluster.produce(*VALUES[5:]) == [0] * 5
    cluster.node(1).kill()
    cluster.await_partition(lambda partition: partition.leader in (2, 3))
    cluster.world.nodes[name].start()
    cluster.node(1).start()
    cluster.await_isr(1, 2, 3)
    assert cluster.read_all() == list(VALUES)


def test_an_isolated_leader_acknowledges_nothing_that_its_successor_lacks() -> None:
    cluster = Cluster().start()
    cluster.create_topic()
    cluster.produce(*VALUES[:3])
    pairs = on_planes(cluster.world, {"inter-broker", "controller"}, around(cluster.world, "b1"))
    token = cluster.world.network.stall("isolate", pairs)
    # The client still reaches the old leader, which cannot commit.
    with_old_leader = cluster.do(cluster._produce(1, b"only on 1", -1))
    assert with_old_leader != 0
    cluster.await_partition(lambda partition: partition.leader in (2, 3))
    cluster.produce_eventually(*VALUES[3:])
    cluster.world.network.heal(token)
    cluster.await_isr(1, 2, 3)
    cluster.run_for(0.2)
    assert cluster.read_all() == list(VALUES)
    assert cluster.log_of(1) == cluster.log_of(2)
    assert cluster.marks("truncated")


@pytest.mark.parametrize("profile", ["kafka-3.4", "kafka-3.6", "kafka-3.9", "kafka-4.0"])
def test_every_profile_replicates_and_fails_over(profile: str) -> None:
    cluster = Cluster(profile=profile).start()
    cluster.create_topic()
    cluster.produce(*VALUES[:5])
    cluster.node(1).kill()
    cluster.await_partition(lambda partition: partition.leader in (2, 3))
    cluster.produce_eventually(*VALUES[5:])
    cluster.node(1).start()
    cluster.await_isr(1, 2, 3)
    assert cluster.read_all() == list(VALUES)


def test_every_message_of_a_scenario_survives_the_codec() -> None:
    cluster = Cluster(sim_wire=True).start()
    cluster.create_topic(min_isr=1)
    assert cluster.produce(*VALUES) == [0] * 10
    cluster.node(1).stop(grace_ms=30_000)
    cluster.run_until(lambda: cluster.node(1).state == "dead")
    cluster.node(1).start()
    cluster.await_isr(1, 2, 3)
    assert cluster.read_all() == list(VALUES)


@pytest.mark.parametrize("disabled", [(), ("LIFE-1",)])
def test_a_restarted_broker_leads_nothing_because_of_old_metadata(
    disabled: tuple[str, ...],
) -> None:
    """LIFE-1 steps 6 and 7: without them a broker that was deposed meanwhile leads again in its old epoch."""
    cluster = Cluster(rules=Rules(disabled)).start()
    cluster.create_topic()
    cluster.produce(*VALUES[:3])
    cluster.run_for(0.5)
    cluster.node(1).kill()
    cluster.await_partition(lambda partition: partition.leader in (2, 3))
    pairs = on_planes(cluster.world, {"controller"}, around(cluster.world, "b1"))
    cluster.world.network.stall("isolate", pairs)
    cluster.node(1).start()
    cluster.run_for(1)
    error = cluster.do(cluster._produce(1, b"from the past", 1))
    assert error == (0 if disabled else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _stormy_cluster(seed: int) -> Cluster:
    """Produces through the kill of a leader and the power cut of another, in drawn weather."""
    cluster = Cluster(seed, weather=draw_weather(RandomTree(seed).stream("weather"))).start()
    cluster.create_topic()
    cluster.produce_eventually(*VALUES[:4])
    cluster.node(cluster.leader()).kill()
    cluster.produce_eventually(*VALUES[4:7])
    return cluster


def test_the_same_seed_gives_the_same_scenario() -> None:
    first, second = _stormy_cluster(5), _stormy_cluster(5)
    assert first.world.trace_hash == second.world.trace_hash
    assert first.world.now == second.world.now
    assert first.world.trace_hash != _stormy_cluster(6).world.trace_hash
