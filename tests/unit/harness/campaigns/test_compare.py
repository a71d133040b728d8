import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkers.spark import SparkOptions
from harness.campaigns import compare as campaigns
from harness.campaigns import crew as crews
from harness.campaigns.compare import (
    Workers,
    compare_plan,
    run_campaign,
    swarm_plan,
)
from harness.campaigns.crew import local_crew
from harness.campaigns.files import RESULT_FILE, ROWS_FILE
from harness.campaigns.kept_runs import KeptRuns
from harness.campaigns.listing import list_campaigns
from harness.campaigns.plan import CampaignPlan, load_plan, store_plan
from harness.campaigns.requests import requests_of
from harness.campaigns.row_log import RowLog
from harness.campaigns.totals import ArmTotals
from harness.campaigns.worker import failed_row
from harness.cli.campaigns import campaign_parts, comparison_sentences
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure, HistoryError, UsageError
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.planned import has_same_schedules, planned_schedule
from harness.runs.promises import promises_of
from harness.systems.apache_kafka.versions import ELR_FEATURE
from results.tables import as_text
from tests.unit.harness.campaigns.fake_crew import Answer, fake_crew, made_up_row

OFF, ON = "profile=kafka-4.0", "profile=kafka-4.1"
WORKERS = Workers(jobs=1, spark=SparkOptions(enabled=False))


def _compare(tmp_path: Path, seeds: int, vary: str = "profile=kafka-4.0,kafka-4.1") -> Any:
    plan = compare_plan(Experiment(), vary=vary, seeds=seeds, first_seed=10)
    return _run(plan, tmp_path / "campaign")


def _run(plan: CampaignPlan, directory: Path, **keywords: Any) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    store_plan(plan, directory)
    progress = StandardErrorProgress(quiet=True)
    return run_campaign(plan, directory, WORKERS, progress, **keywords)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Replaces the runs by made-up rows, returned in no useful order."""

    def use(answer: Answer) -> None:
        monkeypatch.setattr(campaigns, "_crew", lambda *_: fake_crew(answer, members=2, size=3))

    return use


def test_arms_are_compared_seed_by_seed(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        lost = 4 if request["arm"] == OFF and request["seed"] < 18 else 0
        return made_up_row(request, lost, unavailable_ms=float(request["seed"]))

    answering(answer)
    result = _compare(tmp_path, 10)
    off, on = result["arms"]
    assert (off["name"], on["name"]) == (OFF, ON)
    assert (off["runs"], off["runs_with_unexcused_loss"], off["unexcused_lost_records"]) == (
        10,
        8,
        32,
    )
    assert (on["runs_with_unexcused_loss"], on["errors"], on["valid"]) == (0, 0, 10)
    assert off["unavailable_ms_median"] == 14.5
    assert off["anomalies"] == [{"id": "lost-acked-write", "judgement": "forbidden", "runs": 8}]
    assert result["mcnemar_p"] == 2 / 2**8
    assert result["difference_interval"][0] > 0
    assert [item["seed"] for item in result["discordant"]] == list(range(10, 18))
    assert result["discordant"][0]["losses"] == {OFF: 4, ON: 0}
    directory = tmp_path / "campaign"
    assert result["discordant"][0]["commands"][OFF].endswith(f"{directory}/arm-1.toml --seed 10")
    assert json.loads((directory / RESULT_FILE).read_text(encoding="utf-8")) == result
    with RowLog(directory) as log:
        assert [(row["seed"], row["index"]) for row in log.read([(ON, 10), (OFF, 11)])] == [
            (10, 1),
            (11, 2),
        ]
        assert len(log) == 20


def test_a_swarm_names_the_command_that_shows_its_unknown_run(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["seed"] != 12:
            return made_up_row(request)
        reason = "the final phase did not end as planned"
        return made_up_row(request, verdict="unknown", reasons=[reason], unknown_reason=reason)

    answering(answer)
    result = _run(swarm_plan(Experiment(), seeds=4, first_seed=10), tmp_path / "campaign")
    (arm,) = result["arms"]
    assert arm["unknown_command"].endswith(f"{tmp_path}/campaign/arm-1.toml --seed 12")
    assert arm["unknown_command"] in as_text(*campaign_parts(result))
    assert result["attention"] == []


@pytest.mark.parametrize(
    "key", ["profile", "features.eligible.leader.replicas.version"], ids=["profile", "feature"]
)
def test_an_arm_whose_seeds_draw_the_profile_names_none(
    key: str, tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    answering(made_up_row)
    experiment = Experiment(space={key: ("kafka-4.1",) if key == "profile" else (0, 1)})
    result = _run(swarm_plan(experiment, seeds=2, first_seed=0), tmp_path / "campaign")
    (arm,) = result["arms"]
    assert (arm["name"], arm["profile"], arm["elr"]) == ("profile drawn", "drawn", None)
    (entry,) = list_campaigns(tmp_path)
    assert [one.profile for one in entry.arms] == ["drawn"]
    plain = swarm_plan(Experiment(), seeds=2, first_seed=0)
    assert list(plain.arms) == [ON]


def test_every_arm_gets_the_same_seeds_and_its_own_setting(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return made_up_row(request)

    answering(answer)
    _compare(tmp_path, 3, "profile=kafka-4.0,kafka-4.1,kafka-3.6")
    seeds = {arm: sorted(r["seed"] for r in asked if r["arm"] == arm) for arm in (OFF, ON)}
    assert seeds == {OFF: [10, 11, 12], ON: [10, 11, 12]}
    assert len(asked) == 9
    assert all(r["arm"] == f"profile={r['experiment']['profile']}" for r in asked)


def test_errors_are_counted_listed_first_and_kept_out_of_the_test(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["seed"] == 12:
            return failed_row(request, "the run took longer than 300 s")
        lost = 1 if request["arm"] == OFF else 0
        broken = ["INV-3"] if request["seed"] == 11 and request["arm"] == ON else []
        return made_up_row(request, lost, violations=broken)

    answering(answer)
    result = _compare(tmp_path, 3)
    assert [arm["errors"] for arm in result["arms"]] == [1, 1]
    assert [arm["violations"] for arm in result["arms"]] == [0, 1]
    assert result["mcnemar_p"] == 0.5
    reasons = [item["reason"] for item in result["attention"]]
    assert reasons[:3] == ["the run took longer than 300 s"] * 2 + ["INV-3"]
    assert reasons[3:] == ["1 records are lost"] * 2


def test_an_arm_in_which_every_run_failed_has_no_median() -> None:
    totals = ArmTotals()
    totals.add(failed_row({"seed": 1, "arm": "a", "run": "arm-1/x-1", "experiment": {}}, "it died"))
    numbers = totals.to_json("a")
    assert (numbers["runs"], numbers["errors"], numbers["unavailable_ms_median"]) == (1, 1, None)
    assert numbers["unknown"] == 0


def test_a_row_that_is_missing_is_a_failure(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    answering(lambda request: None if request["seed"] == 10 else made_up_row(request))
    with pytest.raises(HarnessFailure, match="4 runs were requested, but 2 came back"):
        _compare(tmp_path, 2)


def test_a_swarm_has_one_arm_and_no_test(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    answering(lambda request: made_up_row(request, request["seed"] == 11))
    result = _run(
        swarm_plan(Experiment(profile="kafka-4.1"), seeds=4, first_seed=10), tmp_path / "campaign"
    )
    assert [arm["name"] for arm in result["arms"]] == [ON]
    assert result["mcnemar_p"] is None
    assert [item["seed"] for item in result["attention"]] == [11]


@pytest.mark.parametrize(
    "vary", ["profile", "profile=kafka-4.0", "profile=kafka-4.0,kafka-4.0", "=a,b", "nonsense=1,2"]
)
def test_a_setting_that_cannot_be_varied_is_refused_before_anything_runs(
    tmp_path: Path, vary: str
) -> None:
    with pytest.raises(UsageError):
        _compare(tmp_path, 1, vary)
    assert not (tmp_path / "campaign").exists()


def test_a_local_worker_that_dies_fails_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(crews, "WORKER_MODULE", "dies")
    plan = swarm_plan(Experiment(), seeds=2, first_seed=1)
    with pytest.raises(HarnessFailure, match=r"a worker process ended with code -11 \(see .*log"):
        _run(plan, tmp_path / "campaign")


def _interrupted(after: int) -> Answer:
    """Answers as always, until it is interrupted."""
    done = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(request)
        return _answer(request)

    return answer


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["seed"] % 7 == 3:
        return failed_row(request, "it died")
    lost = request["seed"] % 3 if request["arm"] == OFF else 0
    return made_up_row(request, lost, unavailable_ms=request["seed"] / 3)


@pytest.mark.parametrize("after", [0, 1, 13, 39])
def test_a_resumed_campaign_has_the_result_of_one_that_was_not_interrupted(
    tmp_path: Path, answering: Callable[[Answer], None], after: int
) -> None:
    answering(_answer)
    whole = _compare(tmp_path, 20)
    directory = tmp_path / "campaign"
    whole_file = (directory / RESULT_FILE).read_bytes()
    plan = load_plan(directory)
    (directory / ROWS_FILE).unlink()
    (directory / RESULT_FILE).unlink()
    answering(_interrupted(after))
    so_far: list[dict[str, Any]] = []
    with pytest.raises(KeyboardInterrupt):
        _run(plan, directory, on_interrupt=so_far.append)
    done = sum(arm["runs"] for arm in so_far[0]["arms"])
    assert done == len((directory / ROWS_FILE).read_bytes().splitlines()) <= after
    assert not (directory / RESULT_FILE).exists()
    answering(_answer)
    assert _run(plan, directory) == whole
    assert (directory / RESULT_FILE).read_bytes() == whole_file
    answering(_interrupted(0))
    assert _run(plan, directory) == whole, "nothing is left to run"


def test_the_commands_work_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answering: Callable[[Answer], None]
) -> None:
    answering(lambda request: made_up_row(request, 1))
    monkeypatch.chdir(tmp_path)
    plan = swarm_plan(Experiment(), seeds=1, first_seed=4)
    result = _run(plan, Path("a campaign"))
    words = shlex.split(result["attention"][0]["command"])
    assert words == ["laststand", "run", str(tmp_path / "a campaign/arm-1.toml"), "--seed", "4"]
    assert Path(words[2]).is_file()


def test_a_stored_plan_is_the_plan(tmp_path: Path) -> None:
    plan = compare_plan(
        Experiment(duration_ms=7000), vary="topic.partitions=1,3", seeds=5, first_seed=2
    )
    store_plan(plan, tmp_path)
    assert load_plan(tmp_path) == plan
    requests = list(requests_of(plan, KeptRuns(tmp_path, 1)))
    assert [request["arm"] for request in requests] == list(plan.arms) * 5
    assert [request["index"] for request in requests] == list(range(10))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "not a campaign's plan of schema 1"),
        ("nonsense", "cannot be read"),
        ('{"schema": 1}', "is damaged: 'arms'"),
        ('{"schema": 1, "arms": []}', "is damaged: it has no arms"),
    ],
)
def test_a_damaged_plan_is_reported(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    with pytest.raises(HistoryError, match=sentence):
        load_plan(tmp_path)


@pytest.mark.parametrize("share", [-0.5, 7])
def test_a_plan_with_a_share_that_is_none_is_reported(tmp_path: Path, share: float) -> None:
    plan = compare_plan(Experiment(), vary="topic.partitions=1,3", seeds=1, first_seed=0)
    store_plan(replace(plan, guided=share), tmp_path)
    with pytest.raises(HistoryError, match=r"is damaged: guided is .*, which is no share"):
        load_plan(tmp_path)


def test_a_local_crew_needs_no_more_workers_than_runs(tmp_path: Path) -> None:
    with local_crew(tmp_path, 1) as crew:
        assert [member.room for member in crew.members] == [1]


# --- arms of systems and versions

KAFKA = Experiment(on="local", system="apache-kafka", version="4.1.2")
RANDOM = NemesisConfig(faults=("kill", "pause"))


def _arms(experiment: Experiment, vary: str) -> dict[str, Experiment]:
    return dict(compare_plan(experiment, vary=vary, seeds=1, first_seed=0).arms)


def test_systems_of_different_speed_get_the_same_schedule_for_the_same_seed() -> None:
    base = Experiment(on="local", nemesis=RANDOM)
    arms = _arms(base, "system=reference,apache-kafka:4.0.2")
    assert list(arms) == ["system=reference", "system=apache-kafka:4.0.2"]
    reference, kafka = arms.values()
    assert (kafka.version, kafka.profile) == ("4.0.2", "kafka-4.0")
    assert reference.time_scale == kafka.time_scale == 4
    assert has_same_schedules([reference, kafka])
    for seed in range(20):
        assert planned_schedule(reference, seed) == planned_schedule(kafka, seed)
    assert any(planned_schedule(kafka, seed) for seed in range(20))
    assert not has_same_schedules([base, kafka])


def test_a_comparison_of_time_scales_keeps_them() -> None:
    arms = _arms(Experiment(nemesis=RANDOM), "time_scale=1,2")
    assert [arm.time_scale for arm in arms.values()] == [1, 2]
    assert not has_same_schedules(list(arms.values()))


def test_versions_decide_the_profile_of_their_arms() -> None:
    arms = _arms(KAFKA, "version=3.9.1,4.0.2,4.1.2")
    assert [arm.profile for arm in arms.values()] == ["kafka-3.9", "kafka-4.0", "kafka-4.1"]
    assert [arm.version for arm in arms.values()] == ["3.9.1", "4.0.2", "4.1.2"]


def test_eligible_leader_replicas_are_switched_by_feature_level_on_apache_kafka() -> None:
    off, on = _arms(KAFKA, "elr=off,on").values()
    assert [dict(arm.features) for arm in (off, on)] == [{ELR_FEATURE: 0}, {ELR_FEATURE: 1}]
    assert [promises_of(arm).elr_on for arm in (off, on)] == [False, True]
    assert replace(off, features={}, profile=KAFKA.profile) == KAFKA


def test_eligible_leader_replicas_are_switched_by_profile_in_the_reference_system() -> None:
    off, on = _arms(Experiment(), "elr=off,on").values()
    assert (off.profile, on.profile) == ("kafka-4.1-elr-off", "kafka-4.1")
    assert [promises_of(arm).elr_on for arm in (off, on)] == [False, True]
    assert replace(off, profile=on.profile) == on == Experiment()


@pytest.mark.parametrize(
    ("experiment", "vary", "sentence"),
    [
        (Experiment(on="local"), "version=4.0.2,4.1.2", "'reference' has no versions"),
        (KAFKA, "version=4.1.2,4.1.9", "did you mean '4.1.2'"),
        (replace(KAFKA, version="3.9.1", profile=""), "elr=off,on", "3.9.1 has no eligible leader"),
        (Experiment(profile="kafka-3.9"), "elr=off,on", "use kafka-4.0, kafka-4.1 or kafka-4.2"),
        (KAFKA, "elr=off,of", "elr is 'of'; choose off or on"),
        (KAFKA, "system=apache-kafka:4.1.2,kafka", "no system is called 'kafka'"),
        (Experiment(), "system=reference,apache-kafka", "cannot run in 'simulation'"),
    ],
)
def test_arms_that_do_not_exist_are_refused_in_one_sentence(
    experiment: Experiment, vary: str, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        _arms(experiment, vary)
    assert "\n" not in str(caught.value)


def test_several_arms_are_each_compared_with_the_first(
    tmp_path: Path, answering: Callable[[Answer], None]
) -> None:
    first, second, third = (f"version={version}" for version in ("4.0.2", "4.1.2", "4.4.0"))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["arm"] == third and request["seed"] == 5:
            return failed_row(request, "no cluster")
        lost = request["arm"] == first and request["seed"] < 9
        return made_up_row(request, 3 * lost)

    answering(answer)
    plan = compare_plan(KAFKA, vary="version=4.0.2,4.1.2,4.4.0", seeds=10, first_seed=0)
    result = _run(plan, tmp_path / "campaign")
    two, three = result["comparisons"]
    assert (two["arms"], three["arms"]) == ([first, second], [first, third])
    assert (two["pairs"], two["only_first"], two["only_second"]) == (10, 9, 0)
    assert (three["pairs"], three["only_first"]) == (9, 8)
    assert (two["mcnemar_p"], three["mcnemar_p"]) == (2 / 2**9, 2 / 2**8)
    assert (two["adjusted_p"], three["adjusted_p"]) == (4 / 2**9, 2 / 2**8)
    assert (result["mcnemar_p"], result["same_schedules"]) == (two["mcnemar_p"], True)
    assert result["discordant"][5]["losses"] == {first: 3, second: 0}
    assert result["discordant"][0]["losses"] == {first: 3, second: 0, third: 0}
    assert comparison_sentences(result) == [
        "McNemar's exact test, same seeds in every arm:",
        f"  {second} against {first}: p = 0.00391, 0.00781 adjusted for 2 tests",
        f"  {third} against {first}: p = 0.00781, 0.00781 adjusted for 2 tests",
    ]
