"""One real cluster for all tests that need one: three brokers and three controllers on loopback.

Starting six processes takes seconds, so tests share them: each test uses topics and groups of its own, and may
end, pause and restart nodes. Before the next test everything runs again, and a node that ended
unexpectedly fails the test in which it happened. The tests keep to one worker, and the cluster ends with the last
of them, because six idle nodes take a third of a processor from all other tests.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_helpers import BROKER_SETTINGS, SharedCluster

from harness.environments.local.standing import LocalCluster, local_settings


class OneCluster:
    """The cluster of a worker, which exists from the first call of `get` to `end`. Mutable.

    Args:
        folders: Makes folders.
    """

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._cluster: LocalCluster | None = None

    def get(self) -> LocalCluster:
        """Returns the running cluster; starts one if there is none."""
        if self._cluster is None:
            directory: Path = self._folders.mktemp("cluster") / "nodes"
            settings = local_settings(timings="fast", broker=BROKER_SETTINGS)
            self._cluster = LocalCluster.create(directory, settings=settings)
            self._cluster.start()
            self._cluster.wait_ready(120)
        return self._cluster

    def end(self) -> None:
        """Ends all nodes and removes their files."""
        if self._cluster is not None:
            self._cluster.down()
            self._cluster = None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests that share the cluster on one worker."""
    for item in items:
        if _uses_cluster(item):
            item.add_marker(pytest.mark.xdist_group("cluster"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Ends the cluster after the last test that uses it."""
    shared = getattr(item, "funcargs", {}).get("one_cluster")
    yield
    if shared is not None and (nextitem is None or not _uses_cluster(nextitem)):
        shared.end()


def _uses_cluster(item: pytest.Item) -> bool:
    return "one_cluster" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneCluster]:
    """Yields the worker's cluster."""
    shared = OneCluster(tmp_path_factory)
    yield shared
    shared.end()


@pytest.fixture
def cluster(one_cluster: OneCluster) -> Iterator[SharedCluster]:
    """Yields the worker's cluster, whole and ready."""
    shared = SharedCluster(one_cluster.get())
    shared.mend()
    shared.delete_topics()
    yield shared
    shared.check_no_node_died()


@pytest.fixture
def steady_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """Yields a cluster of its own with Kafka's timings, for applications that load it for a minute or more.

    With the short timings of the shared cluster a machine that is busy for a second fences brokers and elects
    leaders all the time.
    """
    settings = local_settings(timings="kafka", broker=BROKER_SETTINGS)
    directory = tmp_path_factory.mktemp("steady") / "nodes"
    with LocalCluster.create(directory, settings=settings) as local:
        local.start()
        local.wait_ready(120)
        cluster = SharedCluster(local)
        yield cluster
        cluster.check_no_node_died()


@pytest.fixture
def bootstrap(cluster: SharedCluster) -> str:
    """Addresses of all brokers, as clients want them."""
    return cluster.bootstrap


@pytest.fixture
def forgotten_sockets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collects the sockets that kafka-python forgets to close when a connection attempt fails.

    To be used together with a filter for "unclosed" warnings, which then holds while they are collected.
    """
    yield
    for phase in ("setup", "call"):
        # Its log records hold the errors, those the frames, and those the sockets.
        caplog.get_records(phase).clear()
    gc.collect()
