"""What the servers report: who leads each stream, and what each server has of it.

Every server is asked for its own view over its monitoring port (`harness/contracts/polling.py`). At the end the
cluster is asked for every stream that it once had, because it may have lost a whole stream.
"""

from collections.abc import Mapping
from typing import Any

from harness.contracts.polling import LogView, NodeView, PolledViews, json_over_http
from harness.contracts.system import Node, RunningNodes
from harness.environments.client_host import PlainClientHost
from laststand_nats.client import NatsClient

END_LIMIT_MS = 2000
MONITOR = 2
"""Where a server reports its state (`further_address`)."""


def further_address(node: Node, number: int) -> str:
    """Returns another address of a node, which has one port: a loopback address, or a following port."""
    host, _, port = node.address.rpartition(":")
    if host.startswith("127."):
        return f"127.0.{number}.{node.node_id}:{port}"
    return f"{host}:{int(port) + number}"


class ServerReports(PolledViews):
    """Implements `EventSource` and `ChecksAtEnd`. Mutable: the streams that servers had."""

    def __init__(self, running: RunningNodes) -> None:
        super().__init__(running)
        self._seen: dict[str, None] = {}

    async def view_of(self, node: Node) -> NodeView:
        """Returns what a server reports about JetStream."""
        report = await json_over_http(further_address(node, MONITOR), "/jsz?streams=true")
        view = view_in(report)
        self._seen |= dict.fromkeys(view.logs)
        return view

    async def check_at_end(self) -> None:
        """Reports the streams that the cluster no longer knows."""
        client = NatsClient(
            PlainClientHost("harness"),
            tuple(node.address for node in self.running.nodes),
            request_timeout_ms=END_LIMIT_MS,
            connect_timeout_ms=END_LIMIT_MS,
        )
        for stream in self._seen:
            if await client.is_gone(stream):
                self.report_gone(stream)
                self.report_violation(
                    f"the stream {stream} is gone: its creation was acknowledged, and at the end of the run the"
                    " leader of the cluster's metadata does not know it"
                )
        await client.disconnect()


def view_in(report: Mapping[str, Any]) -> NodeView:
    """Returns what matters of a server's report about JetStream."""
    logs = {}
    for account in report.get("account_details") or ():
        for stream in account.get("stream_detail") or ():
            cluster, state = stream.get("cluster") or {}, stream["state"]
            leader, others = cluster.get("leader", ""), cluster.get("replicas") or ()
            current = (p["name"] for p in others if p["current"] and not p.get("offline"))
            logs[stream["name"]] = LogView(
                leader=leader,
                replicas=[leader, *(peer["name"] for peer in others)],
                current=[leader, *current],
                start=max(state["first_seq"] - 1, 0),
                end=state["last_seq"],
            )
    return NodeView(serves=bool((report.get("meta_cluster") or {}).get("leader")), logs=logs)
