"""Delays by netem, on network namespaces with real TCP between them; on kernels that have it."""

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemesis.agent.packets import netem
from nemesis.agent.packets.namespace import Namespace
from nemesis.agent.packets.network import PacketRules
from tests.containers.network_rig import (
    PORT,
    RigHost,
    Site,
    connected,
    delay,
    devices,
    helper_pid,
    hosts_or_skip,
    left_behind,
    round_trips_ms,
    tables,
    udp,
    wait_for,
    why_no_netem,
)

pytestmark = pytest.mark.containers

ROOT = Path(__file__).resolve().parents[2]
LATE_MS = 40
"""A delay that no machine is slow enough to have by itself."""


@pytest.fixture(scope="module")
def rig() -> Iterator[list[RigHost]]:
    with hosts_or_skip(3, why_no_netem()) as hosts:
        yield hosts


def rule(*pairs: list[str], ms: float = LATE_MS, **more: Any) -> list[dict[str, Any]]:
    return [{"kind": "delay", "pairs": list(pairs), "ms": ms, **more}]


def netem_of(evidence: dict[str, Any]) -> dict[str, int]:
    (only,) = evidence["netem"].values()
    return dict(only)


def median_ms(site: Site, source: str = "", target: str = "") -> float:
    """Measures round trips from the first host, or from one address of the second host to another."""
    if not source:
        with connected(site.a, site.b) as (near, far):
            return statistics.median(round_trips_ms(near, far, 5))
    with site.b.inside(lambda: socket.create_server((target, PORT))) as listener:
        near = site.b.inside(
            lambda: socket.create_connection((target, PORT), 5, source_address=(source, 0))
        )
        far, _ = listener.accept()
        with near, far:
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return statistics.median(round_trips_ms(near, far, 5))


# -- what is delayed and counted


def test_only_the_delayed_packets_are_counted_each_once(site: Site) -> None:
    with udp(site.a) as sender, udp(site.b, PORT) as receiver:
        site.net_b.apply("f1", rule(site.pair()))
        time.sleep(1)  # an interface that announces itself would do so now
        assert netem_of(site.net_b.evidence("f1"))["delayed"] == 0
        for _ in range(30):
            sender.sendto(b"x", (site.b.address, PORT))
            receiver.recv(9)
        evidence = site.net_b.evidence("f1")
    assert evidence["mechanism"] == "netem"
    assert evidence["packets"] == evidence["seen"] == 30
    assert netem_of(evidence) == {
        "delayed": 30,
        "bytes": evidence["bytes"],
        "waiting": 0,
        "drops": 0,
    }
    assert evidence["bytes"] >= 30 * 29
    assert site.net_b.remove("f1")["packets"] == 30
    assert "queues" not in evidence
    assert tables(site.b) == []


def test_packets_queued_when_a_delay_is_healed_still_arrive_and_later_ones_are_not_delayed(
    site: Site,
) -> None:
    with udp(site.a) as sender, udp(site.b, PORT) as receiver:
        site.net_b.apply("f1", rule(site.pair(), ms=900))
        for number in range(50):
            sender.sendto(bytes([number]), (site.b.address, PORT))
        sent_s = time.monotonic()
        assert wait_for(lambda: netem_of(site.net_b.evidence("f1"))["waiting"] == 50, 0.4)
        removed = site.net_b.remove("f1")
        assert time.monotonic() - sent_s < 0.8
        assert removed["packets"] == 50
        sender.sendto(b"later", (site.b.address, PORT))
        assert receiver.recv(9) == b"later"
        assert time.monotonic() - sent_s < 0.9
        assert [receiver.recv(9)[0] for _ in range(50)] == list(range(50))
        assert time.monotonic() - sent_s > 0.8
        assert wait_for(lambda: left_behind(site.b) == [])
    assert site.net_b.remove("f1") == removed == site.net_b.evidence("f1")


def test_a_bulk_transfer_arrives_complete(site: Site) -> None:
    size = 3 << 20
    with connected(site.a, site.b) as (near, far):
        site.net_b.apply("f1", rule(site.pair(), ms=20, jitter_ms=5))
        near.settimeout(0.01)
        received = sent = 0
        deadline_s = time.monotonic() + 60
        while received < size and time.monotonic() < deadline_s:
            with contextlib.suppress(TimeoutError):
                sent += near.send(bytes(min(65536, size - sent))) if sent < size else 0
            with contextlib.suppress(TimeoutError):
                far.settimeout(0.001)
                received += len(far.recv(1 << 20))
        taken = netem_of(site.net_b.remove("f1"))
    assert received == size
    assert taken["drops"] == 0
    assert taken["bytes"] > size


def test_any_means_every_other_node_and_other_pairs_are_not_affected(site: Site) -> None:
    site.net_b.apply("f1", rule(["*", site.b.address]))
    assert median_ms(site) >= LATE_MS
    assert median_ms(site, site.b.address, site.b.address) < LATE_MS
    assert median_ms(site, "127.0.0.1", "127.0.0.1") < LATE_MS
    site.net_b.remove("f1")
    site.net_b.apply("f2", rule([site.a.address, "*"]))
    assert site.net_b.evidence("f2")["mechanism"] == "netem"
    assert median_ms(site) >= LATE_MS
    site.net_b.remove("f2")
    assert median_ms(site) < LATE_MS


def test_nodes_of_one_namespace_are_delayed_towards_each_other(site: Site) -> None:
    one, two = "127.18.0.1", "127.18.0.2"
    site.net_b.apply("f1", rule([one, two]))
    assert LATE_MS <= median_ms(site, one, two) < 2 * LATE_MS
    assert netem_of(site.net_b.evidence("f1"))["delayed"] >= 5
    assert median_ms(site, one, "127.18.0.3") < LATE_MS


# -- several


def test_delays_of_different_pairs_all_use_netem_and_end_independently(site: Site) -> None:
    other = site.enter(site.b)
    site.net_b.apply("f1", rule(site.pair(), ms=60))
    other.apply("f1", rule(["127.18.0.1", "127.18.0.2"]))
    site.net_b.apply("f2", rule(["192.0.2.1", site.b.address]))
    found = [site.net_b.evidence("f1"), other.evidence("f1"), site.net_b.evidence("f2")]
    assert [evidence["mechanism"] for evidence in found] == ["netem"] * 3
    assert len(devices(site.b)) == 3
    other.remove("f1")
    site.net_b.remove("f2")
    assert median_ms(site, "127.18.0.1", "127.18.0.2") < LATE_MS
    assert median_ms(site) >= 60
    site.net_b.remove("f1")
    assert median_ms(site) < LATE_MS


def test_a_second_delay_of_the_same_pair_uses_nfqueue_and_both_add_up(site: Site) -> None:
    other = site.enter(site.b)
    site.net_b.apply("f1", rule(["*", site.b.address], ms=30))
    other.apply("f2", rule(site.pair(), ms=50))
    evidence = other.evidence("f2")
    assert evidence["mechanism"] == "nfqueue"
    assert evidence["no_netem"] == "another delay in force has a pair in common with this one"
    assert median_ms(site) >= 80
    site.net_b.remove("f1")
    assert 50 <= median_ms(site) < 80


def test_each_rule_of_a_token_uses_its_own_mechanism(site: Site) -> None:
    both = rule(site.pair()) + rule(site.pair()[::-1], hook="output")
    site.net_b.apply("f1", both)
    assert median_ms(site) >= 2 * LATE_MS
    evidence = site.net_b.remove("f1")
    assert evidence["mechanism"] == "netem, nfqueue"
    assert (
        evidence["no_netem"] == "netem delays arriving packets, and this rule delays outgoing ones"
    )
    assert netem_of(evidence)["delayed"] >= 5
    assert evidence["packets"] >= 10


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"ms": 2001}, "above 2000 ms"),
        ({"ms": 1500, "jitter_ms": 600}, "above 2000 ms"),
        ({"pairs": [["fd00::1", "fd00::2"]]}, "IPv4 only"),
        ({"hook": "output"}, "delays outgoing ones"),
        ({"by": "nfqueue"}, "it was requested"),
    ],
)
def test_rules_that_netem_cannot_do_use_nfqueue_and_report_why(
    site: Site, asked: dict[str, Any], why: str
) -> None:
    site.net_b.apply("f1", [{"kind": "delay", "ms": 5, "pairs": [site.pair()], **asked}])
    evidence = site.net_b.remove("f1")
    assert evidence["mechanism"] == "nfqueue"
    assert why in evidence["no_netem"]


def test_netem_and_bandwidth_limits_do_not_affect_each_other(site: Site) -> None:
    limit = [{"kind": "bandwidth", "pairs": [[site.b.address, "*"]], "rate_kib_s": 2000}]
    site.net_b.apply("f1", limit)
    site.net_b.apply("f2", rule(site.pair()))
    assert median_ms(site) >= LATE_MS
    assert site.net_b.remove("f1")["packets"] >= 5
    assert median_ms(site) >= LATE_MS
    assert netem_of(site.net_b.remove("f2"))["delayed"] >= 10


# -- third-party configuration


def test_third_party_filters_are_not_changed(site: Site) -> None:
    theirs = (
        "filter add dev eth0 parent ffff: protocol ip pref 9 u32 match ip src 192.0.2.9 flowid :1"
    )
    site.b.run(["tc", "-batch", "-"], f"qdisc add dev eth0 ingress\n{theirs}")
    try:
        site.net_b.apply("f1", rule(site.pair()))
        assert site.net_b.evidence("f1")["mechanism"] == "nfqueue"
        assert "third-party filters" in site.net_b.evidence("f1")["no_netem"]
        assert median_ms(site) >= LATE_MS
        site.net_b.reset()
        assert "pref 9 " in site.b.run(["tc", "filter", "show", "dev", "eth0", "ingress"])
    finally:
        site.b.run(["tc", "qdisc", "del", "dev", "eth0", "ingress"])


def test_third_party_filters_added_later_are_not_changed(site: Site) -> None:
    site.net_b.apply("f1", rule(site.pair()))
    theirs = (
        "filter add dev eth0 parent ffff: protocol ip pref 9 u32 match ip src 192.0.2.9 flowid :1"
    )
    site.b.run(["tc", "-batch", "-"], theirs)
    try:
        site.net_b.remove("f1")
        shown = site.b.run(["tc", "filter", "show", "dev", "eth0", "ingress"])
        assert "pref 9 " in shown
        assert "mirred" not in shown
    finally:
        site.b.run(["tc", "qdisc", "del", "dev", "eth0", "ingress"])


def test_stacked_interfaces_would_delay_twice_and_are_not_used(site: Site) -> None:
    site.b.ip(
        "link add name w0 type veth peer name w1\n"
        "addr add 192.0.2.1/32 dev w0\naddr add 192.0.2.2/32 dev w1"
    )
    try:
        site.net_b.apply("f1", rule(site.pair()))
        assert "packets pass both" in site.net_b.evidence("f1")["no_netem"]
        assert LATE_MS <= median_ms(site) < 2 * LATE_MS
    finally:
        site.b.ip("link del w0")


def test_the_connection_to_the_harness_is_never_delayed(rig: list[RigHost]) -> None:
    harness, host = rig[:2]
    environment = {**os.environ, "SSH_CONNECTION": f"{harness.address} 50022 {host.address} 2222"}
    with subprocess.Popen(
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
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        rules = rule([harness.address, host.address], by="netem")
        request = {"id": 1, "do": "apply", "args": {"token": "f1", "rules": rules}}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert "ok" in json.loads(process.stdout.readline())
        with connected(harness, host, 2222) as (near, far):
            assert statistics.median(round_trips_ms(near, far, 5)) < LATE_MS
        with connected(harness, host, PORT) as (near, far):
            assert statistics.median(round_trips_ms(near, far, 5)) >= LATE_MS
        process.stdin.close()
    assert left_behind(host) == []


# -- ends


def test_a_delay_outlives_its_helper_and_the_next_one_counts_and_heals_it(site: Site) -> None:
    with connected(site.a, site.b) as (near, far):
        site.net_b.apply("f1", rule(site.pair()))
        os.kill(helper_pid(site.net_b), signal.SIGKILL)
        assert wait_for(lambda: not site.net_b.is_alive)
        assert statistics.median(round_trips_ms(near, far, 5)) >= LATE_MS
        evidence = site.net_b.evidence("f1")
        assert netem_of(evidence)["delayed"] >= 5
        assert "is_interrupted" not in evidence
        assert statistics.median(round_trips_ms(near, far, 5)) >= LATE_MS
        assert netem_of(site.net_b.remove("f1"))["delayed"] >= 10
        assert statistics.median(round_trips_ms(near, far, 5)) < LATE_MS
    assert wait_for(lambda: left_behind(site.b) == [])


def test_the_next_helper_removes_delays_healed_before_the_last_one_died(site: Site) -> None:
    site.net_b.apply("f1", rule(site.pair(), ms=2000))
    with udp(site.a) as sender:
        sender.sendto(b"x", (site.b.address, PORT))
    assert wait_for(lambda: netem_of(site.net_b.evidence("f1"))["waiting"] == 1, 1)
    site.net_b.apply("f2", rule(["192.0.2.1", site.b.address]))
    site.net_b.remove("f1")
    assert len(devices(site.b)) == 2
    os.kill(helper_pid(site.net_b), signal.SIGKILL)
    assert wait_for(lambda: not site.net_b.is_alive)
    assert site.net_b.tokens() == ["f2"]
    assert wait_for(lambda: len(devices(site.b)) == 1)
    assert site.net_b.evidence("f2")["mechanism"] == "netem"


def test_closing_waits_for_queued_packets_and_leaves_nothing(rig: list[RigHost]) -> None:
    with udp(rig[0]) as sender, udp(rig[1], PORT) as receiver:
        net = Namespace(rig[1].pid)
        try:
            net.apply("f1", rule([rig[0].address, rig[1].address], ms=400))
            sender.sendto(b"x", (rig[1].address, PORT))
            assert wait_for(lambda: netem_of(net.evidence("f1"))["waiting"] == 1, 0.3)
        finally:
            net.close()
        assert left_behind(rig[1]) == []
        assert receiver.recv(9) == b"x"


def test_a_reset_removes_leftovers_of_dead_agents_and_nothing_else(site: Site) -> None:
    device = "lsdffabcdefghij"
    site.b.ip(f"link add {device} type ifb\nlink set {device} up\nlink add lsd1 type ifb")
    # The second filter has lost its interface, and loses packets therefore.
    add = "filter add dev lo parent ffff: protocol ip pref"
    does = f"match ip src 192.0.2.7/32 action mirred egress redirect dev {device}"
    site.b.run(
        ["tc", "-batch", "-"],
        f"qdisc add dev lo ingress\n{add} 27903 u32 {does}\n{add} 27902 u32 {does}",
    )
    try:
        site.net_b.apply("ours", delay(site, LATE_MS))
        assert site.net_b.evidence("ours")["mechanism"] == "netem"
        removed = site.net_b.reset()
        assert removed == ["rules of ours", f"delay {device}", "filters of delays on lo"]
        assert devices(site.b) == ["lsd1"]
        assert "ingress" not in site.b.run(["tc", "qdisc", "show"])
        assert site.net_b.reset() == []
    finally:
        site.b.ip("link del lsd1")


def test_filters_that_the_kernel_refuses_leave_no_hook_and_packets_are_queued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netem, "filter_matches", lambda rule, exempt: [("match nothing", True)])

    def apply_and_remove() -> tuple[dict[str, Any], list[str]]:
        rules = PacketRules("refused")
        rules.apply("f1", delay(site, LATE_MS))
        found = left_behind(site.b)
        return rules.remove("f1"), found

    evidence, found = site.b.inside(apply_and_remove)
    assert evidence["mechanism"] == "nfqueue"
    assert evidence["no_netem"].startswith("netem cannot be used here: `tc filter add dev")
    assert [line for line in found if not line.startswith("table")] == []


def test_a_rule_that_fails_leaves_none_of_the_others_in_force(site: Site) -> None:
    wrong = [*rule(site.pair()), {"kind": "bandwidth", "pairs": [["*", "*"]], "rate_kib_s": 9}]
    with pytest.raises(Exception, match="needs an IPv4 source address"):
        site.net_b.apply("f1", wrong)
    mixed = rule(site.pair()) + rule(["198.18.0.9", "fd00::2"], hook="output")
    with pytest.raises(Exception, match="not of one IP version"):
        site.net_b.apply("f1", mixed)
    assert site.net_b.tokens() == []
    assert wait_for(lambda: left_behind(site.b) == [])
