"""The messages that the nodes of a real run recorded: `messages.parquet`.

They are read after the run has been recorded, and no verdict depends on them.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from harness.contracts.messages import NodeClock, NodeMessages
from harness.contracts.system import Node, RecordsMessages
from harness.runs.message_matching import match_messages
from results.message_table import write_messages


def store_node_messages(
    system: RecordsMessages,
    nodes: tuple[Node, ...],
    clock_of: Callable[[str], NodeClock],
    folder: Path,
    target: Path,
) -> None:
    """Reads what the nodes recorded, writes the table, and removes the files of the nodes.

    Args:
        system: Reads the files.
        nodes: All nodes of the cluster.
        clock_of: Returns the clocks of a node by its name.
        folder: Has a folder with the files of each node.
        target: The table.
    """
    recorded: dict[str, NodeMessages] = {}
    for node in nodes:
        files = {}
        for name in system.message_files:
            path = folder / node.name / name
            with contextlib.suppress(FileNotFoundError):
                files[name] = path.read_bytes()
                path.unlink()
        if not files:
            remark = f"{node.name} left no record of its messages"
            recorded[node.name] = NodeMessages(ends=(), complete_from_ns=None, remarks=(remark,))
            continue
        recorded[node.name] = system.recorded_messages(node, nodes, files, clock_of(node.name))
    remarks = [remark for name in sorted(recorded) for remark in recorded[name].remarks]
    write_messages(target, match_messages(recorded), remarks)
