"""Nodes on hosts over SSH: one agent per host, kept open through one paramiko session.

The hosts are in a TOML file, see `inventory.py`.
"""

import asyncio
import contextlib
import os
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from harness.contracts.cluster import CONTROLLER_ID_FIRST, HARNESS_HOST
from harness.contracts.system import EventSource
from harness.environments.hosts.bundle import PYTHON, bundle_version, make_bundle
from harness.environments.hosts.cluster import OUTPUT_BYTES, HostCluster, HostNode, add_node
from harness.environments.hosts.inventory import Host, Inventory, load_inventory
from harness.environments.hosts.programs import (
    moved,
    program_paths,
    programs_version,
    write_programs,
)
from harness.environments.request import ClusterRequest, EnvironmentRequest
from harness.environments.start_command import start_command
from harness.errors import HarnessFailure, UsageError
from nemesis.agent.client import AgentClient, AgentGoneError
from nemesis.agent.errors import AgentError

BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CONNECT_LIMIT_S = 15
COMMAND_LIMIT_S = 60
PINGS = 9
PING_EVERY_S = 5.0
BUNDLES = "bundles"
PROGRAMS = "programs"


class SshStream:
    """An agent at the far end of an SSH channel.

    Args:
        client: A connected paramiko client; closed with the stream.
        command: What starts the agent.
    """

    def __init__(self, client: Any, command: str) -> None:
        self._client = client
        self._channel = client.get_transport().open_session()
        self._channel.exec_command(command)
        self._input = self._channel.makefile("rb", -1)
        self._errors = b""
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def write(self, data: bytes) -> None:
        """Sends bytes."""
        self._channel.sendall(data)

    def read_line(self) -> bytes:
        """Returns the next line; empty at the end."""
        return bytes(self._input.readline())

    def close(self) -> None:
        """Ends the agent's input, waits a short time for its end, and closes the connection."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
        deadline_s = time.monotonic() + CONNECT_LIMIT_S
        while not self._channel.exit_status_ready() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        self._client.close()

    def final_log_lines(self) -> str:
        """Returns the end of what the agent wrote to standard error."""
        return self._errors.decode(errors="replace")

    def _read_errors(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while data := self._channel.recv_stderr(4096):
                self._errors = (self._errors + data)[-2000:]


class RemoteHost:
    """One host: a connection, the code on it, an agent.

    Args:
        inventory: User, key and folders of all hosts.
        host: The host.
        run_id: Id of the run that the agent belongs to.

    Raises:
        UsageError: It cannot be reached, has an unknown host key, or has another version of Python.
        HarnessFailure: The code cannot be copied there.
    """

    def __init__(self, inventory: Inventory, host: Host, run_id: str) -> None:
        self.host = host
        self._inventory = inventory
        self.run = f"{inventory.state_dir}/{run_id}"
        self.bundle = f"{inventory.state_dir}/{BUNDLES}/{bundle_version(with_agent=True)}"
        self._client = client = _connect(inventory, host)
        try:
            self._copy_code(client)
            command = (
                f"PYTHONPATH={shlex.quote(self.bundle)} PYTHONDONTWRITEBYTECODE=1 "
                f"exec {inventory.python} -m nemesis.agent --run {shlex.quote(self.run)}"
            )
            self.agent = AgentClient(SshStream(client, self._as_root(command)), host.name)
        except BaseException:
            client.close()
            raise

    def _as_root(self, command: str) -> str:
        return f"sudo -n sh -c {shlex.quote(command)}" if self._inventory.sudo else command

    def _copy_code(self, client: Any) -> None:
        """Unpacks the bundle on the host unless it is there."""
        python = self._inventory.python
        _, output = self._run(
            client,
            f"{python} -c 'import sys, platform; print(\"%d.%d\" % sys.version_info[:2])'; "
            f"test -d {shlex.quote(self.bundle)} && echo there",
        )
        fields = output.split()
        if not fields or fields[0] != PYTHON:
            found = fields[0] if fields else "none"
            raise UsageError(
                f"{self.host.name} needs Python {PYTHON}, as here; {python!r} is {found} "
                "(set python in the hosts file)"
            )
        if "there" in fields:
            return
        self._unpack(client, lambda file: file.write(make_bundle()), self.bundle, "the code")

    def copy_programs(self, paths: Sequence[str]) -> str:
        """Copies files of this machine to the host unless they are there; returns below which folder they are.

        Raises:
            HarnessFailure: They cannot be copied.
        """
        root = f"{self._inventory.state_dir}/{PROGRAMS}/{programs_version(paths)}"
        code, _ = self._run(self._client, f"test -d {shlex.quote(root)}")
        if code != 0:
            self._unpack(
                self._client,
                lambda file: write_programs(paths, file),
                root,
                "the system's program",
            )
        return root

    def _unpack(self, client: Any, write: Callable[[Any], object], target: str, what: str) -> None:
        """Sends an archive that `write` writes, and unpacks it to a folder that appears when it is complete."""
        temporary = f"/tmp/laststand-{secrets.token_hex(6)}.tar"
        sftp = client.open_sftp()
        try:
            with sftp.open(temporary, "wb") as file:
                file.set_pipelined(True)
                write(file)
        except OSError as error:
            raise HarnessFailure(f"{what} cannot be copied to {self.host.name}: {error}") from None
        finally:
            sftp.close()
        new = f"{target}.{secrets.token_hex(4)}"
        code, output = self._run(
            client,
            f"mkdir -p {shlex.quote(new)} && "
            f"{self._inventory.python} -m tarfile -e {temporary} {shlex.quote(new)} && "
            f"mv -T {shlex.quote(new)} {shlex.quote(target)}; r=$?; rm -f {temporary}; exit $r",
        )
        if code != 0:
            raise HarnessFailure(f"{what} cannot be copied to {self.host.name}: {output.strip()}")

    def _run(self, client: Any, command: str) -> tuple[int, str]:
        _, output, errors = client.exec_command(self._as_root(command), timeout=COMMAND_LIMIT_S)
        text = output.read().decode(errors="replace") + errors.read().decode(errors="replace")
        return output.channel.recv_exit_status(), text


def _connect(inventory: Inventory, host: Host) -> Any:
    """Returns a connected paramiko client.

    Raises:
        UsageError: The host cannot be reached, or its host key is wrong.
    """
    import paramiko

    client = paramiko.SSHClient()
    known = inventory.known_hosts.expanduser()
    try:
        client.load_host_keys(os.fspath(known))
    except OSError as error:
        raise UsageError(f"the host keys in {known} cannot be read: {error.strerror}") from None
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        _open(client, inventory, host)
    except paramiko.BadHostKeyException:
        raise UsageError(
            f"the host key of {host.name} differs from the one in {known}; either the host was reinstalled "
            "(add its new key there) or another machine has its address"
        ) from None
    except paramiko.AuthenticationException:
        raise UsageError(f"{host.name} refuses the user {inventory.user} with this key") from None
    except (paramiko.SSHException, OSError) as error:
        raise UsageError(f"{host.name} cannot be reached by SSH: {error}") from None
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(15)
    return client


@retry(
    retry=retry_if_exception_type((ConnectionError, TimeoutError, EOFError)),
    stop=stop_after_attempt(4),
    wait=wait_exponential(multiplier=0.2, max=3),
    reraise=True,
)
def _open(client: Any, inventory: Inventory, host: Host) -> None:
    client.connect(
        host.address,
        port=host.port,
        username=inventory.user,
        key_filename=None if inventory.key is None else os.fspath(inventory.key),
        timeout=CONNECT_LIMIT_S,
        banner_timeout=CONNECT_LIMIT_S,
        auth_timeout=CONNECT_LIMIT_S,
        allow_agent=inventory.key is None,
        look_for_keys=inventory.key is None,
    )


class RemoteLogs:
    """Event logs on hosts, read through their agents. Implements `EventSource`.

    The hosts' monotonic clocks are mapped to this machine's by the fastest of several pings, repeatedly.

    Args:
        hosts: Agent and event log of every node.
    """

    def __init__(self, hosts: Mapping[str, tuple[AgentClient, str]]) -> None:
        self._hosts = dict(hosts)
        self._offsets = dict.fromkeys(hosts, 0)
        self._behind_ns: dict[int, int] = {}
        self._best_ns: dict[int, int] = {}
        self._pinged_s = 0.0

    async def synchronise(self, pings: int = PINGS) -> None:
        """Reads the clock of every host."""
        for agent in self._agents():
            for _ in range(pings):
                await self._ping(agent)
        self._pinged_s = time.monotonic()

    async def read(self) -> dict[str, bytes]:
        """Returns what was added to each node's log since the last call."""
        if time.monotonic() - self._pinged_s > PING_EVERY_S:
            await self.synchronise(1)
        news: dict[str, bytes] = {}
        for agent in self._agents():
            paths = {path: name for name, (a, path) in self._hosts.items() if a is agent}
            with contextlib.suppress(AgentError, AgentGoneError):
                offsets = {path: self._offsets[name] for path, name in paths.items()}
                response = await agent.request("tail", offsets=offsets)
                for path, added in response.items():
                    self._offsets[paths[path]] = added["offset"]
                    news[paths[path]] = added["text"].encode()
        return news

    def time_of(self, node: str, at_ns: int) -> int:
        """Returns a node's time on this machine's monotonic clock."""
        return at_ns + self._behind_ns.get(id(self._hosts[node][0]), 0)

    def close(self) -> None:
        """Does nothing: the agents are closed by their owner."""

    def _agents(self) -> list[AgentClient]:
        return list({id(agent): agent for agent, _ in self._hosts.values()}.values())

    async def _ping(self, agent: AgentClient) -> None:
        sent_ns = time.monotonic_ns()
        with contextlib.suppress(AgentError, AgentGoneError):
            response = await agent.request("hello")
            took_ns = time.monotonic_ns() - sent_ns
            key = id(agent)
            # A slow response leaves it unclear when the clock was read.
            if took_ns <= 2 * self._best_ns.get(key, took_ns):
                self._best_ns[key] = min(took_ns, self._best_ns.get(key, took_ns))
                self._behind_ns[key] = sent_ns + took_ns // 2 - int(response["monotonic_ns"])


def make_cluster(request: ClusterRequest) -> HostCluster:
    """Connects to the hosts of a cluster; starts nothing.

    Raises:
        UsageError: A host cannot be reached, or has too few addresses.
    """
    return HostCluster(SshPlacement(request, load_inventory(request.inventory)), request)


def find_mechanisms(request: EnvironmentRequest) -> Sequence[Mapping[str, Mapping[str, Any]]]:
    """Returns what each host can do.

    Raises:
        UsageError: A host cannot be reached, or has too few addresses.
    """
    check_addresses(request.inventory, request.brokers + request.controllers)
    return list(mechanisms(request.inventory).values())


class SshPlacement:
    """Nodes as processes on hosts. Implements `harness.environments.hosts.cluster.Placement`.

    Args:
        request: What to make.
        inventory: The hosts.

    Raises:
        UsageError: A host cannot be reached, or has too few addresses.
    """

    def __init__(self, request: ClusterRequest, inventory: Inventory) -> None:
        self.run_id = f"{os.getpid():x}-{secrets.token_hex(3)}"
        self._request = request
        self._inventory = inventory
        self._files: dict[str, tuple[str, ...]] = {}
        self._program_roots: dict[str, str] = {}
        names = [
            ("controller", CONTROLLER_ID_FIRST + index) for index in range(request.controllers)
        ]
        names += [("broker", 1 + index) for index in range(request.brokers)]
        placed = assign(names, inventory.hosts)
        self._remotes = [RemoteHost(inventory, host, self.run_id) for host in inventory.hosts]
        by_host = {remote.host: remote for remote in self._remotes}
        self._remote_of: dict[str, RemoteHost] = {}
        self.nodes: dict[str, HostNode] = {}
        for role, node_id, host, address in placed:
            name = f"{role[0]}{node_id}"
            self._remote_of[name] = by_host[host]
            self.nodes[name] = HostNode(
                name=name,
                role=role,
                node_id=node_id,
                address=address,
                port=BROKER_PORT if role == "broker" else CONTROLLER_PORT,
                agent=by_host[host].agent,
            )
        self.packets_at_clients = ""
        self.client_sources: dict[str, str] = {}
        here = str(self._remotes[0].agent.call("hello")["harness_address"])
        hosts = [HARNESS_HOST, *(f"client-{index}" for index in range(request.clients))]
        self.client_addresses = dict.fromkeys(hosts, here)
        self._logs = RemoteLogs(
            {
                name: (node.agent, f"{self._remote_of[name].run}/logs/{name}/events.jsonl")
                for name, node in self.nodes.items()
            }
        )

    def mechanisms(self) -> Sequence[Mapping[str, Mapping[str, Any]]]:
        """Returns what the kernel and the tools of each host can do."""
        return [remote.agent.call("capabilities") for remote in self._remotes]

    async def begin(self) -> None:
        """Removes leftovers, adds addresses, makes disks and files."""
        await asyncio.gather(*(remote.agent.request("reset") for remote in self._remotes))
        for remote in self._remotes:
            mine = [n.address for n in self.nodes.values() if n.agent is remote.agent]
            await remote.agent.request("add_addresses", addresses=mine, beside=remote.host.address)
        if paths := program_paths(self._request.system):
            for remote in self._remotes:
                root = await asyncio.to_thread(remote.copy_programs, paths)
                self._program_roots[remote.host.name] = root
        await asyncio.gather(*(self._make_node(node) for node in self.nodes.values()))
        await self._logs.synchronise()

    async def _make_node(self, node: HostNode) -> None:
        made = await add_node(node, self.nodes, self._request)
        self._files[node.name] = tuple(made.files)
        for name, text in made.files.items():
            await node.agent.request("write_file", path=f"{made.log}/{name}", text=text)
        await node.agent.request("enter_namespace", node=node.name, pid=None)

    async def start_process(self, node: HostNode) -> int:
        """Starts a node's process on its host; returns its pid there, 0 if it ended at once."""
        remote = self._remote_of[node.name]
        log = f"{remote.run}/logs/{node.name}"
        command = start_command(
            self._request.system,
            node.placed(),
            log,
            python=self._inventory.python,
            with_fault_point=self._request.settings.with_fault_point,
        )
        if root := self._program_roots.get(remote.host.name):
            command = moved(command, program_paths(self._request.system), root)
        response = await node.agent.request(
            "spawn",
            node=node.name,
            argv=command,
            env={"PYTHONPATH": remote.bundle, "PYTHONDONTWRITEBYTECODE": "1"},
            output=f"{log}/node.log",
        )
        return int(response["pid"])

    async def exit_code(self, node: HostNode) -> int | None:
        """Returns how a node's last process ended."""
        with contextlib.suppress(AgentError, AgentGoneError):
            code: int | None = (await node.agent.request("status", node=node.name)).get("exit_code")
            return code
        return None

    async def output(self, node: HostNode) -> str:
        """Returns the end of what a node wrote to standard output and error."""
        path = f"{self._remote_of[node.name].run}/logs/{node.name}/node.log"
        response = await node.agent.request("read_file", path=path, last_bytes=OUTPUT_BYTES)
        return str(response["text"])

    def source(self) -> EventSource:
        """Returns the event logs on the hosts."""
        return self._logs

    async def collect(self) -> None:
        """Copies the nodes' logs to the run's directory."""
        for name, node in self.nodes.items():
            target = self._request.logs_to / name
            target.mkdir(parents=True, exist_ok=True)
            for file in (*self._files.get(name, ()), "node.log"):
                path = f"{self._remote_of[name].run}/logs/{name}/{file}"
                with contextlib.suppress(AgentError, AgentGoneError, OSError):
                    response = await node.agent.request("read_file", path=path)
                    (target / file).write_text(response["text"], encoding="utf-8")
            for file in self._request.collected:
                path = f"{self._remote_of[name].run}/logs/{name}/{file}"
                with contextlib.suppress(AgentError, AgentGoneError, OSError):
                    await copy_lines(node.agent, path, target / file)

    async def end(self) -> list[str]:
        """Removes everything from the hosts; returns what could not be removed."""
        problems = []
        for remote in self._remotes:
            try:
                await remote.agent.request("remove_run")
            except (AgentError, AgentGoneError) as error:
                problems.append(f"{remote.host.name}: {error}")
            await asyncio.to_thread(remote.agent.close)
        return problems


async def copy_lines(agent: AgentClient, path: str, target: Path) -> None:
    """Copies the whole lines of a file of any length from a host; makes nothing if there is none."""
    offset = 0
    while news := await agent.request("tail", offsets={path: offset}):
        offset = news[path]["offset"]
        with open(target, "a", encoding="utf-8") as file:
            file.write(news[path]["text"])


def assign(
    nodes: list[tuple[str, int]], hosts: tuple[Host, ...]
) -> list[tuple[str, int, Host, str]]:
    """Assigns nodes to hosts in turn; returns role, id, host and address of each.

    Raises:
        UsageError: A host has too few addresses.
    """
    used = dict.fromkeys(hosts, 0)
    placed = []
    for index, (role, node_id) in enumerate(nodes):
        host = hosts[index % len(hosts)]
        if used[host] >= len(host.node_addresses):
            wanted = -(-len(nodes) // len(hosts))
            raise UsageError(
                f"{host.name} has {len(host.node_addresses)} node_addresses and needs {wanted}: "
                "every node needs its own"
            )
        placed.append((role, node_id, host, host.node_addresses[used[host]]))
        used[host] += 1
    return placed


def mechanisms(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns what the kernel and the tools of each host of an inventory file can do, by host.

    Raises:
        UsageError: A host cannot be reached.
    """
    return _request_from_all(path, "capabilities")


def reset(path: Path, *, everything: bool = False) -> dict[str, list[str]]:
    """Removes leftovers from all hosts of an inventory file; returns what was removed, by host."""
    responses = _request_from_all(path, "reset", everything=everything)
    return {name: list(response["removed"]) for name, response in responses.items()}


def check_addresses(path: Path, nodes: int) -> None:
    """Raises `UsageError` if the hosts of an inventory file have too few addresses for so many nodes."""
    assign([("node", index) for index in range(nodes)], load_inventory(path).hosts)


def _request_from_all(path: Path, command: str, **arguments: Any) -> dict[str, Any]:
    inventory = load_inventory(path)
    responses = {}
    for host in inventory.hosts:
        remote = RemoteHost(inventory, host, f"ask-{os.getpid():x}-{secrets.token_hex(3)}")
        try:
            responses[host.name] = remote.agent.call(command, **arguments)
            remote.agent.call("remove_run")
        except (AgentError, AgentGoneError) as error:
            raise HarnessFailure(f"{host.name}: {error}") from None
        finally:
            remote.agent.close()
    return responses
