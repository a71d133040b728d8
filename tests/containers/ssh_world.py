"""Two hosts with sshd, made of containers: what a test needs to reach "machines" over SSH.

    python -m tests.containers.ssh_world build      makes the hosts' base image from Debian's packages (a minute)
    python -m tests.containers.ssh_world up DIR     starts two hosts and writes DIR/hosts.toml
    python -m tests.containers.ssh_world down DIR   removes them

The containers get what a machine of one's own has: mounts, loop devices, its own packet rules. Nothing but the
hosts themselves is done through Docker; everything else goes through SSH.
"""

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.environments.hosts import docker, image
from harness.environments.hosts.inventory import load_inventory
from harness.environments.hosts.subnets import free_prefix

IMAGE = "laststand-sshd"
PACKAGES = (
    "python3,iproute2,procps,openssh-server,nftables,strace,e2fsprogs,xfsprogs,util-linux,mount"
)
LABEL = "laststand.test-hosts"
FIRST_PREFIX = "198.18.9"
HOSTS = 2
ADDRESSES_PER_HOST = 5
START_LIMIT_S = 20


def image_name() -> str:
    """Returns the name of the hosts' image."""
    return f"{IMAGE}:{image.DEBIAN_SUITES[image.PYTHON]}"


def build(engine: Any) -> None:
    """Makes the image unless it is there."""
    if engine.images.list(name=image_name()):
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        suite = image.DEBIAN_SUITES[image.PYTHON]
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(root)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        archive = Path(folder) / "root.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        engine.api.import_image_from_file(str(archive), IMAGE, suite)


def up(engine: Any, folder: Path) -> Path:
    """Starts the hosts; returns the file that names them."""
    from docker.types import EndpointConfig, IPAMConfig, IPAMPool

    folder.mkdir(parents=True, exist_ok=True)
    prefix = free_prefix(FIRST_PREFIX, docker.networks_in_use(engine))
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    pool = IPAMPool(subnet=f"{prefix}.0/24", gateway=f"{prefix}.1")
    network = engine.networks.create(
        "laststand-test-hosts", ipam=IPAMConfig(pool_configs=[pool]), labels={LABEL: "1"}
    )
    known, tables = [], []
    for index in range(HOSTS):
        address = f"{prefix}.{2 + index}"
        container = _host(engine, network, address, f"host-{index}", EndpointConfig)
        public = key.with_suffix(".pub").read_text().strip()
        _do(
            container,
            f"mkdir -p /run/sshd /root/.ssh && echo '{public}' > /root/.ssh/authorized_keys && "
            "chmod 700 /root/.ssh && rm -f /etc/ssh/ssh_host_* && "  # the image's are the same in all
            "ssh-keygen -A >/dev/null && /usr/sbin/sshd",
        )
        host_key = _do(container, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()
        known.append(f"{address} {host_key[0]} {host_key[1]}")
        first = 10 * (index + 1)
        addresses = [f"{prefix}.{first + number}" for number in range(ADDRESSES_PER_HOST)]
        tables.append(
            f"[[hosts]]\naddress = {json.dumps(address)}\nnode_addresses = {json.dumps(addresses)}\n"
        )
    (folder / "known_hosts").write_text("\n".join(known) + "\n")
    path = folder / "hosts.toml"
    path.write_text(
        'user = "root"\nkey = "key"\nknown_hosts = "known_hosts"\n\n' + "\n".join(tables)
    )
    return path


def _host(engine: Any, network: Any, address: str, name: str, endpoint: Any) -> Any:
    api = engine.api
    host_config = api.create_host_config(
        binds=["/dev:/dev", "/sys/fs/cgroup:/sys/fs/cgroup:rw"],
        cap_add=["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "MKNOD"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        device_cgroup_rules=["b 7:* rmw", "c 10:237 rmw"],
        init=True,
        # The disks of nodes are loop devices on files, and those need a real file system below.
        mounts=[{"Target": "/var/lib/laststand", "Type": "volume", "Source": ""}],
        sysctls={"net.ipv4.ip_nonlocal_bind": "0"},
    )
    created = api.create_container(
        image_name(),
        ["sleep", "infinity"],
        name=f"laststand-test-{name}",
        hostname=name,
        host_config=host_config,
        networking_config=api.create_networking_config(
            {network.name: endpoint(api.api_version, ipv4_address=address)}
        ),
        labels={LABEL: "1"},
    )
    container = engine.containers.get(created["Id"])
    container.start()
    return container


def _do(container: Any, command: str) -> str:
    code, output = container.exec_run(["sh", "-c", command])
    assert code == 0, output.decode()
    text: str = output.decode()
    return text


def down(engine: Any) -> None:
    """Removes hosts and network."""
    filters = {"label": LABEL}
    for container in engine.containers.list(all=True, filters=filters):
        container.remove(force=True, v=True)
    for network in engine.networks.list(filters=filters):
        network.remove()


@contextlib.contextmanager
def hosts(engine: Any, folder: Path) -> Iterator[Path]:
    """Yields the file that names two hosts, which are removed at the end."""
    down(engine)
    try:
        path = up(engine, folder)
        wait_for_sshd(path)
        yield path
    finally:
        down(engine)


def wait_for_sshd(path: Path) -> None:
    """Waits until every host of an inventory responds."""
    deadline_s = time.monotonic() + START_LIMIT_S
    for host in load_inventory(path).hosts:
        while True:
            try:
                socket.create_connection((host.address, 22), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline_s, "sshd does not respond"
                time.sleep(0.1)


def main() -> int:
    """Makes, starts or removes the hosts by hand."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("build", "up", "down"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("ssh-hosts"))
    options = parser.parse_args()
    engine = docker.connect()
    try:
        if options.action == "build":
            build(engine)
        elif options.action == "up":
            path = up(engine, options.folder)
            wait_for_sshd(path)
            print(path)
        else:
            down(engine)
    finally:
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
