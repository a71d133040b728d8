"""A made-up run of the last-replica-standing scenario (V3a, ELR off), written row by row.

Brokers 2 and 3 are isolated one after the other, broker 1 is the only ISR member and loses its power with half
of its log unwritten, and leads again: five acknowledged records are gone and their offsets are used twice.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from harness.history.op import Completion, OpKind, Outcome, ReadRecord
from harness.history.writer import HistoryWriter
from nemesis.faults import FAULTS
from results.layout import RunFiles
from results.store import RunStore, write_json

MS = 1_000_000
STAMP = "20260131T235959Z"


@dataclass(slots=True)
class _Tape:
    writer: HistoryWriter
    topic: str
    metadata_offset: int = 100

    def partition(
        self,
        at_ms: float,
        leader: int,
        epochs: tuple[int, int],
        isr: list[int],
        elr: tuple[int, ...] = (),
        last_known: tuple[int, ...] = (),
    ) -> None:
        self.metadata_offset += 1
        self.writer.add(
            "partition_states",
            (
                int(at_ms * MS),
                self.metadata_offset,
                self.topic,
                0,
                leader,
                *epochs,
                isr,
                list(elr),
                list(last_known),
                [1, 2, 3],
                0,
                False,
                2,
                None,
            ),
        )

    def broker(self, at_ms: float, broker: int, change: str, *, clean: bool = False) -> None:
        self.metadata_offset += 1
        self.writer.add(
            "broker_states",
            (int(at_ms * MS), self.metadata_offset, broker, 40 + broker, change, clean),
        )

    def replica(
        self, at_ms: float, broker: int, end: int, mark: int, epoch: int, role: str, cause: str
    ) -> None:
        self.writer.add(
            "replica_states",
            (
                int(at_ms * MS),
                f"b{broker}",
                broker,
                self.topic,
                0,
                end,
                mark,
                0,
                epoch,
                role,
                cause,
            ),
        )

    def fault(
        self,
        fault_id: str,
        fault: str,
        nodes: list[str],
        begin_ms: float,
        healed_ms: float | None,
        evidence: dict[str, object],
        *,
        targets: list[str] | None = None,
        params: dict[str, object] | None = None,
        took_effect: bool = True,
    ) -> None:
        self.writer.add(
            "faults",
            (
                fault_id,
                fault,
                nodes if targets is None else targets,
                nodes,
                json.dumps(params or {}),
                int(begin_ms * MS),
                int(begin_ms * MS) + MS,
                None if healed_ms is None else int(healed_ms * MS),
                took_effect,
                json.dumps(evidence),
                FAULTS[fault].is_repair,
                FAULTS[fault].can_lose_data,
                FAULTS[fault].ends_uncleanly,
                FAULTS[fault].excuses_death,
                [],
                False,
                [],
                [],
                [],
            ),
        )

    def append(self, at_ms: float, sequence: int, completion: Completion, took_ms: float) -> int:
        index = self.writer.invoke(
            process=sequence % 4,
            kind=OpKind.APPEND,
            topic=self.topic,
            partition=0,
            invoked_ns=int(at_ms * MS),
            acks=-1,
            sequence=sequence,
            key=f"k{sequence % 16}",
        )
        self.writer.complete(index, int((at_ms + took_ms) * MS), completion)
        return index

    def poll(self, at_ms: float, completion: Completion, records: list[tuple[int, int]]) -> int:
        index = self.writer.invoke(
            process=9,
            kind=OpKind.POLL,
            topic=self.topic,
            partition=0,
            invoked_ns=int(at_ms * MS),
            position=0,
            final=at_ms >= 9000,
        )
        read = [
            ReadRecord(
                offset=offset,
                value=value,
                status="ok",
                process=0,
                sequence=0,
                key="k",
                leader_epoch=0,
            )
            for offset, value in records
        ]
        self.writer.complete(index, int((at_ms + 4) * MS), completion, read)
        return index


def make_lost_run(root: Path, *, topic: str = "t", judged: bool = True, scale: int = 1) -> Path:
    """Writes the run and returns its directory.

    Args:
        root: Root of a run store.
        topic: Name of the topic.
        judged: Whether it has a verdict.
        scale: Records at each step are multiplied by this (10 and 5 at scale 1).
    """
    run_dir = RunStore(root).create("last-replica-standing", 8812, stamp=STAMP)
    tape = _Tape(HistoryWriter(run_dir), topic)
    kept, full = 5 * scale, 10 * scale
    _metadata(tape)
    _replicas(tape, kept, full)
    _faults(tape, kept)
    lost, reused = _clients(tape, kept, full)
    tape.writer.add("marks", (5900 * MS, "c1", "partition-without-leader", '{"partition": 0}'))
    tape.writer.add("marks", (7200 * MS, "c1", "elected-from-isr", '{"broker": 1}'))
    for at_ms in range(0, 9000, 300):
        tape.writer.add("marks", (at_ms * MS, "b1", "fetch-parked", "{}"))
    tape.writer.close()
    files = RunFiles(run_dir)
    files.experiment.write_text('name = "last-replica-standing"\nprofile = "kafka-3.9"\n')
    write_json(files.replay, {"schema": 1, "seed": 8812})
    if judged:
        _judge(files, topic, kept, full, lost, reused)
    return run_dir


def _metadata(tape: _Tape) -> None:
    for broker in (1, 2, 3):
        tape.broker(1, broker, "registered", clean=True)
        tape.broker(2, broker, "unfenced")
    tape.partition(20, 1, (0, 0), [1, 2, 3])
    tape.broker(2400, 2, "fenced")
    tape.partition(2400, 1, (0, 1), [1, 3])
    tape.broker(3700, 3, "fenced")
    tape.partition(3700, 1, (0, 2), [1])
    tape.broker(5900, 1, "fenced")
    tape.partition(5900, -1, (1, 3), [1])
    tape.broker(6900, 2, "unfenced")
    tape.broker(7000, 1, "registered", clean=False)
    tape.broker(7100, 3, "unfenced")
    tape.broker(7200, 1, "unfenced")
    tape.partition(7200, 1, (2, 4), [1])
    tape.partition(7600, 1, (2, 5), [1, 2])
    tape.partition(7750, 1, (2, 6), [1, 2, 3])


def _replicas(tape: _Tape, kept: int, full: int) -> None:
    for broker in (1, 2, 3):
        tape.replica(20, broker, 0, 0, 0, "leader" if broker == 1 else "follower", "role")
    for index in range(full):
        at_ms = 200 + index * 1000 / full
        tape.replica(at_ms, 1, index + 1, index, 0, "leader", "append")
        tape.replica(at_ms + 2, 2, index + 1, index, 0, "follower", "replicate")
        tape.replica(at_ms + 3, 3, index + 1, index, 0, "follower", "replicate")
        tape.replica(at_ms + 4, 1, index + 1, index + 1, 0, "leader", "high-watermark")
    for broker in (2, 3):
        tape.replica(1260, broker, full, full, 0, "follower", "high-watermark")
    tape.replica(5000, 1, full, full, 0, "offline", "down")
    tape.replica(6800, 1, kept, 0, 0, "follower", "load")
    tape.replica(7250, 1, kept, 0, 2, "leader", "role")
    for broker in (2, 3):
        tape.replica(7400 + broker, broker, kept, kept, 2, "follower", "truncate")
    tape.replica(7500, 1, kept, kept, 2, "leader", "high-watermark")
    for index in range(kept):
        at_ms = 7800 + index * 700 / kept
        for broker in (1, 2, 3):
            role, cause = ("leader", "append") if broker == 1 else ("follower", "replicate")
            tape.replica(at_ms + broker, broker, kept + index + 1, kept + index, 2, role, cause)
        tape.replica(
            at_ms + 5, 1, kept + index + 1, kept + index + 1, 2, "leader", "high-watermark"
        )


_EVIDENCE_OF_HOSTS = {
    "hosts": ["b1", "b2", "b3", "c1", "c2", "c3"],
    "in_force_ms": 47.14,
    "packets": 74,
    "packets_at": {"b1": 0, "b2": 9, "b3": 8, "c1": 30, "c2": 0, "c3": 27},
    "probe": {"from": "b1", "ms": 251.843, "outcome": "timeout", "to": "b3"},
    "skew_ms": 26.57,
    "took_ms": 65.97,
}
"""As long as in containers."""


def _faults(tape: _Tape, kept: int) -> None:
    tape.fault(
        "f00-reset_connections_of_controllers", "isolate", ["b2"], 1500, 6500, _EVIDENCE_OF_HOSTS,
        targets=["isr_follower:t-0"],
    )  # fmt: skip
    tape.fault(
        "f1", "isolate", ["b3"], 2800, 6510, {"frames_held": 33, "connects_refused": 5},
        targets=["isr_follower:t-0"],
    )  # fmt: skip
    tape.fault("f2", "pause", ["c2"], 3000, 3400, {"work_waited": 0}, took_effect=False)
    tape.fault(
        "f3", "power", ["b1"], 4999, None, {"bytes_lost": 612, "records_lost": 5},
        targets=["last_in_isr:t-0"], params={"mode": "prefix", "keep_records": kept},
    )  # fmt: skip
    tape.fault(
        "f4",
        "heal",
        [],
        6500,
        6510,
        {"healed": ["f00-reset_connections_of_controllers", "f1"]},
        params={"faults": ["f00-reset_connections_of_controllers", "f1"]},
    )
    tape.fault("f5", "start", ["b1"], 6600, None, {"incarnation": 2})


def _clients(tape: _Tape, kept: int, full: int) -> tuple[list[int], list[int]]:
    def ok(offset: int, epoch: int) -> Completion:
        return Completion(outcome=Outcome.OK, offset=offset, node="b1", leader_epoch=epoch)

    sequence = 0
    first = []
    for index in range(full):
        at_ms = 199 + index * 1000 / full
        first.append(tape.append(at_ms, sequence, ok(index, 0), 6 + index % 3))
        sequence += 1
    for at_ms in range(250, 1500, 50):
        known = min(int((at_ms - 200) / 1000 * full), full)
        reported = Completion(outcome=Outcome.OK, end_offset=known, node="b1", leader_epoch=0)
        tape.poll(at_ms, reported, [])
    reported = Completion(outcome=Outcome.OK, end_offset=full, node="b1", leader_epoch=0)
    tape.poll(1400, reported, list(enumerate(first)))
    for at_ms in range(1600, 2400, 100):
        slow = Completion(outcome=Outcome.INFO, error_code=None, error="timeout", node="b1")
        tape.append(at_ms, sequence, slow, 1500)
        sequence += 1
    refused = Completion(
        outcome=Outcome.FAIL, error_code=19, error="NOT_ENOUGH_REPLICAS", node="b1", leader_epoch=0
    )
    for at_ms in range(3750, 5000, 60):
        tape.append(at_ms, sequence, refused, 3)
        sequence += 1
    down = Completion(outcome=Outcome.FAIL, error_code=None, error="connection refused", node="b1")
    for at_ms in range(5000, 7200, 80):
        tape.append(at_ms, sequence, down, 1)
        tape.poll(at_ms + 10, down, [])
        sequence += 1
    second = []
    for index in range(kept):
        at_ms = 7799 + index * 700 / kept
        second.append(tape.append(at_ms, sequence, ok(kept + index, 2), 9 + index % 4))
        sequence += 1
    reported = Completion(outcome=Outcome.OK, end_offset=full, node="b1", leader_epoch=2)
    tape.poll(9100, reported, list(enumerate(first[:kept] + second)))
    return first[kept:], second


def _judge(
    files: RunFiles, topic: str, kept: int, full: int, lost: list[int], reused: list[int]
) -> None:
    count = len(lost)
    where = {"topic": topic, "partition": 0}
    loss = {
        "id": "lost-acked-write",
        "level": "durability",
        **where,
        "count": count,
        "judgement": "forbidden",
        "rule": "acks=all, min ISR 2: an acknowledged record may be lost only by a flagged unclean election.",
        "sentence": f"The append of value {lost[0]} was acknowledged at offset {kept}, and the final "
        f"read from offset 0 to the log end {full} returned value {reused[0]} there.",
        "witnesses": [
            {"op_index": lost[0], "text": f"process 1 append v={lost[0]} -> ok offset {kept}"},
            {"op_index": reused[0], "text": f"process 2 append v={reused[0]} -> ok offset {kept}"},
        ],
        "details": {"offsets": list(range(kept, full)), "values": lost},
    }
    reuse = {
        "id": "offset-reused",
        "level": "integrity",
        **where,
        "count": count,
        "judgement": "forbidden",
        "rule": "Two acknowledged records never have one offset.",
        "sentence": f"Offset {kept} was acknowledged for value {lost[0]} and again for {reused[0]}.",
        "witnesses": [],
        "details": {},
    }
    stale = {
        **reuse,
        "id": "stale-read",
        "level": "fresh",
        "count": 2,
        "judgement": "informational",
    }
    reason = (
        f"{count} acknowledged records of {topic}-0 are gone and no flagged election excuses it."
    )
    coverage = {
        "appends_acknowledged": full + kept,
        "records_read_back": full,
        "operations_info": 8,
        "acknowledged_during_faults": 0,
        "faults_that_bit": "5 of 6",
        "final_reads_complete": True,
        "by_partition": {f"{topic}-0": {"appends_acknowledged": full + kept, "holes": 0}},
    }
    verdict = {
        "validity": "invalid",
        "reasons": [reason],
        "anomalies": [stale, loss, reuse],
        "unexcused_lost_records": count,
        "excused_lost_records": 0,
        "coverage": coverage,
    }
    write_json(files.verdict, verdict)
    summary = {
        "seed": 8812,
        "profile": "kafka-3.9",
        "verdict": "invalid",
        "unexcused_lost_records": count,
        "trace_hash": "9f3c5b20a7c1d4e8",
        "scenario": "last-replica-standing:V3a",
        "anomalies": [{"id": "lost-acked-write", "count": count}],
    }
    write_json(files.run, summary)
