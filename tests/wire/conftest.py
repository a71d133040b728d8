"""One real cluster for all tests of a worker that need one: three brokers and three controllers on loopback.

Starting six processes takes seconds, so tests share them: each test uses topics and groups of its own, and may
end, pause and restart nodes. Before the next test everything runs again, and a node that ended
unexpectedly fails the test in which it happened.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_helpers import BROKER_SETTINGS, SharedCluster

from harness.environments.local.standing import LocalCluster, local_settings


@pytest.fixture(scope="session")
def _one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster") / "nodes"
    with LocalCluster.create(
        directory, settings=local_settings(timings="fast", broker=BROKER_SETTINGS)
    ) as cluster:
        cluster.start()
        cluster.wait_ready(120)
        yield cluster


@pytest.fixture
def cluster(_one_cluster: LocalCluster) -> Iterator[SharedCluster]:
    """The worker's cluster, whole and ready."""
    shared = SharedCluster(_one_cluster)
    shared.mend()
    yield shared
    shared.check_no_node_died()


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
