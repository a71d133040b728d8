"""`laststand check FILE`: a history from elsewhere."""

import json
import re
from pathlib import Path

import pytest

from harness.cli.commands.check import FORMATS
from harness.history.foreign.read import Format
from tests.cli.cli_helpers import call, refused, write

KAFKA = """\
{:process 0 :type :invoke :f :send :value [[:send :x 1] [:send :x 2]]}
{:process :nemesis :type :info :f :kill}
{:process 0 :type :ok :f :send :value [[:send :x [0 1]] [:send :x [1 2]]]}
{:process 1 :type :invoke :f :assign :value [:x] :seek-to-beginning? true}
{:process 1 :type :ok :f :assign :value [:x] :seek-to-beginning? true}
{:process 1 :type :invoke :f :poll :value [[:poll]]}
{:process 1 :type :ok :f :poll :value [[:poll {:x [[0 1] [1 2]]}]]}
"""
HOW_TO = Path(__file__).parents[2] / "docs/how-to/check-a-history.md"


def test_the_formats_of_the_option_are_those_of_the_reader() -> None:
    assert set(FORMATS) == {str(form) for form in Format}


def test_a_valid_history_exits_with_0(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outcome = call(capsys, "check", write(tmp_path / "history.edn", KAFKA))
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == "VALID"
    assert re.search(r"not judged +nemesis kill \(1\)", outcome.out)
    assert "reading" in outcome.err


def test_an_invalid_history_exits_with_1_and_names_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "history.edn", KAFKA.replace("[[0 1] [1 2]]}]]", "[[1 2]]}]]"))
    outcome = call(capsys, "check", path, "--quiet")
    assert outcome.code == 1
    assert outcome.err == ""
    assert "lost-acked-write in :x-0 (1): op 0 was acknowledged at offset 0" in outcome.out
    assert re.search(r"^ *0 +1  process 0 append", outcome.out, re.MULTILINE)
    assert re.search(r"^ *2 +6  process 1 poll", outcome.out, re.MULTILINE)


def test_json_is_one_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "history.edn", KAFKA + "{:process 1 :type :invoke :f :frob}")
    outcome = call(capsys, "check", path, "--json", "--format", "edn", "--model", "log")
    assert outcome.code == 2
    assert outcome.data["verdict"] == "unknown"
    assert outcome.data["not_interpreted"] == 1
    assert "line 8: the Kafka workload has no function 'frob'" in outcome.data["reasons"]
    assert outcome.data["events_of_no_client"] == {"nemesis kill": 1}
    assert outcome.data["operations"] == 3
    assert (outcome.data["format"], outcome.data["model"]) == ("edn", "log")


def test_the_log_of_the_how_to_page_is_valid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = re.findall(r'^    (\{"kind".*)$', HOW_TO.read_text(), re.MULTILINE)
    log = [line for line in lines if json.loads(line)["kind"] not in ("operation", "event")]
    assert len(log) == 5
    outcome = call(capsys, "check", write(tmp_path / "history.jsonl", "\n".join(log)), "--json")
    assert (outcome.code, outcome.data["verdict"]) == (0, "valid")


def test_a_wrong_line_is_one_sentence_with_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(tmp_path / "history.edn", KAFKA + "{:process")
    assert refused(capsys, "check", path, "--quiet") == (
        f"{path}, line 8, column 10: the text ends inside of '{{'"
    )


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    assert refused(capsys, "check", path) == f"there is no file {path}"


def test_options_for_files_are_refused_for_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sentence = refused(capsys, "check", "latest", "--model", "log", "--results", tmp_path)
    assert sentence == "--model is for files of other tools; latest is a stored run"
