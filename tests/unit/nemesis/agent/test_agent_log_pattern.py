"""Which files of a system with segments of its own are damaged."""

from pathlib import Path
from random import Random

from nemesis.agent.disks.log_files import choose_flip, newest_segment_of_largest_log

PATTERN = "streams/*/*.blk"


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_the_newest_segment_of_the_largest_log_is_found_by_its_number(tmp_path: Path) -> None:
    write(tmp_path / "streams" / "b" / "9.blk", 30)
    newest = write(tmp_path / "streams" / "b" / "10.blk", 5)
    write(tmp_path / "streams" / "b" / "11.blk", 0)
    write(tmp_path / "streams" / "a" / "1.blk", 20)
    write(tmp_path / "streams" / "b" / "index.db", 90)
    assert newest_segment_of_largest_log(tmp_path, PATTERN) == newest
    assert newest_segment_of_largest_log(tmp_path) is None, "none of Kafka's"


def test_any_bit_of_a_segment_may_be_flipped_and_none_of_other_files(tmp_path: Path) -> None:
    assert choose_flip(tmp_path, Random(1), PATTERN) is None
    segments = {write(tmp_path / "streams" / name / "1.blk", 3) for name in "ab"}
    write(tmp_path / "streams" / "a" / "index.db", 900)
    chosen = [choose_flip(tmp_path, Random(seed), PATTERN) for seed in range(200)]
    places = [(each[0].path, each[1], each[2]) for each in chosen if each is not None]
    assert {path for path, _, _ in places} == segments
    assert {offset for _, offset, _ in places} == {0, 1, 2}
    assert {bit for _, _, bit in places} == set(range(8))
