"""Campaigns of a store at a URI: copied at defined moments, continued elsewhere, pruned."""

import json
import time
from pathlib import Path

import pytest

from harness.campaigns import remote
from harness.campaigns.remote import (
    CampaignCopier,
    copied,
    fetch_campaign,
    fetch_rows,
    prune_remote,
)
from harness.campaigns.row_log import RowLog
from harness.errors import HarnessFailure, UsageError
from results.layout import RUNNING_FILE, STORED_FILE
from results.remote_store import RemoteStore
from results.store import RunStore
from tests.unit.harness.campaigns.test_prune import make_night, make_run

CAMPAIGN = "swarm-20260101T000000Z"
RUN = "runs/arm-1/20260101T000000Z-7"


def opened(tmp_path: Path, name: str) -> RemoteStore:
    """A store as one machine sees it."""
    store = RemoteStore(f"file://{tmp_path}/store", tmp_path / name)
    store.root.mkdir(exist_ok=True)
    store.refresh()
    return store


@pytest.fixture
def here(tmp_path: Path) -> RemoteStore:
    return opened(tmp_path, "here")


def started(store: RemoteStore) -> Path:
    """Makes the directory of a campaign, with its plan."""
    directory = store.root / CAMPAIGN
    directory.mkdir()
    (directory / "plan.json").write_text("{}")
    (directory / "arm-1.toml").write_text("")
    return directory


def add_rows(directory: Path, *seeds: int) -> None:
    with (directory / "rows.jsonl").open("a") as file:
        file.writelines(json.dumps({"arm": "a", "seed": seed}) + "\n" for seed in seeds)


def on_another_machine(copier: CampaignCopier) -> CampaignCopier:
    copier._me = {**copier._me, "machine": "another"}
    return copier


def seeds_of(directory: Path) -> list[int]:
    lines = (directory / "rows.jsonl").read_text().splitlines()
    return [json.loads(line)["seed"] for line in lines]


def test_a_campaign_is_whole_in_the_store_when_it_ends(here: RemoteStore, tmp_path: Path) -> None:
    directory = started(here)
    with copied(here, directory, pytest.fail, "resume it"):
        assert here.files.read(f"{CAMPAIGN}/{RUNNING_FILE}") is not None
        assert here.files.read(f"{CAMPAIGN}/plan.json") == b"{}"
        add_rows(directory, 7, 8)
        make_run(directory / RUN, "invalid")
        (directory / ".lock").write_text("")
    there = opened(tmp_path, "there")
    names = there.files.names(CAMPAIGN)
    assert sorted(names) == ["arm-1.toml", "plan.json", "rows.jsonl", "runs"]
    other = there.root / CAMPAIGN
    fetch_campaign(there, other)
    assert seeds_of(other) == [7, 8]
    assert (other / RUN / "history" / "operations.parquet").read_bytes() == b"x" * 1000


def test_a_copy_ends_with_a_whole_row_whose_run_is_stored(here: RemoteStore) -> None:
    """The campaign goes on while it is copied."""
    directory = started(here)
    add_rows(directory, 7)
    make_run(directory / RUN, "invalid")
    (directory / "runs" / "arm-1" / ".20260101T000000Z-9.1.partial").mkdir()
    with (directory / "rows.jsonl").open("a") as file:
        file.write('{"arm": "a", "se')
    CampaignCopier(here, directory).claim()
    assert here.files.read(f"{CAMPAIGN}/rows.jsonl") == b'{"arm": "a", "seed": 7}\n'
    assert here.files.read(f"{CAMPAIGN}/{RUN}/{STORED_FILE}") is not None
    assert not [name for name in here.files.sizes(CAMPAIGN) if "partial" in name]


def test_rows_in_the_store_have_their_runs_there(
    here: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run and its row are added while runs are copied: the row waits for the next copy."""
    directory = started(here)
    add_rows(directory, 7)
    make_run(directory / RUN, "invalid")
    publish = here.publish

    def slow(run: Path) -> None:
        add_rows(directory, 9)
        publish(run)

    monkeypatch.setattr(here, "publish", slow)
    copier = CampaignCopier(here, directory)
    copier.claim()
    assert here.files.read(f"{CAMPAIGN}/rows.jsonl") == b'{"arm": "a", "seed": 7}\n'


def test_another_machine_continues_from_the_copy_and_repeats_nothing_else(
    here: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first machine is lost after its first copy, with a row that was not copied."""
    directory = started(here)
    add_rows(directory, 1, 2)
    CampaignCopier(here, directory).claim()
    add_rows(directory, 3)
    there = opened(tmp_path, "there")
    other = there.root / CAMPAIGN
    with pytest.raises(UsageError, match=r"is run by the machine .*continue it there"):
        on_another_machine(CampaignCopier(there, other)).claim()
    monkeypatch.setattr(remote, "TAKEOVER_S", -1)
    fetch_campaign(there, other)
    second = on_another_machine(CampaignCopier(there, other))
    second.claim()
    with RowLog(other) as rows:
        assert [("a", seed) in rows for seed in (1, 2, 3)] == [True, True, False]
        rows.append({"arm": "a", "seed": 3})
        rows.append({"arm": "a", "seed": 4})
    second.finish()
    assert seeds_of(other) == [1, 2, 3, 4]
    # The first machine was not lost after all.
    second.claim()
    with pytest.raises(HarnessFailure, match="was continued by the machine another"):
        CampaignCopier(here, directory).copy()
    content = here.files.read(f"{CAMPAIGN}/rows.jsonl")
    assert content is not None and content.count(b"\n") == 4


def test_a_machine_continues_its_own_campaign_at_once(here: RemoteStore) -> None:
    directory = started(here)
    CampaignCopier(here, directory).claim()
    add_rows(directory, 1)
    fetch_campaign(here, directory)
    assert seeds_of(directory) == [1], "its own rows are newer than the copy"
    CampaignCopier(here, directory).claim()
    assert here.files.read(f"{CAMPAIGN}/rows.jsonl") == b'{"arm": "a", "seed": 1}\n'


def test_runs_that_are_not_kept_are_removed_from_the_store(here: RemoteStore) -> None:
    directory = started(here)
    make_run(directory / RUN, "invalid")
    kept = make_run(directory / "runs" / "arm-1" / "20260101T000000Z-2", "invalid")
    copier = CampaignCopier(here, directory)
    copier.claim()
    (directory / RUN).rename(directory / ".removed")
    copier.finish()
    names = here.files.names(f"{CAMPAIGN}/runs/arm-1")
    assert list(names) == [kept.name]


def test_a_store_that_becomes_unreachable_loses_nothing(
    here: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported while the campaign runs, once, and when it ends; a later copy has everything."""
    monkeypatch.setattr(remote, "COPY_INTERVAL_S", 0.01)
    directory = started(here)
    reported: list[str] = []
    store, away = tmp_path / "store", tmp_path / "away"

    def run() -> None:
        with copied(here, directory, reported.append, "resume it"):
            store.rename(away)
            store.write_text("no longer a directory")
            add_rows(directory, 1)
            while not reported:
                time.sleep(0.01)

    with pytest.raises(HarnessFailure, match=r"everything is in .*run: resume it"):
        run()
    (sentence,) = reported
    assert f"everything stays in {directory}" in sentence
    assert seeds_of(directory) == [1]
    store.unlink()
    away.rename(store)
    with copied(here, directory, reported.append, "resume it"):
        pass
    assert here.files.read(f"{CAMPAIGN}/rows.jsonl") == b'{"arm": "a", "seed": 1}\n'
    assert len(reported) == 1


def test_a_campaign_in_a_directory_is_not_copied(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with copied(store, tmp_path / "swarm", pytest.fail, ""):
        fetch_campaign(store, tmp_path / "swarm")
        fetch_rows(store, [tmp_path])
    assert list(tmp_path.iterdir()) == []


def test_rows_of_earlier_nights_are_fetched(here: RemoteStore, tmp_path: Path) -> None:
    directory = started(here)
    add_rows(directory, 5)
    with copied(here, directory, pytest.fail, ""):
        pass
    there = opened(tmp_path, "there")
    assert not (there.root / CAMPAIGN / "rows.jsonl").exists()
    fetch_rows(there, [there.root / CAMPAIGN])
    assert seeds_of(there.root / CAMPAIGN) == [5]


def filled(store: RemoteStore) -> RemoteStore:
    """Three nights and two runs, all in the store; the first night is in progress somewhere."""
    for night, verdicts in (
        ("2026-11-18", ("valid",)),
        ("2026-11-19", ("valid",)),
        ("2026-11-20", ("valid", "invalid")),
        ("2026-11-21", ()),
    ):
        directory = make_night(store.root, night, *verdicts)
        copier = CampaignCopier(store, directory)
        copier.claim()
        if night != "2026-11-18":
            copier.finish()
    for name, verdict in (("20261001T120000Z-1", "valid"), ("20261122T120000Z-2", "invalid")):
        store.publish(make_run(store.root / "lrs" / name, verdict))
    store.files.write("nightly-2026-11-19/notes.txt", b"mine")
    return store


@pytest.mark.parametrize("dry_run", [True, False])
def test_old_nights_and_runs_are_removed_from_the_store_and_from_here(
    here: RemoteStore, tmp_path: Path, dry_run: bool
) -> None:
    filled(here)
    before = here.files.sizes()
    there = opened(tmp_path, "there")
    pruning = prune_remote(there, keep_nights=1, keep_failing=True, dry_run=dry_run)
    assert [str(one.path) for one in pruning.removals] == [
        "lrs/20261001T120000Z-1",
        "nightly-2026-11-19",
        "nightly-2026-11-20/runs/elr-compare/20260101T000000Z-0",
    ]
    assert all(one.size_bytes >= 1000 for one in pruning.removals)
    assert [str(path) for path in pruning.in_progress] == ["nightly-2026-11-18"]
    assert len(pruning.kept_failing) == 1
    if dry_run:
        assert here.files.sizes() == before
        return
    left = here.files.sizes()
    assert [name for name in left if name.startswith("nightly-2026-11-19/")] == [
        "nightly-2026-11-19/notes.txt"
    ]
    assert not [name for name in left if name.startswith("lrs/20261001")]
    kept = "nightly-2026-11-20/runs/elr-compare/20260101T000000Z-1/history/operations.parquet"
    assert left[kept] == 1000
    assert before.items() >= left.items()
    assert [entry.id for entry in there.list()] == ["lrs/20261122T120000Z-2"]
    here.refresh()
    assert not (here.root / "nightly-2026-11-19").exists()
    assert not (here.root / "lrs" / "20261001T120000Z-1").exists()
