"""The Java process: what starts it, what its end means, and how it ends with the harness."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import java
from harness.errors import HarnessFailure, UsageError
from harness.java import JavaRuntime
from workloads.clients import java_process
from workloads.clients.java_process import (
    MAIN_CLASS,
    JavaClientFiles,
    JavaEndedError,
    JavaProcess,
    compile_into,
    find_files,
    find_jars,
    java_versions,
)

STANDS_FOR_JAVA = """#!{python}
# Responds to requests by their topic: "now", "with-next" (after the next request), "exit" and "cut".
import os, sys
waiting = []
print("ready\\t1.2.3", flush=True)
for line in sys.stdin:
    kind, number, *fields = line.rstrip("\\n").split("\\t")
    if kind in ("open", "close"):
        continue
    if fields[0] == "now":
        print(f"offset\\t{{number}}\\t{{fields[1]}}", flush=True)
        for other in waiting:
            print(f"offset\\t{{other}}\\t0", flush=True)
        waiting.clear()
    elif fields[0] == "with-next":
        waiting.append(number)
    elif fields[0] == "exit":
        print("started", "java.lang.OutOfMemoryError: Java heap space", "more", sep="\\n", file=sys.stderr)
        sys.exit(3)
    elif fields[0] == "cut":
        sys.stdout.write(f"offset\\t{{number}}\\t1")
        sys.stdout.flush()
        os.kill(os.getpid(), 9)
"""


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return place


@pytest.fixture
def process(tmp_path: Path) -> Iterator[JavaProcess]:
    program(tmp_path / "bin" / "java", STANDS_FOR_JAVA.format(python=sys.executable))
    runtime = JavaRuntime(home=tmp_path, version="17.0.1", source="PATH")
    started = JavaProcess(JavaClientFiles(runtime=runtime, version="1.2.3", class_path=()))
    yield started
    started.close()


# --- operations


def test_operations_in_progress_get_their_own_results_in_any_order(process: JavaProcess) -> None:
    async def story() -> list[list[str]]:
        first = asyncio.create_task(process.request("append", "with-next"))
        await asyncio.sleep(0)
        return await asyncio.gather(first, *(process.request("append", "now", n) for n in range(9)))

    first, *others = asyncio.run(story())
    assert first == ["offset", "0"]
    assert others == [["offset", str(n)] for n in range(9)]


def test_the_end_of_the_process_ends_what_is_in_progress_and_names_the_error(
    process: JavaProcess,
) -> None:
    async def story() -> None:
        waiting = asyncio.create_task(process.request("append", "with-next"))
        await asyncio.sleep(0)
        with pytest.raises(JavaEndedError):
            await process.request("append", "exit")
        with pytest.raises(JavaEndedError):
            await waiting
        with pytest.raises(HarnessFailure, match=r"ended \(3\): java.lang.OutOfMemoryError"):
            await process.request("append", "now", 1)

    asyncio.run(story())
    assert not process.is_usable
    process.close_client("1")


def test_a_result_that_was_cut_short_is_none(process: JavaProcess) -> None:
    async def story() -> None:
        with pytest.raises(JavaEndedError):
            await process.request("append", "cut")
        with pytest.raises(HarnessFailure, match=r"ended \(-9\): it reported no error"):
            process.open_client()

    asyncio.run(story())


def test_a_result_after_the_caller_gave_up_is_dropped(process: JavaProcess) -> None:
    async def story() -> list[str]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await process.request("append", "with-next")
        return await process.request("append", "now", 5)

    assert asyncio.run(story()) == ["offset", "5"]
    assert process.is_usable


def test_a_forked_process_does_not_use_the_process_of_its_parent(
    process: JavaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert process.is_usable
    monkeypatch.setattr(process, "owner", os.getpid() + 1)
    assert not process.is_usable


def test_the_process_ends_with_the_harness(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", STANDS_FOR_JAVA.format(python=sys.executable))
    text = (
        "from pathlib import Path\nimport time\nfrom harness.java import JavaRuntime\n"
        "from workloads.clients.java_process import JavaClientFiles, JavaProcess\n"
        f"java = JavaRuntime(home=Path({str(tmp_path)!r}), version='17', source='PATH')\n"
        "made = JavaProcess(JavaClientFiles(runtime=java, version='1', class_path=()))\n"
        "print(made.pid, flush=True)\ntime.sleep(600)\n"
    )
    harness = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert harness.stdout is not None
    with harness, harness.stdout:
        pid = int(harness.stdout.readline())
        assert is_running(pid)
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    deadline_s = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline_s, "the Java process still runs"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# --- what starts it


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory, and no Java."""
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(java_process.VERSION_VARIABLE, raising=False)
    homes(monkeypatch)
    return tmp_path / "cache"


def homes(monkeypatch: pytest.MonkeyPatch, *found: tuple[str, Path]) -> None:
    """Makes these the Java homes of the machine."""
    monkeypatch.setattr(java, "java_homes", lambda: iter(found))
    monkeypatch.setattr(java_process, "java_homes", lambda: iter(found))


def fetched(cache: Path, version: str) -> Path:
    lib = cache / "apache-kafka" / version / "lib"
    lib.mkdir(parents=True)
    names = (f"kafka-clients-{version}", "slf4j-api-2.0", "kafka_2.13-1", "slf4j-reload4j-1.7")
    for name in (*names, "lz4-java-1.8", "zstd-jni-1.5", "snappy-java-1.1"):
        (lib / f"{name}.jar").touch()
    return lib


def test_the_newest_fetched_version_is_used_without_a_logging_backend(cache: Path) -> None:
    for version in ("3.9.2", "4.2.0", "4.10.1"):
        fetched(cache, version)
    version, jars = find_jars()
    assert version == "4.10.1"
    assert [jar.name for jar in jars] == [
        "kafka-clients-4.10.1.jar",
        "lz4-java-1.8.jar",
        "slf4j-api-2.0.jar",
        "snappy-java-1.1.jar",
        "zstd-jni-1.5.jar",
    ]


def test_the_environment_chooses_the_version(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.9.2", "4.2.0"):
        fetched(cache, version)
    monkeypatch.setenv(java_process.VERSION_VARIABLE, "3.9.2")
    assert find_jars()[0] == "3.9.2"
    monkeypatch.setenv(java_process.VERSION_VARIABLE, "3.6.2")
    with pytest.raises(UsageError, match=r"system fetch apache-kafka 3\.6\.2"):
        find_jars()


def test_without_jars_one_sentence_names_the_command_that_gets_them(cache: Path) -> None:
    with pytest.raises(UsageError, match=r"`laststand system fetch apache-kafka 4\.1\.2`"):
        find_files()


def test_without_a_compiler_one_sentence_names_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(cache, "4.1.2")
    with pytest.raises(UsageError, match="no Java was found; install a JDK 11 or newer"):
        find_files()
    refusal = (
        "#!/bin/sh\necho 'java.lang.module.FindException: Module jdk.compiler not found'\nexit 1\n"
    )
    program(tmp_path / "jre" / "bin" / "java", refusal)
    homes(monkeypatch, ("PATH", tmp_path / "jre"))
    with pytest.raises(UsageError, match=r"none of these has one: .*jre from PATH; install a JDK"):
        find_files()


def test_the_program_is_compiled_once_and_then_needs_no_compiler(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(cache, "4.1.2")
    log = tmp_path / "calls"
    # Stands for javac: the argument behind "-d" is where classes go.
    text = (
        "#!/bin/sh\n[ $1 = -version ] && { echo 'openjdk version \"17.0.1\"' >&2; exit 0; }\n"
        f'echo called >>{log}\nwhile [ "$1" != -d ]; do shift; done\n'
        f'mkdir -p "$2"\n: >"$2/{MAIN_CLASS}.class"\n'
    )
    program(tmp_path / "jdk" / "bin" / "java", text)
    homes(monkeypatch, ("JAVA_HOME", tmp_path / "without"), ("PATH", tmp_path / "jdk"))
    first, second = find_files(), find_files()
    assert first == second
    assert first.runtime == JavaRuntime(home=tmp_path / "jdk", version="17.0.1", source="PATH")
    assert first.version == "4.1.2"
    assert (first.class_path[0] / f"{MAIN_CLASS}.class").is_file()
    assert log.read_text(encoding="utf-8").splitlines() == ["called"]
    assert first.command[-1] == MAIN_CLASS


def test_a_program_that_does_not_compile_is_an_error_of_the_harness(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "#!/bin/sh\necho 'LaststandClient.java:5: error: cannot find symbol' >&2\nexit 1\n"
    program(tmp_path / "jdk" / "bin" / "java", text)
    homes(monkeypatch, ("PATH", tmp_path / "jdk"))
    with pytest.raises(HarnessFailure, match=r"does not compile: .*cannot find symbol"):
        compile_into(cache / "java-client" / "x", "class LaststandClient {", ())


def test_the_versions_are_those_of_the_running_process_else_of_the_one_that_would_start(
    cache: Path, process: JavaProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_process, "_PROCESS", process)
    assert java_versions() == {"kafka-clients": "1.2.3", "java": "17.0.1"}
    monkeypatch.setattr(java_process, "_PROCESS", None)
    with pytest.raises(UsageError, match="needs the jars of Apache Kafka"):
        java_versions()
