"""Compacted topics in simulated runs: what the cleaner removes is not lost, and what is lost is."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checkers.final_reads import judge_with_final_reads
from checkers.jobs.check import check_here, plan
from checkers.kernels.verdict_json import verdict_to_json
from harness.contracts.run_context import RunContext, context_from_facts
from harness.contracts.verdict import Validity
from harness.errors import UsageError
from harness.history.parquet import write_tables
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.simulated import simulate
from tests.spark.stored_runs import recounted

EXAMPLE = Path(__file__).parents[2] / "examples" / "compacted.toml"
SEEDS = (3, 8)
"""With the first one a follower comes back while the cleaner works."""

Tables = dict[str, pa.Table]


@pytest.fixture(scope="module", params=SEEDS)
def run(request: pytest.FixtureRequest) -> Tables:
    result = simulate(experiments.load(EXAMPLE), request.param)
    assert result.stuck == ""
    return dict(result.tables)


def context_of(tables: Tables, **more: Any) -> RunContext:
    context = context_from_facts(tables["run_facts"])
    assert context is not None and context.compacted
    return replace(context, **more)


def final_offsets(tables: Tables) -> list[int]:
    """Returns the offsets that final polls returned."""
    operations = tables["operations"]
    polls = operations.filter(pc.field("final") & (pc.field("kind") == "poll"))
    read = tables["records_read"]
    rows = read.filter(pc.is_in(read.column("op_index"), polls.column("op_index")))
    return sorted(set(rows.column("offset").to_pylist()))


def test_the_cleaner_removes_records_and_the_run_is_valid(run: Tables) -> None:
    assert "log-compacted" in run["marks"].column("mark").to_pylist()
    offsets = final_offsets(run)
    assert len(offsets) < offsets[-1], "nothing was removed"
    assert judge_with_final_reads(run, context_of(run)).validity is Validity.VALID
    plain = judge_with_final_reads(run, context_of(run, compacted=False))
    assert "lost-acked-write" in {one.id for one in plain.anomalies}


def test_the_last_record_of_a_key_is_missed(run: Tables) -> None:
    """Except for the last one of all, behind which nothing was read."""
    read, offsets = run["records_read"], final_offsets(run)
    last = {}
    for row in read.sort_by("offset").to_pylist():
        last[row["key"]] = row["offset"]
    gone = sorted(last.values())[-2]
    assert gone in offsets
    tables = recounted({**run, "records_read": read.filter(pc.field("offset") != gone)})
    verdict = judge_with_final_reads(tables, context_of(run))
    assert verdict.validity is Validity.INVALID
    assert {one.id for one in verdict.anomalies} >= {"lost-acked-write"}


def test_a_stored_run_is_judged_as_in_memory(run: Tables, tmp_path: Path) -> None:
    context = context_of(run)
    write_tables(tmp_path, run)
    arguments = plan([tmp_path], [asdict(context)])
    (stored,) = check_here(arguments)
    assert stored == verdict_to_json(judge_with_final_reads(run, context))
    # It is not cut, however small the pieces are.
    (uncut,) = check_here({**arguments, "huge_operations": 10, "bucket_width": 50})
    assert uncut == stored


@pytest.mark.parametrize("system", ["reference", "apache-kafka"])
@pytest.mark.parametrize("policy", ["compact,delete", "never"])
def test_another_policy_is_refused(system: str, policy: str) -> None:
    with pytest.raises(UsageError, match=r"log\.cleanup\.policy is '.*'; use \"compact\""):
        Experiment(system=system, on="local", properties={"log.cleanup.policy": policy})


@pytest.mark.long
def test_leaders_may_lack_what_the_cleaner_removed_when_they_are_asked_about_it(
    tmp_path: Path,
) -> None:
    """Questions are about records that a poll returned; many are gone by then."""
    example = experiments.load(EXAMPLE)
    result = simulate(replace(example, workload=replace(example.workload, queries_per_s=60.0)), 1)
    tables = dict(result.tables)
    context = context_of(tables)
    verdict = judge_with_final_reads(tables, context)
    assert verdict.validity is Validity.VALID
    counts = verdict.coverage
    assert 0 < counts["offset_queries_judged"] < counts["offset_queries"] // 10
    write_tables(tmp_path, tables)
    (stored,) = check_here(plan([tmp_path], [asdict(context)]))
    assert stored == verdict_to_json(verdict)
