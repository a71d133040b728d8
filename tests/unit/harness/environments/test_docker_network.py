"""The network of a run in containers: a network that Docker refuses for an overlap is in use elsewhere."""

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from harness.environments.hosts import docker
from harness.errors import HarnessFailure

OVERLAP = "invalid pool request: Pool overlaps with other one on this address space"


class FakeEngine:
    """A Docker engine that does not list networks in creation by others, and refuses to create them again."""

    def __init__(self, taken: set[str], refusal: str = OVERLAP) -> None:
        self.networks = self
        self.taken = taken
        self.refusal = refusal
        self.asked: list[str] = []

    def list(self) -> list[Any]:
        return []

    def create(self, name: str, *, ipam: Any, **_: Any) -> Any:
        subnet = ipam["Config"][0]["Subnet"]
        self.asked.append(subnet)
        if subnet in self.taken:
            raise APIError("403 Client Error", explanation=self.refusal)
        return SimpleNamespace(name=name)


@pytest.fixture(autouse=True)
def no_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "routed_networks", list)
    monkeypatch.setattr(docker, "SUBNETS", "198.18.64")


def make(engine: FakeEngine) -> tuple[str, Any]:
    return docker.make_network(engine, "laststand-x", "ls0", {})


def test_a_network_taken_by_another_run_at_the_same_moment_is_not_tried_again() -> None:
    engine = FakeEngine({"198.18.64.0/24", "198.18.65.0/24"})
    prefix, network = make(engine)
    assert (prefix, network.name) == ("198.18.66", "laststand-x")
    assert engine.asked == ["198.18.64.0/24", "198.18.65.0/24", "198.18.66.0/24"]


def test_when_all_networks_are_refused_the_error_states_that() -> None:
    engine = FakeEngine({f"198.18.{number}.0/24" for number in range(256)})
    with pytest.raises(HarnessFailure, match="64 networks"):
        make(engine)
    assert len(engine.asked) == len(set(engine.asked)) == 64


def test_a_refusal_for_another_reason_is_not_retried() -> None:
    engine = FakeEngine({"198.18.64.0/24"}, refusal="permission denied")
    with pytest.raises(APIError):
        make(engine)
    assert len(engine.asked) == 1
