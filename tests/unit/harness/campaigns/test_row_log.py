import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness.campaigns import row_log
from harness.campaigns.files import ROWS_FILE
from harness.campaigns.row_log import RowLog
from harness.errors import HarnessFailure, HistoryError, UsageError


def _row(seed: int, arm: str = "a", **values: Any) -> dict[str, Any]:
    return {"arm": arm, "seed": seed, "text": "x" * seed, **values}


def _written(directory: Path, *rows: dict[str, Any]) -> Path:
    with RowLog(directory) as log:
        for row in rows:
            log.append(row)
    return directory / ROWS_FILE


def test_rows_are_read_again_in_the_requested_order(tmp_path: Path) -> None:
    rows = [_row(3), _row(1, "b"), _row(1), _row(2, "b")]
    _written(tmp_path, *rows)
    seen: list[dict[str, Any]] = []
    with RowLog(tmp_path, seen.append) as log:
        assert seen == rows
        assert len(log) == 4
        assert ("a", 3) in log
        assert ("b", 3) not in log
        keys = [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]
        assert list(log.read(keys)) == [rows[2], rows[1], rows[3], rows[0]]
        assert log.damage == ""


def test_a_row_that_lacks_what_is_needed_is_named_and_the_campaign_is_free(tmp_path: Path) -> None:
    _written(tmp_path, _row(1, verdict="valid"), _row(2))
    with pytest.raises(
        HistoryError, match=r"the row of seed 2 of a is damaged \(KeyError: 'verdict'"
    ):
        RowLog(tmp_path, lambda row: print(row["verdict"]))
    with RowLog(tmp_path) as log:
        assert len(log) == 2


@pytest.mark.parametrize("torn", range(1, len(json.dumps(_row(2))) + 1, 7))
def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path: Path, torn: int) -> None:
    path = _written(tmp_path, _row(1), _row(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-torn])
    with RowLog(tmp_path) as log:
        assert len(log) == 1
        assert ("a", 2) not in log
        assert "no whole row" in log.damage
        log.append(_row(2))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "rest",
    [b"\0" * 40 + b"\n", b"[1]\n", b'{"seed": 1}\n', b'{"seed": true, "arm": "a"}\n', b"\xff\n"],
)
def test_everything_from_the_first_damaged_line_on_is_cut_off(tmp_path: Path, rest: bytes) -> None:
    """A file system may keep zeros of what was not forced to disk, and whole lines after them."""
    path = _written(tmp_path, _row(1))
    whole = path.read_bytes()
    path.write_bytes(whole + rest + json.dumps(_row(9)).encode() + b"\n")
    with RowLog(tmp_path) as log:
        assert len(log) == 1
    assert path.read_bytes() == whole


def test_a_run_has_one_row_only(tmp_path: Path) -> None:
    path = _written(tmp_path, _row(1))
    with RowLog(tmp_path) as log, pytest.raises(HarnessFailure, match="two rows"):
        log.append(_row(1))
    assert len(path.read_bytes().splitlines()) == 1


def test_a_second_process_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    first = RowLog(tmp_path)
    with pytest.raises(UsageError, match="another process is running"):
        RowLog(tmp_path)
    first.close()
    RowLog(tmp_path).close()


def test_rows_are_forced_to_disk_at_most_once_per_second_and_when_the_log_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, forced = [100.0], []
    monkeypatch.setattr(row_log.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(os, "fsync", lambda _: forced.append(now_s[0]))
    log = RowLog(tmp_path)
    for seed in range(25):
        now_s[0] += 0.125
        log.append(_row(seed))
    assert forced == [101.0, 102.0, 103.0]
    log.sync_if_due()
    now_s[0] += 1
    log.sync_if_due()
    log.sync_if_due()
    assert forced == [101.0, 102.0, 103.0, now_s[0]]
    log.append(_row(99))
    log.close()
    assert len(forced) == 5


def test_a_full_disk_leaves_no_torn_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path, _row(1))
    whole, write = path.read_bytes(), os.write

    def full(file: int, data: Any) -> int:
        write(file, bytes(data[:5]))
        raise OSError(28, "No space left on device")

    with RowLog(tmp_path) as log:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(HarnessFailure, match="No space left on device"):
            log.append(_row(2))
    assert path.read_bytes() == whole
