"""Synthetic histories: those made in pieces are valid as a whole, and anomalies planted in them are found."""

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.stored_histories import History, planted, write_history
from checkers.kernels.compose import judge_run
from checkers.synthetic import Shape, synthetic_pieces, synthetic_tables
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Validity
from results.history_files import read_tables

CONTEXT = RunContext(acked_during_faults_min=0)


def joined(pieces: list[dict[str, pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables([piece[name] for piece in pieces]) for name in pieces[0]}


@pytest.mark.parametrize(
    ("operations", "piece", "partitions", "width"),
    [(2000, 300, 1, 50), (500, 500, 2, 500), (400, 100, 3, 7), (1, 1, 1, 5), (90, 30, 1, 1000)],
)
def test_a_history_in_pieces_is_valid(
    operations: int, piece: int, partitions: int, width: int
) -> None:
    shape = Shape(operations=operations, final_read_records=width)
    pieces = [
        each
        for partition in range(partitions)
        for each in synthetic_pieces(shape, piece=piece, partition=partition, partitions=partitions)
    ]
    assert max(each["operations"].num_rows for each in pieces) <= max(piece, piece // width + 1)
    tables = joined(pieces)
    assert judge_run(tables, CONTEXT).validity == Validity.VALID
    op = tables["operations"].column("op_index").to_pylist()
    assert len(set(op)) == len(op) >= operations * partitions


def test_operations_of_a_piece_are_in_order_and_begin_after_those_before() -> None:
    shape = Shape(operations=1000, final_read_records=100)
    last_op, last_ns = -1, -1
    for piece in synthetic_pieces(shape, piece=250):
        op = piece["operations"].column("op_index").to_pylist()
        invoked = piece["operations"].column("invoked_ns").to_pylist()
        completed = piece["operations"].column("completed_ns").to_pylist()
        assert op == sorted(op)
        assert op[0] > last_op
        assert min(invoked) > last_ns
        last_op, last_ns = op[-1], max(time for time in completed if time is not None)


def test_a_history_in_pieces_has_at_least_one_operation() -> None:
    for make in (lambda shape: list(synthetic_pieces(shape, piece=5)), synthetic_tables):
        with pytest.raises(ValueError, match="at least one operation"):
            make(Shape(operations=0))


def test_planted_anomalies_are_found_and_nothing_is_refused() -> None:
    shape = Shape(operations=5000)
    verdict = judge_run(joined(list(planted(synthetic_pieces(shape, piece=2000), shape))), CONTEXT)
    assert verdict.validity == Validity.INVALID
    found = {anomaly.id: anomaly.count for anomaly in verdict.anomalies}
    assert found["duplicate"] == 1
    assert found["lost-record"] >= 3
    assert found["lost-acked-write"] >= 3
    assert "stale-end" in found


@pytest.mark.parametrize("kind", History.KINDS)
def test_stored_histories_are_read_as_any_run(tmp_path: Path, kind: str) -> None:
    history = History(operations=900, partitions=3, kind=kind)
    told: list[str] = []
    write_history(tmp_path, history, told.append)
    assert told[-1].startswith("partition 2, ")
    assert judge_run(read_tables(tmp_path), CONTEXT).validity == history.verdict
