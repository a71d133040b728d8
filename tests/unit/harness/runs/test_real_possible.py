"""What is refused before a real run starts, and what its record says about the client."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.planned import planned_schedule
from harness.runs.real import _check_targets, check_possible, client_versions
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
    """The family draws kills, pauses, isolations and power cuts of controllers."""
    experiment = replace(LOCAL, nemesis=NemesisConfig(faults=("controller",)), duration_ms=2000)
    possible = next(seed for seed in range(1000) if _is_possible(experiment, seed, 1))
    with pytest.raises(UsageError, match=r"fault f.*(power|isolate)' is not possible here"):
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


def test_a_family_that_is_not_possible_is_refused_whatever_the_seeds_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Experiment, "system_under_test", Limited())
    drawing = replace(LOCAL, nemesis=NemesisConfig(faults=("kill", "stop")))
    check_possible(drawing, [])
    monkeypatch.setattr(Limited, "impossible_faults", lambda _: {"stop": "why"})
    with pytest.raises(UsageError, match=r"nemesis\.faults: 'stop' is not possible here: why"):
        check_possible(drawing, [])
    written = Fault(id="f", fault="kill", targets=("b1",), at_ms=1, for_ms=1)
    check_possible(replace(drawing, schedule=(written,)), [])


class WithoutIsr(ReferenceSystem):
    """The reference system, as if it had neither an ISR nor controllers."""

    has_controllers = False

    def impossible_targets(self) -> dict[str, str]:
        return {"last_in_isr": "there is no ISR"}


@pytest.mark.parametrize(
    ("name", "targets", "params", "why"),
    [
        (
            "kill",
            ("last_in_isr:t-0",),
            {},
            "the target 'last_in_isr:t-0' is no node here: there is no ISR",
        ),
        ("kill", ("b1", "active_controller"), {}, "the system 'reference' has no controllers"),
        ("isolate", ("b1",), {"planes": ("controller",)}, "there are no packets of controllers"),
    ],
)
def test_a_fault_that_can_find_no_target_is_refused_with_the_reason(
    name: str, targets: tuple[str, ...], params: Any, why: str
) -> None:
    fault = Fault(id="f", fault=name, targets=targets, at_ms=1, for_ms=1, params=params)
    _check_targets(fault, ReferenceSystem())
    _check_targets(replace(fault, targets=("leader:t-0",), params={}), WithoutIsr())
    with pytest.raises(UsageError, match=f"^fault f: .*{why}"):
        _check_targets(fault, WithoutIsr())


def test_what_is_drawn_for_a_system_without_isr_and_controllers_can_find_its_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = replace(
        LOCAL,
        nemesis=NemesisConfig(faults=("cut", "isolate", "pause", "kill")),
        duration_ms=20_000,
    )
    drawn = [fault for seed in range(20) for fault in planned_schedule(experiment, seed)]
    monkeypatch.setattr(Experiment, "system_under_test", WithoutIsr())
    fitted = [fault for seed in range(20) for fault in planned_schedule(experiment, seed)]
    assert any("last_in_isr:t-0" in fault.targets for fault in drawn)
    assert any(fault.params.get("planes") == ("controller",) for fault in drawn)
    assert [fault.at_ms for fault in fitted] == [fault.at_ms for fault in drawn]
    for fault in fitted:
        _check_targets(fault, WithoutIsr())
