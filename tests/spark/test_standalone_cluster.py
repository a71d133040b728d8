"""A standalone cluster of processes: workers have Python and Spark, and no package and no path of the driver."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from checkers.java import find_java
from tests import cluster_stories as stories
from tests.cluster_stories import Cluster
from tests.s3_server import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]
HOST = "127.0.0.1"
START_LIMIT_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers with one core each."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    started: list[subprocess.Popen[bytes]] = []
    with s3_server(log=folder / "s3.log") as server:
        variables = {
            # The interpreter without this environment: what runs need comes from the bundle.
            "PATH": f"{_plain_python().parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": HOST,
            **server.variables,
        }

        def start(name: str, *words: str) -> subprocess.Popen[bytes]:
            with (folder / f"{name}.log").open("wb") as log:
                program = Path(variables["SPARK_HOME"]) / "bin" / "spark-class"
                process = subprocess.Popen(
                    [program, f"org.apache.spark.deploy.{words[0]}", *words[1:]],
                    env={**variables, "SPARK_WORKER_DIR": str(folder / name)},
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                    process_group=0,
                )
            started.append(process)
            return process

        try:
            start("master", "master.Master", "--host", HOST, "--port", "0", "--webui-port", "0")
            url = _waited_for(folder / "master.log", r"Starting Spark master at (spark://\S+)")
            for name in ("worker-1", "worker-2"):
                words = ("--cores", "1", "--memory", "1g", "--host", HOST, "--webui-port", "0")
                start(name, "worker.Worker", *words, url)
            for name in ("worker-1", "worker-2"):
                _waited_for(folder / f"{name}.log", r"(Successfully registered) with master")

            def kill_worker() -> None:
                # The whole group would be kinder: this is the machine, with everything on it.
                os.killpg(started[1].pid, 9)
                for path in Path("/proc").glob("[0-9]*/cwd"):
                    try:
                        where = path.readlink()
                    except OSError:
                        continue
                    if (folder / "worker-1") in (where, *where.parents):
                        os.kill(int(path.parent.name), 9)

            conf = {"spark.driver.host": HOST, "spark.executor.memory": "512m"}
            yield Cluster(master=url, conf=conf, server=server, kill_worker=kill_worker)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _plain_python() -> Path:
    """Returns the interpreter from which this environment was made."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _waited_for(path: Path, pattern: str) -> str:
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        if found := re.search(pattern, path.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.1)
    raise AssertionError(f"{path.name} never said {pattern!r}: {path.read_text()[-2000:]}")


def test_a_comparison_and_a_check_are_the_same_as_on_one_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    stories.compare_and_check(cluster, tmp_path)


def test_nights_are_the_same_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    stories.nights(cluster, tmp_path)


def test_a_killed_worker_costs_only_time(cluster: Cluster, tmp_path: Path) -> None:
    stories.killed_worker(cluster, tmp_path)
