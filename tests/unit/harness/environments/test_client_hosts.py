"""Client hosts of real clusters: the same seed draws the same operations."""

from types import SimpleNamespace
from typing import Any

from harness.environments.client_host import PlainClientHost
from harness.environments.real import RealCluster
from harness.simulation.randomness import RandomTree


class OwnHost(PlainClientHost):
    """A host that offers its system's clients more than the protocol."""

    reads_end_before_records = True


class Hosted:
    """The part of a system that makes client hosts."""

    def client_host(self, name: str, *, source: str | None = None) -> OwnHost:
        return OwnHost(name)

    def observation(self, *_: Any) -> None:
        return None


def cluster(seed: int) -> RealCluster:
    request: Any = SimpleNamespace(
        system=Hosted(),
        settings=SimpleNamespace(with_fault_point=False),
        clients=2,
        seed=seed,
        add_row=None,
        on_violation=None,
        metrics=None,
    )
    made = RealCluster(request, [])
    made.open_client_hosts({})
    return made


def draws(seed: int, name: str) -> list[float]:
    stream = cluster(seed).client_host(name).random.stream("workload")
    return [stream.random() for _ in range(5)]


def test_the_same_seed_draws_the_same_operations_on_every_host_as_in_the_simulation() -> None:
    assert draws(7, "client-0") == draws(7, "client-0")
    assert draws(7, "client-0") != draws(8, "client-0")
    assert draws(7, "client-0") != draws(7, "client-1")
    simulated = RandomTree(7).for_node("client-0").stream("workload")
    assert draws(7, "client-0") == [simulated.random() for _ in range(5)]


def test_a_systems_own_clients_find_what_their_host_offers() -> None:
    host: Any = cluster(7).client_host("client-1")
    assert (host.name, host.reads_end_before_records) == ("client-1", True)
    assert host.clock.monotonic_ns() > 0
