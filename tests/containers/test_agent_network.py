"""What the agent does to packets and connections, on network namespaces with real TCP between them."""

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from nemesis.agent.packets.namespace import Namespace
from tests.containers.network_rig import (
    PORT,
    PROBE_MS,
    RigHost,
    Site,
    connected,
    drop,
    hosts_or_skip,
    refusal,
    round_trips_ms,
    tables,
    udp,
    why_not,
)

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def rig() -> Iterator[list[RigHost]]:
    with hosts_or_skip(6, why_not()) as hosts:
        yield hosts


# -- drop


def test_a_drop_hides_the_receiver_is_counted_and_ends_when_removed(site: Site) -> None:
    with site.b.listen():
        assert site.probe() == "connected"
        began_ns = time.monotonic_ns()
        response = site.net_b.apply("f1", drop(site.pair()))
        assert began_ns < response["in_force_ns"] < time.monotonic_ns()
        assert site.net_b.evidence("f1")["packets"] == 0
        assert site.probe() == "timeout"
        evidence = site.net_b.evidence("f1")
        assert evidence["packets"] >= 1
        assert evidence["bytes"] >= 60 * evidence["packets"]
        assert site.net_b.remove("f1")["packets"] >= evidence["packets"]
        assert site.probe() == "connected"


def test_a_drop_cuts_established_connections_although_a_firewall_accepts_them(site: Site) -> None:
    site.b.run(
        ["nft", "-f", "-"],
        "table inet firewall { chain input { type filter hook input priority 0; "
        "ct state established accept; }; }",
    )
    try:
        with connected(site.a, site.b) as (near, far):
            site.net_b.apply("f1", drop(site.pair()))
            near.sendall(b"x")
            far.settimeout(0.3)
            with pytest.raises(TimeoutError):
                far.recv(1)
            assert site.net_b.remove("f1")["packets"] >= 1
    finally:
        site.b.run(["nft", "delete", "table", "inet", "firewall"])


def test_a_drop_at_the_sender_is_counted_there(site: Site) -> None:
    with site.b.listen():
        site.net_a.apply("f1", drop(site.pair(), hook="output"))
        assert site.probe() == "timeout"
        assert site.net_a.evidence("f1")["packets"] >= 1


def test_overlapping_faults_do_not_heal_one_another(site: Site) -> None:
    with site.b.listen():
        site.net_b.apply("first", drop(site.pair()))
        site.net_b.apply("second", drop(["*", site.b.address]))
        assert site.net_b.tokens() == ["first", "second"]
        site.net_b.remove("first")
        assert site.probe() == "timeout"
        site.net_b.remove("second")
        assert site.probe() == "connected"


def test_two_nodes_of_one_namespace_use_the_same_token_independently(site: Site) -> None:
    other = site.enter(site.b)
    with site.b.listen():
        site.net_b.apply("f1", drop(site.pair()))
        other.apply("f1", drop([site.b.address, site.a.address]))
        other.remove("f1")
        assert site.probe() == "timeout"
        assert other.evidence("f1")["packets"] == 0


def test_from_all_does_not_include_the_node_itself(site: Site) -> None:
    with site.b.listen():
        site.net_b.apply("f1", drop(["*", site.b.address]))
        own = site.net_b.probe(site.b.address, PORT, PROBE_MS, source=site.b.address)
        assert own["outcome"] == "connected"
        assert site.probe() == "timeout"


def test_any_to_any_spares_the_loopback_interface(site: Site) -> None:
    with site.b.listen():
        site.net_b.apply("f1", drop(["*", "*"]))
        assert site.net_b.probe(site.b.address, PORT, PROBE_MS)["outcome"] == "connected"
        assert site.probe() == "timeout"


def test_applying_and_removing_again_changes_nothing(site: Site) -> None:
    first = site.net_b.apply("f1", drop(site.pair()))
    again = site.net_b.apply("f1", drop(site.pair()))
    assert again["in_force_ns"] == first["in_force_ns"]
    assert len(tables(site.b)) == 1
    with refusal("in force with other packet rules"):
        site.net_b.apply("f1", drop([site.b.address, site.a.address]))
    last = site.net_b.remove("f1")
    assert site.net_b.remove("f1") == last == site.net_b.evidence("f1")
    assert tables(site.b) == []


def test_tokens_may_be_any_text(site: Site) -> None:
    site.net_b.apply("Run-7/f 1; flush ruleset", drop(site.pair()))
    assert len(tables(site.b)) == 1
    site.net_b.remove("Run-7/f 1; flush ruleset")


def test_no_rule_is_in_force_when_one_rule_of_a_token_is_refused(site: Site) -> None:
    wrong = [*drop(site.pair()), {"kind": "bandwidth", "pairs": [["*", "*"]], "rate_kib_s": 9}]
    with refusal("needs an IPv4 source address"):
        site.net_b.apply("f1", wrong)
    assert site.net_b.tokens() == []
    assert tables(site.b) == []
    with refusal("nothing is known of 'f1'"):
        site.net_b.evidence("f1")


def test_drops_are_in_force_on_six_hosts_within_10_ms(rig: list[RigHost]) -> None:
    addresses = [host.address for host in rig]
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(rig)))
        nets = [stack.enter_context(contextlib.closing(Namespace(host.pid))) for host in rig]
        took_ms = []
        for turn in range(6):
            began_ns = time.monotonic_ns()
            answers = list(
                pool.map(
                    lambda net, to, token=str(turn): net.apply(
                        token, drop(*([one, to] for one in addresses if one != to))
                    ),
                    nets,
                    addresses,
                )
            )
            took_ms.append((max(a["in_force_ns"] for a in answers) - began_ns) / 1e6)
            list(pool.map(lambda net, token=str(turn): net.remove(token), nets))
    # The first round loads the library; a busy machine may disturb others.
    assert min(took_ms[1:]) < 10, took_ms


# -- reject


def test_a_reject_in_both_directions_refuses_and_resets_on_both_sides(site: Site) -> None:
    with connected(site.a, site.b) as (near, far), site.b.listen(PORT + 1):
        reverse = site.pair()[::-1]
        site.net_b.apply("f1", [{"kind": "reject", "pairs": [site.pair()]}])
        site.net_a.apply("f1", [{"kind": "reject", "pairs": [reverse]}])
        assert site.net_a.probe(site.b.address, PORT + 1, PROBE_MS)["outcome"] == "refused"
        for end in (near, far):
            end.settimeout(1)
            end.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                end.recv(1)
        assert site.net_b.remove("f1")["packets"] >= 2
        assert site.net_a.remove("f1")["packets"] >= 1
        assert site.net_a.probe(site.b.address, PORT + 1, PROBE_MS)["outcome"] == "connected"


# -- loss


def test_loss_drops_its_share_of_the_packets_and_counts_both(site: Site) -> None:
    with udp(site.a) as sender, udp(site.b, PORT):
        site.net_b.apply("f1", [{"kind": "loss", "pairs": [site.pair()], "percent": 30}])
        for _ in range(4000):
            sender.sendto(b"x", (site.b.address, PORT))
        evidence = site.net_b.remove("f1")
    assert evidence["seen"] == 4000
    # Eight standard deviations to either side.
    assert 970 <= evidence["packets"] <= 1430


def test_a_loss_of_everything_is_a_drop(site: Site) -> None:
    with site.b.listen():
        site.net_b.apply("f1", [{"kind": "loss", "pairs": [site.pair()], "percent": 100}])
        assert site.probe() == "timeout"
        assert site.net_b.evidence("f1")["packets"] >= 1


# -- connections


def test_resetting_connections_aborts_here_resets_there_and_spares_others(site: Site) -> None:
    with (
        site.b.listen(PORT + 1) as listener,
        connected(site.a, site.b) as (near, far),
        connected(site.hosts[2], site.b, PORT + 2) as (other_near, other_far),
    ):
        response = site.net_a.reset_connections([site.b.address])
        assert (response["before"], response["after"]) == (1, 0)
        with pytest.raises(ConnectionAbortedError):
            near.recv(1)
        with pytest.raises(ConnectionResetError):
            far.recv(1)
        assert max(round_trips_ms(other_near, other_far, 2)) < 1000
        assert listener.getsockname()[1] == PORT + 1
        assert site.net_a.probe(site.b.address, PORT + 1, PROBE_MS)["outcome"] == "connected"


def test_only_connections_of_the_ports_named_are_reset(site: Site) -> None:
    with connected(site.a, site.b) as (near, far):
        assert site.net_b.reset_connections([site.b.address], [PORT + 5])["before"] == 0
        assert max(round_trips_ms(near, far, 2)) < 1000
        assert site.net_b.reset_connections([site.b.address], [PORT])["before"] == 1
        with pytest.raises(ConnectionAbortedError):
            far.recv(1)


def test_connections_of_sockets_for_both_ip_versions_are_found(site: Site) -> None:
    def listen() -> socket.socket:
        return socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)

    with site.b.inside(listen) as listener, site.a.connect(site.b.address) as near:
        far, _ = listener.accept()
        with far:
            response = site.net_b.reset_connections([site.b.address])
            assert (response["before"], response["after"]) == (1, 0)
            with pytest.raises(ConnectionResetError):
                near.recv(1)


def test_a_probe_distinguishes_the_outcomes(site: Site) -> None:
    def outcome(address: str, timeout_ms: int = PROBE_MS) -> str:
        return str(site.net_a.probe(address, PORT, timeout_ms)["outcome"])

    assert outcome(site.b.address) == "refused"
    assert outcome("192.0.2.1") == "unreachable"
    with site.b.listen():
        response = site.net_a.probe(site.b.address, PORT, PROBE_MS, source=site.a.address)
        assert response["outcome"] == "connected"
        assert 0 < response["ms"] < PROBE_MS
        with refusal("no probe from 203.0.113.9"):
            site.net_a.probe(site.b.address, PORT, PROBE_MS, source="203.0.113.9")


def test_a_waiting_probe_does_not_block_other_requests(site: Site) -> None:
    site.net_b.apply("f1", drop(site.pair()))
    with ThreadPoolExecutor(1) as pool:
        probe = pool.submit(site.net_a.probe, site.b.address, PORT, 600)
        began_s = time.monotonic()
        site.net_a.apply("f1", drop(site.pair()))
        assert time.monotonic() - began_s < 0.3
        assert probe.result()["outcome"] == "timeout"
