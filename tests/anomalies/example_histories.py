"""Turns the text of `checkers.examples` into tables and judges them."""

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa

from checkers.kernels.compose import judge_run
from checkers.registry import BUILT_IN
from harness.contracts.run_context import RunContext
from harness.history.schema import TABLES
from tests.anomalies.runs import MS, batch, broker, fault, offset_query, state, violation

CONTEXT = RunContext(
    checkers=tuple(name for name in BUILT_IN if name != "idempotent-producer"),
    acked_during_faults_min=0,
)

_OPERATION = re.compile(
    r"(?P<op>\d+) p(?P<process>\d+) (?P<kind>append|poll|latest)(?: acks=(?P<acks>all|0|1))?"
    r"(?: with (?P<batch>\d+))?"
    r"(?: from (?P<position>\d+))? -> (?P<result>.+) \[(?P<inv>\d+), (?P<res>\d+|\.\.\.)\](?P<final> final)?"
)
_EVENT = re.compile(
    r"group p(?P<process>\d+) (?P<event>[a-z-]+)(?: (?P<offset>-?\d+))?(?: generation (?P<generation>\d+))?"
)
_LOG = re.compile(r"log of (?P<node>b\d) below (?P<high_watermark>\d+): (?P<records>.*)")
_FAULT = re.compile(r"fault on (?P<node>b\d) \[(?P<at>\d+), (?P<healed>\d+)\]")
_ENDED = re.compile(
    r"healed at (?P<healed>\d+), ended at (?P<ended>\d+), stuck after (?P<limit>\d+)"
)
_QUERY = re.compile(
    r"query of (?P<offset>\d+):(?P<value>\d+) read by (?P<poll>\d+) in epoch (?P<known>\d+):"
    r" (?P<kind>timestamp|leader-epoch) -> (?P<answer>none|\d+) in epoch (?P<epoch>\d+)"
)
_STATE = re.compile(r"state at (?P<at>\d+): no leader, ISR (?P<isr>none|\d)")
_UNREADABLE = ("corrupt", "foreign")

Rows = dict[str, list[dict[str, Any]]]


class Example:
    """One history: its tables, and what the run declares."""

    def __init__(self, text: str) -> None:
        self.context = CONTEXT
        self.unit_ns = 1
        self.rows: Rows = {name: [] for name in TABLES}
        # Brokers that registered before the history begins: the run records restarts.
        self.rows["broker_states"] = [broker(0, number, "registered") for number in (1, 2)]
        for line in text.splitlines():
            self._add(" ".join(line.split()))
        rows = (*self.rows["operations"], *self.rows["faults"], *self.rows["partition_states"])
        for row in rows:
            for column in ("invoked_ns", "completed_ns", "healed_ns", "at_ns"):
                if row.get(column) is not None:
                    row[column] *= self.unit_ns
        writers = {row["op_index"]: row for row in self.rows["operations"]}
        for row in self.rows["records_read"]:
            writer = writers.get(row["value"])
            if writer is not None:
                row["process"] = writer["process"]

    def tables(self) -> dict[str, pa.Table]:
        """Returns the tables of the run."""
        return {
            name: pa.Table.from_pylist(rows, schema=TABLES[name])
            for name, rows in self.rows.items()
        }

    def anomalies(self) -> set[str]:
        """Returns what is found."""
        verdict = judge_run(self.tables(), self.context)
        assert not [reason for reason in verdict.reasons if "checker failed" in reason]
        return {anomaly.id for anomaly in verdict.anomalies}

    def _add(self, line: str) -> None:
        if match := _OPERATION.fullmatch(line):
            self._add_operation(match)
        elif match := _EVENT.fullmatch(line):
            self._add_event(match)
        elif match := _LOG.fullmatch(line):
            records = _records(match["records"])
            self.rows["replica_batches"] += [
                batch(
                    int(match["node"][1:]),
                    offset,
                    value,
                    hw=int(match["high_watermark"]),
                    end=records[-1][0] + 1,
                )
                for offset, value, _ in records
            ]
        elif match := _QUERY.fullmatch(line):
            self.rows["offset_queries"].append(_query(match))
        elif match := _FAULT.fullmatch(line):
            row = fault(int(match["at"]), "cut", [match["node"]], healed=int(match["healed"]))
            self.rows["faults"].append(row)
        elif line.startswith("recovery limit "):
            self.unit_ns = MS
            limit_ms = int(line.removeprefix("recovery limit "))
            self.context = replace(self.context, recovery_max_ms=limit_ms)
        elif match := _ENDED.fullmatch(line):
            self.unit_ns = MS
            self.context = replace(
                self.context,
                final_phase_complete=False,
                healed_ns=int(match["healed"]) * MS,
                ended_ns=int(match["ended"]) * MS,
                stuck_after_ms=int(match["limit"]),
            )
        elif match := _STATE.fullmatch(line):
            isr = [] if match["isr"] == "none" else [int(match["isr"])]
            self.rows["partition_states"].append(
                state(int(match["at"]), -1, isr, epoch=1, replicas=[1, 2])
            )
        elif line.startswith("violation "):
            self.rows["violations"].append(violation(line.removeprefix("violation ")))
        elif line.startswith("checker "):
            checkers = (*self.context.checkers, line.removeprefix("checker "))
            self.context = replace(self.context, checkers=checkers)
        else:
            raise ValueError(f"this line cannot be read: {line!r}")

    def _add_operation(self, match: re.Match[str]) -> None:
        kind, result, op = match["kind"], match["result"], int(match["op"])
        row: dict[str, Any] = {
            "op_index": op,
            "process": int(match["process"]),
            "kind": kind,
            "topic": "t",
            "partition": 0,
            "invoked_ns": int(match["inv"]),
            "completed_ns": None if match["res"] == "..." else int(match["res"]),
            "outcome": result if result in ("info", "fail") else "ok",
            "acks": {"1": 1, "0": 0}.get(match["acks"], -1) if kind == "append" else 0,
            "sequence": op if kind == "append" else -1,
            "key": "",
            "position": int(match["position"]) if match["position"] else -1,
            "offset": None,
            "record_count": 0,
            "end_offset": None,
            "error_code": None,
            "error": "" if result not in ("info", "fail") else "timeout",
            "node": "",
            "leader_epoch": -1,
            "final": match["final"] is not None,
            "batch": int(match["batch"]) if match["batch"] else None,
        }
        if kind == "append" and result.startswith("ok at "):
            row["offset"] = int(result.removeprefix("ok at "))
        elif kind == "latest":
            end, _, source = result.partition(" from ")
            node, _, epoch = source.partition(" in epoch ")
            row |= {"offset": int(end), "node": node, "leader_epoch": int(epoch or -1)}
            self._add_end(row, int(end))
        elif kind == "poll":
            shown, _, end = result.partition(", end ")
            records = [] if shown == "nothing" else _records(shown)
            row["record_count"] = len(records)
            if end:
                row["end_offset"] = int(end)
                self._add_end(row, int(end))
            for index, (offset, value, status) in enumerate(records):
                self.rows["records_read"].append(
                    {
                        "op_index": op,
                        "index_in_poll": index,
                        "topic": "t",
                        "partition": 0,
                        "offset": offset,
                        "value": value,
                        "status": status,
                        "process": 0 if status == "ok" else -1,
                        "sequence": value,
                        "key": "",
                        "leader_epoch": -1,
                    }
                )
        self.rows["operations"].append(row)

    def _add_end(self, row: dict[str, Any], end: int) -> None:
        self.rows["end_offsets_seen"].append(
            {
                "op_index": row["op_index"],
                "topic": "t",
                "partition": 0,
                "end_offset": end,
                "source": "list_offsets" if row["kind"] == "latest" else "fetch",
                "node": row["node"],
                "leader_epoch": row["leader_epoch"],
            }
        )

    def _add_event(self, match: re.Match[str]) -> None:
        events = self.rows["group_events"]
        asked = [row["event_index"] for row in events if row["event"] == "committed-asked"]
        events.append(
            {
                "event_index": len(events),
                "at_ns": 10 + len(events),
                "group": "g",
                "process": int(match["process"]),
                "topic": "t",
                "partition": 0,
                "event": match["event"],
                "offset": int(match["offset"] or -1),
                "refers_to": asked[-1] if match["event"] == "committed-seen" else -1,
                "generation": int(match["generation"] or -1),
            }
        )


def _records(text: str) -> list[tuple[int, int, str]]:
    records = []
    for pair in text.split():
        offset, _, value = pair.partition(":")
        status = value if value in _UNREADABLE else "ok"
        records.append((int(offset), -1 if status != "ok" else int(value), status))
    return records


def _query(match: re.Match[str]) -> dict[str, Any]:
    known = int(match["known"])
    is_found = match["answer"] != "none"
    return offset_query(
        match["kind"],
        invoked_ns=50,
        completed_ns=51,
        op_index=int(match["poll"]),
        record_offset=int(match["offset"]),
        record_value=int(match["value"]),
        known_epoch=known,
        asked=known,
        found=known if is_found else -1,
        offset=int(match["answer"]) if is_found else -1,
        leader_epoch=int(match["epoch"]),
    )
