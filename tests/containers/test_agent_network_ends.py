"""How packet rules end, with their process or before it, and which connection they spare."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemesis.agent.packets.namespace import Namespace
from tests.containers.network_rig import (
    PORT,
    RigHost,
    Site,
    connected,
    delay,
    drop,
    helper_pid,
    left_behind,
    limit,
    refusal,
    round_trips_ms,
    tables,
    wait_for,
    why_not,
)

pytestmark = pytest.mark.containers

ROOT = Path(__file__).resolve().parents[2]


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
