"""The search for defects: what it asks for, what it counts, and that interruptions change nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns.files import ROWS_FILE, SEARCH_FILE
from harness.defects import search as searching
from harness.defects.search import STUCK, Hunt, Search, run_search, seen_by
from harness.defects.search_plan import (
    CLIENTS,
    MONITOR,
    OFF,
    SearchPlan,
    arms_of,
    load_search,
    store_search,
)
from harness.defects.searched_mutants import SearchedMutants
from harness.errors import HistoryError
from results.report.defect_search import build_search_report, cell_words, summary_sentences
from results.store import read_json, write_json
from system_under_test.config import DEFAULT_PROFILE
from system_under_test.defects import find_defect
from tests.unit.harness.campaigns.fake_crew import fake_crew, made_up_row


class Display:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        assert 0 <= fraction <= 1


def plan_of(*names: str, runs: int = 20, cpu_s: float = 1000.0) -> SearchPlan:
    return SearchPlan(
        arms=arms_of([find_defect(name) for name in names], None),
        runs=runs,
        cpu_s=cpu_s,
        first_seed=0,
        started="20260101T000000Z",
        code="x",
    )


def row(request: dict[str, Any], *, monitor: int = 10**9, clients: int = 10**9) -> dict[str, Any]:
    """The row of a system whose defect shows from these seeds on."""
    seed, oracle = request["seed"], request["arm"].split()[-1]
    lost = int(oracle == CLIENTS and seed >= clients)
    violations = ["INV-2 is broken"] if oracle == MONITOR and seed >= monitor else []
    return made_up_row(request, lost, violations=violations, cpu_s=1.0)


def run(directory: Path, plan: SearchPlan, answer: Any, **options: Any) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    store_search(plan, directory)
    members, size = options.pop("members", 1), options.pop("size", 1)
    return run_search(
        plan,
        directory,
        lambda _: fake_crew(answer, members=members, size=size),
        options.pop("budget_s", None),
        Display(),
    )


def test_a_defect_has_an_arm_for_each_oracle_that_can_see_it() -> None:
    arms = plan_of("B-18", "B-00", "B-55").arms
    assert list(arms) == [
        f"off {DEFAULT_PROFILE}",
        "B-18 monitor",
        "B-18 clients",
        "B-00 clients",
        f"off {DEFAULT_PROFILE} groups",
        "B-55 clients",
    ]
    assert arms["B-18 monitor"].experiment.check_invariants
    assert not arms["B-18 clients"].experiment.check_invariants
    assert arms["B-18 clients"].experiment.disabled_rules == find_defect("B-18").rules
    assert arms["B-00 clients"].experiment.profile == "kafka-4.0"
    assert arms["B-00 clients"].off == f"off {DEFAULT_PROFILE}"
    off = arms[f"off {DEFAULT_PROFILE}"].experiment
    assert (off.disabled_rules, off.check_invariants) == ((), True)


@pytest.mark.parametrize(("members", "size"), [(1, 1), (3, 1), (2, 7)])
def test_runs_are_counted_in_the_order_of_seeds(tmp_path: Path, members: int, size: int) -> None:
    result = run(
        tmp_path,
        plan_of("B-18"),
        lambda request: row(request, monitor=3, clients=8),
        members=members,
        size=size,
    )
    (one,) = result["defects"]
    for oracle, runs in ((MONITOR, 4), (CLIENTS, 9)):
        assert (one[oracle]["status"], one[oracle]["runs"], one[oracle]["seed"]) == (
            "found",
            runs,
            runs - 1,
        )
        assert one[oracle]["cpu_s"] == runs
        assert one[oracle]["command"].endswith(f"B-18-{oracle}.toml --seed {runs - 1}")
    assert one[MONITOR]["what"] == "INV-2 is broken"
    assert one[CLIENTS]["what"] == "lost-acked-write"
    assert (result["found"], result["found_by_clients"], result["unfinished"]) == (1, 1, 0)
    assert read_json(tmp_path / SEARCH_FILE) == result


def test_what_the_same_seed_shows_with_the_defect_off_does_not_count(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        without = request["arm"].startswith(OFF) and request["seed"] == 2
        return made_up_row(request, 1, cpu_s=1.0) if without else row(request, clients=2)

    result = run(tmp_path, plan_of("B-18"), answer)
    (one,) = result["defects"]
    assert (one[CLIENTS]["seed"], one[CLIENTS]["runs"]) == (3, 4)
    (wrong,) = result["wrong"]
    assert (wrong["arm"], wrong["seed"]) == (f"off {DEFAULT_PROFILE}", 2)
    assert wrong["what"] == "lost-acked-write"


def test_a_loss_without_elr_is_nothing_wrong(tmp_path: Path) -> None:
    plan = plan_of("B-18")
    arms = {
        name: replace(arm, experiment=replace(arm.experiment, profile="kafka-4.0"))
        for name, arm in plan.arms.items()
    }
    lossy = run(
        tmp_path,
        replace(plan, arms=arms),
        lambda request: made_up_row(request, int(MONITOR not in request["arm"]), cpu_s=1.0),
    )
    assert lossy["wrong"] == []
    (one,) = lossy["defects"]
    assert (one[CLIENTS]["status"], one[CLIENTS]["runs"]) == ("limit", 20)


@pytest.mark.parametrize(("runs", "cpu_s", "most"), [(6, 1000.0, 6), (20, 4.5, 5)])
def test_a_search_ends_at_its_limits(tmp_path: Path, runs: int, cpu_s: float, most: int) -> None:
    result = run(tmp_path, plan_of("B-18", runs=runs, cpu_s=cpu_s), row)
    (one,) = result["defects"]
    assert [one[oracle]["status"] for oracle in (MONITOR, CLIENTS)] == ["limit", "limit"]
    assert [one[oracle]["runs"] for oracle in (MONITOR, CLIENTS)] == [most, most]
    assert cell_words(one[CLIENTS]) == f"> {most}"
    assert result["found"] == 0


def test_an_interrupted_search_continues_and_counts_the_same(tmp_path: Path) -> None:
    plan = plan_of("B-18", "B-22")

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return row(request, monitor=5, clients=7)

    whole = run(tmp_path / "whole", plan, answer)
    lines = (tmp_path / "whole" / ROWS_FILE).read_bytes().splitlines(keepends=True)
    for cut in range(0, len(lines), 3):
        directory = tmp_path / f"cut-{cut}"
        directory.mkdir()
        # Of runs at the same time, any may have ended when the power went.
        kept = [line for number, line in enumerate(lines[:cut]) if number % 4 or number < cut - 4]
        (directory / ROWS_FILE).write_bytes(b"".join(kept) + lines[cut][:20])
        again = run(directory, plan, answer)
        for one, other in zip(again["defects"], whole["defects"], strict=True):
            for oracle in (MONITOR, CLIENTS):
                expected = other[oracle] and {**other[oracle], "command": ""}
                assert (one[oracle] and {**one[oracle], "command": ""}) == expected


def test_no_run_starts_after_the_budget(tmp_path: Path) -> None:
    now = iter(range(1000))
    plan = plan_of("B-18")
    mutants = SearchedMutants(plan, tmp_path)
    source = Search(plan, mutants, 3, Display(), clock=lambda: float(next(now)))
    taken = [source.take(1, real=False) for _ in range(6)]
    assert [len(one) for one in taken] == [1, 1, 0, 0, 0, 0]
    result = searching.result_of(plan, source, mutants)
    assert result["unfinished"] == 2
    assert "2 searches had not reached their limits" in summary_sentences(result)


def test_a_run_that_the_harness_could_not_finish_is_reported_and_finds_nothing(
    tmp_path: Path,
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        failed = request["seed"] == 1 and request["arm"].endswith(CLIENTS)
        return {**row(request), "error": "TimeoutError: it hung"} if failed else row(request)

    result = run(tmp_path, plan_of("B-22", runs=3), answer)
    (error,) = result["errors"]
    assert (error["arm"], error["seed"], error["error"]) == (
        "B-22 clients",
        1,
        "TimeoutError: it hung",
    )
    assert result["found"] == 0


def test_seeds_below_an_unconfirmed_finding_still_run() -> None:
    plan = plan_of("B-22")
    hunt = Hunt(plan.arms["B-22 clients"], plan)
    hunt.add(3, ("lost-acked-write",), 1.0)
    assert [hunt.next_seed(lambda seed: seed < 2) for _ in range(3)] == [0, 1, None]
    assert [hunt.next_seed(always) for _ in range(3)] == [2, None, None]
    assert list(hunt.to_confirm()) == [3]
    for seed in range(3):
        hunt.add(seed, (), 1.0)
    assert hunt.status == searching.UNFINISHED
    hunt.confirm(3, is_shown_without=False)
    assert hunt.found is not None
    assert (hunt.found.seed, hunt.found.runs) == (3, 4)
    assert hunt.next_seed(always) is None


def always(_: int) -> bool:
    return True


def test_what_each_oracle_sees() -> None:
    anomalies = [
        {"id": "invariant-broken", "judgement": "forbidden"},
        {"id": "stale-end", "judgement": "informational"},
        {"id": "visible-regress", "judgement": "forbidden"},
        {"id": "divergent-replicas", "judgement": "forbidden"},
    ]
    seen = {"violations": ["INV-2"], "anomalies": anomalies}
    assert seen_by(MONITOR, seen) == seen_by(OFF, seen) == ("INV-2",)
    assert seen_by(CLIENTS, seen) == ("visible-regress",)
    unseen = {**seen, "violations": []}
    assert seen_by(OFF, unseen) == ("divergent-replicas", "invariant-broken", "visible-regress")
    assert seen_by(MONITOR, unseen) == ("divergent-replicas", "invariant-broken")
    assert not seen_by(MONITOR, {"violations": [], "anomalies": anomalies[1:3]})


def test_clients_that_are_stuck_are_an_oracle_of_their_own(tmp_path: Path) -> None:
    """B-45 only keeps clients from working, so that they cannot see it otherwise; B-18 loses records."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        is_stuck = request["arm"].endswith(CLIENTS) and request["seed"] >= 2
        made_up = made_up_row(request, 0, cpu_s=1.0)
        if is_stuck:
            made_up["anomalies"] = [{"id": "stuck", "judgement": "forbidden"}]
        return made_up

    result = run(tmp_path, plan_of("B-45", "B-18", runs=5), answer)
    alone, both = result["defects"]
    assert alone[CLIENTS] is None
    assert (alone[STUCK]["status"], alone[STUCK]["runs"], alone[STUCK]["what"]) == (
        "found",
        3,
        "stuck",
    )
    assert (both[CLIENTS]["status"], both[CLIENTS]["what"]) == ("ended", "")
    assert both[STUCK]["status"] == "found"
    assert cell_words(both[CLIENTS]) == "> 3 …"
    assert (result["found"], result["found_by_clients"], result["found_by_stuck"]) == (2, 0, 2)
    assert (
        "0 by what clients saw and 2 only because they were stuck" in summary_sentences(result)[0]
    )
    page = build_search_report(tmp_path / "search.html", result, "x").read_text()
    assert "the other oracle of the same runs found it first" in page


def test_a_run_that_lost_records_and_is_stuck_counts_for_both(tmp_path: Path) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        made_up = row(request, clients=1)
        if made_up["anomalies"]:
            made_up["anomalies"] = [
                *made_up["anomalies"],
                {"id": "stuck", "judgement": "forbidden"},
            ]
        return made_up

    result = run(tmp_path, plan_of("B-18", runs=5), answer)
    (one,) = result["defects"]
    assert (one[CLIENTS]["what"], one[STUCK]["what"]) == ("lost-acked-write", "stuck")
    assert (result["found_by_clients"], result["found_by_stuck"]) == (1, 0)


def test_an_anomaly_of_another_package_is_given_to_one_oracle_whole(tmp_path: Path) -> None:
    """Its id may have a comma, and words that are an anomaly of ours."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        made_up = row(request, clients=1)
        for anomaly in made_up["anomalies"]:
            anomaly["id"] = "slow, stuck"
        return made_up

    (one,) = run(tmp_path, plan_of("B-18", runs=5), answer)["defects"]
    assert (one[CLIENTS]["status"], one[CLIENTS]["what"]) == ("found", "slow, stuck")
    assert (one[STUCK]["status"], one[STUCK]["what"]) == ("ended", "")


def test_the_plan_is_stored_and_read(tmp_path: Path) -> None:
    plan = plan_of("B-18", "B-55")
    store_search(plan, tmp_path)
    assert load_search(tmp_path) == plan
    assert (tmp_path / "B-18-clients.toml").is_file()
    (tmp_path / "plan.json").write_text('{"kind": "search", "arms": [{}]}')
    with pytest.raises(HistoryError, match="is damaged"):
        load_search(tmp_path)
    (tmp_path / "plan.json").write_text('{"kind": "swarm"}')
    with pytest.raises(HistoryError, match="not of `laststand defects search`"):
        load_search(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"runs": -1}, "runs, cpu_s or first_seed is below"),
        ({"cpu_s": 0}, "runs, cpu_s or first_seed is below"),
        ({"guided": 2}, "guided is 2, which is no share"),
        ({"oracle": "zz"}, "B-18 monitor has the oracle 'zz'"),
        ({"off": "gone"}, "B-18 monitor names the arm 'gone', which does not exist"),
    ],
)
def test_a_plan_that_was_changed_by_hand_is_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    store_search(plan_of("B-18"), tmp_path)
    data = read_json(tmp_path / "plan.json")
    of_arm = next(iter(change)) in ("oracle", "off")
    (next(arm for arm in data["arms"] if arm["oracle"] == MONITOR) if of_arm else data).update(
        change
    )
    write_json(tmp_path / "plan.json", data)
    with pytest.raises(HistoryError, match=sentence):
        load_search(tmp_path)


def test_the_page_names_what_was_not_found(tmp_path: Path) -> None:
    result = run(tmp_path, plan_of("B-18", runs=5), lambda request: row(request, monitor=1))
    page = build_search_report(
        tmp_path / "search.html", result, "laststand defects search --resume x"
    )
    text = page.read_text()
    assert 'class="runs limit"' in text
    assert "&gt; 5" in text
    assert (
        "of the 1 that do clients harm, 0 by what clients saw and 0 only because they were" in text
    )
