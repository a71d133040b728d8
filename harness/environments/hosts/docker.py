"""Nodes in containers: one container per node, with its disk on a loop-mounted image.

The container lives as long as the run and only waits; the node's process is started in it, killed, and started
again. So the node's network namespace, and every nft rule in it, outlives the node.

Everything carries the run's name in a label together with the process that owns the run. The next run removes
whatever a dead harness left behind.
"""

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
import zlib
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from harness.contracts.cluster import CONTROLLER_ID_FIRST, HARNESS_HOST
from harness.contracts.system import EventSource
from harness.environments.hosts import image
from harness.environments.hosts.cluster import OUTPUT_BYTES, HostCluster, HostNode, add_node
from harness.environments.hosts.programs import program_paths
from harness.environments.hosts.subnets import NETWORKS, free_prefix, routed_networks
from harness.environments.observation.event_tail import LocalFiles
from harness.environments.request import ClusterRequest, EnvironmentRequest
from harness.environments.start_command import start_command
from harness.errors import HarnessFailure, UsageError
from nemesis.agent import capabilities
from nemesis.agent.client import AgentClient, AgentGoneError, LocalStream
from nemesis.agent.errors import AgentError
from nemesis.agent.processes.procfs import process_start

STATE_ROOT = Path(os.environ.get("LASTSTAND_STATE", "/var/lib/laststand"))
DEFAULT_SOCKET = Path("/var/run/docker.sock")
SUBNETS = os.environ.get("LASTSTAND_SUBNETS", "198.18.64")
"""First three numbers of the first /24 that may be used; the following 63 may be used as well."""
LABEL_RUN = "laststand.run"
LABEL_OWNER = "laststand.owner"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "KILL", "NET_BIND_SERVICE", "SYS_NICE")
"""What a container keeps; faults are injected from outside the container."""
DATA = "/data"
"""Where a container sees its node's directory."""
HARNESS_PSEUDO_NODE = HARNESS_HOST
START_POLL_S = 0.005
START_LIMIT_S = 20.0

_with_retries = retry(
    retry=retry_if_exception_type((OSError,)),
    stop=stop_after_attempt(4),
    wait=wait_exponential(multiplier=0.1, max=2),
    reraise=True,
)


def connect() -> Any:
    """Returns a client of the Docker engine.

    Raises:
        UsageError: The engine cannot be reached.
    """
    import docker
    from docker.errors import DockerException

    try:
        engine = docker.from_env(timeout=120)
        engine.ping()
    except DockerException as error:
        raise UsageError(
            f"no Docker engine can be reached ({str(error)[:160]}); start one, or set DOCKER_HOST"
        ) from None
    return engine


def check_machine() -> None:
    """Raises `UsageError` if this process may not inject faults, or there is no image."""
    if os.geteuid() != 0:
        raise UsageError(
            "faults in containers are injected from outside, as root; run laststand as root"
        )
    engine = connect()
    try:
        if not image.has_image(engine):
            raise UsageError(
                f"the engine has no image {image.image_name()}; `laststand image build` builds it "
                "(--from-debootstrap where there is no registry)"
            )
    finally:
        engine.close()


def make_cluster(request: ClusterRequest) -> HostCluster:
    """Makes the network of a cluster of containers; starts nothing.

    Raises:
        HarnessFailure: There is no engine, or no free network.
    """
    return HostCluster(DockerPlacement(request), request)


def find_mechanisms(request: EnvironmentRequest) -> Sequence[Mapping[str, Mapping[str, Any]]]:
    """Returns what this machine can do for containers.

    Raises:
        UsageError: Something is missing: root, an engine, or the image.
    """
    check_machine()
    return [machine_mechanisms()]


class DockerPlacement:
    """Containers on the engine of this machine. Implements `harness.environments.hosts.cluster.Placement`.

    The network is made by the constructor, because it decides which addresses nodes have; `end` removes it.

    Args:
        request: What to make.
    """

    def __init__(self, request: ClusterRequest) -> None:
        self.run_id = f"{os.getpid():x}-{secrets.token_hex(3)}"
        self._request = request
        self._engine = connect()
        self._containers: dict[str, Any] = {}
        self._executions: dict[str, str] = {}
        self._files: dict[str, tuple[str, ...]] = {}
        self._state = STATE_ROOT / self.run_id
        self._agent = AgentClient(LocalStream(self._state), "this machine")
        try:
            # Recorded before it is made: an engine that is killed leaves its bridges behind.
            self._agent.call("own_interface", interface=self._bridge)
            self._prefix, self._network = make_network(
                self._engine, f"laststand-{self.run_id}", self._bridge, self._labels()
            )
        except BaseException:
            with contextlib.suppress(AgentError, AgentGoneError):
                self._agent.call("remove_run")
            self._agent.close()
            self._engine.close()
            raise
        self.packets_at_clients = HARNESS_PSEUDO_NODE
        self.client_addresses = {HARNESS_HOST: f"{self._prefix}.1"}
        for index in range(request.clients):
            self.client_addresses[f"client-{index}"] = f"{self._prefix}.{100 + index}"
        self.client_sources = self.client_addresses
        self.nodes: dict[str, HostNode] = {}
        for index in range(request.controllers):
            self._add("controller", CONTROLLER_ID_FIRST + index, 20, CONTROLLER_PORT)
        for index in range(request.brokers):
            self._add("broker", 1 + index, 10, BROKER_PORT)

    def _add(self, role: str, node_id: int, first: int, port: int) -> None:
        name = f"{role[0]}{node_id}"
        self.nodes[name] = HostNode(
            name=name,
            role=role,
            node_id=node_id,
            address=f"{self._prefix}.{first + node_id}",
            port=port,
            agent=self._agent,
        )

    def mechanisms(self) -> Sequence[Mapping[str, Mapping[str, Any]]]:
        """Returns what this machine's kernel and tools can do; containers have one host."""
        return [machine_mechanisms()]

    # -- life

    async def begin(self) -> None:
        """Removes leftovers, then makes the disks and the containers."""
        await asyncio.to_thread(remove_leftovers, self._engine)
        await self._agent.request("reset")
        await asyncio.gather(*(self._make_node(node) for node in self.nodes.values()))
        await self._agent.request(
            "add_node", node=HARNESS_PSEUDO_NODE, addresses=list(self.client_addresses.values())
        )
        await self._agent.request("enter_namespace", node=HARNESS_PSEUDO_NODE, pid=None)
        await self._agent.request(
            "add_addresses",
            addresses=[a for name, a in self.client_addresses.items() if name != HARNESS_HOST],
            interface=self._bridge,
        )

    @property
    def _bridge(self) -> str:
        return f"ls{zlib.crc32(self.run_id.encode()):08x}"

    def _labels(self) -> dict[str, str]:
        return {LABEL_RUN: self.run_id, LABEL_OWNER: owner()}

    async def _make_node(self, node: HostNode) -> None:
        made = await add_node(node, self.nodes, self._request, seen_at=DATA)
        self._files[node.name] = tuple(made.files)
        for name, text in made.files.items():
            (Path(made.log) / name).write_text(text, encoding="utf-8")
        container = await asyncio.to_thread(self._make_container, node, made.directory, made.log)
        self._containers[node.name] = container
        pid = await asyncio.to_thread(_pid_of, container)
        await self._agent.request("enter_namespace", node=node.name, pid=pid)

    @_with_retries
    def _make_container(self, node: HostNode, directory: str, log: str) -> Any:
        from docker.types import EndpointConfig, Mount

        api = self._engine.api
        host_config = api.create_host_config(
            mounts=[
                Mount(DATA, directory, type="bind", propagation="rslave"),
                Mount("/log", log, type="bind"),
                *(
                    Mount(path, path, type="bind", read_only=True)
                    for path in program_paths(self._request.system)
                ),
            ],
            init=True,
            cap_drop=["ALL"],
            cap_add=list(CAPABILITIES),
            security_opt=["no-new-privileges"],
            sysctls={"net.ipv4.tcp_retries2": "8"},
        )
        name = f"laststand-{self.run_id}-{node.name}"
        created = api.create_container(
            image.image_name(),
            name=name,
            hostname=node.name,
            host_config=host_config,
            networking_config=api.create_networking_config(
                {
                    self._network.name: EndpointConfig(
                        api.api_version, ipv4_address=node.address, aliases=[node.name]
                    )
                }
            ),
            labels=self._labels(),
        )
        container = self._engine.containers.get(created["Id"])
        container.start()
        return container

    async def start_process(self, node: HostNode) -> int:
        """Starts a node's process in its container; returns its pid on this machine, 0 if it ended at once."""
        pid = await asyncio.to_thread(self._execute, node)
        if pid:
            with contextlib.suppress(AgentError):  # it has ended already
                await self._agent.request("watch", node=node.name, pid=pid)
                return pid
        return 0

    @_with_retries
    def _execute(self, node: HostNode) -> int:
        import time

        api = self._engine.api
        arguments = start_command(
            self._request.system,
            node.placed(),
            "/log",
            python="python3",
            with_fault_point=self._request.settings.with_fault_point,
        )
        command = f"exec {shlex.join(arguments)} >>/log/node.log 2>&1"
        execution = api.exec_create(self._containers[node.name].id, ["sh", "-c", command])["Id"]
        api.exec_start(execution, detach=True)
        self._executions[node.name] = execution
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            state = api.exec_inspect(execution)
            if state["Pid"]:
                return int(state["Pid"])
            if state["ExitCode"] is not None and not state["Running"]:
                return 0
            time.sleep(START_POLL_S)
        raise HarnessFailure(f"the engine did not start {node.name} within {START_LIMIT_S:g} s")

    async def exit_code(self, node: HostNode) -> int | None:
        """Returns how a node's last process ended; None if the engine has not noticed yet."""
        execution = self._executions.get(node.name)
        if execution is None:
            return None
        for _ in range(20):
            state = await asyncio.to_thread(self._engine.api.exec_inspect, execution)
            if not state["Running"]:
                code: int | None = state["ExitCode"]
                return code
            await asyncio.sleep(0.01)
        return None

    async def output(self, node: HostNode) -> str:
        """Returns the end of what a node wrote to standard output and error."""
        with contextlib.suppress(OSError), open(self._log(node.name) / "node.log", "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - OUTPUT_BYTES, 0))
            return file.read().decode(errors="replace")
        return ""

    def source(self) -> EventSource:
        """Returns the event logs, which are files of this machine."""
        return LocalFiles({name: self._log(name) / "events.jsonl" for name in self.nodes})

    def _log(self, name: str) -> Path:
        return self._state / "logs" / name

    async def collect(self) -> None:
        """Copies the nodes' logs to the run's directory."""
        for name in self.nodes:
            target = self._request.logs_to / name
            target.mkdir(parents=True, exist_ok=True)
            for file in (*self._files.get(name, ()), "node.log", *self._request.collected):
                with contextlib.suppress(OSError):
                    shutil.copyfile(self._log(name) / file, target / file)

    async def end(self) -> list[str]:
        """Removes containers, network, disks and files; returns what could not be removed."""
        problems: list[str] = []
        for node in self.nodes.values():
            # A process on a frozen disk cannot end, and neither can its container.
            with contextlib.suppress(AgentError, AgentGoneError):
                await self._agent.request("thaw_disk", node=node.name)
        problems += await asyncio.to_thread(remove_run, self._engine, self.run_id)
        with contextlib.suppress(AgentGoneError):
            try:
                await self._agent.request("remove_run")
            except AgentError as error:
                problems.append(str(error))
        await asyncio.to_thread(self._agent.close)
        self._engine.close()
        return problems


def make_network(engine: Any, name: str, bridge: str, labels: dict[str, str]) -> tuple[str, Any]:
    """Makes a network for one run; returns the first three numbers of its addresses, and the network.

    Two runs that start at the same time find the same addresses free. The engine refuses the later one, which then
    tries others; no attempt repeats a network that was refused.

    Raises:
        HarnessFailure: All networks that may be used are taken.
    """
    from docker.errors import APIError
    from docker.types import IPAMConfig, IPAMPool

    refused: list[IPv4Network] = []
    for _ in range(NETWORKS):
        prefix = free_prefix(SUBNETS, [*networks_in_use(engine), *refused])
        pool = IPAMPool(subnet=f"{prefix}.0/24", gateway=f"{prefix}.1")
        try:
            network = engine.networks.create(
                name,
                driver="bridge",
                ipam=IPAMConfig(pool_configs=[pool]),
                options={"com.docker.network.bridge.name": bridge},
                labels=labels,
            )
        except APIError as error:
            if "overlap" not in str(error.explanation).lower():
                raise
            refused.append(IPv4Network(f"{prefix}.0/24"))
            continue
        return prefix, network
    raise HarnessFailure(
        f"the engine refused all {NETWORKS} networks from {SUBNETS}.0/24 on; `docker network ls` lists "
        "the networks in use"
    )


def networks_in_use(engine: Any) -> list[IPv4Network]:
    """Returns the networks of the engine, and those to which this machine has a route."""
    used = routed_networks()
    for network in engine.networks.list():
        for config in (network.attrs.get("IPAM") or {}).get("Config") or ():
            with contextlib.suppress(ValueError):  # none, or IPv6
                used.append(IPv4Network(config.get("Subnet", ""), strict=False))
    return used


def owner() -> str:
    """Returns this process as a label: its pid and its start time."""
    return f"{os.getpid()}:{process_start(os.getpid())}"


def is_owned(label: str) -> bool:
    """Whether the process that a label names as the owner is alive."""
    pid, _, began = label.partition(":")
    return pid.isdecimal() and began.isdecimal() and process_start(int(pid)) == int(began) > 0


def _pid_of(container: Any) -> int:
    container.reload()
    return int(container.attrs["State"]["Pid"])


def remove_run(engine: Any, run_id: str) -> list[str]:
    """Removes the containers and networks of one run; returns what could not be removed."""
    return _remove(engine, lambda labels: labels.get(LABEL_RUN) == run_id)[1]


def remove_leftovers(engine: Any) -> list[str]:
    """Removes containers and networks of runs whose harness is dead; returns what was removed."""
    return sweep(engine)[0]


def sweep(engine: Any, *, even_if_alive: bool = False) -> tuple[list[str], list[str]]:
    """Removes containers and networks of dead runs; returns what was removed, and what could not be.

    Args:
        engine: To remove them from.
        even_if_alive: Also those of live runs.
    """
    return _remove(
        engine, lambda labels: even_if_alive or not is_owned(labels.get(LABEL_OWNER, ""))
    )


def may_have_engine() -> bool:
    """Whether a Docker engine appears to be in use, even if it does not respond.

    It is configured in the environment, or its socket exists.
    """
    return bool(os.environ.get("DOCKER_HOST")) or DEFAULT_SOCKET.exists()


def _remove(engine: Any, is_chosen: Any) -> tuple[list[str], list[str]]:
    from docker.errors import APIError, NotFound

    removed, problems = [], []
    filters = {"label": LABEL_RUN}
    for container in engine.containers.list(all=True, filters=filters, ignore_removed=True):
        if is_chosen(container.labels):
            try:
                container.remove(force=True)
                removed.append(f"container {container.name}")
            except NotFound:
                continue
            except APIError as error:
                problems.append(f"container {container.name}: {error.explanation}")
    for network in engine.networks.list(filters=filters):
        if is_chosen(network.attrs.get("Labels") or {}):
            try:
                network.remove()
                removed.append(f"network {network.name}")
            except NotFound:
                continue
            except APIError as error:
                problems.append(f"network {network.name}: {error.explanation}")
    return removed, problems


_found: dict[str, dict[str, Any]] = {}


def machine_mechanisms() -> dict[str, dict[str, Any]]:
    """Returns what this machine's kernel and tools can do; examined once per process."""
    if not _found:
        _found.update(capabilities.find())
    return _found
