"""What is judged of a system whose nodes are asked for their views: its observation's rows through the kernels."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.compose import judge_run
from harness.contracts.cluster import Topic
from harness.contracts.metadata import CommittedMetadata
from harness.contracts.polling import LogView, NodeView, PolledObservation
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.system import Node
from harness.history.schema import TABLES
from tests.anomalies.runs import append, run

MS = 1_000_000
NODES = tuple(Node(name=f"b{n}", role="broker", node_id=n, address=f"h:{n}") for n in (1, 2, 3))
NAMES = [node.name for node in NODES]
CONTEXT = replace(
    RunContext(),
    checkers=(*LOG_CHECKERS, "replicas", "progress"),
    final_phase_complete=False,
    healed_ns=100 * MS,
    ended_ns=200 * MS,
    stuck_after_ms=60,
)

Step = tuple[int, str, dict[str, Any]]
"""When, which node, and what its event holds."""


def sees(at_ms: int, node: str, leader: str) -> Step:
    log = LogView(leader=leader, replicas=NAMES, current=NAMES, start=0, end=1)
    view = asdict(NodeView(serves=True, logs={"t-0": log}))
    return at_ms, node, {"event": "view", **view}


def all_see(at_ms: int, leader: str) -> list[Step]:
    return [sees(at_ms, name, leader) for name in NAMES]


def judged(steps: Sequence[Step]) -> set[str]:
    """Returns the forbidden anomalies of a run with one acknowledged append and no final read."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    observation = PolledObservation(
        NODES,
        CommittedMetadata(),
        lambda table, row: rows.setdefault(table, []).append(row),
        lambda violation: None,
    )
    observation.topic_created(Topic(name="t", min_insync_replicas=2, assignments=((1, 2, 3),)), 0)
    for at_ms, node, fields in steps:
        line = json.dumps({"at_ns": at_ms * MS, "node": node, **fields}).encode()
        observation.take(observation.parse(line), at_ms * MS)
    tables = run([append(0, 0, at=11 * MS)])
    for name, found in rows.items():
        schema = TABLES[name]
        dicts = [dict(zip(schema.names, row, strict=True)) for row in found]
        tables[name] = pa.Table.from_pylist(dicts, schema=schema)
    anomalies = judge_run(tables, CONTEXT).anomalies
    return {one.id for one in anomalies if one.judgement == "forbidden"}


LED = all_see(10, "b1")
GONE: Step = (199, "b1", {"event": "gone", "log": "t-0"})


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([*LED, *all_see(50, "")], {"stuck"}),
        ([*LED, *all_see(50, ""), *all_see(139, "b2")], set()),
        ([*LED, *all_see(150, "")], set()),
        # Two of three servers do not respond, so nothing can be expected.
        ([*LED], set()),
        ([*LED, GONE], {"lost-acked-write"}),
    ],
)
def test_a_log_without_a_leader_is_stuck_and_one_that_is_gone_has_lost_everything(
    steps: list[Step], expected: set[str]
) -> None:
    assert judged(steps) == expected
