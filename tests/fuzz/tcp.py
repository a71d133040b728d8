"""The same hostile frames over real sockets, against a broker and a controller that are processes.

Frames go out in bunches, one connection per bunch, and the connection is ended without waiting for more responses
than come at once. What has to hold: both processes live, the broker serves a Metadata request after every few
bunches, its memory stays bounded, and after a kill -9 its logs load and serve again.
"""

import contextlib
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from harness.environments.local.standing import LocalCluster, local_settings
from harness.errors import HarnessFailure
from harness.systems.reference.status import broker_count
from tests.fuzz import frames
from tests.fuzz.report import Finding

BUNCH = 25
LOOK_EVERY = 40
MEMORY_MAX_KB = 1_500_000
ROLES = ("broker", "broker", "broker", "controller")


def run(seed: int, count: int) -> Iterator[Finding | None]:
    """Yields a finding, or None, for every case."""
    stream = random.Random(f"{seed} tcp")
    makers = {
        role: frames._Maker(role, stream, (UUID(int=7),)) for role in ("broker", "controller")
    }
    with tempfile.TemporaryDirectory(prefix="laststand-fuzz-") as folder:
        directory = Path(folder) / "nodes"
        with LocalCluster.create(
            directory, brokers=1, controllers=1, settings=local_settings(timings="fast")
        ) as cluster:
            cluster.start()
            cluster.wait_ready(60)
            case = 0
            bunches = 0
            while case < count:
                role = stream.choice(ROLES)
                bunch = [makers[role].frame() for _ in range(min(BUNCH, count - case))]
                _send(cluster.nodes["b1" if role == "broker" else "c11"].address, bunch)
                bunches += 1
                what = _trouble(cluster, thorough=bunches % LOOK_EVERY == 0)
                if what is not None:
                    data = "\n  ".join(frame.hex() for frame in bunch)
                    yield Finding(case=case, what=what, data=data)
                    return
                yield from (None for _ in bunch)
                case += len(bunch)
            what = _comes_back(cluster)
            if what is not None:
                yield Finding(case=case, what=what, data="")


def _send(address: str, bunch: list[bytes]) -> None:
    host, _, port = address.rpartition(":")
    data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in bunch)
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), timeout=5) as connection,
    ):
        connection.settimeout(0.02)
        connection.sendall(data)
        with contextlib.suppress(TimeoutError):
            while connection.recv(65536):
                pass


def _trouble(cluster: LocalCluster, *, thorough: bool) -> str | None:
    for node in cluster.dead_nodes():
        # A client that registers under a broker's id ends its session, as in Kafka without authentication.
        if "superseded" in node.log_tail() or "was registered" in node.log_tail():
            cluster.start_node(node.name)
            continue
        return f"{node.name} ended ({node.exit_code}): {node.log_tail()}"
    if not thorough:
        return None
    node = cluster.nodes["b1"]
    status = Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
    resident_kb = int(status.split("VmRSS:")[1].split()[0])
    if resident_kb > MEMORY_MAX_KB:
        return f"b1 uses {resident_kb} kB"
    return None if broker_count(node.address) else "b1 does not respond"


def _comes_back(cluster: LocalCluster) -> str | None:
    for name in cluster.nodes:
        cluster.kill(name)
    cluster.start()
    try:
        cluster.wait_ready(60)
    except HarnessFailure as failure:
        return str(failure)
    return None
