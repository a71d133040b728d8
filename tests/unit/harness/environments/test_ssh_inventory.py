"""The file that names hosts: what it means, and one sentence for everything that is wrong with it."""

from pathlib import Path

import pytest

from harness.contracts.capability import NO, WEAKER, YES, Capability
from harness.environments.hosts.inventory import Host, load_inventory
from harness.environments.hosts.ssh import assign
from harness.errors import UsageError
from nemesis.faults import FAULT_NAMES
from nemesis.hosts.capabilities import fault_capabilities, host_capabilities, weakest

GOOD = """
user = "root"
key = "id"
[[hosts]]
address = "192.0.2.1"
node_addresses = ["192.0.2.11", "192.0.2.12"]
[[hosts]]
address = "192.0.2.2"
port = 2222
node_addresses = ["192.0.2.21"]
"""


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(GOOD)
    inventory = load_inventory(path)
    assert inventory.key == tmp_path / "id"
    assert [host.name for host in inventory.hosts] == ["192.0.2.1", "192.0.2.2:2222"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("user = 1", "user must be of type str"),
        ("usr = 'x'", "did you mean"),
        ("user = 'x'", "names no hosts"),
        ("[[hosts]]\nport = 22", "has no address"),
        ("[[hosts]]\naddress = '192.0.2.1'\nport = '22'", "port must be of type int"),
        ("hosts = [1]", "names no hosts"),
        ("user = ", "cannot be read"),
        (GOOD.replace("192.0.2.21", "192.0.2.12"), "192.0.2.12 is a node address .*, and of"),
        (GOOD.replace("192.0.2.12", "192.0.2.11"), "192.0.2.11 is a node address .* twice"),
        (GOOD.replace("192.0.2.21", "300.1.1.1"), "'300.1.1.1', is not an IPv4 address"),
        (GOOD.replace("192.0.2.21", "node-1"), "'node-1', is not an IPv4 address"),
        (GOOD.replace('"192.0.2.21"', "7"), "'7', is not an IPv4 address"),
        (GOOD.replace('"192.0.2.2"', '"300.1.1.1"'), "'300.1.1.1', is not an IPv4 address"),
        (GOOD.replace('"192.0.2.2"', '""'), "is not an address of a host"),
        (
            GOOD.replace("2222", "99999"),
            "port of 192.0.2.2 is 99999, and ports range from 1 to 65535",
        ),
        (GOOD.replace("2222", "0"), "port of 192.0.2.2 is 0"),
        (
            GOOD.replace('"192.0.2.2"', '"192.0.2.1"').replace("2222", "22"),
            "the host 192.0.2.1 is listed twice",
        ),
    ],
)
def test_an_inventory_error_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence) as error:
        load_inventory(path)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load_inventory(tmp_path / "none.toml")


def host(name: str, addresses: int) -> Host:
    return Host(
        address=name, port=22, node_addresses=tuple(f"{name}.{n}" for n in range(addresses))
    )


def test_nodes_are_assigned_round_robin_each_with_its_own_address() -> None:
    hosts = (host("a", 2), host("b", 2))
    nodes = [("controller", 11), ("broker", 1), ("broker", 2)]
    placed = [
        (node_id, where.address, address) for _, node_id, where, address in assign(nodes, hosts)
    ]
    assert placed == [(11, "a", "a.0"), (1, "b", "b.0"), (2, "a", "a.1")]
    with pytest.raises(UsageError, match="every node needs its own"):
        assign([*nodes, ("broker", 3), ("broker", 4)], hosts)


def test_hosts_together_support_what_every_host_supports() -> None:
    strong = {"delay": Capability(level=YES), "oom": Capability(level=YES)}
    weak = {"delay": Capability(level=WEAKER, how="queue"), "oom": Capability(level=NO, why="v2")}
    assert weakest([strong, weak]) == weak
    assert weakest([strong, {}])["oom"].level == NO


def test_every_fault_is_in_the_capability_table() -> None:
    assert set(fault_capabilities({})) == set(FAULT_NAMES)
    nothing = fault_capabilities({})
    assert nothing["power"].level == NO
    assert nothing["kill"].level == YES


def test_delays_report_their_mechanism() -> None:
    queue = {"level": "yes", "how": "NFQUEUE", "why": ""}
    no_netem = {"level": "no", "how": "", "why": "qdisc unknown"}
    found = host_capabilities({"nfqueue": queue, "netem": no_netem})["delay"]
    assert (found.level, found.how) == (WEAKER, "NFQUEUE")
    assert "qdisc unknown" in found.line()
    netem = {"level": "yes", "how": "tc netem", "why": ""}
    found = host_capabilities({"nfqueue": queue, "netem": netem})["delay"]
    assert (found.level, found.how) == (YES, "tc netem")
    assert host_capabilities({"netem": no_netem})["delay"].level == NO


def test_host_names_are_accepted_and_two_hosts_may_share_an_address(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(
        GOOD.replace('"192.0.2.1"', '"localhost"').replace('"192.0.2.2"', '"localhost"')
    )
    assert [host.name for host in load_inventory(path).hosts] == ["localhost", "localhost:2222"]
