"""The report of a run: its content and order, and that it needs no network."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console, Group

from harness.history.writer import HistoryWriter
from results.layout import RunFiles
from results.report.build import build_report
from results.report.run import RunData
from results.report.story import story_of
from results.report.terminal import terminal_summary
from results.store import write_json
from results.tables import WORD_STYLES, as_text
from tests.report.made_up_run import MS, make_lost_run
from tests.report.pages import Page, page_of


@pytest.fixture
def run_dir(tmp_path) -> Path:
    return make_lost_run(tmp_path)


def test_the_report_sections_are_in_order_with_the_verdict_first(run_dir):
    page = page_of(run_dir)
    assert page.ids() == [
        "verdict",
        "counterexample",
        "anomalies",
        "partitions",
        "faults",
        "operations",
        "story",
        "coverage",
        "replay",
    ]
    parts = [
        "invalid",
        "5 acknowledged records of t-0 are gone and no flagged election excuses it.",
        "acknowledged records lost without an excuse",
        "8812",
        "kafka-3.9",
        "9f3c5b20a7c1d4e8",
        "laststand replay last-replica-standing/20260131T235959Z-8812",
        "The story",
    ]
    position = page.text.index("Dark")  # the button at the end of the page's head line
    for part in parts:
        position = page.text.index(part, position)


def test_the_report_opens_without_network(run_dir):
    text = build_report(run_dir).read_text(encoding="utf-8")
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert tags.isdisjoint({"link", "img", "iframe", "object", "embed", "base", "image", "use"})
    for tag, attributes in page.tags:
        assert not {"src", "xlink:href", "srcset", "action"} & set(attributes), tag
        assert (attributes.get("href") or "#").startswith("#"), tag
    assert not re.search(r"url\((?!#)|@import|https?://|fetch\(|XMLHttpRequest", text)
    policy = next(a["content"] for _, a in page.tags if "Content-Security-Policy" in a.values())
    assert policy.startswith("default-src 'none'")
    assert len(text) < 300_000


def test_the_narrative_lists_events_in_order(run_dir):
    story = [entry.title for entry in story_of(RunData(run_dir)).entries]
    expected = [
        "t-0 begins with leader b1",
        "f00-reset_connections_of_controllers: Isolated b2 from all others",
        "b2 fenced",
        "b2 left the ISR of t-0",
        "f1: Isolated b3 from all others",
        "b3 left the ISR of t-0",
        "f3: Cut the power of b1 (mode: prefix, keep records: 5)",
        "t-0 has no leader",
        "c1: partition-without-leader",
        "f00-reset_connections_of_controllers is over (isolated b2 from all others)",
        "f5: Started b1",
        "b1 came back with log end 5 of t-0 (it had 10)",
        "b1 registered",
        "b1 leads t-0",
        "5 acknowledged records of t-0 lost: b1 leads without them",
        "b2 truncated t-0 from 10 to 5",
        "b3 truncated t-0 from 10 to 5",
        "b2 joined the ISR of t-0",
    ]
    assert [title for title in story if title in expected] == expected
    assert "The final phase begins" in story[-1]


def test_every_lost_record_is_named_with_offset_key_value_and_time(run_dir):
    text = page_of(run_dir).text
    operations = RunData(run_dir).tables["operations"].to_pylist()
    for offset in range(5, 10):
        append = next(row for row in operations if row["offset"] == offset)
        acked = f"{append['completed_ns'] / 1e9:.3f} s"
        cells = [offset, append["key"], append["op_index"], append["process"], acked]
        assert " ".join(str(cell) for cell in cells) in text


def test_a_loss_is_drawn_where_the_leader_without_the_records_started(run_dir):
    (loss,) = story_of(RunData(run_dir)).losses
    assert (loss.at_ns, loss.leader, loss.topic, loss.partition) == (7250 * MS, "b1", "t", 0)
    assert [record.offset for record in loss.records] == [5, 6, 7, 8, 9]


def test_every_link_of_the_page_has_a_target(run_dir):
    page = page_of(run_dir)
    targets = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert {"#counterexample", "#anomalies", "#fault-4", "#anomaly-1", "#anomaly-2"} <= set(links)
    # Links to a time zoom the charts.
    assert {link.removeprefix("#") for link in links if not link.startswith("#time=")} <= targets


def test_the_counterexample_has_the_witnesses_and_the_lanes_around_the_moment(run_dir):
    page = page_of(run_dir)
    text = page.text
    panel = text[text.index("Counterexample: lost-acked-write in t-0") : text.index("Anomalies 1.")]
    for part in (
        "Before: b1 led t-0 in leader epoch 2. ISR {b1}, min ISR 2.",
        "At 7.402 s b2 cut t-0 off from 10 to 5.",
        "operation 5: append v=5 -> ok offset 5",
        "t-0 around the decisive moment, 6.250 s to 8.250 s",
        "Forbidden: acks=all, min ISR 2",
    ):
        assert part in panel, part
    axes = [attrs for tag, attrs in page.tags if tag == "svg"]
    assert (axes[1]["data-begin"], axes[1]["data-end"]) == ("6.250000000", "8.250000000")
    # Everything else begins when the cluster was ready: with the first operation.
    assert {attrs["data-begin"] for attrs in axes[2:]} == {"0.199000000"}


def test_anomalies_that_do_not_matter_are_folded_and_grey(run_dir):
    text = build_report(run_dir).read_text(encoding="utf-8")
    folded = text[text.index('<details class="quiet">') :]
    assert 'id="anomaly-3"' in folded
    assert 'id="anomaly-1"' not in folded
    assert "1 that does not make the run invalid" in folded


def test_a_loss_whose_time_is_unknown_is_listed_first_and_not_drawn(run_dir):
    """In real environments the states of replicas may be missing; the end of the run would be a wrong time."""
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text())
    verdict["anomalies"][1]["details"]["values"] = [999_999]
    write_json(files.verdict, verdict)
    story = story_of(RunData(run_dir))
    assert [loss.at_ns for loss in story.losses] == [None]
    assert (
        story.entries[0].title
        == "1 acknowledged record of t-0 lost; the moment is not in the history"
    )
    text = build_report(run_dir).read_text(encoding="utf-8")
    assert "<time>time unknown</time>" in text
    assert '<line class="loss"' not in text
    page = Page(text)
    assert "1 acknowledged record of t-0 was lost at a time that is not in the history" in page.text
    assert "time unknown **1 acknowledged" in files.summary.read_text(encoding="utf-8")
    assert "unknown  t-0" in as_text(*terminal_summary(run_dir))


def test_forbidden_findings_are_marked_in_story_and_lanes(run_dir):
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text())
    verdict["anomalies"][2]["witnesses"] = verdict["anomalies"][1]["witnesses"]
    write_json(files.verdict, verdict)
    text = build_report(run_dir).read_text(encoding="utf-8")
    assert "<title>anomaly 1: lost-acked-write in t-0</title>" in text
    assert "<title>anomaly 2: offset-reused in t-0</title>" in text
    page = Page(text)
    assert "finding offset-reused in t-0 anomaly 2 Offset 5 was acknowledged" in page.text
    assert "lost: b1 leads without them anomaly 1" in page.text


def test_an_allowed_loss_is_a_grey_line_without_a_label(run_dir):
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text())
    verdict["anomalies"][1]["judgement"] = "allowed by configuration"
    write_json(files.verdict, verdict)
    text = build_report(run_dir).read_text(encoding="utf-8")
    assert 'class="loss calm"' in text
    assert 'class="loss-text"' not in text
    assert "<details><summary>the records</summary>" in text


def test_faults_show_their_evidence_and_whether_they_took_effect(run_dir):
    text = page_of(run_dir).text
    assert "aimed at isr_follower:t-0; evidence: frames held: 33, connects refused: 5" in text
    assert "f2: Paused c2 it did not take effect; work waited: 0" in text
    windows = {window.fault_id: window for window in RunData(run_dir).fault_windows}
    assert windows["f00-reset_connections_of_controllers"].end_ns == 6500 * MS
    assert windows["f3"].end_ns == 6601 * MS  # never healed: it lasts until b1 is started
    assert windows["f4"].begin_ns == windows["f4"].end_ns


def test_lanes_show_leaders_members_replicas_and_the_loss(run_dir):
    text = build_report(run_dir).read_text(encoding="utf-8")
    for title in (
        "b1, leader epoch 0, 0.020 s to 5.900 s",
        "no leader, leader epoch 1, 5.900 s to 7.200 s",
        "b1, leader epoch 2, 7.200 s to 9.104 s",
        "b2 in ISR, 0.020 s to 2.400 s",
        "b2 in ISR, 7.600 s to 9.104 s",
        "b1 is down, 5.000 s to 6.800 s",
        "log end 10 → 5 (truncate) at 7.402 s",
        "5 acknowledged records lost (offsets 5 to 9) at 7.250 s",
        "f3: power b1, 5.000 s to 6.601 s",
        "f2: pause c2 (did not take effect), 3.001 s to 3.400 s",
    ):
        assert f"<title>{title}</title>" in text, title
    # Once over the whole run, and once around the decisive moment.
    assert text.count('class="line ') == 6
    assert text.count('class="watermark ') == 6


def test_elr_members_and_last_known_ones_have_lanes(tmp_path):
    writer = HistoryWriter(tmp_path)
    base = (0, 0, [1, 2, 3], 0, False, 2, None)
    writer.add("partition_states", (0, 1, "t", 0, 1, 0, 0, [1], [3], [], *base[2:]))
    last = (2000 * MS, 2, "t", 0, -1, 1, 1, [], [3], [1], *base[2:])
    writer.add("partition_states", last)
    writer.close()
    text = build_report(tmp_path).read_text(encoding="utf-8")
    assert "<title>b3 in ELR, 0.000 s to 2.000 s</title>" in text
    assert "<title>b1 in last-known ELR, 2.000 s to 2.000 s</title>" in text
    assert "∅" in text
    assert "no replica is in sync: below min ISR 2" in text


def test_operations_errors_and_latency_are_counted(run_dir):
    page = page_of(run_dir)
    assert "append 15 49 8" in page.text
    assert "append fail NOT_ENOUGH_REPLICAS 21 3.753 s 4.953 s" in page.text
    assert "append info timeout 8 3.100 s 3.800 s" in page.text
    assert "1 appends from" in build_report(run_dir).read_text(encoding="utf-8")


def test_forbidden_anomalies_come_first_with_rule_sentence_and_witnesses(run_dir):
    text = page_of(run_dir).text
    order = [
        text.index(name)
        for name in ("lost-acked-write", "offset-reused", "stale-read informational")
    ]
    assert order == sorted(order)
    assert "may be lost only by a flagged unclean election" in text
    assert "process 1 append v=5 -> ok offset 5 operation 5" in text
    assert "appends acknowledged 15" in text
    assert "fetch-parked 30" in text
    assert "by partition appends acknowledged holes t-0 15 0" in text


def test_many_reasons_are_folded_behind_the_first(run_dir):
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text())
    write_json(files.verdict, {**verdict, "reasons": ["one", "two", "three"]})
    assert "invalid one two three 5" in page_of(run_dir).text
    write_json(files.verdict, {**verdict, "reasons": ["one", "two", "three", "four"]})
    assert "one 3 further reasons two three four" in page_of(run_dir).text


def test_the_page_names_the_system_its_version_and_the_programs_of_the_client(run_dir):
    path = RunFiles(run_dir).run
    summary = json.loads(path.read_text(encoding="utf-8"))
    client = {"kafka-clients": "4.1.2", "java": "17.0.15"}
    more = {"system": "apache-kafka", "version": "4.0.2", "environment": {"client": client}}
    write_json(path, {**summary, **more})
    text = page_of(run_dir).text
    assert "system apache-kafka 4.0.2" in text
    assert "programs of the client java 17.0.15 kafka-clients 4.1.2" in text


def test_the_same_run_gives_the_same_page(tmp_path):
    pages = [build_report(make_lost_run(tmp_path / name)).read_bytes() for name in ("a", "b")]
    assert pages[0] == pages[1]


def test_an_excused_loss_is_reported_without_emphasis(run_dir):
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text())
    verdict.update(validity="valid", reasons=[], unexcused_lost_records=0, excused_lost_records=5)
    verdict["anomalies"][1]["judgement"] = "excused by the faults"
    write_json(files.verdict, verdict)
    entry = next(entry for entry in story_of(RunData(run_dir)).entries if entry.kind == "lost")
    assert (entry.tone, entry.detail) == ("calm", "excused by the faults")
    page = page_of(run_dir)
    assert "excused lost records 5" in page.text
    assert "Nothing that was promised to a client was broken." in page.text


def test_an_undecided_anomaly_and_its_loss_have_a_style_of_their_own(run_dir):
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text(encoding="utf-8"))
    verdict.update(validity="unknown", unexcused_lost_records=0)
    verdict["anomalies"][1]["judgement"] = "undecided"
    write_json(files.verdict, verdict)
    entry = next(entry for entry in story_of(RunData(run_dir)).entries if entry.kind == "lost")
    assert (entry.tone, entry.detail) == ("undecided", "undecided")
    page = build_report(run_dir).read_text(encoding="utf-8")
    assert '<span class="tag undecided">undecided</span>' in page
    assert '<li data-kind="lost" class="tone-undecided">' in page
    assert 'class="loss undecided"' in page
    assert "5 lost (undecided)" in page
    styles = {name: WORD_STYLES[name] for name in ("undecided", "forbidden", "unknown", "valid")}
    assert len(set(styles.values())) == len(styles)
    coloured = io.StringIO()
    Console(file=coloured, force_terminal=True, color_system="standard", width=200).print(
        Group(*terminal_summary(run_dir))
    )
    assert re.search(r"\x1b\[35mundecided *\x1b\[0m", coloured.getvalue())
