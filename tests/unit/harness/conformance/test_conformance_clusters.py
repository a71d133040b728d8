"""What both clusters are made of, without starting one."""

import pytest

from harness.conformance import clusters
from harness.conformance.clusters import Side, reference_profile
from harness.conformance.probe import Target
from harness.environments.local.standing import LocalCluster, local_settings
from harness.errors import HarnessFailure
from harness.systems.apache_kafka.versions import SUPPORTED, parse_version
from harness.systems.reference.adapter import SYSTEM


@pytest.mark.parametrize(
    ("version", "profile"),
    [
        ("3.4.1", "kafka-3.4"),
        ("3.6.2", "kafka-3.6"),
        ("4.0.2", "kafka-4.0"),
        ("4.1.2", "kafka-4.1"),
    ],
)
def test_the_reference_system_gets_the_profile_of_the_version(version, profile):
    assert reference_profile(parse_version(version)) == profile


def test_a_version_without_a_profile_gets_the_newest_one_before(monkeypatch):
    known = {name: SYSTEM.profiles[name] for name in ("kafka-3.9", "kafka-4.0", "kafka-4.1")}
    monkeypatch.setattr(SYSTEM, "profiles", known)
    assert reference_profile(parse_version("4.4.0")) == "kafka-4.1"


def test_every_version_has_a_profile():
    assert all(reference_profile(version) in SYSTEM.profiles for version in SUPPORTED)


def test_a_target_knows_nodes_by_port():
    target = Target(name="x", brokers={1: "127.0.0.1:90"}, controllers={11: "[::1]:91"}, now_ms=0)
    assert target.ports == {90: 1, 91: 11}


def test_a_node_that_ended_is_a_failure_that_names_the_case(tmp_path):
    cluster = LocalCluster.create(
        tmp_path / "c", brokers=1, controllers=1, settings=local_settings()
    )
    target = clusters._target("reference", cluster, now_ms=0)
    side = Side(target=target, cluster=cluster, description="the reference")
    side.check_alive("fetch/x")  # nodes that were never started have not ended
    node = cluster.nodes["b1"]
    node.pid, node.began = 2**22 + 1, 1
    (node.directory / "node.log").write_text("out of memory\n", encoding="utf-8")
    with pytest.raises(
        HarnessFailure, match=r"b1 of the reference ended.*'fetch/x': out of memory"
    ):
        side.check_alive("fetch/x")
