"""The agent's protocol: JSON lines, one response per request, nothing outside the run's directory."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemesis.agent import state
from nemesis.agent.client import AgentClient, AgentGoneError, LocalStream
from nemesis.agent.errors import AgentError
from nemesis.agent.processes import signals
from nemesis.agent.server import Server


def serve(run: Path, *lines: bytes) -> dict[Any, dict[str, Any]]:
    """Lets a server process lines; returns the responses by id."""
    sink = io.BytesIO()
    Server(run, io.BytesIO(b"".join(line + b"\n" for line in lines)), sink).serve()
    answers = [json.loads(line) for line in sink.getvalue().splitlines()]
    return {response["id"]: response for response in answers}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AgentClient]:
    client = AgentClient(LocalStream(tmp_path / "state" / "run"), "here")
    yield client
    client.close()


def test_damaged_requests_get_an_error_and_do_not_end_the_agent(tmp_path: Path) -> None:
    answers = serve(
        tmp_path,
        b"{not json",
        b'{"id": 1}',
        b'{"id": 2, "do": "dance"}',
        b'{"id": 3, "do": "pause", "args": {"node": "b9"}}',
        b'{"id": 4, "do": "hello", "args": {"wrong": 1}}',
        b'{"id": 5, "do": "hello"}',
    )
    assert "JSONDecodeError" in answers[None]["error"]
    assert answers[2]["error"] == "the agent has no command 'dance'"
    assert answers[3]["error"] == "the agent has no node 'b9'"
    assert "unexpected keyword" in answers[4]["error"]
    assert answers[5]["ok"]["pid"] == os.getpid()


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/file", "logs/../../other"])
def test_files_outside_of_the_run_are_refused(path: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    request = {"id": 1, "do": "write_file", "args": {"path": path, "text": "x"}}
    response = serve(run, json.dumps(request).encode())[1]
    assert "not below the run's directory" in response["error"]


def test_a_tail_returns_complete_lines_and_the_next_position(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\nthr")
    request = json.dumps({"id": 1, "do": "tail", "args": {"offsets": {"log": 4, "none": 0}}})
    assert serve(tmp_path, request.encode())[1]["ok"] == {"log": {"text": "two\n", "offset": 8}}


def test_a_client_receives_responses_errors_and_the_end_of_the_agent(client: AgentClient) -> None:
    assert client.call("hello")["is_root"] == (os.geteuid() == 0)
    with pytest.raises(AgentError, match="no command"):
        client.call("dance")
    client.close()
    with pytest.raises(AgentGoneError, match="the agent on here is gone"):
        client.call("hello")


def test_an_agent_ends_with_its_harness(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nemesis.agent.client import *; "
        f"c = AgentClient(LocalStream(Path({str(tmp_path / 'state' / 'run')!r})), 'x'); "
        "print(c.call('hello')['pid'], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout is not None
        agent = signals.identify(int(harness.stdout.readline()))
        harness.kill()
    assert signals.wait_gone(agent, 10)
    assert state.leftovers(tmp_path / "state") == ["run"]


def test_a_process_is_distinguished_from_a_later_one_with_the_same_pid() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        process = signals.identify(sleeper.pid)
        other = signals.ProcessId(pid=process.pid, began=process.began + 1)
        assert process.is_alive
        assert not other.is_alive
        assert not signals.send(other, signal.SIGKILL)
        assert signals.freeze(process)
        assert signals.standstill(process)["state"] == "T"
        signals.send(process, signal.SIGKILL)
        assert signals.wait_gone(process)


def test_cpu_is_limited_by_pausing_in_turns_without_a_quota(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        signals,
        "control_group",
        lambda _: signals.ControlGroup(version=2, memory=None, cpu=None),
    )
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        slow = signals.SlowCpu(signals.identify(busy.pid), 10)
        try:
            time.sleep(0.6)
            evidence = slow.evidence()
        finally:
            slow.end()
            busy.kill()
    assert evidence["mechanism"] == "stopped in turns"
    assert int(str(evidence["throttled"])) >= 2
