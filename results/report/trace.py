"""A run as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: JSON in Chrome's trace event format.

Tracks, from the top: anomalies, faults, one per partition with its leader, one per client process with its
operations, and one group per node with its roles, log ends, what the controllers recorded of it, and the messages
that it sent if the nodes recorded them. Operations of one process that overlap get further tracks, because slices
of one track must nest; so do messages.

Units: microseconds since run start, as the format demands; nanoseconds are the digits behind the point.

Source: Trace Event Format (Google).
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.errors import HistoryError
from results.layout import RunFiles
from results.message_table import read_messages
from results.report.argument import arguments_of
from results.report.fault_words import fault_sentence
from results.report.lanes import intervals
from results.report.run import RunData, numbers, rows_of, texts
from results.report.story import broker_name, find_losses, place_name
from results.report.svg import thinned

MARKS_MAX = 5000
"""Marks in the trace; a run of half an hour has a hundred thousand, and most are alike."""
MESSAGES_MAX = 20_000
"""Messages in the trace, those nearest to the moment that decided the most important anomaly."""

ANOMALIES, FAULTS, PARTITIONS, CLIENTS, NODES = 1, 2, 3, 4, 10
"""Numbers of the groups; node i of the sorted names has `NODES` + i."""
MESSAGE_TRACKS = 100_000
"""Number of the first track with messages; partitions have the lower ones."""

Event = dict[str, Any]


def write_trace(run_dir: Path, path: Path) -> int:
    """Writes the trace of a stored run in one step, and returns how many events it has.

    Raises:
        HistoryError: The run is missing or damaged.
        OSError: The file cannot be written.
    """
    count = 0
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8", errors="replace") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        for event in trace_events(RunData(run_dir)):
            file.write(",\n" if count else "\n")
            file.write(json.dumps(event, sort_keys=True, ensure_ascii=False, default=str))
            count += 1
        file.write("\n]}\n")
    os.replace(partial, path)
    return count


def trace_events(run: RunData) -> Iterator[Event]:
    """Yields the events of a run; the same run gives the same events in the same order."""
    yield from _anomalies(run)
    yield from _faults(run)
    yield from _leaders(run)
    messages = _recorded_messages(run)
    nodes = {name: NODES + place for place, name in enumerate(_node_names(run, messages))}
    for name, group in nodes.items():
        yield _named("process_name", group, 0, name)
        yield _sorted(group)
    yield from _replicas(run, nodes)
    yield from _broker_changes(run, nodes)
    yield from _marks(run, nodes)
    yield from _messages(messages, nodes)
    yield from _operations(run)


def _anomalies(run: RunData) -> Iterator[Event]:
    arguments = [
        one
        for one in arguments_of(run, find_losses(run))
        if one.tone != "calm" and one.at_ns is not None
    ]
    if not arguments:
        return
    yield _named("process_name", ANOMALIES, 0, "anomalies")
    yield _sorted(ANOMALIES)
    for one in arguments:
        about = {"anomaly": one.number, "judgement": one.judgement, "sentence": one.sentence}
        # Global: a line through all tracks.
        yield _instant(ANOMALIES, 0, f"{one.id} in {one.place}", one.at_ns or 0, about, scope="g")


def _faults(run: RunData) -> Iterator[Event]:
    if not run.faults:
        return
    yield _named("process_name", FAULTS, 0, "faults")
    yield _sorted(FAULTS)
    tracks = _Tracks()
    for window in run.fault_windows:
        row = run.faults[window.number - 1]
        about = {
            "number": window.number,
            "what": fault_sentence(row),
            "targets": list(row["targets"]),
            "took_effect": row["took_effect"],
            "evidence": row["evidence"],
        }
        name = f"{window.fault_id} {window.label}"
        track = tracks.free(window.begin_ns, window.end_ns)
        if window.end_ns > window.begin_ns:
            yield _slice(FAULTS, track, name, window.begin_ns, window.end_ns, about)
        else:
            yield _instant(FAULTS, track, name, window.begin_ns, about)


def _leaders(run: RunData) -> Iterator[Event]:
    if not run.partitions:
        return
    yield _named("process_name", PARTITIONS, 0, "partition leaders")
    yield _sorted(PARTITIONS)
    for track, place in enumerate(run.partitions):
        yield _named("thread_name", PARTITIONS, track, place_name(*place))
        rows = rows_of(run.tables["partition_states"], *place).to_pylist()
        for index, row in enumerate(rows):
            until_ns = rows[index + 1]["at_ns"] if index + 1 < len(rows) else run.end_ns
            leader = broker_name(row["leader"]) if row["leader"] >= 0 else "no leader"
            about = {
                key: row[key]
                for key in ("leader_epoch", "partition_epoch", "isr", "elr", "last_known_elr")
            }
            name = f"{leader}, leader epoch {row['leader_epoch']}"
            yield _slice(PARTITIONS, track, name, row["at_ns"], until_ns, about)


def _node_names(run: RunData, messages: Sequence[Event]) -> list[str]:
    # Of a message that a client sent, a node recorded the arrival only: its sender is no node.
    names = {broker_name(broker) for broker in run.brokers}
    for table in ("replica_states", "marks"):
        names.update(str(name) for name in run.tables[table].column("node").unique().to_pylist())
    names.update(one["src"] for one in messages if one["sent_ns"] is not None)
    names.update(one["dst"] for one in messages if one["arrived_ns"] is not None)
    return sorted(names)


def _recorded_messages(run: RunData) -> list[Event]:
    """Returns the messages that the nodes of a real run recorded; none if they recorded none."""
    try:
        rows, _ = read_messages(RunFiles(run.directory).recorded_messages)
    except (FileNotFoundError, HistoryError):
        return []
    moments = [one.at_ns for one in arguments_of(run, find_losses(run)) if one.at_ns is not None]
    if len(rows) > MESSAGES_MAX:
        moment_ns = moments[0] if moments else 0
        rows = sorted(rows, key=lambda one: abs(_message_time(one) - moment_ns))[:MESSAGES_MAX]
    return sorted(rows, key=_message_time)


def _message_time(row: Event) -> int:
    return int(row["arrived_ns"] if row["sent_ns"] is None else row["sent_ns"])


def _messages(rows: Sequence[Event], nodes: Mapping[str, int]) -> Iterator[Event]:
    """Yields a slice per message on its way, with its sender; an instant if one end is not known."""
    tracks: dict[tuple[str, str], _Tracks] = {}
    numbers_of: dict[tuple[str, str, int], int] = {}
    for row in rows:
        src, dst = row["src"], row["dst"]
        about = {"from": src, "to": dst, "kind": row["kind"], "lost": row["lost"]}
        if row["sent_ns"] is None or row["arrived_ns"] is None:
            text = f"lost: {row['text']}" if row["lost"] else row["text"]
            group = nodes[dst if row["sent_ns"] is None else src]
            yield _instant(group, 0, text, _message_time(row), about)
            continue
        begin_ns, end_ns = row["sent_ns"], max(row["sent_ns"], row["arrived_ns"])
        lane = tracks.setdefault((src, dst), _Tracks()).free(begin_ns, end_ns)
        key = (src, dst, lane)
        if key not in numbers_of:
            numbers_of[key] = MESSAGE_TRACKS + len(numbers_of)
            more = f" ({lane + 1})" if lane else ""
            yield _named("thread_name", nodes[src], numbers_of[key], f"messages to {dst}{more}")
        yield _slice(nodes[src], numbers_of[key], row["text"], begin_ns, end_ns, about)


def _replicas(run: RunData, nodes: Mapping[str, int]) -> Iterator[Event]:
    """Yields the roles of every replica as slices, and its log end and high watermark as counters."""
    for track, place in enumerate(run.partitions, start=1):
        table = rows_of(run.tables["replica_states"], *place)
        owners = texts(table, "node")
        for node in sorted(set(owners)):
            rows = table.filter(pa.array((owners == node).astype(bool), type=pa.bool_()))
            group, name = nodes[node], place_name(*place)
            yield _named("thread_name", group, track, f"role in {name}")
            times = numbers(rows, "at_ns")
            roles = [
                {"at_ns": at_ns, "role": role}
                for at_ns, role in zip(times.tolist(), texts(rows, "role").tolist(), strict=True)
            ]
            for item in intervals(roles, lambda row: row["role"], run.end_ns):
                yield _slice(group, track, str(item.value), item.begin_ns, item.end_ns, {})
            for column in ("log_end_offset", "high_watermark"):
                at, values = thinned(times, numbers(rows, column))
                for at_ns, value in zip(at.tolist(), values.tolist(), strict=True):
                    counter = f"{name} {column}"
                    yield {
                        **_event("C", group, 0, counter, at_ns),
                        "args": {column: value},
                    }


def _broker_changes(run: RunData, nodes: Mapping[str, int]) -> Iterator[Event]:
    for row in run.tables["broker_states"].to_pylist():
        group = nodes[broker_name(row["broker"])]
        about = {"broker_epoch": row["broker_epoch"], "clean": row["clean"]}
        yield _instant(group, 0, str(row["change"]), row["at_ns"], about)


def _marks(run: RunData, nodes: Mapping[str, int]) -> Iterator[Event]:
    for row in run.tables["marks"].slice(0, MARKS_MAX).to_pylist():
        yield _instant(
            nodes[row["node"]], 0, row["mark"], row["at_ns"], {"details": row["details"]}
        )


def _operations(run: RunData) -> Iterator[Event]:
    """Yields every operation as a slice; one without completion lasts until the end of the run."""
    table = run.tables["operations"]
    if not table.num_rows:
        return
    yield _named("process_name", CLIENTS, 0, "clients")
    yield _sorted(CLIENTS)
    processes = numbers(table, "process")
    first = 0
    for process in sorted(set(processes.tolist())):
        rows = np.flatnonzero(processes == process)
        mine = table.take(pa.array(rows)).to_pylist()
        tracks = _Tracks()
        slices: list[Event] = []
        for row in sorted(mine, key=lambda row: (row["invoked_ns"], row["op_index"])):
            end_ns = row["completed_ns"] if row["completed_ns"] is not None else run.end_ns
            track = first + tracks.free(row["invoked_ns"], end_ns)
            name = f"{row['kind']} {row['outcome']}"
            slices.append(_slice(CLIENTS, track, name, row["invoked_ns"], end_ns, _about(row)))
        for track in range(tracks.count):
            more = f" ({track + 1})" if track else ""
            yield _named("thread_name", CLIENTS, first + track, f"process {process}{more}")
        yield from slices
        first += tracks.count


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("op_index", "topic", "partition", "offset", "end_offset", "error", "node", "final")
    return {key: row[key] for key in keys if row.get(key) not in (None, "")}


class _Tracks:
    """Tracks in which slices do not overlap. Mutable: when each is free again."""

    def __init__(self) -> None:
        self._ends: list[int] = []

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._ends)

    def free(self, begin_ns: int, end_ns: int) -> int:
        """Returns the first track that is free, and occupies it."""
        for track, end in enumerate(self._ends):
            if end <= begin_ns:
                self._ends[track] = end_ns
                return track
        self._ends.append(end_ns)
        return len(self._ends) - 1


def _event(phase: str, group: int, track: int, name: str, at_ns: int) -> Event:
    return {"ph": phase, "pid": group, "tid": track, "name": name, "ts": at_ns / 1000}


def _slice(
    group: int, track: int, name: str, begin_ns: int, end_ns: int, about: Mapping[str, Any]
) -> Event:
    event = _event("X", group, track, name, begin_ns)
    return {**event, "dur": max(end_ns - begin_ns, 0) / 1000, "args": dict(about)}


def _instant(
    group: int, track: int, name: str, at_ns: int, about: Mapping[str, Any], scope: str = "t"
) -> Event:
    return {**_event("i", group, track, name, at_ns), "s": scope, "args": dict(about)}


def _named(kind: str, group: int, track: int, name: str) -> Event:
    return {"ph": "M", "pid": group, "tid": track, "name": kind, "args": {"name": name}}


def _sorted(group: int) -> Event:
    order = {"sort_index": group}
    return {"ph": "M", "pid": group, "tid": 0, "name": "process_sort_index", "args": order}
