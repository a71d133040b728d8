"""Fetches the jars of a version into the cache directory.

A jar is taken from the first place that has it: what an interrupted fetch left, the local Maven repository,
the given repository over HTTP, Maven. Wherever it comes from, its checksum is compared with the lock file.
The directory of jars appears in one step when all are there.
"""

import contextlib
import fcntl
import hashlib
import http.client
import os
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from harness.contracts.progress import ProgressDisplay
from harness.errors import UsageError
from harness.systems.apache_kafka.cache import VersionCache
from harness.systems.apache_kafka.jars import Jar
from harness.systems.apache_kafka.maven import copy_jars, find_maven, maven_settings

REPOSITORY_VARIABLE = "LASTSTAND_MAVEN_REPOSITORY"
MODIFIED_S = 1_000_000_000
"""Modification time of every jar. A class-data archive is valid only for jars with the times that it has recorded,
so copies of a cache directory keep theirs."""
DOWNLOADS_MAX = 8
CHUNK_BYTES = 1 << 16
TIMEOUT_S = 60.0
ATTEMPTS = 4
PAUSE_MAX_S = 5.0


class WrongJarError(UsageError):
    """A jar is not the one in the lock file."""


class _InterruptedDownloadError(Exception):
    """A download can be tried again; the message states what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a fetch did.

    Attributes:
        was_there: Whether every jar was in the cache already.
        reused: Number of jars that an earlier fetch or the local Maven repository had.
        downloaded: Number of jars from a repository, by Maven or without.
    """

    was_there: bool = False
    reused: int = 0
    downloaded: int = 0


def fetch(cache: VersionCache, progress: ProgressDisplay, *, repository: str = "") -> Fetched:
    """Fetches every jar of a version that is not in the cache, and verifies those that are.

    Args:
        cache: Where to put them.
        progress: Shows how far it is.
        repository: Address of a Maven repository; if empty, the environment variable
            LASTSTAND_MAVEN_REPOSITORY, else Maven's own configuration.

    Raises:
        UsageError: A jar cannot be fetched, is not the one in the lock file, or cannot be stored. Jars that
            were verified before are kept for the next fetch.
    """
    repository = _checked_repository(repository or os.environ.get(REPOSITORY_VARIABLE, ""))
    with _storing(cache), _only_fetch(cache, progress):
        if _is_complete(cache):
            _set_times(cache.lib)
            return Fetched(was_there=True)
        incomplete = cache.directory / "incomplete"
        incomplete.mkdir(exist_ok=True)
        _salvage(cache, incomplete)
        missing = [jar for jar in cache.all_jars if not is_jar(incomplete / jar.file_name, jar)]
        missing = _copy_from_local_repository(missing, incomplete)
        reused = len(cache.all_jars) - len(missing)
        if missing:
            _download(missing, incomplete, repository, progress, cache)
        _set_times(incomplete)
        incomplete.rename(cache.lib)
    return Fetched(reused=reused, downloaded=len(missing))


def _set_times(directory: Path) -> None:
    for path in directory.iterdir():
        os.utime(path, (MODIFIED_S, MODIFIED_S))


def is_jar(path: Path, jar: Jar) -> bool:
    """Whether a file has the size and checksum of a jar."""
    try:
        if path.stat().st_size != jar.bytes:
            return False
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def _checked_repository(address: str) -> str:
    if not address:
        return ""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"a repository is an address such as https://HOST/PATH, not {address!r}")
    return address.rstrip("/")


@contextlib.contextmanager
def _storing(cache: VersionCache) -> Iterator[None]:
    """Makes the directory; turns an error of the file system into a sentence about it."""
    try:
        cache.directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(
            f"the jars cannot be stored in {cache.directory} ({error.strerror or error}); "
            "choose another directory with --cache or LASTSTAND_CACHE"
        ) from None


@contextlib.contextmanager
def _only_fetch(cache: VersionCache, progress: ProgressDisplay) -> Iterator[None]:
    """Waits until no other process fetches this version."""
    with open(cache.directory / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.message(f"another process is fetching {cache.version}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_complete(cache: VersionCache) -> bool:
    """Whether the directory of jars has every jar, and nothing else that a class path could name."""
    with contextlib.suppress(OSError):
        names = {path.name for path in cache.lib.iterdir()}
        if names == {jar.file_name for jar in cache.all_jars}:
            return all(is_jar(cache.lib / jar.file_name, jar) for jar in cache.all_jars)
    return False


def _salvage(cache: VersionCache, incomplete: Path) -> None:
    """Keeps the good jars of a damaged directory, and removes the rest of it and of an earlier fetch."""
    by_name = {jar.file_name: jar for jar in cache.all_jars}
    if cache.lib.exists():
        for path in cache.lib.iterdir():
            if path.name in by_name and is_jar(path, by_name[path.name]):
                path.replace(incomplete / path.name)
        shutil.rmtree(cache.lib)
    for path in incomplete.iterdir():
        if path.name not in by_name:
            path.unlink()


def _copy_from_local_repository(jars: Sequence[Jar], target: Path) -> list[Jar]:
    """Copies what the local Maven repository has; returns the others."""
    local = maven_settings().local_repository
    missing = []
    for jar in jars:
        source = local / jar.repository_path
        if is_jar(source, jar):
            _store_copy(source, target / jar.file_name)
        else:
            missing.append(jar)
    return missing


def _store_copy(source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, partial)
    partial.replace(target)


def _download(
    jars: Sequence[Jar],
    target: Path,
    repository: str,
    progress: ProgressDisplay,
    cache: VersionCache,
) -> None:
    maven = find_maven()
    if not repository and maven is not None:
        progress.message(f"Maven fetches {len(jars)} jars of Apache Kafka {cache.version}")
        _take_from_maven(maven, jars, target)
        return
    repository = repository or _checked_repository(maven_settings().mirror)
    if not repository:
        raise UsageError(
            f"{len(jars)} jars of Apache Kafka {cache.version} are missing, and Maven is not installed; install "
            f"it, or name a Maven repository with --repository URL, in {REPOSITORY_VARIABLE}, or as a mirror "
            "in ~/.m2/settings.xml"
        )
    _download_all(jars, target, repository, progress, f"fetching {cache.version}")


def _take_from_maven(maven: Path, jars: Sequence[Jar], target: Path) -> None:
    copied = target / ".maven"
    try:
        copy_jars(maven, jars, copied)
        for jar in jars:
            source = copied / jar.file_name
            if not is_jar(source, jar):
                raise WrongJarError(
                    f"the {jar.coordinates} that Maven fetched is not the one in the lock file "
                    f"(SHA-256 {jar.sha256}), so it was not kept; check Maven's mirrors"
                )
            source.replace(target / jar.file_name)
    finally:
        shutil.rmtree(copied, ignore_errors=True)


def _download_all(
    jars: Sequence[Jar], target: Path, repository: str, progress: ProgressDisplay, label: str
) -> None:
    """Downloads jars in parallel; after a failure no further download is started."""
    stopped = threading.Event()
    total = sum(jar.bytes for jar in jars)
    done_bytes = 0
    with ThreadPoolExecutor(DOWNLOADS_MAX) as pool:
        # The largest first: the last one to finish should be a small one.
        ordered = sorted(jars, key=lambda jar: -jar.bytes)
        futures = {
            pool.submit(_download_one, jar, target, repository, stopped): jar for jar in ordered
        }
        try:
            for number, future in enumerate(as_completed(futures), 1):
                future.result()
                done_bytes += futures[future].bytes
                progress.update(label, done_bytes / total, f"{number}/{len(jars)} jars")
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _download_one(jar: Jar, target: Path, repository: str, stopped: threading.Event) -> None:
    url = f"{repository}/{jar.repository_path}"
    partial = target / f".{jar.file_name}.part"

    def pause(seconds: float) -> None:
        stopped.wait(seconds)

    retrying = Retrying(
        retry=retry_if_exception_type(_InterruptedDownloadError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential(multiplier=0.1, max=PAUSE_MAX_S),
        sleep=pause,
        reraise=True,
    )
    try:
        retrying(_download_to, url, jar, partial, stopped)
        partial.replace(target / jar.file_name)
    except _InterruptedDownloadError as error:
        raise UsageError(
            f"{url} cannot be downloaded ({error}); the same command continues where this one stopped"
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _download_to(url: str, jar: Jar, partial: Path, stopped: threading.Event) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "laststand"})
    try:
        with (
            urllib.request.urlopen(request, timeout=TIMEOUT_S) as response,
            open(partial, "wb") as file,
        ):
            size, digest = _copy(response, file, jar.bytes, stopped)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code < 500:
            raise UsageError(
                f"{url} cannot be downloaded ({error.code} {error.reason}); is it a Maven repository?"
            ) from None
        raise _InterruptedDownloadError(f"{error.code} {error.reason}") from None
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        reason = getattr(error, "reason", None) or error
        raise _InterruptedDownloadError(str(reason) or type(error).__name__) from None
    if size < jar.bytes:
        raise _InterruptedDownloadError(f"it ended after {size} of {jar.bytes} bytes")
    if digest != jar.sha256:
        raise WrongJarError(
            f"{url} is not the jar in the lock file (SHA-256 {digest}, not {jar.sha256}), so it was not kept; "
            "use another repository"
        )


def _copy(
    source: http.client.HTTPResponse, file: IO[bytes], limit: int, stopped: threading.Event
) -> tuple[int, str]:
    """Copies at most one byte more than `limit`; returns the number of bytes and their checksum."""
    digest = hashlib.sha256()
    size = 0
    while size <= limit:
        if stopped.is_set():
            raise _InterruptedDownloadError("another download failed")
        chunk = source.read(min(CHUNK_BYTES, limit + 1 - size))
        if not chunk:
            break
        file.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()
