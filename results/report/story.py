"""The story of a run: faults, committed metadata, replicas and losses as one list in order of time.

An entry is text, made here; the template only lays it out. The selection is made here too: a
replica's log end is listed only where it goes back, and a mark that was hit a thousand times is listed once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from harness.contracts.verdict import Judgement
from results.report.fault_words import fault_sentence, is_repair, listed
from results.report.run import (
    RunData,
    details_text,
    judgement_rank,
    numbers,
    parsed,
    rows_of,
    seconds,
    texts,
)

STORY_MAX = 800
"""Entries that a page shows. Faults, elections and losses come first; the page states how many are left out."""

LOST_SHOWN_MAX = 60
"""Lost records named one by one; the others are counted (verdict.json has them all)."""

LOST_TOLD_MAX = 5000
"""Lost records whose moment is searched for; a run that loses more has one cause, and these show it."""

MARK_REPEATS_MAX = 5
"""A mark hit more often than this is listed the first time only."""

_LAST = 2**63
_REGISTERED = {
    True: "clean: it proved an orderly stop",
    False: "unclean: nothing proves that its logs are complete",
    None: "the system does not report whether it was clean",
}
"""Sorts consequences after everything else that happened at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field of a partition that changed."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecord:
    """One acknowledged record that is gone. `acked_ns` is None when its append is not in the history."""

    topic: str
    partition: int
    offset: int | None
    value: int
    key: str
    process: int
    acked_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened.

    Attributes:
        at_ns: When; None if that is not in the history. Such entries come first.
        order: Offset in the metadata log, for what was committed at one time; otherwise 0.
        kind: "fault", "heal", "partition", "broker", "replica", "mark", "lost", "finding" or "phase".
        title: One sentence.
        detail: What shows it, or what it means; may be empty.
        tone: "", "bad", "undecided" or "odd" (something that should have happened did not).
        changes: partition: fields before and after.
        lost: lost: the records, at most `LOST_SHOWN_MAX`.
        anomaly: lost, finding: the number of the anomaly that it leads to; 0 if there is none.
        weight: How much the story needs it; 0 is dropped first.
    """

    at_ns: int | None
    order: int = 0
    kind: str
    title: str
    detail: str = ""
    tone: str = ""
    changes: tuple[Change, ...] = ()
    lost: tuple[LostRecord, ...] = ()
    anomaly: int = 0
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """All records lost in one partition at one moment; `at_ns` is None if that moment is not in the history.

    `anomaly` is the number of the anomaly in `RunData.anomalies`, from 1.
    """

    anomaly: int
    at_ns: int | None
    topic: str
    partition: int
    records: tuple[LostRecord, ...]
    leader: str
    judgement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The entries in order of time, and how many were left out."""

    entries: tuple[Entry, ...]
    omitted: int
    losses: tuple[Loss, ...]


def tone_of(judgement: object, *, otherwise: str) -> str:
    """Returns the CSS class for a judgement; `otherwise` is that of one that needs no attention."""
    return {str(Judgement.FORBIDDEN): "bad", str(Judgement.UNDECIDED): "undecided"}.get(
        str(judgement), otherwise
    )


def story_of(run: RunData) -> Story:
    """Returns the story of a run."""
    losses = find_losses(run)
    entries = [
        *_faults(run),
        *_partitions(run),
        *_brokers(run),
        *_replicas(run),
        *_marks(run),
        *_lost(losses),
        *_phases(run),
    ]
    ordered = sorted(
        enumerate(entries), key=lambda pair: (time_of(pair[1]), pair[1].order, pair[0])
    )
    kept = ordered
    if len(ordered) > STORY_MAX:
        heaviest = sorted(ordered, key=lambda pair: (-pair[1].weight, time_of(pair[1]), pair[0]))
        chosen = {index for index, _ in heaviest[:STORY_MAX]}
        kept = [pair for pair in ordered if pair[0] in chosen]
    return Story(
        entries=tuple(entry for _, entry in kept),
        omitted=len(ordered) - len(kept),
        losses=losses,
    )


def find_losses(run: RunData) -> tuple[Loss, ...]:
    """Finds when the lost records of the verdict were lost.

    A record is gone when a replica leads whose log ends at or below it, after it was acknowledged. Without replica
    states (real worlds) that moment is unknown; such losses come first.
    """
    groups: dict[tuple[int | None, str, int, str, str, int], list[LostRecord]] = defaultdict(list)
    leaderships = _Leaderships(run)
    for number, anomaly in enumerate(run.anomalies(), start=1):
        if not str(anomaly.get("id", "")).startswith("lost-acked"):
            continue
        for record in _records_of(run, anomaly):
            at_ns, leader = leaderships.loss_of(record)
            judgement = str(anomaly.get("judgement"))
            place = (at_ns, record.topic, record.partition, leader, judgement, number)
            groups[place].append(record)
    return tuple(
        Loss(
            anomaly=number,
            at_ns=at_ns,
            topic=topic,
            partition=partition,
            leader=leader,
            judgement=judgement,
            records=tuple(sorted(records, key=lambda r: (r.offset or 0, r.value))),
        )
        for (at_ns, topic, partition, leader, judgement, number), records in sorted(
            groups.items(), key=lambda item: _order_of_loss(item[0])
        )
    )


def time_of(entry: Entry) -> int:
    """Returns when something happened, for sorting: what has no time comes first."""
    return -1 if entry.at_ns is None else entry.at_ns


def when(at_ns: int | None) -> str:
    """Returns a time for people: "12.345 s", or "time unknown"."""
    return "time unknown" if at_ns is None else seconds(at_ns)


def broker_name(broker: int) -> str:
    """Returns a broker's name, or "none"."""
    return "none" if broker < 0 else f"b{broker}"


def members(brokers: Sequence[int]) -> str:
    """Returns brokers as a set, for example "{b1, b3}"."""
    return "{" + ", ".join(f"b{broker}" for broker in brokers) + "}" if brokers else "∅"


def place_name(topic: str, partition: int) -> str:
    """Returns a partition's name, for example "t-0"; "run" for what concerns no single one."""
    return f"{topic}-{partition}" if partition >= 0 or topic else "run"


def _faults(run: RunData) -> Iterator[Entry]:
    for row in run.faults:
        selectors = ", ".join(target for target in row["targets"] if target not in row["resolved"])
        aimed = f"aimed at {selectors}; " if selectors else ""
        tone, evidence = "", details_text(row["evidence"]) or "no evidence recorded"
        if not row["took_effect"]:
            tone, evidence = "odd", f"it did not take effect; {evidence}"
        yield Entry(
            at_ns=row["completed_ns"] if row["completed_ns"] is not None else row["invoked_ns"],
            kind="heal" if is_repair(row["fault"]) else "fault",
            title=f"{row['fault_id']}: {fault_sentence(row)}",
            detail=f"{aimed}evidence: {evidence}" if row["took_effect"] else f"{aimed}{evidence}",
            tone=tone,
            weight=9,
        )
        begun_ns = (row["invoked_ns"], row["completed_ns"])
        is_over_later = row["healed_ns"] is not None and row["healed_ns"] not in begun_ns
        if is_over_later and not is_repair(row["fault"]):
            sentence = fault_sentence(row)
            yield Entry(
                at_ns=row["healed_ns"],
                kind="heal",
                title=f"{row['fault_id']} is over ({sentence[0].lower()}{sentence[1:]})",
                weight=8,
            )


def _partitions(run: RunData) -> Iterator[Entry]:
    before: dict[tuple[str, int], dict[str, Any]] = {}
    for row in run.tables["partition_states"].to_pylist():
        place = (row["topic"], row["partition"])
        old = before.get(place)
        before[place] = row
        name = place_name(*place)
        if old is None:
            yield Entry(
                at_ns=row["at_ns"],
                kind="partition",
                title=f"{name} begins with leader {broker_name(row['leader'])}",
                detail=f"replicas {members(row['replicas'])}, ISR {members(row['isr'])}, "
                f"min ISR {row['min_isr']}",
                weight=7,
            )
            continue
        changes = tuple(_changes(old, row))
        if not changes:
            continue
        title, weight, tone = _partition_title(name, old, row)
        yield Entry(
            at_ns=row["at_ns"],
            order=row["metadata_offset"],
            kind="partition",
            title=title,
            detail=_isr_warning(row),
            tone=tone,
            changes=changes,
            weight=weight,
        )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    sets = (("isr", "ISR"), ("elr", "ELR"), ("last_known_elr", "last-known ELR"))
    for column, name in sets:
        if sorted(old[column]) != sorted(new[column]):
            yield Change(name=name, before=members(old[column]), after=members(new[column]))
    if old["leader"] != new["leader"]:
        yield Change(
            name="leader", before=broker_name(old["leader"]), after=broker_name(new["leader"])
        )
    for column in ("leader_epoch", "partition_epoch", "leader_recovery_state", "min_isr"):
        if old[column] != new[column]:
            yield Change(
                name=column.replace("_", " "), before=str(old[column]), after=str(new[column])
            )
    if list(old["replicas"]) != list(new["replicas"]):
        yield Change(
            name="replicas", before=members(old["replicas"]), after=members(new["replicas"])
        )


def _partition_title(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[str, int, str]:
    if old["leader"] != new["leader"]:
        if new["leader"] < 0:
            return f"{name} has no leader", 8, "odd"
        flagged = "; the controller flagged the election as unclean" if new["flagged"] else ""
        return f"{broker_name(new['leader'])} leads {name}{flagged}", 8, "odd" if flagged else ""
    gone = [broker for broker in old["isr"] if broker not in new["isr"]]
    come = [broker for broker in new["isr"] if broker not in old["isr"]]
    if gone and not come:
        return f"{listed([broker_name(b) for b in gone])} left the ISR of {name}", 6, ""
    if come and not gone:
        return f"{listed([broker_name(b) for b in come])} joined the ISR of {name}", 5, ""
    return f"{name} changed", 5, ""


def _isr_warning(row: Mapping[str, Any]) -> str:
    size = len(row["isr"])
    if size >= row["min_isr"]:
        return ""
    alone = f"only {members(row['isr'])} is in sync" if size else "no replica is in sync"
    return f"{alone}: below min ISR {row['min_isr']}, acks=all is refused"


def _brokers(run: RunData) -> Iterator[Entry]:
    partitions = run.tables["partition_states"]
    begin_ns = int(numbers(partitions, "at_ns").min()) if partitions.num_rows else 0
    rows = run.tables["broker_states"].to_pylist()
    forming = [row for row in rows if row["at_ns"] < begin_ns]
    if forming:
        names = sorted({row["broker"] for row in forming})
        yield Entry(
            at_ns=forming[0]["at_ns"],
            kind="broker",
            title=f"The cluster forms: {listed([broker_name(name) for name in names])}",
            weight=4,
        )
    for row in rows[len(forming) :]:
        detail = ""
        if row["change"] == "registered":
            detail = _REGISTERED[row["clean"]]
        yield Entry(
            at_ns=row["at_ns"],
            order=row["metadata_offset"],
            kind="broker",
            title=f"{broker_name(row['broker'])} {row['change']}",
            detail=f"{detail}; broker epoch {row['broker_epoch']}" if detail else "",
            weight=5,
        )


def _replicas(run: RunData) -> Iterator[Entry]:
    """Describes where a replica's log end went back: truncations, and data lost in a crash."""
    for topic, partition in run.partitions:
        here = rows_of(run.tables["replica_states"], topic, partition)
        nodes = texts(here, "node")
        for node in sorted(set(nodes)):
            rows = here.filter(pa.array((nodes == node).astype(bool), type=pa.bool_()))
            ends = numbers(rows, "log_end_offset")
            for index in (np.flatnonzero(np.diff(ends) < 0) + 1).tolist():
                old, new = rows.slice(index - 1, 2).to_pylist()
                yield _went_back(node, place_name(topic, partition), old, new)


def _went_back(node: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Entry:
    before, after = old["log_end_offset"], new["log_end_offset"]
    committed = max(old["high_watermark"] - after, 0)
    detail = f"its high watermark was {old['high_watermark']}"
    if committed:
        detail += f": {_count(committed, 'committed record')} gone from this replica"
    if new["cause"] == "truncate":
        title = f"{node} truncated {name} from {before} to {after}"
    elif new["role"] == "offline":
        title = f"{node} went down; its log of {name} fell from {before} to {after}"
    else:
        title = f"{node} came back with log end {after} of {name} (it had {before})"
    return Entry(
        at_ns=new["at_ns"],
        kind="replica",
        title=title,
        detail=detail,
        tone="bad" if committed else "",
        weight=7 if committed else 4,
    )


def _marks(run: RunData) -> Iterator[Entry]:
    table = run.tables["marks"]
    counts = Counter(table.column("mark").to_pylist())
    seen: set[str] = set()
    for row in table.to_pylist():
        name = row["mark"]
        if name in seen and counts[name] > MARK_REPEATS_MAX:
            continue
        many = counts[name] > MARK_REPEATS_MAX
        seen.add(name)
        yield Entry(
            at_ns=row["at_ns"],
            order=_LAST,
            kind="mark",
            title=f"{row['node']}: {name}" + (f" (first of {counts[name]})" if many else ""),
            detail=details_text(parsed(row["details"] or "{}")),
            weight=2,
        )


def _lost(losses: Iterable[Loss]) -> Iterator[Entry]:
    for loss in losses:
        count = _count(len(loss.records), "acknowledged record")
        name = place_name(loss.topic, loss.partition)
        if loss.leader:
            title = f"{count} of {name} lost: {loss.leader} leads without them"
        else:
            title = f"{count} of {name} lost; the moment is not in the history"
        hidden = len(loss.records) - LOST_SHOWN_MAX
        detail = loss.judgement
        if hidden > 0:
            detail += f"; {_count(hidden, 'further record')} in verdict.json"
        yield Entry(
            at_ns=loss.at_ns,
            order=_LAST,
            kind="lost",
            title=title,
            detail=detail,
            tone=tone_of(loss.judgement, otherwise="calm"),
            lost=loss.records[:LOST_SHOWN_MAX],
            anomaly=loss.anomaly,
            weight=10,
        )


def _phases(run: RunData) -> Iterator[Entry]:
    operations = run.tables["operations"]
    final = operations.filter(operations.column("final"))
    if final.num_rows:
        yield Entry(
            at_ns=int(numbers(final, "invoked_ns").min()),
            kind="phase",
            title="The final phase begins: everything is healed, every partition is read to its end",
            weight=9,
        )


def _records_of(run: RunData, anomaly: Mapping[str, Any]) -> Iterator[LostRecord]:
    details = anomaly.get("details") or {}
    values = _integers(details.get("values"))[:LOST_TOLD_MAX]
    offsets = _integers(details.get("offsets"))
    if not values:
        witnesses = [w for w in anomaly.get("witnesses", ()) if isinstance(w, dict)]
        values = _integers([witness.get("op_index") for witness in witnesses])
    operations = run.tables["operations"]
    indices = numbers(operations, "op_index")
    rows = np.searchsorted(indices, np.array(values, dtype=np.int64))
    for position, (value, row) in enumerate(zip(values, rows.tolist(), strict=True)):
        known = position < len(offsets) and offsets[position] >= 0
        offset = offsets[position] if known else None
        base = LostRecord(
            topic=str(anomaly.get("topic", "")),
            partition=int(anomaly.get("partition", -1)),
            offset=offset,
            value=value,
            key="",
            process=-1,
            acked_ns=None,
        )
        if row >= len(indices) or indices[row] != value:
            yield base
            continue
        operation = operations.slice(row, 1).to_pylist()[0]
        if operation["kind"] != "append":
            continue
        yield replace(
            base,
            offset=operation["offset"] if operation["offset"] is not None else offset,
            key=operation["key"],
            process=operation["process"],
            acked_ns=operation["completed_ns"],
        )


class _Leaderships:
    """Where each partition's leaders' logs ended, for looking up when a record was gone."""

    def __init__(self, run: RunData) -> None:
        self._rows: dict[tuple[str, int], tuple[Any, Any, Any]] = {}
        for place in run.partitions:
            table = rows_of(run.tables["replica_states"], *place)
            leading = np.flatnonzero(texts(table, "role") == "leader")
            self._rows[place] = (
                numbers(table, "at_ns")[leading],
                numbers(table, "log_end_offset")[leading],
                texts(table, "node")[leading],
            )

    def loss_of(self, record: LostRecord) -> tuple[int | None, str]:
        """Returns when a record was gone and who led then; None and "" when unknown."""
        rows = self._rows.get((record.topic, record.partition))
        if rows is None or record.offset is None or record.acked_ns is None:
            return None, ""
        at_ns, ends, nodes = rows
        found = np.flatnonzero((at_ns > record.acked_ns) & (ends <= record.offset))
        if not len(found):
            return None, ""
        return int(at_ns[found[0]]), str(nodes[found[0]])


def _order_of_loss(place: tuple[int | None, str, int, str, str, int]) -> tuple[object, ...]:
    at_ns, topic, partition, leader, judgement, number = place
    begin_ns = -1 if at_ns is None else at_ns
    return (begin_ns, topic, partition, judgement_rank(judgement), leader, number)


def _integers(data: Any) -> list[int]:
    if not isinstance(data, list | tuple):
        return []
    return [item for item in data if isinstance(item, int) and not isinstance(item, bool)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
