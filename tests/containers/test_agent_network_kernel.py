"""What the agent finds out about a kernel's support for packet faults, and what it does without a part of it."""

import pytest

from harness.contracts.capability import WEAKER, YES
from nemesis.agent.packets import nft, qdisc
from nemesis.agent.packets.network import PacketRules, capabilities
from nemesis.hosts.capabilities import host_capabilities
from tests.containers.network_rig import (
    Site,
    delay,
    drop,
    refusal,
    why_no_netem,
    why_not,
)

pytestmark = pytest.mark.containers


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
