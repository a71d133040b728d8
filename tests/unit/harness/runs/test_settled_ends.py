"""Final reads of one partition must agree about where its log ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.verdict import Validity
from harness.history.foreign.read import read_history
from harness.runs.foreign import judge_foreign
from harness.runs.settled_ends import disagreements
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
        ([final(2, 10, 0, 1, end=2), final(3, 12, 0, end=1)], 1, False),
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
