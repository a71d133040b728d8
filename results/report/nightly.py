"""The page of a night: one HTML file that opens from disk, without network, years later."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from results.report.build import environment, write_text
from results.report.night_charts import number_text, trends_of
from results.report.night_text import rate_text

TONES = {0: "valid", 1: "invalid", 2: "unknown", 255: "invalid"}
"""Tone of the banner by the exit code of the night."""


def build_night_page(path: Path, result: Mapping[str, Any]) -> Path:
    """Writes the page of a night.

    Args:
        path: The HTML file to write; links to reports are relative to its folder.
        result: The result of the night (`harness.campaigns.night_result`).

    Returns:
        The path.
    """
    findings = result["findings"]
    text = (
        environment()
        .get_template("nightly.html")
        .render(
            result=result,
            tone=TONES.get(result["exit_code"], "unknown"),
            failing=[finding for finding in findings if finding["fails"]],
            known=[finding for finding in findings if not finding["fails"]],
            trends=trends_of(result["trends"]),
            number=number_text,
            rate_text=rate_text,
            link=lambda report: _link(report, path.parent),
        )
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


def _link(report: str, folder: Path) -> str:
    """Returns a report's address relative to a folder, so that both can be moved together."""
    relative = os.path.relpath(os.path.abspath(report), os.path.abspath(folder))
    return quote(relative)
