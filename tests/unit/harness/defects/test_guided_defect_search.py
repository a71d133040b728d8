"""The guided search for defects: what runs, what confirms a finding, and that interruptions change nothing."""

from pathlib import Path
from typing import Any

import pytest

from harness.campaigns.files import CORPUS_FOLDER, ROWS_FILE
from harness.defects.search import run_search
from harness.defects.search_plan import (
    CLIENTS,
    OFF,
    SearchPlan,
    arms_of,
    load_search,
    store_search,
)
from harness.runs import experiment_file as experiments
from harness.runs.coverage import hash_of
from results.report.defect_search import summary_sentences
from system_under_test.defects import find_defect
from tests.unit.harness.campaigns.fake_crew import fake_crew, made_up_row
from tests.unit.harness.defects.test_search import Display

RULES = list(find_defect("B-18").rules)


def plan_of(runs: int = 200) -> SearchPlan:
    return SearchPlan(
        arms=arms_of([find_defect("B-18")], None, guided=True),
        runs=runs,
        cpu_s=1e6,
        first_seed=0,
        started="20260101T000000Z",
        code="x",
        guided=0.5,
    )


def is_mutant(request: dict[str, Any]) -> bool:
    return "root_seed" in request


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The defect shows in mutants from number 60 on; with number 61 something shows without it, too."""
    seed, is_off = request["seed"], request["arm"].startswith(OFF)
    schedule = request["experiment"]["schedule"]
    names = sorted({f"fault {fault['fault']} {fault['at_ms'] % 7}" for fault in schedule})
    names.append(f"seed {seed % 20}")
    shows = is_mutant(request) and seed >= 60 and (not is_off or seed == 61)
    return made_up_row(
        request,
        int(shows),
        coverage=[hash_of(name) for name in names],
        feature_names=names,
        margins={},
        marks={"became-leader": 1},
        trace_hash=f"{seed}-{len(schedule)}",
        cpu_s=1.0,
    )


def run(directory: Path, members: int = 1, size: int = 1, seen: Any = None) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    plan = plan_of()
    store_search(plan, directory)

    def noted(request: dict[str, Any]) -> dict[str, Any]:
        if seen is not None:
            seen.append(request)
        return answer(request)

    crew = lambda _: fake_crew(noted, members=members, size=size)  # noqa: E731
    return run_search(plan, directory, crew, None, Display())


def test_a_mutant_is_repeated_as_it_was_with_the_defect_off(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    result = run(tmp_path, seen=seen)
    (one,) = result["defects"]
    found = one[CLIENTS]
    assert found["status"] == "found"
    assert found["seed"] >= 60
    requests = {(one["arm"], one["seed"]): one for one in seen}
    on = requests[("B-18 clients", found["seed"])]
    (off_arm,) = {arm for arm, _ in requests if arm.endswith("for B-18 clients")}
    off = requests[(off_arm, found["seed"])]
    assert is_mutant(on)
    assert on["root_seed"] == off["root_seed"]
    assert on["experiment"]["schedule"] == off["experiment"]["schedule"]
    assert (on["experiment"]["disabled_rules"], off["experiment"].get("disabled_rules")) == (
        RULES,
        [],
    )
    path = tmp_path / CORPUS_FOLDER / f"B-18-clients-{found['seed']}.toml"
    assert found["command"] == f"laststand run {path} --seed {on['root_seed']}"
    assert experiments.to_data(experiments.load(path))["schedule"] == on["experiment"]["schedule"]
    assert any("50% of the runs" in sentence for sentence in summary_sentences(result))


def test_what_a_mutant_shows_without_the_defect_is_named_with_its_own_command(
    tmp_path: Path,
) -> None:
    result = run(tmp_path)
    for wrong in result["wrong"]:
        assert wrong["seed"] == 61
        path = Path(wrong["command"].split()[2])
        assert path.parent.name == CORPUS_FOLDER
        assert experiments.load(path).disabled_rules == ()


@pytest.mark.parametrize(("members", "size"), [(3, 1), pytest.param(2, 5, marks=pytest.mark.long)])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, members: int, size: int) -> None:
    assert counts(run(tmp_path / "one")) == counts(run(tmp_path / "more", members, size))


@pytest.mark.long
def test_an_interrupted_search_is_continued_with_the_same_mutants(tmp_path: Path) -> None:
    whole = counts(run(tmp_path / "whole"))
    lines = (tmp_path / "whole" / ROWS_FILE).read_bytes().splitlines(keepends=True)
    for cut in range(5, len(lines), 40):
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        (directory / ROWS_FILE).write_bytes(b"".join(lines[:cut]) + lines[cut][:20])
        assert counts(run(directory)) == whole


def test_the_plan_keeps_the_share(tmp_path: Path) -> None:
    store_search(plan_of(), tmp_path)
    assert load_search(tmp_path).guided == 0.5


def counts(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (one["id"], oracle, *(one[oracle][key] for key in ("status", "runs", "seed", "what")))
        for one in result["defects"]
        for oracle in ("monitor", "clients")
    ]
