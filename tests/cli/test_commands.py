"""What every command prints, stores and returns. --json is one object on standard output and nothing else."""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli.main import build_parser
from harness.runs import experiment_file as experiments
from tests.cli.cli_helpers import call, refused, write

ROOT = Path(__file__).parents[2]
REPRODUCE = ("reproduce", "last-replica-standing", "--no-spark")
RUN_KEYS = {
    "run",
    "seed",
    "profile",
    "verdict",
    "unexcused_lost_records",
    "anomalies",
    "trace_hash",
    "directory",
    "report",
}
ARM_KEYS = {
    "name",
    "runs",
    "runs_with_unexcused_loss",
    "unexcused_lost_records",
    "unavailable_ms_median",
}


def test_reproduce_finds_the_loss_with_elr_off(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = call(
        capsys, *REPRODUCE, "--profile", "kafka-4.0", "--json", "--results", tmp_path / "runs"
    )
    assert outcome.code == 1
    assert set(outcome.data) >= RUN_KEYS
    assert outcome.data["verdict"] == "invalid"
    assert outcome.data["unexcused_lost_records"] == 5
    counts = {anomaly["id"]: anomaly["count"] for anomaly in outcome.data["anomalies"]}
    assert counts["lost-acked-write"] == 5
    assert outcome.data["as_predicted"] is True
    assert "seed 1, profile kafka-4.0" in outcome.err
    directory = Path(outcome.data["directory"])
    assert json.loads((directory / "run.json").read_text())["trace_hash"] in outcome.out
    assert Path(outcome.data["report"]).read_text().startswith("<!doctype html>")


def test_reproduce_finds_no_loss_with_elr_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = call(capsys, *REPRODUCE, "--quiet", "--results", tmp_path)
    assert outcome.code == 0
    assert outcome.out.startswith("VALID\n")
    assert "outcome 'ok', predicted 'ok': as predicted" in outcome.out
    assert outcome.err == ""


def test_a_negative_control_is_valid_because_its_election_was_flagged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = call(capsys, *REPRODUCE, "--variant", "V6", "--json", "--results", tmp_path)
    assert outcome.code == 0
    assert outcome.data["outcome"] == "loss(f)"
    assert outcome.data["unexcused_lost_records"] == 0
    assert outcome.data["excused_lost_records"] == 5


def test_a_run_with_too_few_operations_is_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = 'weather = "calm"\nduration_ms = 400\n[workload]\nappends_per_s = 5.0\n'
    fault = '[[schedule]]\nfault = "power"\ntargets = ["all"]\nat_ms = 10\nfor_ms = 300\n'
    file = write(tmp_path / "short.toml", text + fault)
    outcome = call(capsys, "run", file, "--no-spark", "--json", "--results", tmp_path / "runs")
    assert outcome.code == 2
    assert outcome.data["verdict"] == "unknown"
    assert outcome.data["reasons"]


def test_the_same_seed_through_the_codec_has_the_same_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ("--profile", "kafka-4.0", "--json", "--results", tmp_path)
    by_reference = call(capsys, *REPRODUCE, *where).data
    encoded = call(capsys, *REPRODUCE, "--sim-wire", *where).data
    assert encoded["anomalies"] == by_reference["anomalies"]


def test_replay_repeats_the_trace(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    store = stored.parent.parent
    outcome = call(capsys, "replay", stored.name, "--no-spark", "--json", "--results", store)
    assert outcome.code == 1
    assert outcome.data["same_trace"] is True
    assert outcome.data["replay_of"] == f"{stored.parent.name}/{stored.name}"
    assert outcome.data["trace_hash"] == json.loads((stored / "run.json").read_text())["trace_hash"]
    latest = call(capsys, "replay", "latest", "--no-spark", "--json", "--results", store)
    assert latest.data["replay_of"] == outcome.data["run"]


def test_replay_refuses_hosts_for_an_environment_without_hosts(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    store = stored.parent.parent
    where = ("--hosts", "hosts.toml", "--no-spark", "--results", store)
    for world, options in (("simulation", ()), ("local", ("--on", "local"))):
        assert refused(capsys, "replay", stored.name, *options, *where) == (
            f"--hosts is for --on ssh, not for {world}; leave it out, or add --on ssh"
        )


def test_check_gives_the_same_verdict_again(
    capsys: pytest.CaptureFixture[str], stored: Path
) -> None:
    before = (stored / "verdict.json").read_bytes()
    summary = json.loads((stored / "run.json").read_text())
    (stored / "verdict.json").unlink()
    (stored / "report.html").unlink()
    outcome = call(capsys, "check", stored, "--no-spark", "--json")
    assert outcome.code == 1
    assert (stored / "verdict.json").read_bytes() == before
    assert json.loads((stored / "run.json").read_text()) == summary
    assert (stored / "report.html").exists()


def test_report_prints_its_path(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    (stored / "report.html").unlink()
    outcome = call(capsys, "report", stored)
    assert (outcome.code, outcome.out) == (0, f"{stored / 'report.html'}\n")
    assert (stored / "report.html").exists()
    assert call(capsys, "report", stored, "--json").data == {"report": f"{stored / 'report.html'}"}


def test_list_names_every_run(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    store = stored.parent.parent
    (run,) = call(capsys, "list", "--json", "--results", store).data["runs"]
    assert run == {
        "run": f"{stored.parent.name}/{stored.name}",
        "seed": "1",
        "verdict": "invalid",
        "profile": "kafka-4.0",
        "system": "reference",
        "world": "simulation",
        "drawn": {},
        "unexcused_lost_records": 5,
    }
    header, rule, row = call(capsys, "list", "--results", store).out.splitlines()
    assert header.split() == ["verdict", "profile", "lost", "run"]
    assert set(rule) == {"─"}
    assert row.split() == ["invalid", "kafka-4.0", "5", run["run"]]


HEAVY = (
    "numpy",
    "pyarrow",
    "pandas",
    "pyspark",
    "docker",
    "paramiko",
    "kio",
    "rich",
    "shtab",
    "asyncio",
)


def test_help_and_an_empty_list_load_no_heavy_package(tmp_path: Path) -> None:
    """Packages that take long to load are loaded only by the commands that need them."""
    code = f"""
import sys
from harness.cli.main import build_parser, main
build_parser().format_help()
assert main(["list", "--results", {str(tmp_path)!r}]) == 0
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_short_run_loads_only_what_it_needs(tmp_path: Path) -> None:
    """From the command to the verdict, most of the time of a short run is that of imports."""
    unneeded = ("pandas", "pyspark", "docker", "paramiko", "starlette", "checkers.jobs.huge")
    code = f"""
import sys
from harness.cli.main import main
arguments = ["reproduce", "last-replica-standing", "--profile", "kafka-4.0", "--quiet"]
assert main([*arguments, "--results", {str(tmp_path)!r}]) == 1
print([name for name in {unneeded!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_help_text_starts_with_a_verb_and_a_small_letter() -> None:
    """The first word is an imperative; a description of a thing would start with an article."""
    for parser in parsers(build_parser()):
        for action in parser._actions:
            if action.help and action.option_strings and action.dest != "help":
                first = action.help.split()[0]
                assert first.islower(), (parser.prog, action.help)
                assert first not in ("a", "an", "the", "how", "where", "what"), action.help


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_an_empty_list_suggests_a_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = call(capsys, "list", "--results", tmp_path / "nowhere")
    assert outcome.code == 0
    assert "`laststand reproduce` makes one" in outcome.out
    assert not (tmp_path / "nowhere").exists()


@pytest.fixture
def small_random_swarm(tmp_path: Path) -> Path:
    """The built-in comparison, shortened."""
    text = (ROOT / "harness" / "experiments" / "elr-compare.toml").read_text()
    return write(
        tmp_path / "random_faults.toml", text.replace("duration_ms = 12000", "duration_ms = 4000")
    )


def test_compare_runs_the_same_seeds_in_every_arm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, small_random_swarm: Path
) -> None:
    arguments = ("--vary", "profile=kafka-4.0,kafka-4.1", "--seeds", "2", "--no-spark", "--json")
    outcome = call(
        capsys, "compare", small_random_swarm, *arguments, "--results", tmp_path / "runs"
    )
    assert outcome.code == 0
    assert [arm["name"] for arm in outcome.data["arms"]] == [
        "profile=kafka-4.0",
        "profile=kafka-4.1",
    ]
    assert all(set(arm) >= ARM_KEYS and arm["runs"] == 2 for arm in outcome.data["arms"])
    assert outcome.data["mcnemar_p"] == 1.0
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "compare.html").exists()
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert sorted((row["seed"], row["profile"]) for row in rows) == [
        (0, "kafka-4.0"),
        (0, "kafka-4.1"),
        (1, "kafka-4.0"),
        (1, "kafka-4.1"),
    ]


def trace_hash_of(run: Path) -> str:
    return str(json.loads((run / "run.json").read_text())["trace_hash"])


def test_swarm_has_the_exit_code_of_its_worst_run_and_prints_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Seed 7 loses records with ELR off; see tests/simulation/test_small_swarm.py."""
    where = ("--no-spark", "--quiet", "--results", tmp_path / "runs")
    seeds = ("--profile", "kafka-4.0", "--first-seed", "7", "--seeds", "1")
    outcome = call(capsys, "swarm", *seeds, *where)
    assert outcome.code == 1
    assert outcome.err == ""
    page = Path(outcome.out.splitlines()[-1].removeprefix("report: "))
    command = f"laststand run {page.parent / 'arm-1.toml'} --seed 7"
    assert command in outcome.out
    assert command in page.read_text()
    (stored,) = page.parent.glob("runs/arm-1/*-7")
    assert f'href="{(stored / "report.html").relative_to(page.parent)}"' in page.read_text()
    (replay,) = [line.split() for line in outcome.out.splitlines() if "laststand replay" in line]
    assert replay[:3] == ["laststand", "replay", str(stored)]
    again = call(capsys, *replay[1:], *where)
    assert again.code == 1
    listed = re.search(r"\((laststand list .*)\)", outcome.out)
    assert listed is not None
    assert stored.name in call(capsys, *listed[1].split()[1:]).out
    words = command.split()[1:]
    once = call(capsys, *words, *where, "--json")
    assert (once.code, once.data["trace_hash"]) == (1, trace_hash_of(stored))


def test_demo_shows_the_bug_and_the_fix_and_ends_with_the_path_of_the_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = call(capsys, "demo", "--seeds", "1", "--no-spark", "--results", tmp_path)
    assert outcome.code == 0
    assert "outcome 'loss', predicted 'loss': as predicted" in outcome.out
    assert "outcome 'ok', predicted 'ok': as predicted" in outcome.out
    report = Path(outcome.out.splitlines()[-1])
    assert report.name == "report.html"
    assert json.loads((report.parent / "run.json").read_text())["profile"] == "kafka-4.0"


EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))


def here(path: Path) -> bool:
    """Whether an example runs on this machine alone; tests/containers and tests/wire have the others."""
    loaded = experiments.load(path)
    return loaded.on in ("simulation", "local") and loaded.system == "reference"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_is_a_valid_experiment(path: Path) -> None:
    loaded = experiments.load(path)
    assert experiments.loads(experiments.dumps(loaded), origin="again") == loaded


@pytest.mark.parametrize(
    "path",
    [
        # Real processes take their time, and `tests/wire` shows more of them.
        pytest.param(path, marks=[pytest.mark.long] if experiments.load(path).on == "local" else [])
        for path in filter(here, EXAMPLES)
    ],
    ids=lambda path: path.stem,
)
def test_every_example_runs_and_is_valid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, path: Path
) -> None:
    outcome = call(capsys, "run", path, "--no-spark", "--json", "--results", tmp_path)
    assert outcome.code == 0, outcome.data["reasons"]
    assert outcome.data["faults"] > 0
    stored = Path(outcome.data["directory"]) / "experiment.toml"
    assert experiments.load(stored) == experiments.load(path)


def shell(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *(str(argument) for argument in arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_real_process_keeps_standard_output_and_error_separate(tmp_path: Path) -> None:
    wrong = shell("reproduce", "last-replica")
    assert (wrong.returncode, wrong.stdout) == (254, "")
    assert wrong.stderr.count("\n") == 1
    right = shell(*REPRODUCE, "--json", "--results", tmp_path)
    assert right.returncode == 0
    assert json.loads(right.stdout)["verdict"] == "valid"
    assert "Traceback" not in right.stderr


def test_a_reader_that_exits_early_causes_no_error_message(tmp_path: Path) -> None:
    """`laststand list | head` closes the pipe while the command still writes."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", "list", "--results", str(tmp_path)],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 255
    assert done.stderr == ""


def test_an_unexpected_error_prints_one_line_and_writes_the_traceback_to_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def explode(_: object) -> int:
        raise RuntimeError("something unexpected")

    monkeypatch.setattr("harness.cli.commands.list.list_runs", explode)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outcome = call(capsys, "list")
    assert outcome.code == 255
    assert outcome.err.startswith("laststand: harness failure: RuntimeError: something unexpected")
    assert outcome.err.count("\n") == 1
    (traceback,) = tmp_path.glob("*.traceback")
    assert "in explode" in traceback.read_text()


@pytest.mark.parametrize("world", ["simulation", "docker"])
def test_a_run_whose_harness_died_shows_its_world_and_offers_no_replay(
    capsys: pytest.CaptureFixture[str], stored: Path, world: str
) -> None:
    for name in ("run.json", "replay.json", "verdict.json", "report.html"):
        (stored / name).unlink()
    path = stored / "experiment.toml"
    path.write_text(path.read_text().replace('on = "simulation"', f'on = "{world}"'))
    outcome = call(capsys, "check", stored, "--no-spark", "--quiet")
    assert outcome.code in (0, 1, 2), outcome
    page = (stored / "report.html").read_text()
    assert re.search(rf"^world +{world}$", outcome.out, re.MULTILINE), outcome.out
    assert "laststand replay" not in outcome.out
    assert "laststand replay" not in page
    assert ("laststand run" in outcome.out) == ("laststand run" in page) == (world == "docker")
    assert "replay.json" in refused(capsys, "replay", stored, "--no-spark")


@pytest.mark.long
def test_reproduce_all_writes_a_page_of_all_variants(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("reproduce", "kafka-bug", "--all", "--no-spark", "--results", tmp_path)
    outcome = call(capsys, *words, "--profile", "kafka-4.1", "--seed", 3)
    assert outcome.code == 0
    assert "9 of 9 outcomes as predicted" in outcome.out
    page = (tmp_path / "kafka-bug.html").read_text()
    assert "laststand reproduce kafka-bug --all --seed 3 --profile kafka-4.1" in page
    stored = json.loads((tmp_path / "kafka-bug.json").read_text())
    runs = [cell["run"] for row in stored["rows"] for cell in row["cells"].values()]
    assert len(runs) == 9
    assert all((tmp_path / run / "report.html").is_file() for run in runs)
    assert all(run in call(capsys, "list", "--results", tmp_path).out for run in runs)


def test_reproduce_all_takes_neither_a_variant_nor_attempts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("reproduce", "kafka-bug", "--all", "--results", tmp_path)
    for more in (("--variant", "B-48"), ("--attempts", "2")):
        assert "leave --variant and --attempts out" in refused(capsys, *words, *more)
