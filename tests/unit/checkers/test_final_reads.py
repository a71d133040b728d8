"""Final reads of one partition must agree about where its log ends."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkers.final_reads import disagreements
from harness.contracts.verdict import Validity
from harness.history.foreign.read import read_history
from harness.runs.foreign import judge_foreign
from tests.anomalies.runs import append, final_read, read, run
from tests.property.brute_force import Call

VALID, UNKNOWN = Validity.VALID, Validity.UNKNOWN


def final(op: int, at: int, *values: int, start: int = 0, end: int | None = None) -> Call:
    """Returns a final poll that lasts from `at` to `at + 1`."""
    return read(op, at, *values, start=start, end=end, final=True)


@pytest.mark.parametrize(
    ("reads", "error_ns", "found"),
    [
        ([final(2, 10, 0, 1, end=2), final(3, 20, 0, end=1)], 0, True),
        # The end was not shown, but a record.
        ([final(2, 10, 0, 1), final(3, 20, 0, end=1)], 0, True),
        ([final(2, 10, 0, 1, end=2), final(3, 20, 0)], 0, False),
        ([final(2, 10, 0, 1, end=2), final(3, 20, 0, 1, end=2)], 0, False),
        # It may become longer: a transaction marker, or a high watermark that lagged.
        ([final(2, 10, 0, end=1), final(3, 20, 0, 1, end=2)], 0, False),
        # Concurrent, or closer than the clocks.
        ([final(2, 10, 0, 1, end=2), final(3, 11, 0, end=1)], 0, False),
        ([final(2, 10, 0, 1, end=2), final(3, 12, 0, end=1)], 0, True),
        ([final(2, 10, 0, 1, end=2), replace(final(3, 12, 0, end=1), process=98)], 1, False),
        # One process has one clock.
        ([final(2, 10, 0, 1, end=2), final(3, 12, 0, end=1)], 1, True),
        ([final(2, 10, 0, 1, end=2), final(3, 11, 0, end=1)], 1, False),
        # Not the read right before it, and not final ones.
        ([final(2, 10, 0, 1, end=2), final(3, 20, 0, 1, end=2), final(4, 30, end=0)], 0, True),
        ([read(2, 10, 0, 1, end=2), final(3, 20, 0, end=1)], 0, False),
        ([final(2, 10, 0, 1, end=2), read(3, 20, 0, end=1)], 0, False),
    ],
)
def test_a_log_does_not_become_shorter_between_final_reads(
    reads: list[Call], error_ns: int, found: bool
) -> None:
    calls = [append(0, 0, at=1), append(1, 1, at=3), *reads]
    sentences = list(disagreements(run(calls), error_ns))
    assert len(sentences) == found
    assert all("the final reads of t-0 do not agree" in sentence for sentence in sentences)


def test_the_sentence_names_the_read_that_showed_most_and_the_one_that_shows_less() -> None:
    calls = [append(0, 0, at=1), final(1, 10, 0, end=1), *final_read(2, at=20)]
    (sentence,) = disagreements(run(calls))
    assert "op 1 showed that its log reaches to offset 1" in sentence
    assert "op 3, begun later, that it ends at 0" in sentence


@pytest.mark.parametrize(("end_offset", "validity"), [(1, VALID), (0, UNKNOWN)])
def test_a_history_whose_final_reads_do_not_agree_is_not_valid(
    tmp_path: Path, end_offset: int, validity: Validity
) -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "append", "process": 1, "value": "a", "offset": 0},
        {"kind": "poll", "process": 2, "records": [[0, "a"]], "end_offset": 1, "final": True},
        {"kind": "latest", "process": 2, "end_offset": end_offset, "final": True},
    ]
    path = tmp_path / "history.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                line | {"topic": "t", "outcome": "ok", "invoked_ns": at, "completed_ns": at + 1}
            )
            + "\n"
            for at, line in zip((1, 1000, 1002), lines, strict=True)
        )
    )
    assert judge_foreign(read_history(path)).verdict.validity == validity


def _by_definition(reads: list[dict[str, Any]], error_ns: int) -> bool:
    """Returns whether a read that began after another one shows a smaller end than that one."""

    def between_ns(one: dict[str, Any], other: dict[str, Any]) -> int:
        return error_ns if one["process"] != other["process"] else 0

    return any(
        earlier["completed_ns"] + between_ns(earlier, later) < later["invoked_ns"]
        and later["end"] is not None
        and later["end"]
        < max(-1 if earlier["end"] is None else earlier["end"], earlier["last"] + 1)
        for earlier in reads
        for later in reads
    )


def test_every_pair_of_final_reads_is_compared() -> None:
    found = 0
    for seed in range(500):
        rng = random.Random(seed)
        calls = [append(index, index, at=2 * index) for index in range(4)]
        reads = []
        for op in range(4, 4 + rng.randint(1, 5)):
            start, last = rng.randint(20, 40), rng.randint(-1, 3)
            end = rng.choice([None, last + 1, 4])
            error_ns = rng.choice([0, 0, 5])
            process = rng.choice([98, 99])
            calls.append(replace(final(op, start, *range(last + 1), end=end), process=process))
            row = {"invoked_ns": start, "completed_ns": start + 1, "process": process}
            reads.append({**row, "end": end, "last": last})
        tables = run(calls)
        wanted = _by_definition(reads, error_ns)
        assert bool(list(disagreements(tables, error_ns))) == wanted, seed
        found += wanted
    assert 50 < found < 450


def test_the_partitions_are_named_in_their_order() -> None:
    calls = [append(0, 0, at=1), final(1, 10, 0, end=1), final(2, 20, end=0)]
    tables = run(calls)

    def moved(name: str, partition: int) -> pa.Table:
        table = tables[name]
        index = table.schema.get_field_index("partition")
        column = pa.array([partition] * table.num_rows, table.schema.field(index).type)
        table = table.set_column(index, table.schema.field(index), column)
        shifted = pc.add(table.column("op_index"), 10 * (3 - partition))
        index = table.schema.get_field_index("op_index")
        return table.set_column(index, table.schema.field(index), shifted)

    joined = {
        name: pa.concat_tables([moved(name, partition) for partition in (2, 0, 1)])
        for name in ("operations", "records_read")
    }
    sentences = list(disagreements(joined))
    assert [sentence.split(" do ")[0][-3:] for sentence in sentences] == ["t-0", "t-1", "t-2"]


@pytest.mark.parametrize("offset", [-(2**63), -5, 2**63 - 1])
def test_numbers_that_cannot_be_say_nothing_about_the_end_of_a_log(offset: int) -> None:
    tables = run([append(0, 0, at=1), final(1, 10, 0, end=1), final(2, 20, 0, end=1)])
    operations, records = tables["operations"], tables["records_read"]
    ends = [None if end is None else offset for end in operations.column("end_offset").to_pylist()]
    index = operations.schema.get_field_index("end_offset")
    wrong = operations.set_column(index, operations.schema.field(index), pa.array(ends, pa.int64()))
    assert list(disagreements({**tables, "operations": wrong})) == []
    index = records.schema.get_field_index("offset")
    column = pa.array([offset] * records.num_rows, pa.int64())
    strange = records.set_column(index, records.schema.field(index), column)
    assert list(disagreements({**tables, "records_read": strange})) == []
