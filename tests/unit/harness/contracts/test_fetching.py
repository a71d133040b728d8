"""Programs of one file in the cache: only whole ones of the right version are there."""

from pathlib import Path

import pytest

from harness.contracts.fetching import ORIGIN_FILE, ProgramFile
from harness.contracts.programs import FetchRequest
from harness.errors import UsageError

FILE = ProgramFile(
    system="log",
    program="logd",
    needs="Go",
    known=("1.9", "1.10"),
    version_line="logd v{version}",
    profile="log",
)


class Silent:
    """A progress display that shows nothing."""

    def message(self, text: str) -> None:
        pass

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        pass


def request(cache: Path, version: str = "1.10", binary: Path | None = None) -> FetchRequest:
    return FetchRequest(version=version, cache=cache, progress=Silent(), binary=binary)


def write(path: Path, says: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return "made of nothing\n"


def test_a_program_is_made_once_with_its_origin(tmp_path: Path) -> None:
    report = FILE.fetch(request(tmp_path), lambda path: write(path, "logd v1.10"))
    target = tmp_path / "log/1.10/logd"
    assert report.data["program"] == str(target)
    assert report.data["was_there"] is False
    assert (target.parent / ORIGIN_FILE).read_text() == "made of nothing\n"
    again = FILE.fetch(request(tmp_path), lambda path: pytest.fail("it is there"))
    assert again.data["was_there"] is True
    assert sorted(path.name for path in target.parent.iterdir()) == ["logd", ORIGIN_FILE]


def test_a_program_of_another_version_changes_nothing(tmp_path: Path) -> None:
    FILE.fetch(request(tmp_path), lambda path: write(path, "logd v1.10"))
    other = tmp_path / "other"
    write(other, "logd v1.9")
    with pytest.raises(UsageError, match=r"'logd v1\.9', not logd 1\.10; nothing was changed"):
        FILE.fetch(request(tmp_path, binary=other), lambda path: "")
    folder = tmp_path / "log/1.10"
    assert "v1.10" in (folder / "logd").read_text()
    assert (folder / ORIGIN_FILE).read_text() == "made of nothing\n"
    assert sorted(path.name for path in folder.iterdir()) == ["logd", ORIGIN_FILE]


def test_a_program_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    def fails(path: Path) -> str:
        write(path, "logd v1.10")
        raise UsageError("no compiler")

    with pytest.raises(UsageError, match="no compiler"):
        FILE.fetch(request(tmp_path), fails)
    assert list((tmp_path / "log/1.10").iterdir()) == []


def test_versions_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    FILE.fetch(request(tmp_path, "1.9.1"), lambda path: write(path, "logd v1.9.1"))
    listed = [(each.version, each.is_fetched) for each in FILE.programs(tmp_path)]
    assert listed == [("1.9", False), ("1.9.1", True), ("1.10", False)]


def test_a_version_that_was_not_fetched_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"`laststand system fetch log 1\.10` gets it"):
        FILE.path_of_fetched("1.10")
