"""What is run again after a failure: only tests of real processes, only few, only if all tests were run."""

import json
from pathlib import Path

import pytest

from tests import failed_again

WIRE = "tests/wire/test_node.py::test_one"


@pytest.mark.parametrize(
    ("failed", "exit_status", "reason"),
    [
        ([WIRE], 1, ""),
        ([WIRE, "tests/containers/test_disks.py::test_two[xfs]"], 1, ""),
        ([WIRE, "tests/unit/test_log.py::test_three"], 1, "test_three does not depend on time"),
        ([f"{WIRE}[{n}]" for n in range(failed_again.AGAIN_MAX + 1)], 1, "6 tests failed"),
        ([], 1, "the failure lies elsewhere"),
        ([WIRE], 2, "not run to their end"),
        ([WIRE], None, "not run to their end"),
    ],
)
def test_only_few_tests_of_real_processes_are_run_again(
    failed: list[str], exit_status: int | None, reason: str
) -> None:
    found = failed_again.refusal(failed, exit_status)
    assert reason in found
    assert bool(found) == bool(reason)


def test_the_group_of_a_test_is_no_part_of_its_name() -> None:
    assert failed_again.without_group(f"{WIRE}[a@b]@third-party") == f"{WIRE}[a@b]"
    assert failed_again.without_group(f"{WIRE}[a@b]") == f"{WIRE}[a@b]"


def record(folder: Path, failed: str, exit_status: int) -> None:
    for path, value in (
        (failed_again.LAST_FAILED, {failed: True}),
        (failed_again.EXIT_STATUS, exit_status),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize(("body", "code"), [("pass", 0), ("assert False", 1)])
def test_a_test_that_passes_alone_is_named_and_one_that_fails_again_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    body: str,
    code: int,
) -> None:
    test = tmp_path / "tests/wire/test_node.py"
    test.parent.mkdir(parents=True)
    test.write_text(f"def test_one():\n    {body}\n", encoding="utf-8")
    record(tmp_path, f"{WIRE}@cluster", 1)
    monkeypatch.chdir(tmp_path)
    assert failed_again.main() == code
    assert (f"passed alone:\n  {WIRE}" in capfd.readouterr().out) == (code == 0)


def test_nothing_is_run_again_without_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert failed_again.main() == 1
    assert "not run again" in capsys.readouterr().out
