"""Whole runs in a few lines: calls, committed metadata, replica logs and faults as stored tables."""

from typing import Any

import pyarrow as pa

from harness.history.schema import TABLES
from nemesis.faults import FAULTS
from tests.property.brute_force import Call, ends_table, operations_table, records_table

MS = 1_000_000


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TABLES[name])


def state(
    at: int, leader: int, isr: list[int], *, epoch: int, flagged: bool = False, **more: Any
) -> dict[str, Any]:
    return {
        "at_ns": at,
        "metadata_offset": max(at, 0),
        "topic": "t",
        "partition": 0,
        "leader": leader,
        "leader_epoch": epoch,
        "partition_epoch": 0,
        "isr": isr,
        "elr": [],
        "last_known_elr": [],
        "replicas": [1, 2, 3],
        "leader_recovery_state": 0,
        "flagged": flagged,
        "min_isr": 2,
        **more,
    }


def replica(
    at: int, broker: int, end: int, *, hw: int = 0, epoch: int = 0, **more: Any
) -> dict[str, Any]:
    return {
        "at_ns": at,
        "node": f"b{broker}",
        "broker": broker,
        "topic": "t",
        "partition": 0,
        "log_end_offset": end,
        "high_watermark": hw,
        "log_start_offset": 0,
        "leader_epoch": epoch,
        "role": "follower",
        "cause": "append" if more.get("role") == "leader" else "replicate",
        **more,
    }


def leads(
    at: int, broker: int, end: int, *, hw: int = 0, epoch: int, cause: str = "append"
) -> dict[str, Any]:
    return replica(at, broker, end, hw=hw, epoch=epoch, role="leader", cause=cause)


HEARD_NS = 1_000_000
"""After everything in a history of a few lines."""


def heard(replicas: list[dict[str, Any]], states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns rows of replicas that report every change, with the last ones that the author of a history left out.

    A process that runs hears of the last election in the end, and reports it. So each replica has a row in its
    epoch, unless it is down or its log is not readable. Its log is as it was.
    """
    elected = [row for row in states if row["leader"] >= 0]
    if not elected or all(row["cause"] != "append" for row in replicas):
        return replicas
    newest = max(elected, key=lambda row: row["leader_epoch"])
    last = {row["broker"]: row for row in sorted(replicas, key=lambda row: row["at_ns"])}
    epochs = {b: max(r["leader_epoch"] for r in replicas if r["broker"] == b) for b in last}
    more = []
    for b, row in last.items():
        if row["role"] == "offline" or epochs[b] >= newest["leader_epoch"]:
            continue
        leads_now = b == newest["leader"]
        # A leader hears of its election at once if it does nothing in between.
        at_ns = newest["at_ns"] if leads_now and row["at_ns"] <= newest["at_ns"] else HEARD_NS
        role = "leader" if leads_now else "follower"
        change = {"at_ns": at_ns, "leader_epoch": newest["leader_epoch"], "role": role}
        more.append({**row, **change, "cause": "role"})
    return [*replicas, *more]


def batch(
    broker: int,
    offset: int,
    checksum: int,
    *,
    hw: int,
    end: int,
    last: int | None = None,
    epoch: int = 0,
    start: int = 0,
) -> dict[str, Any]:
    """A row of `replica_batches`: `checksum` stands for the records, `end` for where the log was read to."""
    return {
        "node": f"b{broker}",
        "broker": broker,
        "topic": "t",
        "partition": 0,
        "base_offset": offset,
        "last_offset": offset if last is None else last,
        "leader_epoch": epoch,
        "checksum": checksum,
        "log_start_offset": start,
        "high_watermark": hw,
        "read_end_offset": end,
    }


def broker(at: int, broker_id: int, change: str, *, clean: bool | None = False) -> dict[str, Any]:
    return {
        "at_ns": at,
        "metadata_offset": at,
        "broker": broker_id,
        "broker_epoch": at,
        "change": change,
        "clean": clean,
    }


def fault(
    at: int,
    name: str,
    nodes: list[str],
    *,
    healed: int | None = None,
    took_effect: bool = True,
    cut_short: list[str] | None = None,
    elects_uncleanly: list[str] | None = None,
    allows_unclean: list[str] | None = None,
    reconfigures: list[str] | None = None,
) -> dict[str, Any]:
    return {
        "fault_id": f"f{at}",
        "fault": name,
        "targets": ["leader"],
        "resolved": nodes,
        "params": "{}",
        "invoked_ns": at,
        "completed_ns": at,
        "healed_ns": healed,
        "took_effect": took_effect,
        "evidence": "{}",
        "heals": FAULTS[name].is_repair,
        "can_lose_data": FAULTS[name].can_lose_data,
        "unclean_end": FAULTS[name].ends_uncleanly,
        "broken_disk": FAULTS[name].excuses_death,
        "cut_short": cut_short or [],
        "failed": False,
        "elects_uncleanly": elects_uncleanly or [],
        "allows_unclean": allows_unclean or [],
        "reconfigures": reconfigures or [],
    }


def violation(sentence: str) -> dict[str, Any]:
    return {"at_ns": 5, "node": "", "invariant": sentence.partition(":")[0], "sentence": sentence}


def run(
    calls: list[Call],
    *,
    states: list[dict[str, Any]] | None = None,
    replicas: list[dict[str, Any]] | None = None,
    brokers: list[dict[str, Any]] | None = None,
    faults: list[dict[str, Any]] | None = None,
    violations: list[dict[str, Any]] | None = None,
    group_events: list[dict[str, Any]] | None = None,
    offset_queries: list[dict[str, Any]] | None = None,
) -> dict[str, pa.Table]:
    return {
        "operations": operations_table(calls),
        "records_read": records_table(calls),
        "end_offsets_seen": ends_table(calls),
        "partition_states": table("partition_states", states or []),
        "replica_states": table("replica_states", replicas or []),
        "broker_states": table("broker_states", brokers or []),
        "faults": table("faults", faults or []),
        "violations": table("violations", violations or []),
        "group_events": table("group_events", group_events or []),
        "offset_queries": table("offset_queries", offset_queries or []),
    }


def append(op: int, offset: int | None, *, at: int, acks: int = -1, **more: Any) -> Call:
    return Call(
        op=op, kind="append", process=op, inv=at, res=at + 1, offset=offset, acks=acks, **more
    )


def offset_query(kind: str, **columns: Any) -> dict[str, Any]:
    """Returns a row of `offset_queries`: a question of process 9 that b1 answered."""
    row = {
        "query_index": 0,
        "process": 9,
        "kind": kind,
        "topic": "t",
        "partition": 0,
        "outcome": "ok",
        "error_code": 0,
        "error": "",
        "node": "b1",
    }
    return row | columns


def read(
    op: int, at: int, *values: int, start: int = 0, end: int | None = None, final: bool = False
) -> Call:
    return Call(
        op=op,
        kind="poll",
        process=99,
        inv=at,
        res=at + 1,
        position=start,
        records=tuple(enumerate(values, start)),
        end=end,
        final=final,
    )


def final_read(op: int, *values: int, at: int = 900) -> list[Call]:
    """Returns the closing full read of a log that holds the values from offset 0 on, and its confirmed end."""
    end = len(values)
    whole = [read(op, at, *values, end=end, final=True)] if values else []
    latest = Call(
        op=op + 1, kind="latest", process=99, inv=at + 5, res=at + 6, offset=end, final=True
    )
    return [*whole, latest]


def last_replica_standing(*, elr: bool) -> dict[str, pa.Table]:
    """Returns scenario V3: ISR 1, broker 1 loses its tail, and another broker leads.

    Ten records are acknowledged; broker 1 comes back with five. Without eligible leader replicas it leads,
    unflagged, and five new records overwrite the tail. With them broker 3 leads and nothing is lost.
    """
    calls = [append(i, i, at=10 + 2 * i) for i in range(10)]
    calls.append(read(50, 40, *range(10)))
    more = [append(60 + i, (10 if elr else 5) + i, at=700 + 2 * i) for i in range(5)]
    log = [*range(10 if elr else 5), *range(60, 65)]
    states = [
        state(1, 1, [1, 2, 3], epoch=0),
        state(100, 1, [1, 3], epoch=0),
        state(200, 1, [1], epoch=0, elr=[3] if elr else []),
        state(300, -1, [] if elr else [1], epoch=1, elr=[1, 3] if elr else []),
    ]
    if elr:
        states += [state(400, -1, [], epoch=1, elr=[3]), state(500, 3, [3], epoch=2)]
    else:
        states += [state(500, 1, [1], epoch=2)]
    replicas = [replica(5 + 2 * i, b, i, hw=i) for i in range(11) for b in (2, 3)]
    replicas += [replica(5 + 2 * i, 1, i, hw=i, role="leader", cause="append") for i in range(11)]
    replicas += [replica(450, 1, 5, hw=5, cause="load")]
    leader = 3 if elr else 1
    replicas += [
        replica(600, leader, len(log) - 5, hw=5, epoch=2, role="leader", cause="role"),
        replica(800, leader, len(log), hw=len(log), epoch=2, role="leader", cause="append"),
    ]
    return run(
        calls + more + final_read(80, *log),
        states=states,
        replicas=replicas,
        brokers=[
            *(broker(0, b, "registered") for b in (1, 2, 3)),
            broker(400, 1, "registered"),
        ],
        faults=[fault(12, "cut", ["b2"], healed=650), fault(250, "power", ["b1"])],
    )
