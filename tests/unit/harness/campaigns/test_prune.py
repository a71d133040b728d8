"""`laststand gc`: what is removed, what stays, and that nothing unknown is touched."""

import fcntl
import json
from pathlib import Path

import pytest

from harness.campaigns import prune as prune_module
from harness.campaigns.prune import is_failing_run, plan_pruning, prune
from harness.cli.main import main
from results.layout import RUN_FILES, STORED_FILE
from tests.cli.cli_helpers import call


def make_run(place: Path, verdict: str = "valid", **summary: object) -> Path:
    """Makes a stored run with every file that a run may have."""
    place.mkdir(parents=True)
    for name in sorted(RUN_FILES.keys() - {STORED_FILE}):
        if name.endswith("/"):
            (place / name).mkdir()
            (place / name / "operations.parquet").write_bytes(b"x" * 1000)
        else:
            (place / name).write_text("{}")
    (place / "run.json").write_text(json.dumps({"verdict": verdict, **summary}))
    return place


def make_night(root: Path, night: str, *verdicts: str) -> Path:
    """Makes a night with stored runs, as the engine and the triage leave it."""
    place = root / f"nightly-{night}"
    place.mkdir(parents=True)
    for name in (
        "plan.json",
        "rows.jsonl",
        "nightly.json",
        "nightly.html",
        "summary.md",
        "junit.xml",
        "workers.log",
    ):
        (place / name).write_text("{}")
    (place / "job-1.toml").write_text("")
    for number, verdict in enumerate(verdicts):
        make_run(place / "runs" / "elr-compare" / f"20260101T000000Z-{number}", verdict)
    return place


@pytest.fixture
def root(tmp_path) -> Path:
    """Four nights, one run per month, a comparison, and things of other people."""
    for night, verdicts in (
        ("2026-11-19", ("valid",)),
        ("2026-11-20", ("valid", "invalid")),
        ("2026-11-21", ()),
        ("2026-11-21-2", ("invalid",)),
    ):
        make_night(tmp_path, night, *verdicts)
    make_run(tmp_path / "october" / "20261001T120000Z-1")
    make_run(tmp_path / "failing" / "20261001T120000Z-2", "invalid")
    make_run(tmp_path / "november" / "20261121T000000Z-3")
    (tmp_path / "compare-20260101T000000Z").mkdir()
    (tmp_path / "compare-20260101T000000Z" / "compare.json").write_text("{}")
    (tmp_path / "night=2026-11-19").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "latest").symlink_to("november/20261121T000000Z-3")
    return tmp_path


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_nights_and_runs_before_the_first_kept_night_are_removed(root):
    prune(plan_pruning(root, keep_nights=2, keep_failing=False))
    assert names(root) == [
        "compare-20260101T000000Z",
        "latest",
        "night=2026-11-19",
        "nightly-2026-11-21",
        "nightly-2026-11-21-2",
        "notes",
        "november",
    ]
    assert (root / "latest").is_dir()
    assert (root / "nightly-2026-11-21-2" / "runs").is_dir()


def test_failing_runs_stay_if_requested_with_the_pages_of_their_night(root):
    pruning = plan_pruning(root, keep_nights=1, keep_failing=True)
    prune(pruning)
    assert not (root / "nightly-2026-11-19").exists()
    assert not (root / "nightly-2026-11-21").exists()
    night = root / "nightly-2026-11-20"
    assert (night / "nightly.html").is_file()
    runs = [path.name for path in (night / "runs" / "elr-compare").iterdir()]
    assert runs == ["20260101T000000Z-1"]
    assert (root / "failing" / "20261001T120000Z-2" / "history" / "operations.parquet").is_file()
    assert not (root / "october").exists()
    assert pruning.kept_failing == (
        root / "failing" / "20261001T120000Z-2",
        night / "runs" / "elr-compare" / "20260101T000000Z-1",
    )
    again = plan_pruning(root, keep_nights=1, keep_failing=True)
    assert again.removals == ()
    prune(plan_pruning(root, keep_nights=1, keep_failing=False))
    assert not night.exists(), "without the flag they go"


def test_nothing_is_removed_while_there_are_fewer_nights(root):
    assert plan_pruning(root, keep_nights=5, keep_failing=False).removals == ()
    assert plan_pruning(root / "nothing", keep_nights=1, keep_failing=False).removals == ()


def test_what_is_unknown_stays_with_its_directory(root):
    night = root / "nightly-2026-11-19"
    (night / "analysis.ipynb").write_text("mine")
    run = root / "october" / "20261001T120000Z-1"
    (run / "notes.txt").write_text("mine")
    link = night / "runs" / "linked"
    link.symlink_to(root / "notes")
    pruning = plan_pruning(root, keep_nights=1, keep_failing=False)
    unknown = {path for removal in pruning.removals for path in removal.unknown}
    assert unknown == {night / "analysis.ipynb", run / "notes.txt", link}
    prune(pruning)
    assert names(night) == ["analysis.ipynb", "runs"]
    assert names(run) == ["notes.txt"]
    assert (root / "notes" / "mine.txt").read_text() == "mine"
    assert plan_pruning(root, keep_nights=1, keep_failing=False).removals == ()


def test_links_to_nights_and_runs_are_not_followed(root, tmp_path_factory):
    elsewhere = make_night(tmp_path_factory.mktemp("elsewhere"), "2026-01-01", "valid")
    (root / "nightly-2026-01-01").symlink_to(elsewhere)
    (root / "linked").symlink_to(elsewhere / "runs" / "elr-compare")
    prune(plan_pruning(root, keep_nights=1, keep_failing=False))
    assert (elsewhere / "plan.json").exists()
    assert (elsewhere / "runs" / "elr-compare" / "20260101T000000Z-0" / "run.json").exists()


def test_a_night_that_another_process_is_running_stays(root):
    night = root / "nightly-2026-11-19"
    with (night / "rows.jsonl").open() as rows:
        fcntl.flock(rows, fcntl.LOCK_EX)
        pruning = plan_pruning(root, keep_nights=1, keep_failing=False)
    assert pruning.in_progress == (night,)
    assert night not in {removal.path for removal in pruning.removals}


@pytest.mark.parametrize("every", [1, 2, 3, 5, 7])
def test_an_interrupted_removal_is_completed_by_the_next(root, monkeypatch, every):
    """The plan of a night and the summary of a run go last, so that both are recognized again."""
    full = plan_pruning(root, keep_nights=1, keep_failing=True)
    remove, removed = prune_module._remove, []

    def remove_or_be_interrupted(path: Path) -> None:
        removed.append(path)
        remove(path)
        if len(removed) % every == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(prune_module, "_remove", remove_or_be_interrupted)
    interruptions = 0
    while (again := plan_pruning(root, keep_nights=1, keep_failing=True)).removals:
        try:
            prune(again)
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions >= 3
    files = [path for one in full.removals for path in one.path.rglob("*") if path.is_file()]
    assert files == []
    assert len(plan_pruning(root, keep_nights=1, keep_failing=True).kept_failing) == 2


@pytest.mark.parametrize(
    ("summary", "is_failing"),
    [
        ('{"verdict": "valid"}', False),
        ('{"verdict": "unknown"}', False),
        ('{"verdict": "invalid"}', True),
        ('{"verdict": "valid", "violations": ["INV-2"]}', True),
        ('{"verdict": "unknown", "error": "killed"}', True),
        ("{}", True),
        ("not JSON", True),
    ],
)
def test_a_run_that_cannot_be_read_counts_as_failing(tmp_path, summary, is_failing):
    (tmp_path / "run.json").write_text(summary)
    assert is_failing_run(tmp_path) is is_failing
    died = tmp_path / "died"
    (died / "history").mkdir(parents=True)
    assert is_failing_run(died), "its harness died before it wrote a summary"
    (died / "history").rmdir()
    assert not is_failing_run(died), "its removal was interrupted"


def test_a_dry_run_prints_the_same_and_removes_nothing(root, capsys):
    before = sorted(str(path) for path in root.rglob("*"))
    arguments = ("gc", "--results", root, "--keep-nights", "2")
    dry = call(capsys, *arguments, "--dry-run")
    assert dry.code == 0
    assert sorted(str(path) for path in root.rglob("*")) == before
    assert f"would remove night {root}/nightly-2026-11-19" in dry.out
    assert "would remove 4 nights and runs" in dry.out.splitlines()[-1]
    real = call(capsys, *arguments)
    assert real.out == dry.out.replace("would remove", "removed")
    assert call(capsys, *arguments).out == "removed 0 nights and runs, 0 B\n"


def test_json_lists_paths_and_sizes(root, capsys):
    data = call(
        capsys, "gc", "--results", root, "--keep-nights", "1", "--keep-failing", "--json"
    ).data
    assert data["dry_run"] is False
    assert {one["kind"] for one in data["removed"]} == {"night", "run"}
    assert data["size_bytes"] == sum(one["size_bytes"] for one in data["removed"]) > 3000
    assert len(data["kept_failing"]) == 2


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_the_number_of_nights_is_checked(number, capsys):
    assert main(["gc", "--keep-nights", number]) == 254
    assert "is not a whole number of at least 1" in capsys.readouterr().err
