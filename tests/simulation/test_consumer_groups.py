"""Consumer groups in the simulated world, under faults, judged as in every other environment."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.contracts.verdict import Validity
from harness.history.parquet import read_finished
from harness.runs import experiment_file as experiments
from harness.runs.experiment import TopicConfig
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate
from tests.simulation.test_determinism_of_runs import ROOT, answer, child_of, files_of

PATH = ROOT / "examples" / "consumer-group.toml"
EXAMPLE = experiments.load(PATH)


def test_a_group_under_faults_receives_every_record_and_keeps_its_commits() -> None:
    counters: Counter[str] = Counter()
    for seed in range(3, 6):
        result = simulate(EXAMPLE, seed)
        verdict, summary = judge_result(EXAMPLE, seed, result)
        assert verdict.validity is Validity.VALID, (seed, verdict.reasons)
        counters.update(summary["counters"])
        events = Counter(result.tables["group_events"].column("event").to_pylist())
        assert events["commit-sent"] >= events["commit-acknowledged"] > 50
        acked = verdict.coverage["acked_in_final_reads"]
        assert summary["counters"]["group_records"] >= acked > 50
    assert counters["group_assignments"] > 30
    assert counters["group_members_rejoin"] > 0
    assert counters["group_members_fenced"] > 0


def test_members_of_a_calm_run_share_the_partitions_and_take_over_from_one_another() -> None:
    calm = replace(
        EXAMPLE,
        weather="calm",
        nemesis=replace(EXAMPLE.nemesis, faults=()),
        topic=TopicConfig(partitions=3),
        duration_ms=8000,
    )
    result = simulate(calm, 1)
    rows = result.tables["group_events"].to_pylist()
    owners: dict[int, dict[int, int]] = {}
    for row in rows:
        if row["event"] == "assigned" and row["generation"] >= 0:
            owners.setdefault(row["generation"], {})[row["partition"]] = row["process"]
    assert any(len(set(of.values())) == 3 for of in owners.values()), "three members, one each"
    assert len({row["process"] for row in rows}) > 3, "members come and go"
    # A member starts at the largest acknowledged commit.
    acknowledged: dict[int, int] = {}
    for row in rows:
        if row["event"] == "commit-acknowledged":
            acknowledged[row["partition"]] = row["offset"]
        if row["event"] == "assigned":
            assert row["offset"] >= acknowledged.get(row["partition"], 0)


@pytest.mark.long
def test_one_seed_gives_the_same_trace_and_the_same_bytes_in_two_processes(
    tmp_path: Path,
) -> None:
    children = [
        child_of(PATH, tmp_path / hash_seed, 4, "kafka-4.1", hash_seed) for hash_seed in ("1", "77")
    ]
    first, second = (answer(child) for child in children)
    assert first == second
    files = files_of(tmp_path / "1")
    assert files == files_of(tmp_path / "77")
    names = {Path(name).stem for name in files if name.startswith("history/group_events/")}
    assert names == {"t1-0", "t1-1", "t2-0", "t2-1"}


@pytest.mark.long
def test_run_check_replay_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = ["--results", str(tmp_path), "--quiet", "--json"]
    short = tmp_path / "short.toml"
    short.write_text(experiments.dumps(replace(EXAMPLE, duration_ms=6000)), encoding="utf-8")
    assert main(["run", str(short), "--seed", "8", "--no-spark", *results]) == 0
    run = json.loads(capsys.readouterr().out)
    assert main(["check", "latest", "--no-spark", *results]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == run["verdict"] == "valid"
    # In a process of its own, as a user does it.
    replay = subprocess.run(
        [sys.executable, "-m", "harness.cli", "replay", run["directory"], *results],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert replay.returncode == 0, replay.stderr
    assert json.loads(replay.stdout)["trace_hash"] == run["trace_hash"]
    report = Path(run["report"]).read_text(encoding="utf-8")
    assert "consumer-group" in report


@pytest.mark.parametrize("rule", ["GRP-4"])
def test_a_stored_run_is_judged_like_the_run_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: str
) -> None:
    """What the coordinator's partition shows has to reach the task that judges another partition."""
    broken = replace(EXAMPLE, disabled_rules=(rule,), duration_ms=9000)
    file = tmp_path / "broken.toml"
    file.write_text(experiments.dumps(broken), encoding="utf-8")
    results = ["--results", str(tmp_path), "--no-spark", "--quiet", "--json"]
    assert main(["run", str(file), "--seed", "1", *results]) == 1
    run = json.loads(capsys.readouterr().out)
    assert "committed-offset-regressed" in {each["id"] for each in run["anomalies"]}
    assert main(["check", run["directory"], *results]) == 1
    checked = json.loads(capsys.readouterr().out)
    assert checked["anomalies"] == run["anomalies"]
    tables = read_finished(Path(run["directory"]))
    assert "__consumer_offsets" in tables["partition_states"].column("topic").to_pylist()
