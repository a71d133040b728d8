"""The numbers of a verdict in the report: tables by partition, and charts of unseen records."""

import json
import re
from pathlib import Path

import pytest

from results.layout import RunFiles
from results.report.build import build_report
from results.store import write_json
from tests.report.made_up_run import make_lost_run
from tests.report.pages import Page


@pytest.fixture
def run_dir(tmp_path) -> Path:
    return make_lost_run(tmp_path)


def with_unseen(run_dir: Path, unseen: object, places: int = 1) -> str:
    """Builds the report of a run whose verdict has the measure."""
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text(encoding="utf-8"))
    verdict["coverage"]["by_partition"] = {
        f"t-{place}": {"measures": {"unseen": unseen}} for place in range(places)
    }
    write_json(files.verdict, verdict)
    return build_report(run_dir).read_text(encoding="utf-8")


@pytest.mark.parametrize(("places", "is_turned"), [(3, True), (9, False)])
def test_a_wide_table_of_few_partitions_has_one_column_for_each(run_dir, places, is_turned):
    files = RunFiles(run_dir)
    verdict = json.loads(files.verdict.read_text(encoding="utf-8"))
    numbers = {f"number {index}": 100 + index for index in range(9)}
    verdict["coverage"]["by_partition"] = {f"t-{place}": numbers for place in range(places)}
    write_json(files.verdict, verdict)
    page = build_report(run_dir).read_text(encoding="utf-8")
    assert ('<th class="n">t-2</th>' in page) is is_turned
    assert ('<th class="n">number 4</th>' in page) is not is_turned
    cells = '<td class="n">104</td>'
    assert (cells * places in page) is is_turned
    assert page.count(cells) == places


def test_unseen_records_are_a_chart_with_title_units_and_values(run_dir):
    page = with_unseen(run_dir, {"at_ms": [0, 4000, 8000], "count": [0, 1200, 3]})
    Page(page)
    assert "<h3>Unseen records</h3>" in page
    assert (
        "<title>acknowledged records not yet read, over time. t-0: at most 1,200, 3 at the end</title>"
        in page
    )
    assert "<title>t-0 at 4.000 s: 1,200 records</title>" in page
    assert ">records</text>" in page
    assert ">1,000</text>" in page
    (points,) = re.findall(r'<polyline class="line" points="([^"]*)"', page)
    heights = [float(point.split(",")[1]) for point in points.split(" ")]
    assert heights[1] < heights[2] < heights[0], "more unseen records are higher"


def test_only_the_partitions_with_the_most_unseen_records_are_drawn(run_dir):
    page = with_unseen(run_dir, {"at_ms": [0, 1], "count": [0, 1]}, places=12)
    assert page.count("<polyline") == 8
    assert "At most 8 partitions are drawn" in page


@pytest.mark.parametrize(
    "unseen",
    [
        None,
        3,
        {},
        {"at_ms": [], "count": []},
        {"at_ms": [0], "count": [0, 1]},
        {"at_ms": ["<"], "count": [0]},
        {"at_ms": [0], "count": [-1]},
        {"at_ms": [0.5], "count": [True]},
    ],
)
def test_a_verdict_without_a_usable_series_has_no_chart_of_unseen_records(run_dir, unseen):
    page = with_unseen(run_dir, unseen)
    Page(page)
    assert "Unseen records" not in page
