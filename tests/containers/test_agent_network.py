"""What the agent does to packets, on network namespaces with real TCP between them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.capability import WEAKER, YES
from nemesis.agent.packets import nft, qdisc
from nemesis.agent.packets.namespace import Namespace, NetworkError
from nemesis.agent.packets.network import PacketRules, capabilities
from nemesis.hosts.capabilities import host_capabilities
from tests.containers.network_rig import (
    PORT,
    PROBE_MS,
    RigHost,
    Site,
    connected,
    delay,
    drop,
    helper_pid,
    left_behind,
    round_trips_ms,
    segment,
    tables,
    udp,
    wait_for,
    why_no_netem,
    why_not,
)

pytestmark = pytest.mark.containers

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def rig() -> Iterator[list[RigHost]]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with segment(6) as hosts:
        yield hosts


@pytest.fixture
def site(rig: list[RigHost]) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        yield Site(rig, stack)
    for host in rig:
        assert left_behind(host) == []


def refusal(text: str) -> Any:
    return pytest.raises(NetworkError, match=text)


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


def limit(source: str, rate_kib_s: int) -> list[dict[str, Any]]:
    return [{"kind": "bandwidth", "pairs": [[source, "*"]], "rate_kib_s": rate_kib_s}]


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


# -- ends


def test_closing_removes_everything_and_is_final(rig: list[RigHost]) -> None:
    net = Namespace(rig[0].pid)
    try:
        net.apply("f1", [*drop(["*", rig[0].address]), *limit(rig[0].address, 64)])
        assert net.is_alive
        assert len(tables(rig[0])) == 1
    finally:
        net.close()
    net.close()
    assert not net.is_alive
    assert left_behind(rig[0]) == []
    with refusal("was left already"):
        net.tokens()


def test_rules_end_with_the_process_that_requested_them_however_it_ends(rig: list[RigHost]) -> None:
    program = (
        "import sys, time\n"
        "from nemesis.agent.packets.namespace import Namespace\n"
        f"net = Namespace({rig[0].pid})\n"
        f"net.apply('f1', [{{'kind': 'drop', 'pairs': [['*', '{rig[0].address}']]}}])\n"
        "print('applied', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"applied\n"
        assert len(tables(rig[0])) == 1
        process.kill()
        process.wait()
        assert wait_for(lambda: tables(rig[0]) == [])


def test_a_helper_that_receives_sigterm_removes_its_rules(site: Site) -> None:
    site.net_b.apply("f1", drop(site.pair()))
    os.kill(helper_pid(site.net_b), signal.SIGTERM)
    assert wait_for(lambda: tables(site.b) == [])


def test_rules_survive_their_helper_and_can_still_be_counted_and_removed(site: Site) -> None:
    with site.b.listen():
        site.net_b.apply("f1", [*drop(site.pair()), *limit(site.b.address, 64)])
        os.kill(helper_pid(site.net_b), signal.SIGKILL)
        assert wait_for(lambda: not site.net_b.is_alive)
        assert site.probe() == "timeout"
        assert site.net_b.evidence("f1")["packets"] >= 1
        assert site.net_b.tokens() == ["f1"]
        assert site.net_b.remove("f1")["packets"] >= 1
        assert site.probe() == "connected"


def test_a_queue_passes_packets_without_its_helper_and_restarts_with_the_next(
    site: Site,
) -> None:
    with connected(site.a, site.b) as (near, far):
        site.net_b.apply("f1", delay(site, 30, by="nfqueue"))
        os.kill(helper_pid(site.net_b), signal.SIGKILL)
        assert wait_for(lambda: not site.net_b.is_alive)
        assert min(round_trips_ms(near, far, 5)) < 30
        assert site.net_b.evidence("f1")["is_interrupted"]
        assert 30 <= min(round_trips_ms(near, far, 5)) < 1.2 * 30


def test_a_reset_removes_leftovers_of_other_agents(site: Site) -> None:
    other = site.enter(site.b)
    other.apply("theirs", [*drop(site.pair()), *limit(site.b.address, 64)])
    site.b.run(["nft", "add", "table", "inet", "laststand_old_7"])
    site.b.run(["nft", "add", "table", "inet", "somebody"])
    try:
        site.net_b.apply("ours", drop(site.pair()))
        removed = site.net_b.reset()
        assert sum("table laststand_" in line for line in removed) == 2
        assert "rules of ours" in removed
        assert "bandwidth limits on eth0" in removed
        assert tables(site.b) == ["table inet somebody"]
        assert site.net_b.reset() == []
        other.remove("theirs")
    finally:
        site.b.run(["nft", "delete", "table", "inet", "somebody"])


def test_the_namespace_of_a_process_that_does_not_exist_is_refused() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with refusal("cannot be opened"):
        Namespace(4_000_000)


# -- the host's own namespace, reached by SSH


def test_the_connection_to_the_harness_stays_open(rig: list[RigHost]) -> None:
    harness, host = rig[:2]
    ssh = f"{harness.address} 50022 {host.address} 2222"
    process = subprocess.Popen(
        [
            "nsenter",
            "-t",
            str(host.pid),
            "-n",
            sys.executable,
            "-m",
            "nemesis.agent.packets.network",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "SSH_CONNECTION": ssh},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(**request: Any) -> Any:
        process.stdin.write(json.dumps({"id": 1, **request}).encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        return json.loads(process.stdout.readline())  # type: ignore[union-attr]

    try:
        both = drop(["*", host.address]) + drop([host.address, "*"], hook="output")
        assert "ok" in ask(do="apply", args={"token": "f1", "rules": both})
        assert (
            "every packet"
            in ask(do="apply", args={"token": "f2", "rules": drop(["*", "*"])})["error"]
        )
        with host.listen(2222), host.listen(PORT):
            assert harness.connect_result(host.address, 2222, 0.5) == "connected"
            assert harness.connect_result(host.address, PORT, 0.2) == "TimeoutError"
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert tables(host) == []


# -- without the library, and capabilities


def test_the_nft_program_is_used_when_the_library_is_missing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nft, "LIBRARIES", ("libnothing.so",))

    def apply_and_probe() -> tuple[str, str, int, str]:
        rules = PacketRules("program")
        name = rules.nft.name
        rules.apply("f1", drop(site.pair()))
        held = site.probe()
        packets = rules.remove("f1")["packets"]
        return name, held, packets, site.probe()

    with site.b.listen():
        name, held, packets, healed = site.b.inside(apply_and_probe)
    assert (name, held, healed) == ("nft", "timeout", "connected")
    assert packets >= 1


def test_capabilities_cover_these_tests_and_give_reasons_when_missing() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    found = capabilities()
    expected = [
        "nft-drop",
        "nft-reject",
        "nft-loss",
        "nfqueue",
        "netem",
        "tbf",
        "sock-destroy",
        "netns",
    ]
    assert sorted(found) == sorted(expected)
    for name, level in found.items():
        assert set(level) == {"level", "how", "why"}
        if name != "netem" or not why_no_netem():
            assert level["level"] == "yes", (name, level)
        assert level["how"] if level["level"] == "yes" else level["why"]


def test_delays_use_the_mechanism_that_the_capabilities_report(site: Site) -> None:
    known = host_capabilities(capabilities())["delay"]
    site.net_b.apply("f1", delay(site, 5))
    evidence = site.net_b.remove("f1")
    if why_no_netem():
        assert (known.level, evidence["mechanism"]) == (WEAKER, "nfqueue")
        assert "netem cannot be used here" in known.why
        assert "netem cannot be used here" in evidence["no_netem"]
        with refusal("netem cannot be used here"):
            site.net_b.apply("f2", delay(site, 5, by="netem"))
    else:
        assert (known.level, known.how, evidence["mechanism"]) == (YES, "tc netem", "netem")


def test_ingress_filters_are_read_with_their_match_conditions(site: Site) -> None:
    add = "filter add dev eth0 parent ffff: protocol ip pref"
    site.b.run(
        ["tc", "-batch", "-"],
        "qdisc add dev eth0 ingress\n"
        f"{add} 7 u32 match ip src 192.0.2.1/32 match ip dst 192.0.2.2/32 "
        "action mirred egress redirect dev eth0\n"
        f"{add} 8 u32 match ip dst 192.0.2.2/32 action mirred egress redirect dev eth0\n"
        f"{add} 9 u32 match ip src 192.0.2.0/24 match ip dst 192.0.2.2/32 flowid :1",
    )
    try:
        found = site.b.inside(lambda: qdisc.arrival_filters("eth0"))
        pairs = [(one.preference, one.pair) for one in found if one.pair is not None]
        assert pairs == [(7, ("192.0.2.1", "192.0.2.2")), (8, ("*", "192.0.2.2"))]
        assert {(one.preference, one.kind) for one in found} == {(n, "u32") for n in (7, 8, 9)}
        assert site.a.inside(lambda: qdisc.arrival_filters("eth0")) == []
    finally:
        site.b.run(["tc", "qdisc", "del", "dev", "eth0", "ingress"])


def test_interfaces_are_listed_with_their_lower_and_upper_interfaces(site: Site) -> None:
    site.b.ip("link add w0 type veth peer name w1\nlink add w2 type bridge\nlink set w0 master w2")
    try:
        found = {one.name: (one.below, one.above) for one in site.b.inside(qdisc.links)}
        assert (found["w0"], found["w1"]) == (("w1", "w2"), ("w0", ""))
        # The other end of this one is in another namespace.
        assert found["eth0"] == found["lo"] == ("", "")
    finally:
        site.b.ip("link del w0\nlink del w2")


def test_without_a_scratch_namespace_no_interface_is_touched() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    found = capabilities(scratch=False)
    assert found["nft-drop"]["level"] == "yes"
    assert {found[name]["level"] for name in ("netem", "tbf", "netns")} == {"no"}
    assert found["tbf"]["why"].startswith("not tried")
