"""Corrupted copies of recorded runs end in bad input, a named anomaly or unknown, never valid about a wrong one.

Every corruption of five lists (`corruptions_of_*.py`) is checked as `laststand check --no-spark` does it. A
corruption of rows is judged in memory too. `tests/spark/test_corrupted_runs_on_spark.py` repeats all of them on
Spark.
"""

from pathlib import Path
from typing import Any

import pytest

from checkers.final_reads import judge_with_final_reads
from checkers.kernels.verdict_json import verdict_to_json
from harness.runs.check import check_locally
from harness.runs.judge import stored_context
from tests.parts import shares
from tests.property import (
    corruptions_of_facts,
    corruptions_of_files,
    corruptions_of_operations,
    corruptions_of_records,
    corruptions_of_transactions,
)
from tests.property.stored_corruption import (
    Corruption,
    assert_ends,
    damaged_copy,
    judged,
    record_runs,
    short,
)

CORRUPTIONS = [
    *corruptions_of_operations.CORRUPTIONS,
    *corruptions_of_records.CORRUPTIONS,
    *corruptions_of_facts.CORRUPTIONS,
    *corruptions_of_transactions.CORRUPTIONS,
    *corruptions_of_files.CORRUPTIONS,
]
Verdict = dict[str, Any]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return record_runs(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def undamaged(runs: dict[str, Path]) -> dict[str, Verdict]:
    verdicts = check_locally(list(runs.values()))
    return dict(zip(runs, verdicts, strict=True))


def test_the_runs_are_valid_and_one_has_an_excused_loss(undamaged: dict[str, Verdict]) -> None:
    assert {verdict["validity"] for verdict in undamaged.values()} == {"valid"}
    assert [name for name, v in undamaged.items() if v["excused_lost_records"]] == ["excused"]
    assert undamaged["group"]["coverage"]["group_records"] > 5


def test_there_are_many_corruptions_and_each_has_a_name_of_its_own() -> None:
    names = [corruption.name for corruption in CORRUPTIONS]
    assert len(names) == len(set(names))
    assert len(names) >= 200
    endings = [corruption.ending for corruption in CORRUPTIONS]
    assert endings.count("harmless") < len(endings) // 6
    assert all(corruption.words for corruption in CORRUPTIONS)


@pytest.mark.parametrize(
    "corruption", shares(CORRUPTIONS, quick_of=3), ids=lambda corruption: corruption.name
)
def test_a_corrupted_run_ends_as_declared(
    tmp_path: Path, runs: dict[str, Path], undamaged: dict[str, Verdict], corruption: Corruption
) -> None:
    run = tmp_path / "run"
    tables = damaged_copy(corruption, runs, run)
    outcome = judged(lambda: check_locally([run])[0])
    assert_ends(outcome, corruption, undamaged[corruption.run], run)
    if tables is not None:
        in_memory = judged(
            lambda: verdict_to_json(judge_with_final_reads(tables, stored_context(run)))
        )
        assert in_memory == (short(outcome, run) if isinstance(outcome, str) else outcome)
