"""The one place where a Spark session is made, and the child process that Spark jobs of the command line run in.

Starting Spark costs more than most of what it does here, so the start is engineered: the first compiler tier and
the serial collector for small jobs, and a class-data archive (AppCDS) in the cache directory, keyed by Java, Spark
and the place of the jars, made once by `python -m checkers.spark --warm`. A missing or damaged archive costs time
and nothing else.

Spark writes to standard error what cannot be silenced. The command line therefore runs a job in a child process
whose standard error is a log file; a request goes in as JSON, and the answer comes back as JSON.

Source: measurements in the project's notes; JEP 350 for archives made at exit.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessFailure
from harness.java import JavaRuntime, cache_directory, find_java

DRIVER_MEMORY = "1g"
LARGE_DRIVER_MEMORY = "4g"
ANSWER_PREFIX = "laststand-answer "
_LOG_CONFIGURATION = Path(__file__).parent / "log4j2.properties"
_QUICK_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET_FLAGS = ("-Xlog:disable", "-Xlog:all=off")


def spark_session(
    name: str,
    *,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    large: bool = False,
    archive_to: Path | None = None,
) -> Any:
    """Returns a Spark session set up for this project; the process keeps one.

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
    os.environ["JAVA_HOME"] = str(runtime.home)
    # Workers must be this interpreter: the python3 on the path may lack every package.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    flags = list(_QUIET_FLAGS) + ([] if large else list(_QUICK_FLAGS))
    if archive_to is not None:
        flags.append(f"-XX:ArchiveClassesAtExit={archive_to}")
    elif (archive := archive_path(runtime)).exists():
        flags.append(f"-XX:SharedArchiveFile={archive}")
    flags.append(f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}")
    settings = {
        "spark.driver.memory": LARGE_DRIVER_MEMORY if large else DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(flags),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.pyspark.python": sys.executable,
        "spark.sql.warehouse.dir": str(cache_directory() / "spark-warehouse"),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def archive_path(runtime: JavaRuntime) -> Path:
    """Returns where the class-data archive for this Java, this Spark and this place of the jars is kept."""
    import pyspark

    place = Path(pyspark.__file__).parent / "jars"
    key = hashlib.blake2b(
        f"{runtime.home}|{runtime.version}|{pyspark.__version__}|{place}".encode(), digest_size=8
    ).hexdigest()
    return cache_directory() / "appcds" / f"spark-{pyspark.__version__}-{key}.jsa"


def make_archive() -> Path:
    """Runs what jobs usually run once and keeps the loaded classes; returns the archive's path.

    Must run in a process without a Spark session: the archive is written when its JVM ends.
    """
    path = archive_path(find_java())
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    session = spark_session("warm-up", archive_to=partial)
    _exercise(session)
    session.stop()
    # Stopping the session leaves the JVM running; it archives when it ends.
    gateway = session.sparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    if partial.exists():
        partial.replace(path)
    return path


def run_in_child(job: str, arguments: Mapping[str, Any], *, log_path: Path) -> dict[str, Any]:
    """Runs a Spark job in a child process.

    Args:
        job: A name in `checkers.jobs.JOBS`.
        arguments: JSON-compatible.
        log_path: Where the child's standard error goes.

    Returns:
        The job's answer.

    Raises:
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
        if line.startswith(ANSWER_PREFIX):
            answer: dict[str, Any] = json.loads(line.removeprefix(ANSWER_PREFIX))
            if "failure" in answer:
                raise HarnessFailure(f"the Spark job {job!r} failed: {answer['failure']} (see {log_path})")
            return answer
    raise HarnessFailure(
        f"the Spark job {job!r} ended with code {child.returncode} and no answer (see {log_path})"
    )


def _exercise(session: Any) -> None:
    """Touches the classes that jobs need: RDDs with Python workers, Arrow UDFs, SQL, Parquet both ways."""
    import pyarrow as pa

    def rows_of(table: pa.Table) -> pa.Table:
        return pa.table({"rows": pa.array([table.num_rows], pa.int64())})

    frame = session.range(1000).selectExpr("id % 7 AS part", "id AS value")
    frame.groupBy("part").applyInArrow(rows_of, "rows long").collect()
    session.sparkContext.parallelize(range(8), 2).mapPartitions(lambda part: [sum(part)]).collect()
    directory = cache_directory() / "warm-up.parquet"
    frame.write.mode("overwrite").parquet(str(directory))
    stored = session.read.parquet(str(directory))
    stored.groupBy("part").agg({"value": "max"}).orderBy("part").collect()
    stored.mapInArrow(lambda batches: batches, stored.schema).count()


if __name__ == "__main__":
    if sys.argv[1:] != ["--warm"]:
        print("usage: python -m checkers.spark --warm", file=sys.stderr)
        sys.exit(254)
    print(make_archive())
