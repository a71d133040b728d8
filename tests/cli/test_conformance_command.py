"""`laststand conformance` without clusters: the list, bad input, and how a result is shown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.commands.conformance import _parts
from harness.cli.main import main
from harness.conformance import run as runs
from harness.conformance.comparison import Observation
from harness.conformance.connection import CLOSED, RESPONSE, SILENT
from harness.conformance.expectations import ExpectedDifference, assess
from harness.conformance.run import CaseResult, Conformance, chosen_cases
from harness.systems.apache_kafka.versions import parse_version
from results.tables import as_text


def observed(value: str) -> tuple[Observation, ...]:
    return (Observation(request="fetch v12", outcome=RESPONSE, response={"code": value}),)


SAME = CaseResult(case="fetch/a", apache_kafka=observed("NONE"), reference=observed("NONE"))
DIFFERENT = CaseResult(case="fetch/b", apache_kafka=observed("NONE"), reference=observed("X"))
CLOSING = CaseResult(
    case="fetch/c",
    apache_kafka=observed("NONE"),
    reference=(Observation(request="fetch v12", outcome=CLOSED),),
)
ENTRY = ExpectedDifference(
    request="fetch/b", field="1.code", apache_kafka="NONE", reference="X", reason="They differ."
)
GONE = replace(ENTRY, request="fetch/a", reason="They differed.")


def result(*cases: CaseResult, entries: tuple[ExpectedDifference, ...] = ()) -> Conformance:
    ids = {case.case for case in cases}
    found = [difference for case in cases for difference in case.differences]
    return Conformance(
        version=parse_version("4.1.2"),
        profile="kafka-4.1",
        results=cases,
        assessment=assess(found, entries, sent=ids, catalogue=ids),
        elapsed_s=1.0,
    )


def judged(monkeypatch: pytest.MonkeyPatch, made: Conformance, *words: str) -> int:
    monkeypatch.setattr(runs, "compare", lambda version, patterns, progress: made)
    return main(["conformance", "--against", "apache-kafka:4.1.2", "--quiet", *words])


def test_the_list_needs_no_cluster(capsys: Any) -> None:
    assert main(["conformance", "--list", "--only", "heartbeat/"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "heartbeat/version 4" in lines
    assert all(line.startswith("heartbeat/") for line in lines)
    assert main(["conformance", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["requests"]) > 800


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the option --against is required, for example apache-kafka:4.1.2"),
        (["--against", "redpanda:1"], "apache-kafka"),
        (["--against", "apache-kafka"], "has no version"),
        (["--against", "apache-kafka:4.1.9"], "4.1.2"),
        (["--against", "apache-kafka:4.1.2", "--only", "zzz"], "no request matches 'zzz'"),
        (
            ["--against", "apache-kafka:4.1.2", "--output", "/no/such/file"],
            "--output /no/such/file",
        ),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, capsys: Any) -> None:
    assert main(["conformance", *words]) == 254
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_a_version_that_was_not_fetched_is_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    assert main(["conformance", "--against", "apache-kafka:4.1.2", "--quiet"]) == 254
    assert "laststand system fetch apache-kafka 4.1.2" in capsys.readouterr().err


def test_only_expected_differences_are_success(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert judged(monkeypatch, result(SAME, DIFFERENT, entries=(ENTRY,)), "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["cases"], summary["same"], summary["new"]) == (2, 1, [])
    assert summary["expected"][0]["reason"] == "They differ."


def test_a_new_difference_and_one_that_is_gone_are_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert judged(monkeypatch, result(SAME, DIFFERENT), "--json") == 1
    assert json.loads(capsys.readouterr().out)["new"][0]["field"] == "1.code"
    assert judged(monkeypatch, result(SAME, entries=(GONE,)), "--json") == 1
    assert json.loads(capsys.readouterr().out)["gone"][0]["reason"] == "They differed."


def test_the_output_file_has_every_observation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "all.json"
    assert judged(monkeypatch, result(SAME, CLOSING), "--output", str(path)) == 1
    data = json.loads(path.read_text(encoding="utf-8"))
    assert [one["id"] for one in data["cases"]] == ["fetch/a", "fetch/c"]
    assert data["cases"][1]["reference"][0]["outcome"] == CLOSED
    capsys.readouterr()


def test_the_table_shows_counts_reasons_and_both_values() -> None:
    made = result(SAME, DIFFERENT, CLOSING, entries=(ENTRY, GONE))
    text = as_text(*_parts(made))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "same 1 -" in lines
    assert "expected difference 1 1" in lines
    assert "NEW difference 1 1" in lines
    assert "expected, no longer occurs - 1" in lines
    assert "1 They differ." in lines
    assert f"fetch/c 1.outcome {RESPONSE} {CLOSED}" in lines
    assert "fetch/a 1.code They differed." in lines


NULL_RECORDS = ("reproduce", "kafka-bug", "--variant", "null-records", "--quiet", "--json")


@pytest.mark.parametrize(
    ("seen", "outcome", "code"), [(SILENT, "blocked", 0), (RESPONSE, "ok", 1), (CLOSED, "ok", 1)]
)
def test_a_bug_that_one_request_shows_is_reproduced_by_that_request(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, seen: str, outcome: str, code: int
) -> None:
    asked: list[list[str]] = []

    def compared(_: object, patterns: list[str], __: object) -> Conformance:
        asked.append(patterns)
        came_back = (Observation(request="produce v11", outcome=seen),)
        return result(replace(DIFFERENT, apache_kafka=came_back))

    monkeypatch.setattr(runs, "compare", compared)
    words = ("--system", "apache-kafka:4.1.2", "--attempts", "2")
    assert main([*NULL_RECORDS, *words]) == code
    total = json.loads(capsys.readouterr().out)
    assert (total["outcomes"], total["predicted"]) == ([outcome] * 2, "blocked")
    assert asked == [["produce/null records"]] * 2
    assert chosen_cases(asked[0]) != []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "is a request to Apache Kafka; name a version"),
        (("--system", "apache-kafka:4.1.2", "--on", "docker"), "leave --on docker out"),
        (("--system", "apache-kafka:4.1.2", "--profile", "kafka-4.1"), "takes no --profile"),
        (("--system", "apache-kafka:9.9"), "9.9"),
    ],
)
def test_what_the_request_of_a_bug_cannot_use_is_refused(
    capsys: Any, words: tuple[str, ...], sentence: str
) -> None:
    assert main([*NULL_RECORDS, *words]) == 254
    assert sentence in capsys.readouterr().err
