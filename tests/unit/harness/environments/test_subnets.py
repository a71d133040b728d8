"""Networks of our own never overlap one that the machine has a route to."""

from ipaddress import IPv4Network

import pytest

from harness.environments.hosts.subnets import free_prefix, routed_networks
from harness.errors import HarnessFailure

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
left\t004012C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
vpn\t004212C6\t00000000\t0001\t0\t0\t0\t00FEFFFF\t0\t0\t0
"""


@pytest.fixture(autouse=True)
def little_endian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "little")


def test_routes_are_read_and_the_default_route_is_ignored() -> None:
    assert routed_networks(ROUTES) == [
        IPv4Network("192.0.2.0/24"),
        IPv4Network("198.18.64.0/24"),
        IPv4Network("198.18.66.0/23"),
    ]


def test_the_first_network_that_overlaps_nothing_is_taken() -> None:
    used = routed_networks(ROUTES)
    assert free_prefix("198.18.63", used) == "198.18.63"
    assert free_prefix("198.18.64", used) == "198.18.65"
    assert free_prefix("198.18.66", used) == "198.18.68"


def test_when_all_networks_are_taken_the_message_names_the_commands_that_list_them() -> None:
    with pytest.raises(HarnessFailure, match=r"64 networks from 198.18.64.0/24 on .* `ip route`"):
        free_prefix("198.18.64", [IPv4Network("198.18.0.0/15")])
