"""Tests that need root and this kernel. If something is missing, they are skipped with the reason."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.environments.hosts import docker, image
from harness.errors import HarnessFailure, UsageError
from tests.containers import ssh_world
from tests.containers.network_rig import RigHost, Site, clean_site, hosts_or_skip, why_not

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything here, and keeps it on one worker: two of these at a time would disturb each other."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.containers)
            item.add_marker(pytest.mark.xdist_group("containers"))


@pytest.fixture(scope="session")
def root() -> None:
    """Skips unless this is root."""
    if os.geteuid() != 0:
        pytest.skip("faults on a real kernel need root")


@pytest.fixture(scope="session")
def engine(root: None) -> Iterator[Any]:
    """Yields a client of a Docker engine that has the node's image; builds that from an earlier base if it can."""
    try:
        client = docker.connect()
    except UsageError as error:
        pytest.skip(str(error))
    try:
        if not image.has_image(client):
            _build(client)
        yield client
    finally:
        client.close()


def _build(client: Any) -> None:
    """Builds the image from a base that is there; making a base takes longer than a test should."""
    wanted = os.environ.get("LASTSTAND_BASE", f"{image.DEBOOTSTRAP_BASE}:{_suite()}")
    if not client.images.list(name=wanted):
        pytest.skip(f"no base image {wanted}; `laststand image build --from-debootstrap` makes one")
    try:
        image.build(client, wanted, lambda _: None)
    except HarnessFailure as error:
        pytest.fail(str(error))


def _suite() -> str:
    return image.DEBIAN_SUITES.get(image.PYTHON, "none")


@pytest.fixture(scope="module")
def rig() -> Iterator[list[RigHost]]:
    """Yields two network namespaces with a bridge between them; modules that need more hosts replace it."""
    with hosts_or_skip(2, why_not()) as hosts:
        yield hosts


@pytest.fixture
def site(rig: list[RigHost]) -> Iterator[Site]:
    """Yields the hosts for one test, which leaves no rule behind."""
    with clean_site(rig) as made:
        yield made


@pytest.fixture(scope="module")
def hosts(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields the inventory of two hosts with sshd."""
    if not engine.images.list(name=ssh_world.image_name()):
        pytest.skip("no image of a host; `python -m tests.containers.ssh_world build` makes it")
    with ssh_world.hosts(engine, tmp_path_factory.mktemp("ssh")) as path:
        yield path
