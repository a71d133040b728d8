"""Run stores at a URI: with `file://`, and with an S3-compatible server if there is one."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import HarnessFailure, HistoryError
from results.layout import STORED_FILE, RunFiles
from results.remote_files import RemoteFiles
from results.remote_store import RemoteStore
from tests.s3_server import S3Server, s3_server

STAMP = "20260131T235959Z"
RUN = f"lrs/{STAMP}-7"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/store"
    running: S3Server = request.getfixturevalue("server")
    for name, value in running.variables.items():
        monkeypatch.setenv(name, value)
    return running.uri(tmp_path.name)


def opened(uri: str, work: Path) -> RemoteStore:
    """A store as one machine sees it."""
    work.mkdir(parents=True, exist_ok=True)
    store = RemoteStore(uri, work)
    store.refresh()
    return store


def made(store: RemoteStore, seed: int = 7, verdict: str = "invalid") -> Path:
    """Makes a run in the working directory."""
    directory = store.create("lrs", seed, stamp=STAMP)
    files = RunFiles(directory)
    files.history.mkdir()
    (files.history / "operations.parquet").write_bytes(bytes(range(256)) * 100_000)
    (files.history / "manifest.json").write_text("{}")
    files.experiment.write_text('name = "lrs"\n')
    files.run.write_text(json.dumps({"verdict": verdict, "seed": seed}))
    return directory


def content(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_run_that_one_machine_published_is_the_same_on_another_one(
    uri: str, tmp_path: Path
) -> None:
    here = opened(uri, tmp_path / "here")
    run = made(here)
    here.publish(run)
    there = opened(uri, tmp_path / "there")
    (entry,) = there.list()
    assert (entry.id, entry.verdict, entry.seed) == (RUN, "invalid", "7")
    assert not (entry.directory / "history").exists(), "the list copies summaries only"
    for name in ("latest", RUN, f"{STAMP}-7", "lrs/2026"):
        assert content(there.find(name)) == content(run)
    assert there.location(entry.directory) == f"{uri}/{RUN}"
    with pytest.raises(HistoryError, match="is called 'none'"):
        there.find("none")


def test_a_run_counts_when_its_last_file_was_written(uri: str, tmp_path: Path) -> None:
    here = opened(uri, tmp_path / "here")
    run = made(here)
    here.publish(run)
    here.files.remove(f"{RUN}/{STORED_FILE}")
    there = opened(uri, tmp_path / "there")
    assert there.list() == ()
    with pytest.raises(HistoryError, match="there are no runs"):
        there.find("latest")


def test_another_judgement_replaces_its_files_and_nothing_else(uri: str, tmp_path: Path) -> None:
    here = opened(uri, tmp_path / "here")
    here.publish(made(here))
    there = opened(uri, tmp_path / "there")
    run = there.find("latest")
    RunFiles(run).run.write_text(json.dumps({"verdict": "valid", "seed": 7}))
    there.files.remove(f"{RUN}/history")  # what is not written again stays away
    there.publish(run)
    assert "history/operations.parquet" not in there.files.sizes(RUN)
    here.refresh()
    assert [entry.verdict for entry in here.list()] == ["valid"]


def test_a_damaged_history_is_refused(uri: str, tmp_path: Path) -> None:
    here = opened(uri, tmp_path / "here")
    here.publish(made(here))
    here.files.write(f"{RUN}/history/operations.parquet", b"other")
    there = opened(uri, tmp_path / "there")
    with pytest.raises(HistoryError, match=r"operations\.parquet is damaged: its content is not"):
        there.find("latest")
    here.files.remove(f"{RUN}/history/operations.parquet")
    with pytest.raises(HistoryError, match=r"operations\.parquet is missing"):
        there.find("latest")


def test_runs_that_were_removed_elsewhere_are_forgotten_and_unpublished_ones_stay(
    uri: str, tmp_path: Path
) -> None:
    here, there = opened(uri, tmp_path / "here"), opened(uri, tmp_path / "there")
    here.publish(made(here, 7))
    unpublished = made(here, 8)
    there.refresh()
    there.files.remove(RUN)
    here.refresh()
    assert [entry.seed for entry in here.list()] == ["8"]
    assert here.find("latest") == unpublished
    assert not here.is_published(unpublished)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", ""])
def test_a_list_that_names_other_files_is_refused(tmp_path: Path, name: str) -> None:
    uri = f"file://{tmp_path}/store"
    here = opened(uri, tmp_path / "here")
    here.publish(made(here))
    text = json.dumps({"schema": 1, "files": {name: "00"}})
    here.files.write(f"{RUN}/{STORED_FILE}", text.encode())
    there = opened(uri, tmp_path / "there")
    with pytest.raises(HistoryError, match="which is not a file of a run"):
        there.find("latest")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 2, "files": {}}', '{"schema": 1}'])
def test_a_damaged_list_is_refused(tmp_path: Path, text: str) -> None:
    uri = f"file://{tmp_path}/store"
    here = opened(uri, tmp_path / "here")
    here.publish(made(here))
    here.files.write(f"{RUN}/{STORED_FILE}", text.encode())
    with pytest.raises(HistoryError, match="is not the list of a run's files"):
        opened(uri, tmp_path / "there").find("latest")


def test_files_are_listed_read_and_removed_by_name(uri: str) -> None:
    files = RemoteFiles(uri)
    assert files.names() == {}
    assert files.sizes("nothing") == {}
    assert files.read("a/b.txt") is None
    files.write("a/b.txt", b"12")
    files.write("c.txt", b"345")
    assert files.names() == {"a": True, "c.txt": False}
    assert files.sizes() == {"a/b.txt": 2, "c.txt": 3}
    assert files.sizes("a") == {"b.txt": 2}
    assert files.read("a/b.txt") == b"12"
    files.remove("a")
    files.remove("a")
    assert files.sizes() == {"c.txt": 3}


def test_an_unreachable_server_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused_port}")
    store = RemoteStore("s3a://bucket/runs", tmp_path)
    with pytest.raises(HarnessFailure, match=r"s3a://bucket/runs cannot be listed: .*AWS_ENDPOINT"):
        store.refresh()
    run = made(store)
    before = content(run)
    with pytest.raises(HarnessFailure, match=r"cannot be written"):
        store.publish(run)
    assert content(run) == before


def test_a_bucket_that_does_not_exist_is_named(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    store = RemoteStore("s3a://no-such-bucket/runs", tmp_path)
    with pytest.raises(HarnessFailure, match=r"NO_SUCH_BUCKET.*make the bucket"):
        store.publish(made(store))


def test_a_store_in_the_way_of_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    store = RemoteStore(f"file://{tmp_path}/store", tmp_path / "work")
    with pytest.raises(HarnessFailure, match="cannot be written"):
        store.publish(made(store))
    shutil.rmtree(tmp_path / "work")


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
