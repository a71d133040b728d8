"""Delays and bandwidth limits by the agent, on network namespaces with real TCP between them."""

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.containers.network_rig import (
    PORT,
    RigHost,
    Site,
    connected,
    delay,
    drop,
    limit,
    refusal,
    round_trips_ms,
    tables,
    udp,
    wait_for,
    why_no_netem,
)

pytestmark = pytest.mark.containers


# -- delay


@pytest.fixture(params=["netem", "nfqueue"])
def by(request: pytest.FixtureRequest) -> str:
    """By what delays are done."""
    reason = why_no_netem() if request.param == "netem" else ""
    if reason:
        pytest.skip(reason)
    return str(request.param)


@pytest.mark.parametrize("ms", [5, 40])
def test_a_delay_is_added_to_the_round_trip_within_a_fifth(site: Site, ms: int, by: str) -> None:
    with connected(site.a, site.b) as (near, far):
        site.net_b.apply("f1", delay(site, ms, by=by))
        late_ms = round_trips_ms(near, far, 15)
        evidence = site.net_b.remove("f1")
        assert (evidence["mechanism"], evidence["packets"] >= 15) == (by, True)
        assert min(round_trips_ms(near, far, 15)) < 2
    # The fastest shows the requested delay; a busy machine adds to the others.
    assert ms <= min(late_ms) < 1.2 * ms


def test_delays_vary_within_their_jitter(site: Site, by: str) -> None:
    with connected(site.a, site.b) as (near, far):
        site.net_b.apply("f1", delay(site, 20, 15, by=by))
        late_ms = round_trips_ms(near, far, 25)
    assert 5 <= min(late_ms) < 35
    assert max(late_ms) - min(late_ms) > 8


def test_two_delays_add_up(site: Site, by: str) -> None:
    with connected(site.a, site.b) as (near, far):
        site.net_b.apply("f1", delay(site, 10, by=by))
        site.net_b.apply("f2", delay(site, 20))
        late_ms = round_trips_ms(near, far, 9)
        assert 30 <= min(late_ms) < 1.2 * 30
        site.net_b.remove("f1")
        assert 20 <= min(round_trips_ms(near, far, 9)) < 1.2 * 20


def test_queued_packets_are_released_when_a_delay_is_healed_and_none_is_lost(site: Site) -> None:
    with udp(site.a) as sender, udp(site.b, PORT) as receiver:
        site.net_b.apply("f1", delay(site, 60_000))
        for number in range(50):
            sender.sendto(bytes([number]), (site.b.address, PORT))
        assert wait_for(lambda: queue(site.net_b.evidence("f1"))["waiting"] == 50)
        assert site.net_b.remove("f1")["packets"] == 50
        assert [receiver.recv(9)[0] for _ in range(50)] == list(range(50))


def test_healing_another_fault_loses_no_queued_packet(site: Site) -> None:
    with udp(site.a) as sender, udp(site.b, PORT) as receiver:
        site.net_b.apply("other", drop(["192.0.2.1", site.b.address]))
        site.net_b.apply("f1", delay(site, 60_000))
        sender.sendto(b"x", (site.b.address, PORT))
        assert wait_for(lambda: queue(site.net_b.evidence("f1"))["waiting"] == 1)
        site.net_b.remove("other")
        site.net_b.remove("f1")
        assert receiver.recv(9) == b"x"
    assert tables(site.b) == []


def queue(evidence: dict[str, Any]) -> dict[str, Any]:
    (only,) = evidence["queues"].values()
    return dict(only)


# -- bandwidth


def throughput_kib_s(near: socket.socket, far: socket.socket, seconds: float) -> float:
    """What arrives, with the sender always having something to send; the buffers' filling is not counted."""
    near.settimeout(0.01)
    far.setblocking(False)
    began_s = time.monotonic()
    received = 0
    while (now_s := time.monotonic()) < began_s + seconds + 0.5:
        with contextlib.suppress(TimeoutError, BlockingIOError):
            near.send(bytes(32768))
        with contextlib.suppress(BlockingIOError):
            size = len(far.recv(1 << 20))
            received += size if now_s > began_s + 0.5 else 0
    return received / 1024 / seconds


@pytest.mark.parametrize("rate_kib_s", [64, 2000])
def test_a_node_sends_no_faster_than_its_bandwidth(site: Site, rate_kib_s: int) -> None:
    site.net_a.apply("f1", limit(site.a.address, rate_kib_s))
    with connected(site.a, site.b) as (near, far):
        measured = throughput_kib_s(near, far, 1.5)
        evidence = site.net_a.evidence("f1")
    assert measured == pytest.approx(rate_kib_s, rel=0.2)
    assert evidence["overlimits"] > 0
    assert evidence["sent_bytes"] > rate_kib_s * 1024
    assert site.net_a.remove("f1")["overlimits"] >= evidence["overlimits"]
    with connected(site.a, site.b, PORT + 1) as (near, far):
        assert throughput_kib_s(near, far, 0.3) > 4 * rate_kib_s


def test_an_address_is_limited_once_and_other_addresses_are_not(site: Site) -> None:
    site.net_a.apply("f1", limit("198.18.7.7", 16))
    with refusal("limited already"):
        site.enter(site.a).apply("f2", limit("198.18.7.7", 32))
    with connected(site.a, site.b) as (near, far):
        assert throughput_kib_s(near, far, 0.3) > 1000
    assert site.net_a.remove("f1")["packets"] == 0
    assert "htb" not in site.a.run(["tc", "qdisc", "show"])


def test_two_nodes_of_one_host_have_separate_limits_even_towards_each_other(site: Site) -> None:
    # Fast enough for the loopback interface, whose packets are of 64 KiB.
    one, two = "127.18.0.1", "127.18.0.2"
    other = site.enter(site.a)
    site.net_a.apply("f1", limit(one, 2000))
    other.apply("f1", limit(two, 8000))
    with socket_pair(site.a, one, two) as (near, far):
        assert throughput_kib_s(near, far, 1.5) == pytest.approx(2000, rel=0.25)
    site.net_a.remove("f1")
    with socket_pair(site.a, two, one) as (near, far):
        assert throughput_kib_s(near, far, 1.5) == pytest.approx(8000, rel=0.25)


def test_traffic_from_a_node_to_itself_is_not_limited(site: Site) -> None:
    site.net_a.apply("f1", limit("127.18.0.1", 64))
    with socket_pair(site.a, "127.18.0.1", "127.18.0.1") as (near, far):
        assert throughput_kib_s(near, far, 0.3) > 10_000
    assert site.net_a.remove("f1")["packets"] == 0


@contextlib.contextmanager
def socket_pair(
    host: RigHost, source: str, target: str
) -> Iterator[tuple[socket.socket, socket.socket]]:
    with host.inside(lambda: socket.create_server((target, PORT))) as listener:
        near = host.inside(
            lambda: socket.create_connection((target, PORT), 5, source_address=(source, 0))
        )
        far, _ = listener.accept()
        with near, far:
            yield near, far


def test_a_third_party_queueing_discipline_is_not_replaced(site: Site) -> None:
    site.a.run(["tc", "-batch", "-"], "qdisc add dev eth0 root tbf rate 1gbit burst 9k limit 9k")
    try:
        with refusal("eth0 has a third-party tbf queue"):
            site.net_a.apply("f1", limit(site.a.address, 64))
        assert "tbf" in site.a.run(["tc", "qdisc", "show", "dev", "eth0"])
    finally:
        site.a.run(["tc", "-batch", "-"], "qdisc del dev eth0 root")
