"""The agent's commands: JSON lines in, JSON lines out.

    {"id": 7, "do": "pause", "args": {"node": "b1"}}      a request; requests run side by side
    {"id": 7, "ok": {...}}  or  {"id": 7, "error": "..."}  its response
    {"event": "exited", "node": "b1", "at_ns": 5, ...}     an event: a watched process has ended

Commands are idempotent. When the harness ends, in whatever way, standard input closes. The agent then heals what
would harm the host (frozen file systems, traced and stopped processes, its packet rules) and ends. Files, mounts
and processes of the run stay until the `reset` with which the next run begins.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from nemesis.agent import capabilities, state
from nemesis.agent.disks.power import power_cut, power_on
from nemesis.agent.errors import AgentError
from nemesis.agent.node import AgentNode

WORKERS = 24
TAIL_BYTES_MAX = 1 << 20

Response = dict[str, Any]


class Agent:
    """The commands of the agent. Mutable.

    Args:
        run: The run's state directory on this host.
        emit: Sends an event to the harness.
    """

    def __init__(self, run: Path, emit: Callable[[Response], None]) -> None:
        self.run = run
        self._emit = emit
        self.nodes: dict[str, AgentNode] = {}
        self._commands: dict[str, Callable[..., Any]] = {
            "hello": self.hello,
            "capabilities": lambda: capabilities.find(run / state.NODES_FOLDER),
            "facts": capabilities.facts,
            "add_node": self.add_node,
            "enter_namespace": self.enter_namespace,
            "own_interface": self.own_interface,
            "add_addresses": self.add_addresses,
            "watch": self.watch,
            "spawn": self.spawn,
            "power_cut": self.power_cut,
            "power_on": self.power_on,
            "net_apply": self.net_apply,
            "net_evidence": self.net_evidence,
            "net_remove": self.net_remove,
            "reset_connections": self.reset_connections,
            "probe": self.probe,
            "write_file": self.write_file,
            "read_file": self.read_file,
            "tail": self.tail,
            "remove_run": self.remove_run,
            "reset": self.reset,
        }
        for name in AgentNode.COMMANDS:
            self._commands[name] = self._on_node(name)

    def _on_node(self, command: str) -> Callable[..., Any]:
        def run_command(node: str, **arguments: Any) -> Any:
            return getattr(self._node(node), command)(**arguments)

        return run_command

    def _node(self, name: str) -> AgentNode:
        try:
            return self.nodes[name]
        except KeyError:
            raise AgentError(f"the agent has no node {name!r}") from None

    def run_command(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Runs one command.

        Raises:
            AgentError: There is no such command, or it failed.
        """
        if command not in self._commands:
            raise AgentError(f"the agent has no command {command!r}")
        return self._commands[command](**arguments)

    def close(self) -> None:
        """Heals what would harm the host."""
        for node in self.nodes.values():
            node.heal_host()

    # -- the host

    def hello(self) -> Response:
        """Returns the identity and the clocks of the agent."""
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "kernel": os.uname().release,
            "monotonic_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
            "harness_address": os.environ.get("SSH_CONNECTION", "").partition(" ")[0],
            "is_root": os.geteuid() == 0,
        }

    def reset(self, everything: bool = False) -> Response:
        """Removes what runs with dead agents left on this host; with `everything`, also live runs."""
        return {"removed": state.reset(self.run.parent, keep=self.run, even_if_alive=everything)}

    def remove_run(self) -> Response:
        """Removes everything of this run from the host."""
        for node in self.nodes.values():
            node.destroy()
        return {"removed": state.remove_run(self.run)}

    # -- nodes

    def add_node(
        self,
        node: str,
        addresses: list[str],
        filesystem: str = "",
        size_mib: int = 512,
        log_files: str = "",
    ) -> Response:
        """Makes a node's folders, and its disk if a file system is named."""
        if node not in self.nodes:
            self.nodes[node] = AgentNode(node, self.run, addresses, emit=self._emit)
        made = self.nodes[node]
        if filesystem:
            made.make_disk(filesystem, size_mib)
            made.disk.log_pattern = log_files
        return {"directory": os.fspath(made.directory), "log": os.fspath(made.log_dir)}

    def enter_namespace(self, node: str, pid: int | None) -> Response:
        """Attaches to the network namespace of a process, or to the host's own."""
        self._node(node).enter_namespace(pid)
        return {}

    def own_interface(self, interface: str) -> Response:
        """Records an interface that is about to be made for this run, so that it is removed with the run."""
        state.record_interface(self.run, interface)
        return {}

    def add_addresses(
        self, addresses: list[str], interface: str = "", beside: str = ""
    ) -> Response:
        """Adds addresses to an interface, or to the one that has an address, until the end of the run."""
        if beside:
            interface = state.interface_of(beside)
            if not interface:
                raise AgentError(f"no interface of this host has the address {beside}")
        return state.add_addresses(self.run, addresses, interface)

    def watch(self, node: str, pid: int) -> Response:
        """Watches a node's process; its end is reported as an event."""
        return self._node(node).watch(pid)

    def spawn(self, node: str, argv: list[str], env: dict[str, str], output: str) -> Response:
        """Starts a node's process on this host."""
        return self._node(node).spawn(argv, env, Path(output))

    # -- power

    def power_cut(self, nodes: list[str], plans: dict[str, Any], token: str) -> Response:
        """Cuts the power of several nodes at one instant."""
        return power_cut([self._node(name) for name in nodes], plans, token)

    def power_on(self, nodes: list[str], token: str) -> Response:
        """Ends the silence of nodes whose power was cut."""
        return power_on([self._node(name) for name in nodes], token)

    # -- packets

    def net_apply(self, token: str, rules: dict[str, list[Response]]) -> Response:
        """Puts packet rules in force in several namespaces at once."""
        return self._everywhere(rules, lambda node, name: node.net.apply(token, rules[name]))

    def net_evidence(self, token: str, nodes: list[str]) -> Response:
        """Returns what a token's packet rules have caught."""
        return self._everywhere(nodes, lambda node, _: node.net.evidence(token))

    def net_remove(self, token: str, nodes: list[str]) -> Response:
        """Removes a token's packet rules and returns what they had caught."""
        return self._everywhere(nodes, lambda node, _: node.net.remove(token))

    def reset_connections(self, nodes: list[str]) -> Response:
        """Destroys all connections of some nodes."""
        return self._everywhere(
            nodes, lambda node, _: node.net.reset_connections(node.addresses, None)
        )

    def probe(self, node: str, address: str, port: int, timeout_ms: int) -> Response:
        """Tries to connect from inside a node's namespace."""
        return self._node(node).net.probe(
            address, port, timeout_ms, source=self._node(node).addresses[0]
        )

    def _everywhere(
        self, names: "list[str] | dict[str, Any]", work: Callable[[AgentNode, str], Any]
    ) -> Response:
        nodes = {name: self._node(name) for name in names}
        if len(nodes) == 1:
            return {name: work(node, name) for name, node in nodes.items()}
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            futures = {name: pool.submit(work, node, name) for name, node in nodes.items()}
            return {name: future.result() for name, future in futures.items()}

    # -- files

    def write_file(self, path: str, text: str) -> Response:
        """Writes a file below the run's directory."""
        self._below(path).parent.mkdir(parents=True, exist_ok=True)
        self._below(path).write_text(text, encoding="utf-8")
        return {}

    def read_file(self, path: str, last_bytes: int = 1 << 20) -> Response:
        """Returns the end of a file below the run's directory; empty if there is none."""
        try:
            with open(self._below(path), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - last_bytes))
                return {"text": file.read().decode(errors="replace"), "size": size}
        except FileNotFoundError:
            return {"text": "", "size": 0}

    def tail(self, offsets: dict[str, int]) -> Response:
        """Returns what was added to files since the offsets; whole lines only."""
        news: Response = {}
        for path, offset in offsets.items():
            try:
                with open(self._below(path), "rb") as file:
                    file.seek(offset)
                    data = file.read(TAIL_BYTES_MAX)
            except FileNotFoundError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                news[path] = {
                    "text": whole.decode(errors="replace"),
                    "offset": offset + len(whole),
                }
        return news

    def _below(self, path: str) -> Path:
        full = Path(path)
        if not full.is_absolute():
            full = self.run / full
        if self.run not in full.parents or ".." in full.parts:
            raise AgentError(f"{path} is not below the run's directory")
        return full


class Server:
    """Reads requests and writes responses until the input ends.

    Args:
        run: The run's state directory.
        source, sink: Lines of JSON.
    """

    def __init__(self, run: Path, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self._agent = Agent(run, self._write)

    def serve(self) -> None:
        """Serves until the input ends, then heals what would harm the host."""
        pool = ThreadPoolExecutor(max_workers=WORKERS)
        try:
            for line in self._source:
                pool.submit(self._respond, line)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._agent.close()

    def _respond(self, line: bytes) -> None:
        request_id: Any = None
        try:
            request = json.loads(line)
            request_id = request["id"]
            response = {"ok": self._agent.run_command(request["do"], request.get("args", {}))}
        except Exception as error:
            kind = "" if isinstance(error, AgentError) else f"{type(error).__name__}: "
            response = {"error": f"{kind}{error}"}
        self._write({"id": request_id, **response})

    def _write(self, message: Response) -> None:
        data = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        with self._lock:
            try:
                self._sink.write(data)
                self._sink.flush()
            except OSError:
                return  # the harness is gone, and the input ends as well
