"""Closes a night: counts and triages its rows, stores the campaign tables, and writes everything a person reads.

    <night's directory>/
        nightly.json   the result; everything else is made from it
        nightly.html   the page
        summary.md     the result in Markdown, for job summaries
        junit.xml      the result as test cases, for CI systems

Nothing here runs anything: a night that was interrupted can be closed as it is, and closed again after it went on.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkers.spark import SparkOptions
from harness.campaigns.files import NIGHT_PAGE
from harness.campaigns.known_failures import KnownFailure
from harness.campaigns.night import read_plan, rows_of
from harness.campaigns.night_result import result_of, shrunk_run
from harness.campaigns.night_summary import summarize_night
from harness.campaigns.night_tables import NightTables
from harness.campaigns.trends import trends
from harness.campaigns.triage import PAST_NIGHTS_MAX, RESOLVED_AFTER_NIGHTS, triage_night
from harness.errors import HarnessFailure, UsageError
from results.report.build import write_text
from results.report.junit import junit_xml
from results.report.night_text import night_markdown
from results.report.nightly import build_night_page
from results.store import write_json

RESULT_FILE = "nightly.json"
SUMMARY_FILE = "summary.md"
JUNIT_FILE = "junit.xml"

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The environment variable by which GitHub Actions names the file that it shows."""

NO_SPARK = SparkOptions(enabled=False, master="local[2]", conf=())


def close_night(
    directory: Path,
    *,
    root: str,
    known: Mapping[str, KnownFailure],
    spark: SparkOptions = NO_SPARK,
    resolved_after: int = RESOLVED_AFTER_NIGHTS,
) -> dict[str, Any]:
    """Closes a night.

    Args:
        directory: The night's directory, with its plan and rows.
        root: Path or URI of the campaign tables.
        known: The known failures by signature.
        spark: Whether Spark counts the trends, and where.
        resolved_after: After how many nights without it a finding is resolved.

    Returns:
        The result; `exit_code` is the night's.

    Raises:
        HistoryError: Plan, rows or campaign tables are damaged or cannot be written.
        UsageError: The root cannot be opened.
    """
    plan = read_plan(directory)
    summary = summarize_night(plan, rows_of(directory, plan))
    tables = NightTables(root)
    triage = triage_night(
        summary, tables.before(plan.night, PAST_NIGHTS_MAX), known, resolved_after=resolved_after
    )
    tables.write(summary, rows_of(directory, plan), triage.statuses)
    problem = ""
    try:
        rows = trends(tables, spark, log_path=directory / "spark.log")
    except HarnessFailure as failure:
        # The findings of a night must not depend on a chart.
        problem, rows = str(failure), trends(tables, NO_SPARK, log_path=directory / "spark.log")
    result = result_of(summary, triage, rows, directory=directory)
    result["trends_error"] = problem
    write_outputs(directory, result)
    return result


def link_shrunk_runs(directory: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of a closed night with the runs that were shrunk since, and writes it again.

    Raises:
        HistoryError: What is stored of a shrunk run is damaged.
    """
    findings = [
        {**finding, "shrunk": shrunk_run(directory, finding["signature"])}
        for finding in result["findings"]
    ]
    linked = {**result, "findings": findings}
    write_outputs(directory, linked)
    return linked


def write_outputs(directory: Path, result: Mapping[str, Any]) -> None:
    """Writes the result of a night and everything that shows it."""
    write_json(directory / RESULT_FILE, result)
    build_night_page(directory / NIGHT_PAGE, result)
    write_text(directory / SUMMARY_FILE, night_markdown(result))
    write_text(directory / JUNIT_FILE, junit_xml(result))


def append_step_summary(directory: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Appends the summary of a night to the file that GitHub Actions shows, if it names one.

    Returns:
        Whether it did.

    Raises:
        UsageError: The file cannot be written.
    """
    name = environment.get(STEP_SUMMARY, "")
    if not name:
        return False
    text = (directory / SUMMARY_FILE).read_text(encoding="utf-8")
    try:
        with open(name, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"the file {name} that {STEP_SUMMARY} names cannot be written: {error.strerror}"
        ) from None
    return True
