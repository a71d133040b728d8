"""What a run reached: features and margins of tables that are small enough to read."""

from typing import Any

import pyarrow as pa
import pytest

from harness.history.schema import TABLES
from harness.runs.coverage import coverage_of, hash_of
from harness.runs.margins import margins_of
from harness.runs.result import RunResult


def tables(**rows: list[dict[str, Any]]) -> dict[str, pa.Table]:
    """Tables with these rows; columns that are left out are null."""
    made = {}
    for name, schema in TABLES.items():
        full = [{field.name: row.get(field.name) for field in schema} for row in rows.get(name, [])]
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        made[name] = pa.Table.from_pylist(full, schema=nullable)
    return made


def state(at_ns: int, **values: Any) -> dict[str, Any]:
    """A committed state of t-0: led by broker 1, all of three replicas in the ISR."""
    return {
        "at_ns": at_ns,
        "topic": "t",
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1, 2, 3],
        "elr": [],
        "last_known_elr": [],
        "replicas": [1, 2, 3],
        "leader_recovery_state": 0,
        "flagged": False,
        "min_isr": 2,
        **values,
    }


def replica(
    at_ns: int, broker: int, end: int, high_watermark: int, **values: Any
) -> dict[str, Any]:
    """A replica of t-0 with a log end and a high watermark."""
    return {
        "at_ns": at_ns,
        "node": f"b{broker}",
        "broker": broker,
        "topic": "t",
        "partition": 0,
        "log_end_offset": end,
        "high_watermark": high_watermark,
        "role": "follower",
        "cause": "append",
        **values,
    }


def mark(at_ns: int, node: str, name: str) -> dict[str, Any]:
    return {"at_ns": at_ns, "node": node, "mark": name, "details": "{}"}


def fault(completed_ns: int, name: str, *, took_effect: bool = True) -> dict[str, Any]:
    return {
        "fault": name,
        "took_effect": took_effect,
        "completed_ns": completed_ns,
        "heals": False,
    }


def features(**rows: list[dict[str, Any]]) -> set[str]:
    return set(coverage_of(RunResult(tables=tables(**rows))).features)


def test_marks_are_counted_and_ordered_by_node() -> None:
    found = features(
        marks=[mark(1, "b1", "truncated"), mark(2, "b2", "fenced"), mark(3, "b1", "fenced")]
    )
    assert {"mark truncated x1", "mark fenced x1", "mark fenced x2"} <= found
    assert "mark truncated x2" not in found
    assert {name for name in found if name.startswith("marks ")} == {"marks truncated > fenced"}


def test_the_order_of_messages_and_marks_is_a_feature() -> None:
    result = RunResult(tables=tables(), message_orders=(("fenced", "FetchRequest"),))
    assert coverage_of(result).features == ("fenced after FetchRequest",)


def test_shapes_of_partitions_have_no_names_and_no_epochs() -> None:
    shrunk = state(2, leader=2, leader_epoch=7, isr=[2], elr=[1])
    assert features(partition_states=[state(1), shrunk]) == {
        "partition no partition > led, full ISR",
        "partition led, full ISR > led, ISR 1, below min, ELR 1 in a new epoch",
    }
    other = {"topic": "u", "partition": 4}
    assert features(partition_states=[state(1), shrunk]) == features(
        partition_states=[state(1, **other), {**shrunk, **other, "leader_epoch": 9}]
    )


def test_a_role_change_is_a_feature_and_an_append_is_none() -> None:
    rows = [
        replica(1, 1, 0, 0, cause="role"),
        replica(2, 1, 5, 0),
        replica(3, 1, 3, 0, role="leader", cause="truncate"),
    ]
    found = {name for name in features(replica_states=rows) if name.startswith("replica")}
    assert found == {"replica follower by role > leader by truncate"}


def test_a_fault_counts_where_it_took_effect_with_the_mark_after_it() -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "partition_states": [state(1), state(10, isr=[1])],
        "marks": [mark(25, "b1", "fenced"), mark(900_000_000, "b1", "late")],
    }
    assert {"fault kill in led, ISR 1, below min", "fault kill > fenced"} <= features(
        faults=[fault(20, "kill")], **rows
    )
    assert "fault kill in led, full ISR" in features(faults=[fault(5, "kill")], **rows)
    without = features(faults=[fault(20, "kill", took_effect=False)], **rows)
    assert not any(name.startswith("fault") for name in without)
    assert "fault kill > late" not in features(faults=[fault(30, "kill")], **rows)


@pytest.mark.parametrize(("end", "margin"), [(12, 2), (10, 0), (7, -1), (40, 8)])
def test_the_margin_of_a_new_leader_is_what_it_has_above_the_committed_records(
    end: int, margin: int
) -> None:
    rows = [replica(1, 1, 10, 10), replica(2, 2, end, 0)]
    elected = state(5, leader=2, leader_epoch=1, isr=[2])
    found = margins_of(tables(replica_states=rows, partition_states=[elected]))
    assert found["INV-1"] == margin
    assert found["INV-2"] == margin


def test_only_running_members_of_isr_and_elr_have_a_margin() -> None:
    rows = [replica(1, 1, 10, 10), replica(2, 2, 4, 0), replica(3, 3, 6, 0)]
    rows.append(replica(4, 3, 6, 0, role="offline", cause="down"))
    one = state(5, isr=[1, 3])
    assert margins_of(tables(replica_states=rows, partition_states=[one]))["INV-2"] == 0
    in_elr = state(5, isr=[1], elr=[2])
    assert margins_of(tables(replica_states=rows, partition_states=[in_elr]))["INV-2"] == -1


def test_copies_are_counted_while_all_replicas_run() -> None:
    rows = [replica(2, 1, 10, 0), replica(3, 2, 10, 0), replica(4, 3, 4, 0)]
    rows.append(replica(5, 1, 10, 10, cause="high-watermark"))
    assert margins_of(tables(replica_states=rows, partition_states=[state(1)]))["INV-11"] == 1
    rows.append(replica(6, 2, 4, 4, cause="truncate"))
    assert margins_of(tables(replica_states=rows, partition_states=[state(1)]))["INV-11"] == 0
    down = replica(4, 3, 4, 0, role="offline", cause="down")
    assert "INV-11" not in margins_of(
        tables(replica_states=[*rows[:2], down, *rows[3:]], partition_states=[state(1)])
    )


def test_a_hash_is_the_same_in_every_process() -> None:
    assert hash_of("mark truncated x1") == hash_of("mark truncated x1")
    assert len({hash_of(f"mark m{number} x1") for number in range(5000)}) == 5000
    row = coverage_of(RunResult(tables=tables(marks=[mark(1, "b1", "fenced")]))).to_row()
    assert row["feature_names"] == ["mark fenced x1"]
    assert row["coverage"] == [hash_of("mark fenced x1")]
