"""Checkers by name: built-in ones and those of installed packages, alone, in Spark tasks and next to others."""

import ast
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import checkers.kernels
from checkers import registry
from checkers.jobs.check import check_job, plan
from checkers.jobs.in_process import InProcess
from checkers.kernels.compose import judge_run
from checkers.kernels.verdict_json import verdict_to_json
from checkers.registry import BUILT_IN, checker_names, find_checkers
from harness.contracts.checker import CheckerFinding, CheckerReport
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement, Validity
from harness.errors import UsageError
from nemesis.fault import FAULT_NAMES
from results.history_files import read_tables
from tests.anomalies.runs import append, final_read, run
from tests.spark.stored_runs import store, unfinished

CALLS = [append(0, 0, at=10), append(1, 1, at=20), *final_read(50, 0, 1)]


class Greedy:
    """Finds polls that returned more than one record."""

    name = "greedy"
    tables: tuple[str, ...] = ("operations", "run_facts")
    per_partition = True
    judgement = Judgement.FORBIDDEN
    level = "order"

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        assert set(tables) == set(self.tables)
        greedy = tables["operations"].filter(pc.field("record_count") > 1).num_rows
        finding = CheckerFinding(
            id="greedy-poll",
            level=self.level,
            count=greedy,
            judgement=self.judgement,
            rule="polls must be modest",
            sentence=f"{greedy} polls returned more than one record",
        )
        return CheckerReport(
            findings=(finding,) if greedy else (), coverage={"greedy_polls": greedy}
        )


class Whole(Greedy):
    """The same over the whole run; it finds nothing forbidden."""

    name = "whole"
    tables = ("operations", "violations")
    per_partition = False
    judgement = Judgement.INFORMATIONAL


class Broken(Greedy):
    name = "broken"

    def check(self, tables: Mapping[str, pa.Table], context: RunContext) -> CheckerReport:
        raise RuntimeError("boom")


class WrongLevel(Greedy):
    name = "wrong-level"
    level = "taste"


class ReadsMarks(Greedy):
    name = "reads-marks"
    tables = ("marks",)


class ReadsNothingKnown(Greedy):
    name = "reads-nothing-known"
    tables = ("operation",)


GREEDY, WHOLE, BROKEN, WRONG_LEVEL = Greedy(), Whole(), Broken(), WrongLevel()
READS_MARKS, READS_NOTHING_KNOWN, NO_CHECKER = ReadsMarks(), ReadsNothingKnown(), 5


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with several checkers is installed."""
    entries = [
        metadata.EntryPoint(name=name, value=f"{__name__}:{attribute}", group=registry.GROUP)
        for name, attribute in (
            *((name, name.upper().replace("-", "_")) for name in ("greedy", "whole", "broken")),
            *((name, name.upper().replace("-", "_")) for name in ("wrong-level", "reads-marks")),
            ("reads-nothing-known", "READS_NOTHING_KNOWN"),
            ("another-name", "GREEDY"),
            ("no-checker", "NO_CHECKER"),
            ("gone", "GONE"),
            ("linearizability", "GREEDY"),
        )
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: entries)


def context(*names: str, **more: Any) -> RunContext:
    return RunContext(checkers=(*LOG_CHECKERS, *names), acked_during_faults_min=0, **more)


def test_built_in_checkers_are_entry_points_that_load() -> None:
    assert [checker.name for checker in find_checkers(BUILT_IN)] == list(BUILT_IN)
    whole = [checker.name for checker in find_checkers(BUILT_IN) if not checker.per_partition]
    assert whole == ["transactions"]
    assert checker_names()[: len(BUILT_IN)] == tuple(BUILT_IN)
    assert "greedy" in checker_names()


def test_no_package_can_replace_a_built_in_checker() -> None:
    (checker,) = find_checkers(["linearizability"])
    assert checker.name == "linearizability"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("greedyy", "no checker is called 'greedyy'; did you mean 'greedy'?"),
        ("reads-marks", "a checker must not read the table 'marks'"),
        ("reads-nothing-known", "no table is called 'operation'; did you mean 'operations'?"),
        ("another-name", "its name is 'greedy', not 'another-name'"),
        ("no-checker", "is not a checker: AttributeError"),
        ("gone", "is not a checker: AttributeError"),
    ],
)
def test_an_object_that_is_not_a_checker_is_refused_in_one_sentence(
    name: str, sentence: str
) -> None:
    with pytest.raises(UsageError) as refused:
        find_checkers([name])
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_findings_of_a_third_party_checker_are_judged_as_it_declares() -> None:
    verdict = judge_run(run(CALLS), context("greedy", "whole"))
    assert verdict.validity == Validity.INVALID
    forbidden, informational = verdict.anomalies
    assert (forbidden.id, forbidden.topic, forbidden.partition) == ("greedy-poll", "t", 0)
    assert forbidden.judgement == Judgement.FORBIDDEN
    assert (informational.topic, informational.partition) == ("", -1)
    assert informational.judgement == Judgement.INFORMATIONAL
    assert verdict.reasons == ("greedy-poll in t-0 (1): 1 polls returned more than one record",)
    assert verdict.coverage["greedy_polls"] == 2
    assert verdict.coverage["partitions"] == 1
    assert set(verdict.coverage["by_partition"]) == {"t-0"}
    assert judge_run(run(CALLS), context("whole")).validity == Validity.VALID


@pytest.mark.parametrize(("name", "said"), [("broken", "boom"), ("wrong-level", "'taste' is not")])
def test_a_checker_that_fails_makes_the_verdict_unknown_and_leaves_the_others_alone(
    name: str, said: str
) -> None:
    verdict = judge_run(run(CALLS), context(name))
    assert verdict.validity == Validity.UNKNOWN
    (reason,) = verdict.reasons
    assert reason.startswith(f"t-0: the checker failed ({name}: ")
    assert said in reason
    assert verdict.coverage["appends_acked"] == 2
    lost = [append(0, 0, at=10), append(1, 1, at=20), *final_read(50, 0)]
    assert judge_run(run(lost), context(name)).validity == Validity.INVALID


def test_only_the_checkers_that_the_workload_names_judge_a_run() -> None:
    lost = [append(0, 0, at=10), append(1, 1, at=20), *final_read(50, 0)]
    only = RunContext(checkers=("whole",))
    assert judge_run(run(lost), only).validity == Validity.VALID
    assert judge_run(run(lost), RunContext()).validity == Validity.INVALID


def test_third_party_checkers_run_in_spark_tasks_as_they_do_without_spark(tmp_path: Path) -> None:
    everything = context("greedy", "whole", "broken")
    for directory in (store(tmp_path / "run", run(CALLS)), unfinished(tmp_path / "died")):
        arguments = json.loads(json.dumps(plan([directory], [asdict(everything)])))
        response = check_job(InProcess(), {**arguments, "huge_operations": 0})
        assert response["cut"] == 0, "what cannot be folded is judged as a whole"
        expected = verdict_to_json(judge_run(read_tables(directory), everything))
        assert response["verdicts"] == [json.loads(json.dumps(expected))]
        assert any("boom" in reason for reason in expected["reasons"])


def test_kernels_know_no_names_of_faults() -> None:
    folder = Path(checkers.kernels.__file__).parent
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value != "partition":  # a column, too
                assert node.value not in FAULT_NAMES, f"{path.name}:{node.lineno}"
