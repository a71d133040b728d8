"""Jars from a repository on this machine: what is kept, what is refused, and what is said about it."""

import hashlib
import http.server
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.systems.apache_kafka import cache as cache_module
from harness.systems.apache_kafka import fetch as fetch_module
from harness.systems.apache_kafka.cache import VersionCache, version_cache
from harness.systems.apache_kafka.fetch import (
    MODIFIED_S,
    REPOSITORY_VARIABLE,
    Fetched,
    WrongJarError,
    fetch,
)
from harness.systems.apache_kafka.jars import Jar
from harness.systems.apache_kafka.versions import Version

CONTENTS = {f"part-{number}": os.urandom(1000 + 70_000 * number) for number in range(4)}


def _jar(name: str) -> Jar:
    content = CONTENTS[name]
    return Jar(
        group="org.example",
        artifact=name,
        version="1.0",
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


JARS = tuple(_jar(name) for name in CONTENTS)


class Progress:
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.fractions: list[float] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        self.fractions.append(fraction)


class Repository:
    """A Maven repository with faults. Mutable: tests set what goes wrong."""

    def __init__(self) -> None:
        self.files = {f"/m2/{jar.repository_path}": CONTENTS[jar.artifact] for jar in JARS}
        self.requests: Counter[str] = Counter()
        self.cut: dict[str, int] = {}
        self.status: dict[str, int] = {}
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                repository.requests[self.path] += 1
                content = repository.files.get(self.path)
                status = repository.status.get(self.path, 200 if content is not None else 404)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                body = content or b""
                if repository.cut.get(self.path, 0) > 0:
                    repository.cut[self.path] -= 1
                    body = body[: len(body) // 2]
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/m2"

    def path(self, name: str) -> str:
        return f"/m2/{_jar(name).repository_path}"


@pytest.fixture
def repository() -> Iterator[Repository]:
    one = Repository()
    thread = threading.Thread(target=one.server.serve_forever, args=(0.01,))
    thread.start()
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VersionCache:
    """A machine without Maven and with an empty cache; the version has four jars, one of which is the tools."""
    monkeypatch.setattr(cache_module, "locked_jars", lambda _: JARS[:-1])
    monkeypatch.setattr(cache_module, "locked_tools", lambda _: JARS[-1:])
    monkeypatch.setattr(fetch_module, "PAUSE_MAX_S", 0.01)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv(REPOSITORY_VARIABLE, raising=False)
    return version_cache(Version(4, 1, 2), tmp_path / "cache")


def _content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


EXPECTED = {jar.file_name: CONTENTS[jar.artifact] for jar in JARS}


def test_a_fetch_downloads_every_jar_once(cache: VersionCache, repository: Repository) -> None:
    progress = Progress()
    assert not cache.is_fetched
    assert fetch(cache, progress, repository=repository.url + "/") == Fetched(downloaded=4)
    assert cache.is_fetched
    assert _content(cache.lib) == EXPECTED
    assert {path.stat().st_mtime for path in cache.lib.iterdir()} == {MODIFIED_S}
    assert progress.fractions[-1] == 1.0
    os.utime(cache.lib / JARS[0].file_name)
    assert fetch(cache, progress, repository=repository.url) == Fetched(was_there=True)
    assert {path.stat().st_mtime for path in cache.lib.iterdir()} == {MODIFIED_S}
    assert set(repository.requests.values()) == {1}


def test_the_environment_names_a_repository(
    cache: VersionCache, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, repository.url)
    assert fetch(cache, Progress()) == Fetched(downloaded=4)


def test_a_mirror_in_the_settings_of_maven_is_used(
    cache: VersionCache, repository: Repository, tmp_path: Path
) -> None:
    settings = tmp_path / "home" / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '<settings xmlns="urn:x"><mirrors><mirror><mirrorOf>other</mirrorOf><url>x</url></mirror>'
        f"<mirror><mirrorOf>a,central</mirrorOf><url>{repository.url}</url></mirror></mirrors></settings>"
    )
    assert fetch(cache, Progress()) == Fetched(downloaded=4)


def test_without_maven_and_repository_the_sentence_names_all_ways(cache: VersionCache) -> None:
    with pytest.raises(UsageError, match=r"4 jars .* Maven is not installed") as info:
        fetch(cache, Progress())
    for way in ("--repository", REPOSITORY_VARIABLE, "settings.xml"):
        assert way in str(info.value)
    assert not cache.lib.exists()


@pytest.mark.parametrize("address", ["ftp://host/x", "host/x", "https://", "file:///tmp"])
def test_an_address_that_is_no_repository_is_refused(cache: VersionCache, address: str) -> None:
    with pytest.raises(UsageError, match="a repository is an address such as"):
        fetch(cache, Progress(), repository=address)


@pytest.mark.parametrize("change", ["flipped", "longer", "shorter"])
def test_a_jar_with_another_checksum_is_refused_and_not_kept(
    cache: VersionCache, repository: Repository, change: str
) -> None:
    path = repository.path("part-2")
    good = repository.files[path]
    changed = {
        "flipped": good[:-1] + bytes([good[-1] ^ 1]),
        "longer": good + b"x",
        "shorter": good[:-1],
    }
    repository.files[path] = changed[change]
    with pytest.raises(UsageError, match=r"part-2-1\.0\.jar") as info:
        fetch(cache, Progress(), repository=repository.url)
    assert isinstance(info.value, WrongJarError) is (change != "shorter")
    assert not cache.lib.exists()
    kept = _content(cache.directory / "incomplete")
    assert all(EXPECTED[name] == content for name, content in kept.items())
    assert "part-2-1.0.jar" not in kept
    repository.files[path] = good
    fetch(cache, Progress(), repository=repository.url)
    assert _content(cache.lib) == EXPECTED


def test_an_interrupted_download_is_tried_again(
    cache: VersionCache, repository: Repository
) -> None:
    repository.cut[repository.path("part-3")] = 2
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(downloaded=4)
    assert repository.requests[repository.path("part-3")] == 3
    assert _content(cache.lib) == EXPECTED


def test_the_next_fetch_continues_where_this_one_stopped(
    cache: VersionCache, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "DOWNLOADS_MAX", 1)
    last = min(JARS, key=lambda jar: jar.bytes).artifact
    repository.status[repository.path(last)] = 503
    with pytest.raises(UsageError, match=r"503 .*continues where this one stopped"):
        fetch(cache, Progress(), repository=repository.url)
    assert not cache.is_fetched
    assert sorted(path.name for path in (cache.directory / "incomplete").iterdir()) == sorted(
        name for name in EXPECTED if not name.startswith(last)
    )
    del repository.status[repository.path(last)]
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(reused=3, downloaded=1)
    assert [repository.requests[repository.path(name)] for name in CONTENTS if name != last] == [
        1,
        1,
        1,
    ]


def test_what_a_killed_fetch_left_is_verified_again(
    cache: VersionCache, repository: Repository
) -> None:
    incomplete = cache.directory / "incomplete"
    incomplete.mkdir(parents=True)
    (incomplete / JARS[0].file_name).write_bytes(CONTENTS["part-0"])
    (incomplete / JARS[1].file_name).write_bytes(CONTENTS["part-1"][:-1] + b"?")
    (incomplete / ".part-2-1.0.jar.part").write_bytes(b"half")
    (incomplete / "other.jar").write_bytes(b"x")
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(reused=1, downloaded=3)
    assert _content(cache.lib) == EXPECTED


def test_a_repository_without_the_jar_is_named(cache: VersionCache, repository: Repository) -> None:
    with pytest.raises(UsageError, match=r"404 .*is it a Maven repository\?"):
        fetch(cache, Progress(), repository=repository.url + "/elsewhere")
    assert set(repository.requests.values()) == {1}


def test_an_unreachable_repository_is_one_sentence(cache: VersionCache) -> None:
    with pytest.raises(UsageError, match=r"cannot be downloaded .*refused"):
        fetch(cache, Progress(), repository="http://127.0.0.1:1")


def test_a_damaged_jar_is_replaced_and_the_others_are_kept(
    cache: VersionCache, repository: Repository
) -> None:
    fetch(cache, Progress(), repository=repository.url)
    damaged = cache.lib / JARS[2].file_name
    damaged.write_bytes(b"?" * JARS[2].bytes)
    (cache.lib / "stray.jar").write_bytes(b"")
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(reused=3, downloaded=1)
    assert _content(cache.lib) == EXPECTED


def test_nodes_run_without_the_tools_and_a_fetch_adds_them(
    cache: VersionCache, repository: Repository
) -> None:
    fetch(cache, Progress(), repository=repository.url)
    assert [path.name for path in cache.tool_paths] == list(EXPECTED)
    (tool,) = set(cache.tool_paths) - set(cache.jar_paths)
    tool.unlink()
    assert (cache.is_fetched, cache.has_tools) == (True, False)
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(reused=3, downloaded=1)
    assert (cache.is_fetched, cache.has_tools) == (True, True)


def test_the_local_maven_repository_is_used_first(
    cache: VersionCache, repository: Repository, tmp_path: Path
) -> None:
    local = tmp_path / "home" / ".m2" / "repository"
    for number, jar in enumerate(JARS):
        path = local / jar.repository_path
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENTS[jar.artifact] if number else b"damaged")
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(reused=3, downloaded=1)
    assert _content(cache.lib) == EXPECTED


def test_two_fetches_at_once_download_every_jar_once(
    cache: VersionCache, repository: Repository
) -> None:
    results: list[Fetched] = []

    def one() -> None:
        results.append(fetch(cache, Progress(), repository=repository.url))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.downloaded for result in results) == [0, 0, 4]
    assert set(repository.requests.values()) == {1}
    assert _content(cache.lib) == EXPECTED


def test_a_cache_that_cannot_be_written_is_named(cache: VersionCache, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be stored in .*--cache or LASTSTAND_CACHE"):
        fetch(cache, Progress(), repository="http://127.0.0.1:1")


def _fake_maven(tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    program.chmod(0o755)


def _fake_jars(tmp_path: Path) -> Path:
    folder = tmp_path / "from-maven"
    folder.mkdir()
    for jar in JARS:
        (folder / jar.file_name).write_bytes(CONTENTS[jar.artifact])
    return folder


COPY = """
for argument do
  case "$argument" in -DoutputDirectory=*) target="${argument#*=}";; esac
done
cp pom.xml "%(seen)s"
mkdir -p "$target" && cp "%(jars)s"/* "$target"
"""


def test_maven_fetches_exactly_the_jars_of_the_lock_file(
    cache: VersionCache, tmp_path: Path
) -> None:
    seen = tmp_path / "pom.xml"
    _fake_maven(tmp_path, COPY % {"seen": seen, "jars": _fake_jars(tmp_path)})
    assert fetch(cache, Progress()) == Fetched(downloaded=4)
    assert _content(cache.lib) == EXPECTED
    project = seen.read_text()
    assert project.count("<dependency>") == project.count("<groupId>*</groupId>") == 4
    assert "<artifactId>part-3</artifactId><version>1.0</version>" in project


def test_a_given_repository_wins_over_maven(
    cache: VersionCache, repository: Repository, tmp_path: Path
) -> None:
    _fake_maven(tmp_path, "exit 1")
    assert fetch(cache, Progress(), repository=repository.url) == Fetched(downloaded=4)


def test_a_wrong_jar_from_maven_is_refused(cache: VersionCache, tmp_path: Path) -> None:
    jars = _fake_jars(tmp_path)
    (jars / JARS[1].file_name).write_bytes(b"wrong")
    _fake_maven(tmp_path, COPY % {"seen": tmp_path / "pom.xml", "jars": jars})
    with pytest.raises(WrongJarError, match=r"org\.example:part-1:1\.0 that Maven fetched"):
        fetch(cache, Progress())
    assert not cache.lib.exists()
    assert set(_content(cache.directory / "incomplete")) <= {JARS[0].file_name}


def test_the_first_error_of_maven_is_reported(cache: VersionCache, tmp_path: Path) -> None:
    _fake_maven(
        tmp_path, "echo '[INFO] x'; echo '[ERROR] no network.'; echo '[ERROR] help'; exit 1"
    )
    with pytest.raises(UsageError, match=r"Maven failed: no network; `--repository URL` fetches"):
        fetch(cache, Progress())
