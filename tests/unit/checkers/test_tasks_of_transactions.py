"""Transactions of a stored run are judged alike by tasks, from a journal, and from tables in memory."""

from dataclasses import asdict
from pathlib import Path

import pytest

from checkers.jobs.check import judge_task
from checkers.jobs.stored import tasks_of
from checkers.kernels.compose import judge_run, judge_whole_run
from checkers.kernels.verdict_json import judgement_to_json
from harness.errors import HistoryError
from harness.history.parquet import write_tables
from harness.history.writer import HistoryWriter
from harness.runs.phases import RunRecorder
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer
from workloads.transaction_log import RecordedTransaction


def _lost() -> Events:
    events = Events()
    kept, one = producer(events, 2, "q"), producer(events, 1)
    value = events.send(kept, 0, B, 0)
    events.send(one, 0, A, 0)
    events.commit(kept)
    events.commit(one)
    events.closing(b=[(0, value)])
    return events


def test_a_task_judges_a_stored_run_like_its_tables(tmp_path: Path) -> None:
    tables = {"transaction_events": _lost().table()}
    write_tables(tmp_path, tables)
    (task,) = tasks_of(tmp_path, 0, asdict(CONTEXT))
    (row,) = judge_task(task)
    assert row["judgement"] == judgement_to_json(judge_whole_run(tables, CONTEXT))
    assert "lost-acked-write" in {one["id"] for one in row["judgement"]["anomalies"]}


def test_a_stored_row_that_cannot_be_is_refused(tmp_path: Path) -> None:
    events = _lost()
    events.rows[1]["process"] = 77
    write_tables(tmp_path, {"transaction_events": events.table()})
    with pytest.raises(HistoryError, match=r"transaction_events.parquet, row "):
        tasks_of(tmp_path, 0, asdict(CONTEXT))


def test_a_journal_without_an_end_leaves_a_transaction_whose_end_is_unknown(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, frame_rows=1)
    now = iter(range(100))
    recorder = RunRecorder(lambda: next(now), writer)
    ends = []
    for process in (1, 2):
        recorded = RecordedTransaction(
            recorder, run_id=5, process=process, transactional_id=f"p-{process}"
        )
        recorded.batches([(A, 2)])
        recorded.commit_asked()
        ends.append(recorded)
    (task,) = tasks_of(tmp_path, 0, asdict(CONTEXT))
    row, recovered = judge_task(task)
    coverage = row["judgement"]["coverage"]
    ends_of = {
        name: coverage[f"producer_transactions_{name}"]
        for name in ("committed", "aborted", "unknown")
    }
    assert ends_of == {"committed": 0, "aborted": 0, "unknown": 2}
    assert coverage["records_sent"] == 4
    assert "recovered" in recovered
    writer.close()


def test_the_writer_numbers_events_and_operations_together() -> None:
    writer = HistoryWriter(None)
    recorder = RunRecorder(lambda: 7, writer)
    op = recorder.invoke(process=1, kind="latest", topic="t", partition=0)
    recorded = RecordedTransaction(recorder, run_id=5, process=2, transactional_id="p")
    (batch,) = recorded.batches([(A, 1)])
    rows = writer.close()["transaction_events"].to_pylist()
    assert [op, *(row["event_index"] for row in rows)] == [0, 1, 2]
    assert [row["transaction"] for row in rows] == [1, 1]
    assert rows[1]["value"] == 2
    assert batch.topic == "t"
    assert judge_run(writer.close(), CONTEXT).coverage["records_sent"] == 1
