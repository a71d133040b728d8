"""Commands with a run store at a URI, as two machines use it: each has a working directory of its own."""

import json
from pathlib import Path

import pytest

from harness.campaigns import remote
from tests.cli.cli_helpers import call, refused, write

EXPERIMENT = 'name = "short"\nweather = "calm"\nduration_ms = 300\nfinal_phase_ms = 20000\n'


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    return tmp_path / "here", tmp_path / "there"


def test_a_run_is_listed_judged_shown_and_replayed_on_another_machine(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    machines: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    here, there = machines
    store = ("--results", f"file://{tmp_path}/store", "--quiet")
    path = write(tmp_path / "short.toml", EXPERIMENT)
    monkeypatch.chdir(here)
    made = call(capsys, "run", path, "--seed", 5, "--no-spark", "--json", *store)
    assert made.code == 0, made
    monkeypatch.chdir(there)
    listed = call(capsys, "list", "--json", *store).data["runs"]
    assert [(run["seed"], run["verdict"]) for run in listed] == [("5", "valid")]
    checked = call(capsys, "check", "latest", "--no-spark", "--json", *store)
    assert (checked.code, checked.data["trace_hash"]) == (0, made.data["trace_hash"])
    replayed = call(capsys, "replay", listed[0]["run"], "--no-spark", "--json", *store)
    assert (replayed.code, replayed.data["same_trace"]) == (0, True)
    shown = call(capsys, "report", listed[0]["run"], *store)
    assert (there / shown.out.strip()).stat().st_size > 10_000
    monkeypatch.chdir(here)
    assert len(call(capsys, "list", "--json", *store).data["runs"]) == 2
    assert call(capsys, "doctor", "--json", *store).data["findings"][-1]["name"] == "store"


@pytest.mark.long
def test_nights_of_two_machines_share_findings_and_tables(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    machines: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    """The second machine knows the finding of the first one, and repeats its failing run."""
    store = ("--results", f"file://{tmp_path}/store", "--no-spark", "--jobs", 2, "--quiet")
    losing = '[[jobs]]\nname = "losing"\nexperiment = "elr-compare"\nprofiles = ["kafka-4.0"]\n'
    plan = write(tmp_path / "plan.toml", f"{losing}seeds = [7]\n")
    calm = write(
        tmp_path / "calm.toml", f"[[jobs]]\nname = 'calm'\n[jobs.experiment]\n{EXPERIMENT}"
    )
    for directory, file, runs, status in (
        (machines[0], plan, 1, "new"),
        (machines[1], calm, 2, "open"),
    ):
        monkeypatch.chdir(directory)
        night = call(capsys, "nightly", file, "--runs", runs, "--json", *store)
        assert (night.code, [one["status"] for one in night.data["findings"]]) == (1, [status])
    campaigns = call(capsys, "list", "--json", *store[:2]).data["campaigns"]
    assert [(one["runs_done"], one["failing"]) for one in campaigns] == [(2, 1), (1, 1)]
    tables = sorted(path.name for path in (tmp_path / "store" / "campaign-tables").iterdir())
    assert len(tables) == 2
    removed = call(capsys, "gc", "--keep-nights", 1, "--json", *store[:2])
    assert [one["kind"] for one in removed.data["removed"]] == ["night"]
    assert len(list((tmp_path / "store").glob("nightly-*"))) == 1
    assert len(list(Path("results/remote").glob("*/nightly-*"))) == 1


def test_a_night_whose_store_is_lost_keeps_its_runs_and_says_so(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    machines: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    """The printed command copies everything once the store is back."""
    here, _ = machines
    monkeypatch.chdir(here)
    place = tmp_path / "store"
    path = write(tmp_path / "short.toml", EXPERIMENT)
    tables = ("--tables", str(tmp_path / "tables"))
    store = ("--results", f"file://{place}", "--no-spark", "--jobs", 2)
    plan = write(tmp_path / "plan.toml", f"[[jobs]]\nname = 'calm'\nexperiment = '{path}'\n")
    finish = remote.CampaignCopier.finish

    def lost(copier: remote.CampaignCopier) -> None:
        place.rename(tmp_path / "away")
        place.write_text("")
        finish(copier)

    monkeypatch.setattr(remote.CampaignCopier, "finish", lost)
    night = call(capsys, "nightly", plan, "--runs", 2, *tables, *store, "--quiet")
    assert night.code == 255
    assert "everything is in " in night.err
    assert "cannot be " in night.err
    (directory,) = here.glob("results/remote/*/nightly-*")
    assert len((directory / "rows.jsonl").read_text().splitlines()) == 2
    monkeypatch.setattr(remote.CampaignCopier, "finish", finish)
    place.unlink()
    (tmp_path / "away").rename(place)
    command = night.err.strip().rpartition("run: laststand ")[2].split()
    again = call(capsys, *command, *tables, "--no-spark", "--quiet", "--json")
    assert again.code == 0, again
    (stored,) = place.glob("nightly-*/nightly.json")
    assert json.loads(stored.read_text())["exit_code"] == 0
    assert len((stored.parent / "rows.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("ftp://host/runs", "there is no file system 'ftp'"),
        ("s3a:///runs", "names no bucket"),
        ("s3a://key:secret@bucket/runs", "must not have a password"),
        ("s3a://bucket/runs?endpoint=x", "unknown option 'endpoint'"),
        ("file://runs", "cannot be opened"),
    ],
)
def test_a_bad_uri_is_one_sentence(
    capsys: pytest.CaptureFixture[str], uri: str, reason: str
) -> None:
    sentence = refused(capsys, "list", "--results", uri)
    assert reason in sentence
    assert "secret" not in sentence


def test_an_unreachable_store_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is run: the store is read first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").write_text("")
    path = write(tmp_path / "short.toml", EXPERIMENT)
    uri = f"file://{tmp_path}/store"
    for command in (["run", path], ["list"], ["swarm", path], ["gc"]):
        outcome = call(capsys, *command, "--results", uri)
        assert (outcome.code, outcome.out) == (255, ""), command
        (line,) = outcome.err.splitlines()
        assert line.startswith(f"laststand: harness failure: {uri} cannot be listed: ")
    assert not list((tmp_path / "results").rglob("*.toml"))


def test_a_cluster_cannot_read_a_directory_of_this_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "short.toml", EXPERIMENT)
    options = ("--spark-master", "spark://host:7077", "--results", tmp_path / "runs")
    sentence = refused(capsys, "run", path, *options)
    assert "which is a directory of this machine; name the store by a URI" in sentence
    assert not list((tmp_path / "runs").iterdir())
