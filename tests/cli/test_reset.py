"""`laststand reset`: it reports what it could not check."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.environments.hosts import docker
from harness.errors import UsageError
from nemesis.agent import state
from tests.cli.cli_helpers import Outcome, call

FAILURE = 255


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a Docker engine, whose nft rules stay unchanged; returns the directory of leftovers."""

    def connect() -> None:
        raise UsageError("no Docker engine can be reached (no such file); start one")

    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker, "DEFAULT_SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(docker, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(docker, "connect", connect)
    monkeypatch.setattr(state, "_reset_own_namespace", list)
    return tmp_path / "state"


def leave(root: Path, name: str, *, in_containers: bool) -> None:
    run = root / name
    state.begin_run(run)
    if in_containers:
        state.record_interface(run, "ls00000000")
    (run / state.OWNER_FILE).unlink()


def must_fail(outcome: Outcome) -> str:
    assert outcome.code == FAILURE, outcome
    assert "nothing was left to remove" not in outcome.out
    (line,) = outcome.err.splitlines()
    return line


def test_a_reset_without_docker_reports_that_containers_were_not_checked(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(machine, "of-hosts", in_containers=False)
    outcome = call(capsys, "reset")
    assert (outcome.code, outcome.err) == (0, "")
    assert "removed of-hosts" in outcome.out
    assert "there is no Docker engine on this machine" in outcome.out
    assert call(capsys, "reset", "--json").data == {
        "removed": {"this machine": []},
        "engine": "none",
        "problem": "",
    }


def test_a_configured_docker_engine_that_does_not_respond_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    sentence = "containers and networks could not be checked and may remain: no Docker engine"
    assert sentence in must_fail(call(capsys, "reset"))
    outcome = call(capsys, "reset", "--json")
    must_fail(outcome)
    assert outcome.data["engine"] == "unreachable"
    assert sentence in outcome.data["problem"]


def test_a_docker_socket_that_does_not_respond_is_a_failure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "docker.sock").touch()
    assert "could not be checked" in must_fail(call(capsys, "reset"))


def test_files_of_runs_in_containers_are_removed_although_the_engine_is_needed(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(machine, "of-containers", in_containers=True)
    outcome = call(capsys, "reset")
    assert "could not be checked" in must_fail(outcome)
    assert "removed of-containers" in outcome.out
    assert not (machine / "of-containers").exists()


def test_leftovers_that_the_engine_does_not_remove_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "connect", lambda: SimpleNamespace(close=lambda: None))
    found = (["network a"], ["container b: it is stuck"])
    monkeypatch.setattr(docker, "sweep", lambda engine, even_if_alive: found)
    outcome = call(capsys, "reset")
    assert "not removed: container b: it is stuck" in must_fail(outcome)
    assert "removed network a" in outcome.out
