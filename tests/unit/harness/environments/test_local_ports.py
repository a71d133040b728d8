"""Ports of a local cluster are not those that the kernel gives to outgoing connections."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.environments.local import ports
from harness.errors import HarnessFailure, UsageError


@pytest.fixture
def outgoing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "OUTGOING", path)
    return path


def test_ports_differ_and_lie_outside_the_range_of_outgoing_connections(outgoing: Path) -> None:
    outgoing.write_text("20000\t65000\n")
    found = ports.listening_ports(200, None)
    assert len(set(found)) == 200
    assert all(ports.FIRST <= port < 20000 or 65000 < port <= ports.PORT_MAX for port in found)


@pytest.mark.parametrize("text", ["", "none", None])
def test_where_the_kernel_does_not_say_its_default_counts(outgoing: Path, text: str | None) -> None:
    if text is not None:
        outgoing.write_text(text)
    assert max(ports.listening_ports(50, None)) < ports.OUTGOING_FIRST


def test_a_port_that_is_taken_is_not_chosen(
    outgoing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Clusters of other tests choose ports above: of three that they may choose too, one is soon gone.
    monkeypatch.setattr(ports, "FIRST", 7000)
    outgoing.write_text("7003 65535")
    [free, other, taken] = ports.listening_ports(3, None)
    with socket.socket() as holder:
        holder.bind((ports.LOOPBACK, taken))
        holder.listen()
        assert sorted(ports.listening_ports(2, None)) == sorted([free, other])
        with pytest.raises(HarnessFailure, match="fewer than 3 ports are free"):
            ports.listening_ports(3, None)
        with pytest.raises(UsageError, match=f"port {taken} is taken"):
            ports.listening_ports(1, taken)


def test_consecutive_ports_begin_where_the_user_says() -> None:
    assert ports.listening_ports(3, 7300) == [7300, 7301, 7302]


def test_a_port_that_another_process_has_reserved_is_not_chosen(
    outgoing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is down does not hold its port."""
    monkeypatch.setattr(ports, "FIRST", 7100)
    outgoing.write_text("7200 65535")
    code = (
        "import sys; from harness.environments.local import ports; from pathlib import Path;"
        f"ports.FIRST = 7100; ports.OUTGOING = Path({str(outgoing)!r});"
        "print(*ports.listening_ports(50, None), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(word) for word in other.stdout.readline().split()}
        assert len(theirs) == 50
        assert not theirs & set(ports.listening_ports(40, None))
        other.communicate()
    # The end of the process ends its reservations; of fewer than all ports these are then chosen again.
    assert theirs & set(ports.listening_ports(50, None))
