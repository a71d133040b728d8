"""What is refused before a real run starts, and what its record says about the client."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.real import client_versions
from harness.runs.record import check_world
from harness.systems.reference.adapter import ReferenceSystem
from nemesis.fault import Fault
from workloads.append_config import AppendConfig

LOCAL = Experiment(on="local")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))


def test_a_version_that_was_not_fetched_is_refused(empty_cache: None) -> None:
    experiment = Experiment(on="local", system="apache-kafka", version="4.3.1")
    with pytest.raises(
        UsageError, match=r"`laststand system fetch apache-kafka 4\.3\.1` gets them"
    ):
        check_world(experiment, 1)
    check_world(LOCAL, 1)


def test_a_client_that_cannot_be_used_is_refused(empty_cache: None) -> None:
    experiment = replace(LOCAL, workload=AppendConfig(client="java"))
    with pytest.raises(UsageError, match="the client 'java' needs the jars of Apache Kafka"):
        check_world(experiment, 1)


def test_the_faults_of_every_seed_are_checked_and_not_only_those_of_the_first() -> None:
    experiment = replace(LOCAL, nemesis=NemesisConfig(faults=("kill", "power")), duration_ms=2000)
    possible = next(seed for seed in range(1000) if _is_possible(experiment, seed, 1))
    with pytest.raises(UsageError, match="'power' is not possible here"):
        check_world(experiment, possible, 100)


def _is_possible(experiment: Experiment, first: int, seeds: int) -> bool:
    try:
        check_world(experiment, first, seeds)
    except UsageError:
        return False
    return True


def test_the_native_client_is_made_of_nothing_else_and_the_others_name_their_programs() -> None:
    assert client_versions(LOCAL) == {}
    pytest.importorskip("confluent_kafka")
    versions = client_versions(replace(LOCAL, workload=AppendConfig(client="confluent")))
    assert list(versions) == ["confluent-kafka", "librdkafka"]
    assert all(version[0].isdigit() for version in versions.values())


class Limited(ReferenceSystem):
    """The reference system, which cannot wait for a clean stop."""

    def impossible_faults(self) -> dict[str, str]:
        return {"stop.grace_ms": "why"}


def test_a_system_can_refuse_one_parameter_of_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Fault(id="f", fault="kill", targets=("b1",), at_ms=1, for_ms=1)
    monkeypatch.setattr(Experiment, "system_under_test", Limited())
    check_world(replace(LOCAL, schedule=(plain, replace(plain, id="g", fault="stop"))), 1)
    limited = replace(plain, fault="stop", params={"grace_ms": 5})
    with pytest.raises(UsageError, match=r"fault f: 'stop\.grace_ms' is not possible here: why"):
        check_world(replace(LOCAL, schedule=(limited,)), 1)
