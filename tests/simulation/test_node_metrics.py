"""Metrics of simulated nodes: what an operator of Kafka would see while a broker is missing."""

from typing import Any

from tests.simulation.cluster_story import TOPIC, Cluster

MANAGER = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
PARTITION = f'{{topic="{TOPIC}",partition="0"}}'


def values_of(node: Any) -> dict[str, float]:
    samples = list(node.metrics())
    found = {sample.series: sample.value for sample in samples}
    assert len(found) == len(samples), "every series occurs once"
    return found


def broker(cluster: Cluster, node_id: int) -> dict[str, float]:
    return values_of(cluster.node(node_id).process)


def controller(cluster: Cluster) -> dict[str, float]:
    for name in ("c11", "c12", "c13"):
        found = values_of(cluster.world.nodes[name].process)
        if found[f"{CONTROLLER}activecontrollercount"]:
            return found
    raise AssertionError("there is no active controller")


def started() -> Cluster:
    cluster = Cluster().start()
    cluster.create_topic(min_isr=2)
    cluster.produce(b"a", b"b")
    cluster.run_for(0.5)
    return cluster


def test_a_calm_cluster_is_fully_replicated() -> None:
    cluster = started()
    leader = cluster.leader()
    for node_id in cluster.brokers:
        found = broker(cluster, node_id)
        assert found["kafka_server_kafkaserver_brokerstate"] == 3
        assert found[f"{MANAGER}partitioncount"] == 1
        assert found[f"{MANAGER}leadercount"] == int(node_id == leader)
        assert found[f"{MANAGER}underreplicatedpartitions"] == 0
        assert found[f"kafka_log_log_logendoffset{PARTITION}"] == 2
        assert found['kafka_server_raft_metrics_current_state{state="observer"}'] == 1
    led = broker(cluster, leader)
    assert led[f"kafka_cluster_partition_insyncreplicascount{PARTITION}"] == 3
    assert led[f"kafka_cluster_partition_replicascount{PARTITION}"] == 3
    found = controller(cluster)
    assert found[f"{CONTROLLER}activebrokercount"] == 3
    assert found[f"{CONTROLLER}offlinepartitionscount"] == 0
    assert found[f"{CONTROLLER}preferredreplicaimbalancecount"] == 0
    assert found['kafka_server_raft_metrics_current_state{state="leader"}'] == 1


def test_missing_followers_are_seen_by_leader_and_controller() -> None:
    cluster = started()
    leader = cluster.leader()
    first, second = (one for one in cluster.brokers if one != leader)
    shrinks = broker(cluster, leader)[f"{MANAGER}isrshrinks_total"]
    cluster.node(first).kill()
    cluster.await_partition(lambda one: len(one.isr) == 2)
    cluster.run_for(0.5)
    found = broker(cluster, leader)
    assert found[f"{MANAGER}underreplicatedpartitions"] == 1
    assert found[f"{MANAGER}atminisrpartitioncount"] == 1
    assert found[f"{MANAGER}underminisrpartitioncount"] == 0
    assert found[f"kafka_cluster_partition_underreplicated{PARTITION}"] == 1
    cluster.node(second).kill()
    cluster.await_partition(lambda one: len(one.isr) == 1)
    cluster.run_for(0.5)
    found = broker(cluster, leader)
    assert found[f"{MANAGER}underminisrpartitioncount"] == 1
    assert found[f"kafka_cluster_partition_underminisr{PARTITION}"] == 1
    assert found[f"kafka_cluster_partition_insyncreplicascount{PARTITION}"] == 1
    assert found[f"{MANAGER}isrshrinks_total"] >= shrinks
    assert controller(cluster)[f"{CONTROLLER}fencedbrokercount"] == 2
    cluster.node(leader).kill()
    cluster.await_partition(lambda one: one.leader < 0)
    found = controller(cluster)
    assert found[f"{CONTROLLER}offlinepartitionscount"] == 1
    assert found[f"{CONTROLLER}preferredreplicaimbalancecount"] == 1


def test_a_follower_that_cannot_append_yet_lags() -> None:
    cluster = started()
    leader = cluster.leader()
    follower = next(one for one in cluster.brokers if one != leader)
    series = (
        f'kafka_server_fetcherlagmetrics_consumerlag{{clientid="ReplicaFetcherThread-0-{leader}",'
        f'topic="{TOPIC}",partition="0"}}'
    )
    largest = 'kafka_server_replicafetchermanager_maxlag{clientid="Replica"}'
    assert broker(cluster, follower)[series] == 0
    assert broker(cluster, follower)[largest] == 0
    fetchers = cluster.node(follower).process.fetchers
    (fetcher,) = fetchers._fetchers.values()
    (followed,) = fetcher._followed.values()
    followed.leader_high_watermark = 9
    assert broker(cluster, follower)[series] == 7
    assert broker(cluster, follower)[largest] == 7
