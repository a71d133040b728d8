"""The one place where Spark is started, and the child process in which Spark jobs of the command line run.

Starting Spark costs more than most of its work here, so the start is optimised: the first compiler tier and
the serial collector for small jobs, a class-data archive (AppCDS) in the cache directory, keyed by Java, Spark and
the place of the jars, made once by `python -m checkers.spark --warm`, and no SQL session for a job that only
distributes paths. A missing or damaged archive only costs time.

Spark writes to standard error what cannot be silenced. The command line therefore runs a job in a child process
whose standard error is a log file; a request goes in as JSON, and the result comes back as JSON.

Source: `benchmarks/check.py` for times; JEP 350 for archives made at exit.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers.java import find_java
from harness.errors import HarnessFailure, HistoryError
from harness.java import JavaRuntime, cache_directory

DRIVER_MEMORY = "1g"
LARGE_DRIVER_MEMORY = "4g"
TASK_FAILURES_MAX = 16
"""A task whose worker was lost runs again; only one that fails everywhere fails its job."""
RESULT_PREFIX = "laststand-result "
MESSAGE_PREFIX = "laststand-message "
"""Begins a line that a running job sends (`JobStream`); the JVM may print other lines."""
_LOG_CONFIGURATION = Path(__file__).parent / "log4j2.properties"
_QUICK_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET_FLAGS = ("-Xlog:disable", "-Xlog:all=off")
_ARCHIVE_TIMEOUT_S = 600
"""Making the archive takes 20 s of processor time; ten minutes mean that it hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Where Spark jobs run.

    Attributes:
        enabled: False uses processes of this machine instead (`--no-spark`).
        operations_min: Runs with fewer operations, all together, are judged in the process of the command: that
            takes less time than the start of Spark.
        master: Spark master URL.
        conf: Extra configuration.
    """

    enabled: bool = True
    operations_min: int = 0
    master: str = "local[2]"
    conf: tuple[tuple[str, str], ...] = ()

    @property
    def is_cluster(self) -> bool:
        """Whether its workers are other processes than the driver, which may be on other machines."""
        return is_cluster(self.master)


def is_cluster(master: str) -> bool:
    """Returns whether the workers of a master may be on other machines: all but `local[...]`."""
    return not master.startswith("local") or master.startswith("local-cluster")


def spark_context(
    name: str,
    *,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    large: bool = False,
    archive_to: Path | None = None,
) -> Any:
    """Returns a Spark context set up for this project; the process keeps one.

    This is enough for a job that only distributes paths. A job that runs SQL makes a session from it
    (`sql_session`), which loads another third of Spark's classes.

    Args:
        name: Shown by Spark.
        master: Spark master URL.
        conf: Extra configuration; wins over everything here.
        large: Whether the job moves tens of millions of rows: the better compiler and more memory.
        archive_to: Write a class-data archive there when the process ends.

    Raises:
        HarnessFailure: There is no usable Java.
    """
    runtime = find_java()
    settings = {
        "spark.driver.memory": LARGE_DRIVER_MEMORY if large else DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": " ".join(_java_flags(runtime, large, archive_to)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(cache_directory() / "spark-warehouse"),
    }
    os.environ["JAVA_HOME"] = str(runtime.home)
    # The script that starts Spark first starts a small JVM, only to get the command line of the real one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(_QUICK_FLAGS))
    if is_cluster(master):
        settings.update(_cluster_settings(conf or {}))
    else:
        # Workers must be this interpreter: the python3 on the path may lack every package.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    from pyspark import SparkConf, SparkContext

    configuration = SparkConf().setAppName(name).setMaster(master)
    for key, value in {**settings, **(conf or {})}.items():
        configuration.set(key, value)
    context = SparkContext.getOrCreate(configuration)
    context.setLogLevel("ERROR")
    return context


def _cluster_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the configuration that ships code and packages to workers, and sets the name of their Python.

    If `spark.archives` is set, the user ships another environment.
    """
    from checkers.spark_bundle import FOLDER, PYTHON, worker_bundle

    python = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = python or f"python{PYTHON}"
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # A worker that is lost fails the tasks that it had; they run again elsewhere.
    settings = {"spark.task.maxFailures": str(TASK_FAILURES_MAX)}
    if "spark.archives" not in conf:
        settings["spark.archives"] = f"{worker_bundle()}#{FOLDER}"
        settings["spark.executorEnv.PYTHONPATH"] = FOLDER
    return settings


def sql_session(context: Any) -> Any:
    """Returns the SQL session of a Spark context."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.config(conf=context.getConf()).getOrCreate()


def archive_path(runtime: JavaRuntime) -> Path:
    """Returns where the class-data archive for this Java, this Spark and this place of the jars is kept."""
    import pyspark

    place = Path(pyspark.__file__).parent / "jars"
    key = hashlib.blake2b(
        f"{runtime.home}|{runtime.version}|{pyspark.__version__}|{place}".encode(), digest_size=8
    ).hexdigest()
    return cache_directory() / "appcds" / f"spark-{pyspark.__version__}-{key}.jsa"


def warm_up() -> Path:
    """Makes the class-data archive, unless there is one, and returns its path. Silent; takes half a minute.

    Raises:
        HarnessFailure: It could not be made; the sentence names the log.
    """
    path = archive_path(find_java())
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    log_path = path.with_suffix(".log")
    with log_path.open("wb") as log:
        try:
            child = subprocess.run(
                [sys.executable, "-m", "checkers.spark", "--make-archive"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=_ARCHIVE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HarnessFailure(
                f"making Spark's class-data archive hangs (see {log_path})"
            ) from None
    if child.returncode != 0 or not path.exists():
        raise HarnessFailure(
            f"Spark's class-data archive could not be made: code {child.returncode} (see {log_path})"
        )
    log_path.unlink()
    return path


def run_in_child(job: str, arguments: Mapping[str, Any], *, log_path: Path) -> dict[str, Any]:
    """Runs a Spark job in a child process.

    Args:
        job: A name in `checkers.jobs.registry.JOBS`.
        arguments: JSON-compatible.
        log_path: Where the child's standard error goes.

    Returns:
        The job's result.

    Raises:
        HistoryError: A stored run is missing, truncated or not ours.
        HarnessFailure: The child failed; the sentence names the log.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        child = subprocess.run(
            [sys.executable, "-m", "checkers.jobs"],
            input=json.dumps({"job": job, "arguments": arguments}).encode(),
            stdout=subprocess.PIPE,
            stderr=log,
            check=False,
        )
    for line in reversed(child.stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith(RESULT_PREFIX):
            return _checked_result(job, json.loads(line.removeprefix(RESULT_PREFIX)), log_path)
    raise _ended_without_result(job, child.returncode, log_path)


class JobStream:
    """A Spark job in a child process that takes work, and returns results, while it runs. Mutable.

    Args:
        job: A name in `checkers.jobs.registry.JOBS`; the job reads its work from standard input, a JSON object per
            line, and ends with the input. It sends lines with `MESSAGE_PREFIX`.
        arguments: JSON-compatible.
        log_path: Where the child's standard error goes.
    """

    def __init__(self, job: str, arguments: Mapping[str, Any], *, log_path: Path) -> None:
        self._job = job
        self._log_path = log_path
        self._received = b""
        with log_path.open("ab") as log:
            # A group of its own: an interrupt in a terminal reaches the parent alone, which then stops the job.
            self._child = subprocess.Popen(
                [sys.executable, "-m", "checkers.jobs"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )
        self.send({"job": job, "arguments": arguments})

    def send(self, work: Mapping[str, Any]) -> None:
        """Sends one piece of work.

        Raises:
            HarnessFailure: The job has ended.
        """
        assert self._child.stdin is not None
        try:
            self._child.stdin.write((json.dumps(work) + "\n").encode())
            self._child.stdin.flush()
        except BrokenPipeError:
            raise _ended_without_result(self._job, self._child.wait(), self._log_path) from None

    def fileno(self) -> int:
        """Returns the descriptor that becomes readable when something arrives."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Waits until something arrives, and returns the messages that arrived completely.

        Raises:
            HarnessFailure: The job failed or ended; the sentence names the log.
        """
        chunk = os.read(self.fileno(), 1 << 20)
        if not chunk:
            raise _ended_without_result(self._job, self._child.wait(), self._log_path)
        *lines, self._received = (self._received + chunk).split(b"\n")
        messages = []
        for line in (line.decode("utf-8", "replace") for line in lines):
            if line.startswith(MESSAGE_PREFIX):
                messages.append(json.loads(line.removeprefix(MESSAGE_PREFIX)))
            elif line.startswith(RESULT_PREFIX):
                _checked_result(
                    self._job, json.loads(line.removeprefix(RESULT_PREFIX)), self._log_path
                )
        return messages

    def stop(self) -> None:
        """Ends the child; its JVM and the workers of the JVM end with it."""
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        self._child.wait()


def _checked_result(job: str, result: dict[str, Any], log_path: Path) -> dict[str, Any]:
    """Returns the result of a job, or raises what it reports."""
    if "history_error" in result:
        raise HistoryError(result["history_error"])
    if "failure" in result:
        raise HarnessFailure(f"the Spark job {job!r} failed: {result['failure']} (see {log_path})")
    return result


def _ended_without_result(job: str, code: int, log_path: Path) -> HarnessFailure:
    return HarnessFailure(
        f"the Spark job {job!r} ended with code {code} and no result (see {log_path})"
    )


def _java_flags(runtime: JavaRuntime, large: bool, archive_to: Path | None) -> list[str]:
    flags = [*_QUIET_FLAGS, *(() if large else _QUICK_FLAGS)]
    archive = archive_path(runtime)
    base = _base_archive(archive)
    if archive_to is not None:
        flags.append(f"-XX:ArchiveClassesAtExit={archive_to}")
        if base.exists():
            flags.append(f"-XX:SharedArchiveFile={base}")
    elif archive.exists():
        below = f"{base}{os.pathsep}" if base.exists() else ""
        flags.append(f"-XX:SharedArchiveFile={below}{archive}")
    flags.append(f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}")
    return flags


def _base_archive(archive: Path) -> Path:
    return archive.with_suffix(".base.jsa")


def _make_archive() -> None:
    """Runs what jobs usually run once and keeps the loaded classes.

    Runs in a separate process, because the archive is written when its JVM ends.
    """
    runtime = find_java()
    path = archive_path(runtime)
    _make_base_archive(runtime, _base_archive(path))
    partial = path.with_suffix(f".{os.getpid()}")
    context = spark_context("warm-up", archive_to=partial)
    _exercise(context)
    # Stopping the context leaves the JVM running; it archives when it ends.
    gateway = context._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    partial.replace(path)


def _make_base_archive(runtime: JavaRuntime, path: Path) -> None:
    """Archives the runtime's own classes if it has no such archive; ours builds on it."""
    has_one = subprocess.run(
        [runtime.java, "-Xshare:on", "-version"], capture_output=True, check=False
    )
    if has_one.returncode != 0 and not path.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [runtime.java, "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"], check=True
        )
        partial.replace(path)


def _exercise(context: Any) -> None:
    """Touches the classes that jobs need: RDDs with Python workers, shuffles, SQL over Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = context.parallelize(range(8), 2)
    numbers.mapPartitions(lambda part: [sum(part)]).collect()
    numbers.map(lambda number: (number % 3, b"x")).groupByKey(2).mapValues(len).collect()
    path = cache_directory() / "appcds" / f"warm-up-{os.getpid()}.parquet"
    pq.write_table(
        pa.table({"part": [1, 2, 1], "value": [1.5, 2.5, 3.5], "word": [["a"], [], ["b"]]}), path
    )
    session = sql_session(context)
    stored = session.read.parquet(str(path))
    stored.createOrReplaceTempView("stored")
    session.sql(
        "SELECT part, count(*) AS n, sum(value) AS total, percentile(value, 0.5) AS median, "
        "count_if(value > 2) AS large FROM stored GROUP BY part ORDER BY part"
    ).collect()
    session.sql(
        "SELECT word, count(*) FROM (SELECT explode(word) AS word FROM stored) GROUP BY word"
    ).collect()
    path.unlink()


if __name__ == "__main__":
    if sys.argv[1:] == ["--make-archive"]:
        _make_archive()
    elif sys.argv[1:] == ["--warm"]:
        try:
            warm_up()
        except HarnessFailure as failure:
            print(f"laststand: harness failure: {failure}", file=sys.stderr)
            sys.exit(255)
    else:
        print("usage: python -m checkers.spark --warm", file=sys.stderr)
        sys.exit(254)
