"""The history writer: what is recorded, what survives, what is refused."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pyarrow as pa
import pytest

from harness.contracts.run_context import RunContext, context_to_row
from harness.errors import HarnessFailure, HistoryError
from harness.history.journal import (
    JOURNAL_TABLES,
    encode_frame,
    file_header,
    journal_path,
    read_frames,
    tables_of,
)
from harness.history.op import Completion, OpKind, Outcome, ReadRecord
from harness.history.schema import TABLES, schema_in
from harness.history.writer import HistoryWriter
from results.history_files import is_finished, read_tables

OK = Completion(outcome=Outcome.OK, offset=7, node="b1", leader_epoch=2)


def invoke(writer: HistoryWriter, kind: OpKind = OpKind.APPEND, **more: object) -> int:
    arguments = {"process": 1, "topic": "t", "partition": 0, "invoked_ns": 10, **more}
    return writer.invoke(kind=kind, **arguments)


def record(offset: int, value: int = 0) -> ReadRecord:
    return ReadRecord(
        offset=offset, value=value, status="ok", process=1, sequence=0, key="k", leader_epoch=2
    )


def fill(writer: HistoryWriter, count: int = 50) -> None:
    for index in range(count):
        append = invoke(writer, partition=index % 3, invoked_ns=index * 10, acks=-1, sequence=index)
        poll = invoke(writer, OpKind.POLL, partition=index % 3, invoked_ns=index * 10, position=0)
        read = Completion(outcome=Outcome.OK, end_offset=index, node="b2")
        writer.complete(poll, index * 10 + 3, read, [record(0, append), record(1)])
        if index % 7:
            writer.complete(append, index * 10 + 5, OK)
        writer.add("marks", (index, "b1", "elected-from-elr", "{}"))
        event = "commit-sent" if index % 2 else "commit-acknowledged"
        where = {"group": "g", "process": 5, "topic": "t", "partition": index % 3}
        where |= {"generation": index % 2}
        assert writer.group_event(at_ns=index, event=event, offset=index, **where) == index
        writer.add("violations", (index, "b1", "INV-1", "two leaders"))
        writer.add("run_facts", context_to_row(RunContext(clock_error_ns=index)))
        writer.add(
            "replica_states",
            (index // 4, "b1", 1, "t", index % 3, index, 0, 0, 0, "leader", "append"),
        )
        writer.add(
            "replica_batches",
            ("b1", 1, "t", index % 3, index, index, 0, 7 * index, 0, count, count),
        )


def test_an_append_is_one_row_with_its_invocation_and_its_completion():
    writer = HistoryWriter(None)
    index = invoke(writer, acks=-1, sequence=4, key="k1", final=True)
    writer.complete(index, 20, OK)
    assert writer.close()["operations"].to_pylist() == [
        {
            "op_index": 0,
            "process": 1,
            "kind": "append",
            "topic": "t",
            "partition": 0,
            "invoked_ns": 10,
            "completed_ns": 20,
            "outcome": "ok",
            "acks": -1,
            "sequence": 4,
            "key": "k1",
            "position": -1,
            "offset": 7,
            "record_count": 0,
            "end_offset": None,
            "error_code": 0,
            "error": "",
            "node": "b1",
            "leader_epoch": 2,
            "final": True,
            "batch": None,
        }
    ]


def test_an_unfinished_operation_is_info_and_has_no_completion():
    writer = HistoryWriter(None)
    invoke(writer)
    row = writer.close()["operations"].to_pylist()[0]
    assert (row["outcome"], row["completed_ns"], row["offset"], row["node"]) == (
        "info",
        None,
        None,
        "",
    )


def test_polls_and_latest_record_the_reported_log_end():
    writer = HistoryWriter(None)
    poll = invoke(writer, OpKind.POLL, position=3)
    writer.complete(
        poll, 20, Completion(outcome=Outcome.OK, end_offset=9, node="b2"), [record(3), record(4)]
    )
    latest = invoke(writer, OpKind.LATEST)
    writer.complete(latest, 30, OK)
    blind = invoke(writer, OpKind.POLL, position=5)
    writer.complete(blind, 40, Completion(outcome=Outcome.INFO, error_code=None, error="timeout"))
    append = invoke(writer)
    writer.complete(append, 50, OK)
    tables = writer.close()
    seen = tables["end_offsets_seen"].to_pylist()
    assert [(row["op_index"], row["end_offset"], row["source"], row["node"]) for row in seen] == [
        (poll, 9, "fetch", "b2"),
        (latest, 7, "list_offsets", "b1"),
    ]
    assert tables["records_read"].column("offset").to_pylist() == [3, 4]
    assert tables["records_read"].column("op_index").to_pylist() == [poll, poll]
    assert tables["operations"].column("record_count").to_pylist() == [2, 0, 0, 0]
    assert tables["operations"].column("error_code").to_pylist() == [0, 0, None, 0]


def test_of_several_rows_about_one_fault_the_last_one_counts():
    writer = HistoryWriter(None)
    traits = (False, False, False, False, [], False, [], [], [])
    first = ("f1", "cut", ["a"], ["b1"], "{}", 5, 6, None, False, "{}")
    other = ("f0", "kill", ["b"], ["b2"], "{}", 1, 2, None, True, "{}")
    last = ("f1", "cut", ["a"], ["b1"], "{}", 5, 6, 9, True, '{"dropped": 4}')
    for row in (first, other, last):
        writer.add("faults", (*row, *traits))
    faults = writer.close()["faults"].to_pylist()
    assert [(row["fault_id"], row["healed_ns"], row["took_effect"]) for row in faults] == [
        ("f0", None, True),
        ("f1", 9, True),
    ]


@pytest.mark.parametrize("merged_at", [2, 5, 2000])
@pytest.mark.parametrize("frame_rows", [1, 7, 100_000])
def test_memory_journal_and_parquet_are_the_same_history(
    tmp_path, monkeypatch, frame_rows, merged_at
):
    monkeypatch.setattr("harness.history.writer.FRAMES_MERGED_AT", merged_at)
    memory = HistoryWriter(None, frame_rows=frame_rows)
    fill(memory)
    expected = memory.close()

    stored = HistoryWriter(tmp_path, frame_rows=frame_rows)
    fill(stored)
    stored.flush()
    recovered = read_tables(tmp_path)
    assert not is_finished(tmp_path)
    closed = stored.close()
    finished = read_tables(tmp_path)
    assert is_finished(tmp_path)
    assert not journal_path(tmp_path).exists()
    for name, schema in TABLES.items():
        assert expected[name].schema.equals(schema, check_metadata=True)
        for other in (recovered, closed, finished):
            assert other[name].schema.equals(schema, check_metadata=True)
            assert other[name].equals(expected[name]), name


def test_completing_an_operation_that_is_not_open_is_refused():
    writer = HistoryWriter(None)
    index = invoke(writer)
    writer.complete(index, 20, OK)
    with pytest.raises(HarnessFailure, match="operation 0 completed but is not open"):
        writer.complete(index, 21, OK)
    with pytest.raises(HarnessFailure, match="operation 5 completed"):
        writer.complete(5, 21, OK)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, "b1", "mark"), "3 columns, not 4"),
        ((1, None, "mark", "{}"), "node must not be null"),
        (("late", "b1", "mark", "{}"), "at_ns does not fit"),
        ((2**70, "b1", "mark", "{}"), "at_ns does not fit"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_column(row, message):
    writer = HistoryWriter(None)
    writer.add("marks", row)
    with pytest.raises(HarnessFailure, match=message):
        writer.flush()


def test_two_writers_never_share_a_directory(tmp_path):
    writer = HistoryWriter(tmp_path)
    with pytest.raises(HarnessFailure, match="already holds a history"):
        HistoryWriter(tmp_path)
    writer.close()
    with pytest.raises(HarnessFailure, match="already holds a finished history"):
        HistoryWriter(tmp_path)


def test_closing_twice_gives_the_same_tables(tmp_path):
    writer = HistoryWriter(tmp_path)
    fill(writer)
    assert writer.close() is writer.close()


def test_frames_are_written_while_a_simulated_world_runs(tmp_path):
    """The fences around a world forbid opening files; the journal is open by then."""
    program = """
import sys
from pathlib import Path
from harness.history.writer import HistoryWriter
from harness.simulation import fences
writer = HistoryWriter(Path(sys.argv[1]), frame_rows=2)
refused = []
with fences.raised(report=refused.append, wall_s=lambda: 0.0):
    for at_ns in range(5):
        writer.add("marks", (at_ns, "b1", "elected", "{}"))
assert not refused, refused
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert read_tables(tmp_path)["marks"].column("at_ns").to_pylist() == [0, 1, 2, 3]


def test_a_journal_is_read_up_to_the_last_complete_frame(tmp_path):
    writer = HistoryWriter(tmp_path, frame_rows=1)
    for _ in range(4):
        writer.complete(invoke(writer), 20, OK)
    path = journal_path(tmp_path)
    whole = path.read_bytes()
    counts = []
    for size in [*range(0, len(whole), 23), len(whole) - 1, len(whole)]:
        path.write_bytes(whole[:size])
        counts.append(read_tables(tmp_path)["operations"].num_rows)
    assert counts == sorted(counts)
    assert (counts[0], counts[-2], counts[-1]) == (0, 4, 4)


def test_a_flipped_bit_ends_the_history_before_its_frame(tmp_path):
    writer = HistoryWriter(tmp_path, frame_rows=1)
    for _ in range(4):
        invoke(writer)
    path = journal_path(tmp_path)
    data = bytearray(path.read_bytes())
    middle = len(file_header()) + (len(data) - len(file_header())) // 2
    data[middle] ^= 1
    path.write_bytes(data)
    assert 1 <= read_tables(tmp_path)["operations"].num_rows < 4


def test_a_journal_of_format_3_is_read(tmp_path):
    writer = HistoryWriter(tmp_path, frame_rows=1)
    writer.complete(invoke(writer), 20, OK)
    writer.add("marks", (1, "b1", "elected-from-elr", "{}"))
    path = journal_path(tmp_path)
    frames = [
        {
            name: batch.select([one for one in batch.schema.names if one != "batch"])
            for name, batch in frame.items()
        }
        for frame in read_frames(path)
    ]
    old = file_header(3) + b"".join(map(encode_frame, frames))
    assert old.startswith(b"laststand journal 3\n")
    expected = read_tables(tmp_path)
    path.write_bytes(old)
    assert read_tables(tmp_path) == expected
    assert expected["operations"].column("batch").null_count == 1
    # What version 3 wrote, so that histories of that time can be read: its magic and its fingerprint.
    assert file_header(3)[-16:].hex() == "898ece0396575618f5d4cb38d6df7cfc"
    assert file_header(8)[-16:].hex() == "e67f2c4dc2692ddde6c0d86a8365663e"
    assert file_header(9)[-16:].hex() == "4189c13f8944ec17b64a75360b230c51"


def test_a_journal_of_format_4_is_read_without_requested_elections(tmp_path):
    fault = ("f1", "cut", ["a"], ["b1"], "{}", 5, 6, None, False, "{}")
    traits = (False, False, False, False, [], False)
    schema = schema_in(4, "faults")
    columns = [[value] for value in (*fault, *traits)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
    path = journal_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(file_header(4) + encode_frame({"faults": batch}))
    (row,) = read_tables(tmp_path)["faults"].to_pylist()
    assert (row["fault_id"], row["elects_uncleanly"], row["reconfigures"]) == ("f1", [], [])
    assert file_header(4)[-16:].hex() == "88f15e359f283e4a8d8202fc519b2f07"
    # As format 5 the same bytes are not a journal of ours, whatever else they are.
    path.write_bytes(file_header() + encode_frame({"faults": batch}))
    with pytest.raises(HistoryError, match="not ours"):
        read_tables(tmp_path)


def test_foreign_journals_are_refused(tmp_path):
    HistoryWriter(tmp_path)
    path = journal_path(tmp_path)
    path.write_bytes(b"PAR1 and so on, but certainly not a journal")
    with pytest.raises(HistoryError, match=r"history\.journal is not a history journal"):
        read_tables(tmp_path)
    for version in (9, 10):
        path.write_bytes(file_header(version)[:-1] + b"?")
        with pytest.raises(HistoryError, match="another version of laststand"):
            read_tables(tmp_path)
        # The writer died within the header.
        path.write_bytes(file_header(version)[:-1])
        assert not read_tables(tmp_path)["operations"].num_rows


def test_a_section_without_bytes_is_not_ours(tmp_path):
    HistoryWriter(tmp_path)
    path = journal_path(tmp_path)
    nothing = SimpleNamespace(serialize=lambda: pa.py_buffer(b""))
    path.write_bytes(file_header() + encode_frame({"faults": nothing}))
    with pytest.raises(HistoryError, match="holds a frame that is not ours"):
        read_tables(tmp_path)


ZYGOTE = """
import os, sys
from pathlib import Path
from harness.history.writer import HistoryWriter
from harness.history.op import Completion, OpKind, Outcome, ReadRecord

def write_forever(directory, frame_rows):
    writer = HistoryWriter(directory, frame_rows=frame_rows)
    n = 0
    while True:
        where = {"topic": "t", "partition": n % 2, "invoked_ns": n}
        a = writer.invoke(process=1, kind=OpKind.APPEND, sequence=n, **where)
        p = writer.invoke(process=2, kind=OpKind.POLL, position=n, **where)
        writer.complete(a, n + 1, Completion(outcome=Outcome.OK, offset=n, node="b1"))
        read = [
            ReadRecord(
                offset=n + i, value=a, status="ok", process=1, sequence=n, key="", leader_epoch=0
            )
            for i in range(3)
        ]
        writer.complete(p, n + 2, Completion(outcome=Outcome.OK, end_offset=n), read)
        writer.add("marks", (n, "b1", "mark", "{}"))
        n += 1

HistoryWriter(None)
for line in sys.stdin:
    directory, frame_rows = line.split()
    pid = os.fork()
    if pid == 0:
        write_forever(Path(directory), int(frame_rows))
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
"""Forks a writer per line of input: a hundred processes, but the imports only once."""


def require_consistent_cut(tables: dict[str, pa.Table]) -> int:
    """Checks what the order of calls in `write_forever` implies for any cut through it."""
    operations = tables["operations"].to_pylist()
    assert [row["op_index"] for row in operations] == list(range(len(operations)))
    reads = Counter(tables["records_read"].column("op_index").to_pylist())
    polls = {
        row["op_index"] for row in operations if row["kind"] == "poll" and row["outcome"] == "ok"
    }
    assert reads == dict.fromkeys(polls, 3)
    assert tables["end_offsets_seen"].column("op_index").to_pylist() == sorted(polls)
    marks = tables["marks"].column("at_ns").to_pylist()
    assert marks == list(range(len(marks)))
    open_count = sum(1 for row in operations if row["outcome"] == "info")
    assert open_count <= 2
    assert 0 <= len(polls) - len(marks) <= 1
    assert 0 <= len(operations) - 2 * len(polls) <= 2
    return len(operations)


def test_a_writer_killed_at_a_hundred_random_moments_leaves_a_consistent_prefix(tmp_path):
    stream = random.Random(1)
    counts = []
    with subprocess.Popen(
        [sys.executable, "-c", ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as zygote:
        for number in range(100):
            directory = tmp_path / f"r{number}"
            zygote.stdin.write(f"{directory} {stream.choice([1, 3, 10])}\n")
            zygote.stdin.flush()
            pid = int(zygote.stdout.readline())
            # By size, not by time: a busy machine must not make all moments the first one.
            size = stream.randint(0, 20_000)
            while (
                not journal_path(directory).exists()
                or journal_path(directory).stat().st_size < size
            ):
                time.sleep(0.0002)
            time.sleep(stream.uniform(0, 0.001))
            os.kill(pid, signal.SIGKILL)
            assert int(zygote.stdout.readline()) == signal.SIGKILL
            counts.append(require_consistent_cut(read_tables(directory)))
        zygote.stdin.close()
    # The moments differed, and some came after real work.
    assert len(set(counts)) > 10
    assert max(counts) > 10


@pytest.mark.parametrize(
    ("begun", "ended", "sentence"),
    [
        ([0, 2], [], "but this one has op_index 2"),
        ([0, 1], [5], "no invocation of op_index 5"),
        ([0, 1], [-1], "no invocation of op_index -1"),
        ([0, 1], [1, 1], "op_index 1 of the journal completes twice"),
    ],
)
def test_a_journal_whose_completions_do_not_fit_is_refused(
    begun: list[int], ended: list[int], sentence: str
) -> None:
    """No writer makes such frames; their checksums are right, so another program wrote them."""

    def batch(name: str, ops: list[int]) -> pa.RecordBatch:
        empty = {pa.string(): "", pa.bool_(): False}
        rows = [
            {**{f.name: empty.get(f.type, 0) for f in JOURNAL_TABLES[name]}, "op_index": op}
            for op in ops
        ]
        return pa.RecordBatch.from_pylist(rows, schema=JOURNAL_TABLES[name])

    frame = {"invocations": batch("invocations", begun), "completions": batch("completions", ended)}
    with pytest.raises(HistoryError, match=sentence):
        tables_of([frame])
