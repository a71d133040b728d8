"""What a night writes: result, page, summary, test cases, terminal table."""

import json
import re
from datetime import date
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from harness.campaigns.known_failures import KnownFailure
from harness.campaigns.night_outputs import append_step_summary, close_night
from harness.campaigns.night_tables import NightTables
from harness.errors import HistoryError, UsageError
from results.report.build import build_report
from results.report.night_charts import MEASURES, trends_of
from results.report.night_text import night_parts
from results.store import read_json
from results.tables import as_text
from tests.report.made_up_run import make_lost_run
from tests.report.pages import Page
from tests.unit.harness.campaigns.made_up_nights import BROKEN, LOSS, row, write_night

JOBS = (
    {"name": "random", "experiment": "elr-compare", "system": "reference", "profile": "kafka-4.1"},
    {"name": "containers", "world": "docker", "system": "kafka"},
)
LISTED = KnownFailure(
    signature=BROKEN["signature"],
    reason="under repair",
    ticket="ticket 1",
    expiry=date(2026, 12, 31),
)
OLD = {**LOSS, "signature": "00000000000a", "title": "old: gone"}
EVIL = {
    **LOSS,
    "signature": "00000000000b",
    "title": "<script>alert(1)</script> | [x](y)\x1b[31m",
    "parts": {**LOSS["parts"], "sentence": "]]><b>\x00 & \n ```", "before": [], "also": []},
}


@pytest.fixture
def closed(tmp_path) -> tuple[Path, dict]:
    """A night with a new, an open, a known and a resolved finding, after two others."""

    def close(night, *rows):
        place = write_night(tmp_path / "nights", night, rows, JOBS)
        known = {LISTED.signature: LISTED}
        result = close_night(place, root=str(tmp_path / "tables"), known=known, resolved_after=2)
        return place, result

    fine = row("containers", 1, on="docker")
    close("2026-11-20", row("random", 1, OLD), fine)
    close("2026-11-21", row("random", 1, LOSS), fine)
    return close(
        "2026-11-22",
        row("random", 1, LOSS, BROKEN),
        row("random", 2, EVIL, stored="runs/missing"),
        row("random", 3),
        row("containers", 4, EVIL, on="docker"),
    )


RATE = "containers: it occurred again in 1 of 3 repeats (95 % interval 6 to 79 %), so it is flaky"


def test_a_rate_is_in_every_output(tmp_path):
    again = {"on": "docker", "repeated": [LOSS["signature"]]}
    rows = [
        row("random", 1),
        row("containers", 4, LOSS, on="docker"),
        row("containers", 4, LOSS, repeat=1, **again),
        *(row("containers", 4, repeat=number, **again) for number in (2, 3)),
    ]
    place = write_night(tmp_path / "nights", "2026-11-22", rows, JOBS)
    result = close_night(place, root=str(tmp_path / "tables"), known={})
    assert result["sentence"] == "1 new finding in 5 runs (3 repeats among them)"
    (stored,) = read_json(place / "nightly.json")["findings"]
    (rate,) = stored["rates"]
    assert (rate["job"], rate["recurred"], rate["repeats"]) == ("containers", 1, 3)
    assert (rate["low"], rate["high"]) == pytest.approx((0.0615, 0.7923), abs=1e-4)
    assert rate["is_flaky"]
    page = Page((place / "nightly.html").read_text())
    assert f"In {RATE}." in page.text
    assert "new flaky" in page.text
    assert "containers docker 4 repeat 1" in page.text
    assert "1 of 3 6 to 79 %" in page.text, "in the table of the jobs"
    assert f"* {RATE}" in (place / "summary.md").read_text()
    (failure,) = ElementTree.fromstring((place / "junit.xml").read_text()).iter("failure")
    assert failure.get("message") == "new, 2 runs, flaky"
    assert RATE in (failure.text or "")
    shown = " ".join(as_text(*night_parts(result)).split())
    assert f"{LOSS['signature']} in {RATE}" in shown
    tables = NightTables(str(tmp_path / "tables"))
    (finding,) = tables.read("2026-11-22", "findings")
    job = tables.read("2026-11-22", "jobs")[1]
    for one in (finding, job):
        assert (one["recurred"], one["judged_repeats"]) == (1, 3)
        assert (one["rate_low"], one["rate_high"]) == (rate["low"], rate["high"])
    assert job["repeats"] == 3
    assert [one["repeat"] for one in tables.read("2026-11-22", "runs")] == [0, 0, 1, 2, 3]
    listed = KnownFailure(signature=LOSS["signature"], reason="slow", expiry=date(2026, 12, 31))
    close_night(place, root=str(tmp_path / "tables"), known={listed.signature: listed})
    (skipped,) = ElementTree.fromstring((place / "junit.xml").read_text()).iter("skipped")
    assert RATE in skipped.get("message")
    assert f"* {RATE}" in (place / "summary.md").read_text()


def test_a_job_names_the_command_that_shows_its_unknown_run(tmp_path):
    reason = "the final phase did not end as planned"
    unknown = {"verdict": "unknown", "reasons": [reason], "unknown_reason": reason}
    search = {"parent": 3, "operators": [], "kinds": [], "root_seed": 8, "file": "random-5.toml"}
    rows = [
        row("random", 1),
        row("random", 5, search=search, **unknown),
        row("containers", 4, on="docker", **unknown),
        row("containers", 5, on="docker", **unknown),
    ]
    place = write_night(tmp_path / "nights", "2026-11-22", rows, JOBS)
    result = close_night(place, root=str(tmp_path / "tables"), known={})
    commands = (
        f"laststand run {place}/corpus/random-5.toml --seed 8",
        f"laststand run {place}/job-2.toml --seed 4",
    )
    assert tuple(job["unknown_command"] for job in result["jobs"]) == commands
    page = Page((place / "nightly.html").read_text())
    summary = (place / "summary.md").read_text()
    shown = as_text(*night_parts(result))
    for command in commands:
        assert f"again {command}" in page.text
        assert f"\n{command}\n" in summary
        assert f"\n  {command}\n" in shown


def test_a_result_of_an_earlier_version_names_no_command(closed):
    _, result = closed
    jobs = [{k: v for k, v in job.items() if k != "unknown_command"} for job in result["jobs"]]
    assert as_text(*night_parts({**result, "jobs": jobs})) == as_text(*night_parts(result))


def test_the_result_holds_every_finding_with_its_status(closed):
    place, result = closed
    assert {one["signature"]: one["status"] for one in result["findings"]} == {
        EVIL["signature"]: "new",
        LOSS["signature"]: "open",
        BROKEN["signature"]: "known",
    }
    assert [one["signature"] for one in result["resolved"]] == [OLD["signature"]]
    assert result["counts"] == {"new": 1, "open": 1, "known": 1, "resolved": 1}
    assert result["exit_code"] == 1
    assert result["sentence"] == (
        "1 new finding, 1 open finding, 1 known finding, 1 resolved in 4 runs"
    )
    assert read_json(place / "nightly.json") == json.loads(json.dumps(result))


def test_the_page_shows_new_known_and_resolved_findings_first(closed):
    place, result = closed
    page = Page((place / "nightly.html").read_text())
    assert page.ids() == ["result", "new", "known", "resolved", "jobs", "trends"]
    position = 0
    for part in (
        result["sentence"],
        "New and open findings",
        EVIL["signature"],
        LOSS["title"],
        "2 nights since 2026-11-21",
        "Known findings",
        "under repair (ticket 1), listed until 2026-12-31",
        "Resolved findings",
        "old: gone",
        "Coverage per job",
        "Trends",
    ):
        position = page.text.index(part, position)
    assert "flaky" not in page.text, "nothing was repeated"


def test_the_page_opens_without_network_and_escapes_what_was_recorded(closed):
    text = (closed[0] / "nightly.html").read_text()
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert tags.isdisjoint({"link", "img", "iframe", "object", "embed", "base", "image", "use"})
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest", text)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_every_chart_has_a_title_a_unit_and_a_text_alternative(closed):
    page = Page((closed[0] / "nightly.html").read_text())
    charts = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(charts) == len(MEASURES) == 5
    for chart, measure in zip(charts, MEASURES, strict=True):
        assert chart["role"] == "img"
        assert chart["aria-label"].startswith(f"{measure.title}, {measure.unit}. ")
        assert "random: " in chart["aria-label"]
        assert measure.unit in page.text
    findings = charts[0]["aria-label"]
    assert "random: 3 in the night 2026-11-22, 1 in the night 2026-11-20" in findings


def test_charts_of_one_night_many_jobs_and_missing_numbers_can_be_drawn():
    measured = {measure.key: 1 for measure in MEASURES}
    rows = [{"night": "2026-11-22", "job": f"job {n}", **measured} for n in range(11)]
    rows[0]["unavailable_ms_median"] = None
    trends = trends_of(rows)
    assert len(trends.jobs) == 8
    assert trends.omitted == 3
    assert "job 0: not measured" in trends.charts[3].alternative
    assert trends_of([]).charts == ()
    rows = [{"night": "2026-11-22", "job": f"script {n}", **measured} for n in range(9)]
    rows.append({"night": "2026-11-22", "job": "random", **measured, "runs": 2})
    assert trends_of(rows).jobs[0] == "random", "the jobs with most runs have lines"
    assert ">0.5<" not in trends_of(rows).charts[0].figure, "no half findings"
    nights = [{"night": f"2026-10-{n:02}", "job": "a", **measured} for n in range(1, 31)]
    assert 4 <= len(re.findall(r">10-\d\d<", trends_of(nights).charts[0].figure)) <= 7


def test_the_summary_is_markdown_that_ci_shows(closed, tmp_path):
    place, result = closed
    text = (place / "summary.md").read_text()
    assert text.startswith(f"# Night 2026-11-22: {result['sentence']}\n")
    assert f"| **open** | {LOSS['title']} | 1 | 2026-11-21 | `{LOSS['signature']}` |" in text
    assert "| resolved | old: gone |" in text
    assert "<script>" not in text
    assert "| containers | docker | 1 |" in text
    step = tmp_path / "step-summary"
    step.write_text("before\n")
    assert append_step_summary(place, {"GITHUB_STEP_SUMMARY": str(step)})
    assert step.read_text() == "before\n" + text
    assert not append_step_summary(place, {})
    with pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY names cannot be written"):
        append_step_summary(place, {"GITHUB_STEP_SUMMARY": str(tmp_path)})


def test_junit_has_one_case_per_job_and_per_finding(closed):
    root = ElementTree.fromstring((closed[0] / "junit.xml").read_text())
    jobs, findings = root.findall("testsuite")
    assert [case.get("name") for case in jobs.findall("testcase")] == ["random", "containers"]
    ends = {
        case.get("name").split()[0]: [child.tag for child in case]
        for case in findings.findall("testcase")
    }
    assert ends == {
        EVIL["signature"]: ["failure"],
        LOSS["signature"]: ["failure"],
        BROKEN["signature"]: ["skipped"],
        OLD["signature"]: [],
    }
    assert findings.attrib | {"time": ""} == {
        "id": "1",
        "package": "laststand",
        "name": "findings",
        "timestamp": "2026-11-22T00:00:00",
        "hostname": "localhost",
        "tests": "4",
        "failures": "2",
        "errors": "0",
        "skipped": "1",
        "time": "",
    }
    assert next(child.tag for child in findings) == "properties"
    assert [child.tag for child in findings][-2:] == ["system-out", "system-err"]


def test_the_terminal_gets_a_table_and_commands(closed):
    text = as_text(*night_parts(closed[1]))
    assert text.splitlines()[0].startswith("night 2026-11-22: 1 new finding")
    lines = [line for line in text.splitlines() if re.search(r"[0-9a-f]{12}$", line)]
    assert [line.split()[0] for line in lines] == ["new", "open", "known", "resolved"]
    assert "\x1b" not in text


def test_closing_a_night_again_changes_nothing(closed, tmp_path):
    place, _ = closed
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    known = {LISTED.signature: LISTED}
    close_night(place, root=str(tmp_path / "tables"), known=known, resolved_after=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_alarms_and_unknown_jobs_are_named_everywhere(tmp_path):
    rows = [row("random", 1, replayed="different hash"), row("containers", 1, verdict="unknown")]
    place = write_night(tmp_path, "2026-11-22", rows, JOBS)
    result = close_night(place, root=str(tmp_path / "tables"), known={})
    assert result["exit_code"] == 255
    assert result["sentence"] == (
        "1 simulated run did not repeat, nothing new in 2 runs; the verdict on containers is unknown"
    )
    page = Page((place / "nightly.html").read_text())
    assert "Simulated runs that did not repeat" in page.text
    assert "different hash" in as_text(*night_parts(result))
    assert "No result of the simulation counts" in (place / "summary.md").read_text()
    cases = ElementTree.fromstring((place / "junit.xml").read_text()).iter("testcase")
    kinds = {case.get("name"): [child.get("type") for child in case] for case in cases}
    assert kinds == {"random": ["not-deterministic"], "containers": ["unknown"]}


def test_a_night_without_runs_can_be_closed(tmp_path):
    place = write_night(tmp_path, "2026-11-22", [])
    result = close_night(place, root=str(tmp_path / "tables"), known={})
    assert (result["exit_code"], result["runs"]) == (2, 0)
    assert "No night has run yet." in (place / "nightly.html").read_text()
    with pytest.raises(HistoryError, match="is not a night"):
        close_night(tmp_path, root=str(tmp_path / "tables"), known={})


def test_a_failing_spark_job_costs_no_finding(tmp_path, monkeypatch):
    from checkers.spark import SparkOptions
    from harness.campaigns import trends
    from harness.errors import HarnessFailure

    def fail(*_, **__):
        raise HarnessFailure("the Spark job 'trends' failed: no Java")

    monkeypatch.setattr(trends, "run_in_child", fail)
    place = write_night(tmp_path, "2026-11-22", [row("random", 1)])
    result = close_night(place, root=str(tmp_path / "t"), known={}, spark=SparkOptions())
    assert result["trends_error"] == "the Spark job 'trends' failed: no Java"
    assert [one["runs"] for one in result["trends"]] == [1]
    assert "no Java" in (place / "nightly.html").read_text()


def test_a_stored_run_has_its_story_a_link_and_a_command(tmp_path):
    stored = make_lost_run(tmp_path / "stored")
    build_report(stored)
    lost = {**LOSS, "parts": {**LOSS["parts"], "at_ns": 7_250_000_000}}
    rows = [
        row("random", 8812, lost, stored=str(stored)),
        row("containers", 8812, lost, on="docker", stored=str(stored)),
        row("random", 1, LOSS, stored="s3a://bucket/runs/1"),
    ]
    place = write_night(tmp_path / "nights", "2026-11-22", rows, JOBS)
    result = close_night(place, root=str(tmp_path / "tables"), known={})
    (finding,) = result["findings"]
    titles = [entry["title"] for entry in finding["story"]]
    assert titles[-2:] == [
        "b1 leads t-0",
        "5 acknowledged records of t-0 lost: b1 leads without them",
    ]
    assert "f1: Isolated b3 from all others" in titles
    commands = [example["command"] for example in finding["examples"]]
    assert commands == [
        f"laststand replay {stored}",
        f"laststand run {stored}/experiment.toml --seed 8812",
        "",
    ]
    page = Page((place / "nightly.html").read_text())
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(links) == 2
    for link in links:
        assert (place / unquote(link)).resolve() == (stored / "report.html").resolve()
    assert titles[-1] in page.text
    assert "s3a://bucket/runs/1" in page.text, "what is stored elsewhere is named"
    assert titles[-1] in (place / "summary.md").read_text()
    assert f"laststand replay {stored}" in (place / "junit.xml").read_text()
    assert f"  laststand replay {stored}" in as_text(*night_parts(result)).splitlines()


def test_a_damaged_stored_run_costs_only_its_story(tmp_path):
    stored = make_lost_run(tmp_path / "stored")
    (stored / "verdict.json").write_text("{")
    place = write_night(tmp_path, "2026-11-22", [row("random", 1, LOSS, stored=str(stored))])
    result = close_night(place, root=str(tmp_path / "tables"), known={})
    assert result["findings"][0]["story"] == []
    assert "Committed changes before it: ISR shrinks to 1" in (place / "nightly.html").read_text()
