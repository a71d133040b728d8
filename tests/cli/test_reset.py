"""`laststand reset`: it reports what it could not check."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.environments.hosts import docker
from harness.errors import UsageError
from nemesis.agent import state
from nemesis.agent.disks import mounts, power_cut
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.errors import AgentError
from tests.cli.cli_helpers import Outcome, call

FAILURE = 255


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without a Docker engine, whose nft rules stay unchanged; returns the directory of leftovers."""

    def connect() -> None:
        raise UsageError("no Docker engine can be reached (no such file); start one")

    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker, "DEFAULT_SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(docker, "STATE_ROOT", tmp_path / "state")
    monkeypatch.setattr(docker, "connect", connect)
    monkeypatch.setattr(state, "_reset_own_namespace", list)
    # Others may have left something on this machine.
    every = mounts.mounts
    monkeypatch.setattr(mounts, "mounts", lambda pid="self": below(tmp_path, every(pid)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    yield tmp_path / "state"
    power_cut.reset(tmp_path)


def below(root: Path, found: list[mounts.Mount]) -> list[mounts.Mount]:
    return [mount for mount in found if root in Path(mount.path).parents]


def leave_probe(folder: Path, *, age_s: float, is_mounted: bool = True) -> Path:
    """Leaves what a probe leaves that was killed: a scratch disk on a loop device."""
    folder.mkdir(parents=True)
    if is_mounted:
        try:
            NodeDisk.create(folder / "ext4", filesystem="ext4", size_mib=64)
        except AgentError as error:
            pytest.skip(str(error))
    then_s = time.time() - age_s
    os.utime(folder, (then_s, then_s))
    return folder


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


@pytest.mark.containers
def test_the_mounts_of_a_killed_probe_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = leave_probe(tmp_path / "other" / "laststand-probe-a", age_s=3600)
    folder = leave_probe(tmp_path / "temporary" / "laststand-probe-b", age_s=3600)
    outcome = call(capsys, "reset")
    assert (outcome.code, outcome.err) == (0, "")
    for one in (elsewhere, folder):
        assert f"removed mount {one}/ext4/disk" in outcome.out
        assert f"removed directory {one}" in outcome.out
        assert not one.exists()
    assert power_cut.leftovers(tmp_path) == []
    assert "nothing was left to remove" in call(capsys, "reset").out


@pytest.mark.containers
def test_a_probe_that_may_be_in_progress_keeps_its_disks_unless_all_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = leave_probe(tmp_path / "temporary" / "laststand-probe-c", age_s=300)
    assert "nothing was left to remove" in call(capsys, "reset").out
    assert (folder / "ext4" / "disk" / "data").is_dir()
    assert f"removed mount {folder}/ext4/disk" in call(capsys, "reset", "--all").out
    assert power_cut.leftovers(tmp_path) == []


@pytest.mark.containers
def test_the_scratch_disks_of_a_run_in_progress_are_the_runs_own(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = machine / "in-progress"
    state.begin_run(run)
    folder = leave_probe(run / state.NODES_FOLDER / "laststand-probe-d", age_s=3600)
    try:
        assert "nothing was left to remove" in call(capsys, "reset").out
        assert (folder / "ext4" / "disk" / "data").is_dir()
    finally:
        state.remove_run(run)


def test_a_link_that_is_called_like_a_probe_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = leave_probe(tmp_path / "target", age_s=3600, is_mounted=False)
    (tmp_path / "temporary" / "laststand-probe-e").symlink_to(target)
    (target / "x.img").touch()
    assert "nothing was left to remove" in call(capsys, "reset", "--all").out
    assert (target / "x.img").exists()


def test_the_mounts_of_a_probe_need_root(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = leave_probe(tmp_path / "laststand-probe-f", age_s=3600, is_mounted=False)
    mount = SimpleNamespace(path=f"{folder}/ext4/disk", source="/dev/loop9")
    with monkeypatch.context() as patch:
        patch.setattr(mounts, "mounts", lambda: [mount])
        patch.setattr("os.geteuid", lambda: 1000)
        line = must_fail(call(capsys, "reset"))
    assert f"leftovers can only be removed by root: {folder}" in line
