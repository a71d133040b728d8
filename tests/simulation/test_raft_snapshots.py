"""Snapshots of the metadata log (RAFT-8): written, loaded, fetched, and interrupted at every point."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from harness.simulation.errors import LimitReached
from harness.simulation.storage import NodeStorage
from harness.simulation.weather import CALM, draw_weather
from system_under_test.config import FAST_TIMINGS, KAFKA_TIMINGS, MetadataLogConfig
from system_under_test.metadata.snapshot import SnapshotId
from system_under_test.protocol.errors import ErrorCode
from system_under_test.raft import messages
from system_under_test.raft.snapshots import PART_SUFFIX, SUFFIX, SnapshotError
from tests.simulation.raft_story import DIRECTORY, QuorumStory, worlds_closed
from tests.simulation.test_raft_crashes import Chaos

__all__ = ["worlds_closed"]

EAGER = MetadataLogConfig(
    metadata_log_max_record_bytes_between_snapshots=1500,
    metadata_log_segment_bytes=1000,
    metadata_max_retention_bytes=0,
    controller_quorum_fetch_snapshot_max_bytes=300,
)
"""A snapshot every few records; only the newest two are kept, and the log from the older one on."""
KEEPS_ALL = replace(EAGER, metadata_max_retention_bytes=-1)
OLD, LATE = "c13", "b1"
LONG = "x" * 100


def story(seed: int = 1, *, settings: MetadataLogConfig = EAGER, **options: object) -> QuorumStory:
    made = QuorumStory(seed=seed, metadata_log=settings, **options)  # type: ignore[arg-type]
    made.keeps_values = True
    return made


def commit_many(s: QuorumStory, count: int, *, first: int = 0, among: Sequence[str] = ()) -> None:
    """Commits values one after the other; there is a leader, perhaps a new one each time."""
    for number in range(first, first + count):
        s.commit(s.await_leader(among=among), f"{number}{LONG}")


def files(s: QuorumStory, name: str, suffix: str = SUFFIX) -> list[str]:
    paths = s.world.nodes[name].disk.files
    return sorted(path for path in paths if path.startswith(DIRECTORY) and path.endswith(suffix))


def log_start(s: QuorumStory, name: str) -> int:
    return s.raft(name)._quorum.log.log_start_offset


def snapshot_ids(s: QuorumStory, name: str) -> tuple[SnapshotId, ...]:
    return s.raft(name)._quorum.snapshots.ids


def test_every_member_writes_snapshots_and_deletes_the_log_below_them() -> None:
    s = story()
    commit_many(s, 60)
    s.await_converged()
    for name in (*s.voters, *s.observers):
        ids = snapshot_ids(s, name)
        assert 1 <= len(ids) <= 2, name
        assert log_start(s, name) == ids[0].end_offset > 0, name
        segments = files(s, name, ".log")
        assert segments[0] > f"{DIRECTORY}/{0:020d}.log", name
        assert not files(s, name, PART_SUFFIX)
    assert s.marks.count("metadata-log-prefix-deleted") > 0


def test_nothing_is_written_with_kafkas_settings() -> None:
    s = story(settings=MetadataLogConfig())
    commit_many(s, 60)
    s.await_converged()
    assert not any(files(s, name) for name in (*s.voters, *s.observers))
    assert s.marks.count("metadata-snapshot-written") == 0


def test_age_alone_calls_for_a_snapshot_once_there_are_new_records() -> None:
    s = story(settings=MetadataLogConfig(metadata_log_max_snapshot_interval_ms=400))
    commit_many(s, 2)
    s.run(1000)
    assert s.marks.count("metadata-snapshot-written") == 0
    commit_many(s, 1, first=2)
    s.until(lambda: s.marks.count("metadata-snapshot-written") == 4)


def test_a_member_starts_from_its_newest_snapshot_and_the_log_behind_it() -> None:
    s = story()
    commit_many(s, 60)
    s.await_converged()
    for name in (*s.voters, *s.observers):
        s.kill(name)
    for name in (*s.voters, *s.observers):
        s.start(name)
    s.await_leader()
    s.await_converged()
    for name in (*s.voters, *s.observers):
        member = s.member(name)
        assert len(member.snapshots) == 1, name
        assert member.committed[0].base_offset == member.snapshots[0].id.end_offset > 0, name


@pytest.mark.parametrize("late", [OLD, LATE])
def test_a_member_with_an_empty_disk_fetches_the_newest_snapshot_in_parts(late: str) -> None:
    s = story(boot=False)
    for name in (*s.voters, *s.observers):
        if name != late:
            s.start(name)
    commit_many(s, 60)
    s.start(late)
    s.await_converged()
    # Others may need one, too: with these settings a leader deletes its log at once.
    assert len(s.member(late).snapshots) == 1
    assert s.marks.count("metadata-snapshot-wanted") >= 1
    commit_many(s, 60, first=60)
    s.await_converged()
    assert len(s.member(late).snapshots) == 1
    assert s.member(late).committed[0].base_offset == s.member(late).snapshots[0].id.end_offset


@pytest.mark.parametrize("lagging", [OLD, LATE])
def test_a_member_that_fell_behind_the_log_start_replaces_its_image_and_its_log(
    lagging: str,
) -> None:
    s = story()
    commit_many(s, 5)
    s.await_converged()
    cut = s.isolate(lagging)
    commit_many(s, 60, first=5, among=[name for name in s.voters if name != lagging])
    known = s.raft(lagging).log_end_offset
    s.heal(cut)
    commit_many(s, 1, first=65)
    s.await_converged()
    assert s.member(lagging).snapshots[-1].id.end_offset > known
    assert log_start(s, lagging) > known


def test_a_member_that_lags_within_the_log_gets_records_and_no_snapshot() -> None:
    s = story(settings=KEEPS_ALL)
    commit_many(s, 40)
    s.await_converged()
    # Its last epoch is that of the oldest snapshot, so the two logs can be compared.
    cut = s.isolate(LATE)
    commit_many(s, 20, first=40)
    s.heal(cut)
    s.await_converged()
    assert s.member(LATE).snapshots == []
    assert log_start(s, LATE) == 0


def test_a_log_without_records_ends_where_its_snapshot_ends() -> None:
    """A voter lost every record behind its snapshot. Its last epoch is that of the snapshot, and not 0."""
    s = story()
    commit_many(s, 60)
    s.await_converged()
    newest = snapshot_ids(s, OLD)[-1]
    s.kill(OLD)
    disk = s.world.nodes[OLD].disk
    for path in list(disk.files):
        if path.endswith((".log", "leader-epoch-checkpoint")):
            NodeStorage(disk, None).remove(path)
    cut = s.isolate(OLD)
    s.start(OLD)
    s.run(20)
    position = s.raft(OLD)._quorum.log_position
    assert (position.last_epoch, position.end_offset) == (newest.epoch, newest.end_offset)
    s.heal(cut)
    s.await_converged()


# --- interruptions


def interrupted(s: QuorumStory, name: str, at: Callable[[], bool], mode: str) -> None:
    """Takes the power of a member at a moment, and starts it again."""
    s.until(at)
    s.power_off(name, mode)
    s.run(50)
    s.start(name)


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("late", [OLD, LATE])
def test_a_power_cut_in_the_middle_of_a_download_starts_it_anew(late: str, parts: int) -> None:
    s = story(boot=False)
    for name in (*s.voters, *s.observers):
        if name != late:
            s.start(name)
    commit_many(s, 60)
    s.start(late)

    def has_parts() -> bool:
        disk = s.world.nodes[late].disk
        return any(len(disk.peek(path)) >= 300 * parts for path in files(s, late, PART_SUFFIX))

    interrupted(s, late, has_parts, "draw")
    s.await_converged()
    assert s.marks.count("metadata-snapshot-wanted") >= 2
    assert len(s.member(late).snapshots) == 1
    assert not files(s, late, PART_SUFFIX)


@pytest.mark.parametrize("mode", ["lose_all", "draw"])
@pytest.mark.parametrize("name", ["c11", "c12", "c13", "b1"])
def test_a_power_cut_while_a_snapshot_is_written_leaves_a_whole_one_or_none(
    name: str, mode: str
) -> None:
    s = story()
    commit_many(s, 5)
    appended = 5
    while not is_writing(s, name):
        s.append(s.await_leader(), f"{appended}{LONG}")
        appended += 1
        assert appended < 100
    s.power_off(name, mode)
    s.start(name)
    commit_many(s, 30, first=appended)
    s.await_converged()


def is_writing(s: QuorumStory, name: str) -> bool:
    """Whether a member begins a snapshot within 50 ms; the world stands still at that moment."""
    try:
        s.until(lambda: bool(files(s, name, PART_SUFFIX)), within_ms=50)
    except LimitReached:
        return False
    return True


def test_a_leader_that_deleted_the_snapshot_names_a_newer_one() -> None:
    s = story(boot=False, settings=replace(EAGER, controller_quorum_fetch_snapshot_max_bytes=40))
    for name in (*s.voters, *s.observers):
        if name != LATE:
            s.start(name)
    commit_many(s, 60)
    s.start(LATE)
    s.until(lambda: bool(files(s, LATE, PART_SUFFIX)))
    held = s.world.network.hold(None, LATE, "FetchSnapshotResponse")
    commit_many(s, 60, first=60)
    s.heal(held)
    s.await_converged(within_ms=60_000)
    assert s.marks.count("metadata-snapshot-wanted") >= 2


def test_a_damaged_snapshot_is_refused_with_a_repair() -> None:
    s = story()
    commit_many(s, 60)
    s.await_converged()
    s.kill(OLD)
    disk = s.world.nodes[OLD].disk
    disk.bit_flip(files(s, OLD)[-1], 200)
    s.start(OLD)
    with pytest.raises(SnapshotError, match="wipe this node's metadata directory"):
        s.run(100)


# --- the wire


def ask(s: QuorumStory, name: str, **changes: object) -> object:
    raft = s.raft(name)
    newest = snapshot_ids(s, name)[-1]
    values = {
        "epoch": raft.epoch,
        "snapshot_id": newest,
        "position": 0,
        "max_bytes": 100,
        **changes,
    }
    request = messages.build_fetch_snapshot(raft._config, **values)  # type: ignore[arg-type]
    response = raft.handle_request(request, None)  # type: ignore[arg-type]
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions[0]


def test_the_leader_serves_any_part_and_refuses_what_does_not_exist() -> None:
    s = story()
    commit_many(s, 60)
    s.await_converged()
    leader = s.await_leader()
    epoch = s.epoch(leader)
    path = files(s, leader)[-1]
    content = s.world.nodes[leader].disk.peek(path)
    part = ask(s, leader, position=7)
    assert part.unaligned_records == content[7:107]
    assert (part.size, part.position) == (len(content), 7)
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (
        s.raft(leader).node_id,
        epoch,
    )
    last = ask(s, leader, position=len(content) - 1)
    assert last.unaligned_records == content[-1:]

    def error(**changes: object) -> int:
        return ask(s, leader, **changes).error_code

    assert error(position=len(content)) == ErrorCode.POSITION_OUT_OF_RANGE
    assert error(position=-1) == ErrorCode.POSITION_OUT_OF_RANGE
    assert error(snapshot_id=SnapshotId(end_offset=1, epoch=1)) == ErrorCode.SNAPSHOT_NOT_FOUND
    assert error(epoch=epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
    assert error(epoch=epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
    follower = next(name for name in s.voters if name != leader)
    assert ask(s, follower).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- random schedules


class SnapshotChaos(Chaos):
    """Random crashes, cuts and power losses, and empty disks of observers, with very many snapshots."""

    def step(self) -> None:
        if self.random.random() < 0.1:
            name = self.random.choice(self.story.observers)
            node = self.story.world.nodes[name]
            if node.is_alive:
                self.story.kill(name)
            node.disk.wipe()
            self.story.start(name)
        super().step()

    def append(self) -> None:
        for name in self.story.alive(self.story.voters):
            if self.story.raft(name).is_leader:
                for _ in range(self.random.randrange(1, 12)):
                    self.appended += 1
                    self.story.append(name, f"v{self.appended}")


def play(seed: int, profile: str, *, hostile: bool) -> SnapshotChaos:
    settings = replace(
        EAGER,
        metadata_log_max_record_bytes_between_snapshots=400,
        metadata_log_segment_bytes=300,
        metadata_max_retention_bytes=Random(seed).choice((-1, 0, 2000)),
    )
    weather = draw_weather(Random(seed)) if hostile else CALM
    # The timings of the other swarm, for the same reason.
    timings = KAFKA_TIMINGS if hostile else FAST_TIMINGS
    s = story(
        seed, profile=profile, observers=2, settings=settings, weather=weather, timings=timings
    )
    chaos = SnapshotChaos(s, seed, lose_all_only=not hostile, pace=6.0 if hostile else 1.0)
    chaos.run()
    return chaos


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("profile", ["kafka-4.1", "kafka-3.9"])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_committed_survives_random_faults_and_snapshots(
    seed: int, profile: str, hostile: bool
) -> None:
    chaos = play(seed, profile, hostile=hostile)
    assert chaos.story.marks.count("metadata-snapshot-written") > 0


def test_the_random_schedules_reach_every_branch() -> None:
    seen: set[str] = set()
    for seed in range(6):
        marks = play(seed, "kafka-4.1", hostile=False).story.marks
        seen.update(name for name, _ in marks.seen)
    assert {
        "metadata-snapshot-written",
        "metadata-snapshot-wanted",
        "metadata-snapshot-loaded",
        "metadata-log-prefix-deleted",
    } <= seen
