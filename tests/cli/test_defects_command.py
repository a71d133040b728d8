"""`laststand defects`: what it lists, what it runs, and when it objects."""

import json
import shlex
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.defects import check
from harness.defects.check import check_defect
from harness.defects.story import Story
from harness.defects.table import GROUP_FAULTS, SCHEDULES, Schedule
from system_under_test.defects import DEFECTS

Output = pytest.CaptureFixture[str]


def test_every_defect_has_one_schedule() -> None:
    assert sorted((*SCHEDULES, *GROUP_FAULTS)) == sorted(DEFECTS)


@pytest.mark.parametrize("words", [(), ("list",)])
def test_all_defects_are_listed(words: tuple[str, ...], capsys: Output) -> None:
    assert main(["defects", *words]) == 0
    text = capsys.readouterr().out
    assert all(one.id in text and one.name in text for one in DEFECTS.values())


def test_the_list_as_json_has_what_was_asked_for(capsys: Output) -> None:
    assert main(["defects", "list", "hw-not-gated", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["defects"]
    assert (only["id"], only["rules"]) == ("B-18", ["HW-1"])


def test_a_defect_is_run_off_and_on(capsys: Output) -> None:
    assert main(["defects", "run", "B-18", "--quiet", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (only,) = data["defects"]
    assert only["as_described"]
    assert only["with_the_defect_off"] == []
    assert (only["invariants"], only["clients_see"]) == (["INV-2"], ["D", "V"])


def nothing(story: Story) -> None:
    story.begin()


def trouble(story: Story) -> None:
    story.begin()
    story.complain("a clean run has a complaint")


def test_a_schedule_that_shows_nothing_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check.SCHEDULES, "B-18", Schedule(plot=nothing))
    problems = check_defect("B-18").problems
    assert "the monitor found nothing and not INV-2" in problems
    assert "clients saw nothing and not V" in problems
    assert not any(problem.startswith("with the defect off") for problem in problems)


def test_a_schedule_that_does_harm_without_the_defect_is_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(check.SCHEDULES, "B-44", Schedule(plot=trouble))
    assert check_defect("B-44").problems == (
        "with the defect off: valid; a clean run has a complaint",
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "hw-not-gatd"), "did you mean hw-not-gated"),
        (("list", "no-such-defect"), "no defect is called"),
        (("run", "--jobs", "0"), "--jobs"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: tuple[str, ...], reason: str, capsys: Output
) -> None:
    assert main(["defects", *words]) == 254
    assert reason in capsys.readouterr().err


def test_a_defect_is_searched_for_and_the_search_can_be_continued(
    capsys: Output, tmp_path: Path
) -> None:
    where = ["--results", str(tmp_path), "--no-spark", "--jobs", "1", "--quiet", "--json"]
    assert main(["defects", "search", "B-22", "--runs", "5", *where]) == 0
    data = json.loads(capsys.readouterr().out)
    (only,) = data["defects"]
    found = (only["id"], only["monitor"]["status"], only["clients"]["status"])
    assert found == ("B-22", "found", "found")
    assert "INV-6" in only["monitor"]["what"]
    assert "torn-fetch" in only["clients"]["what"]
    assert (data["wrong"], data["errors"], data["unfinished"]) == ([], [], 0)
    command = shlex.split(only["clients"]["command"])[1:]
    assert main([*command, *where[:3], "--quiet"]) == 1
    capsys.readouterr()
    (search,) = tmp_path.glob("search-*")
    assert (search / "search.html").is_file()
    assert main(["defects", "search", "--resume", str(search), *where]) == 0
    assert json.loads(capsys.readouterr().out)["defects"] == [only]
    assert main(["list", "--json", *where[:2]]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["campaigns"]
    assert (listed["kind"], listed["verdict"], listed["runs_done"]) == (
        "search",
        "valid",
        data["runs"],
    )
    assert main(["swarm", "--resume", str(search), *where]) == 254
    assert "laststand defects search --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("no-such-bug",), "see `laststand defects`"),
        (("--experiment", "examples/local-kill.toml"), "runs in the simulation"),
        (("--resume", "x"), "no campaign in"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_sentence(
    capsys: Output, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    assert main(["defects", "search", *words, "--results", str(tmp_path)]) in (254, 255)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert sentence in said
    assert list(tmp_path.iterdir()) == []
