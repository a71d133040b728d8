"""The verdict of a run as a table for the terminal."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from results.layout import RunFiles
from results.report.run import RunData, seconds
from results.report.story import find_losses, place_name

LOST_MAX = 20
"""Lost records that the terminal shows; the report has more."""


def terminal_summary(run_dir: Path) -> str:
    """Returns the verdict of a run as a table for the terminal, without colours.

    Raises:
        HistoryError: The run is missing or damaged.
    """
    run = RunData(run_dir)
    verdict = run.verdict or {}
    validity = str(verdict.get("validity", "not judged"))
    lines = [validity.upper()]
    lines.extend(f"  {reason}" for reason in verdict.get("reasons", ()))
    lost = verdict.get("unexcused_lost_records", run.fact("unexcused_lost_records"))
    facts = [
        ("run", run.id),
        ("seed", run.fact("seed")),
        ("profile", run.fact("profile")),
        ("world", run.world),
        ("trace hash", run.fact("trace_hash", run.fact("trace", "none"))),
        ("unexcused lost records", str(lost)),
    ]
    lines.append("")
    lines.extend(table(("", ""), facts, header=False))
    anomalies = [
        (
            str(anomaly.get("id")),
            str(anomaly.get("level")),
            place_name(str(anomaly.get("topic")), anomaly.get("partition", -1)),
            str(anomaly.get("count")),
            str(anomaly.get("judgement")),
        )
        for anomaly in run.anomalies()
    ]
    if anomalies:
        lines.append("")
        lines.extend(table(("anomaly", "breaks", "where", "count", "judgement"), anomalies))
    losses = [
        (
            seconds(loss.at_ns),
            place_name(loss.topic, loss.partition),
            str(record.offset),
            record.key,
            str(record.value),
            seconds(record.acked_ns),
        )
        for loss in find_losses(run)
        for record in loss.records
    ]
    if losses:
        lines.append("")
        lines.extend(
            table(("lost at", "where", "offset", "key", "value", "acked at"), losses[:LOST_MAX])
        )
        if len(losses) > LOST_MAX:
            lines.append(f"and {len(losses) - LOST_MAX} more")
    report = RunFiles(run_dir).report
    lines.append("")
    if report.exists():
        lines.append(f"report  {report}")
    if run.again_command:
        lines.append(f"{run.again_word:<6}  {run.again_command}")
    return "\n".join(plain(line) for line in lines) + "\n"


def table(names: Sequence[str], rows: Sequence[Sequence[str]], *, header: bool = True) -> list[str]:
    """Returns rows in aligned columns."""
    cells = [[plain(cell) for cell in row] for row in rows]
    everything = [list(names), *cells] if header else cells
    widths = [max(len(row[column]) for row in everything) for column in range(len(names))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in everything
    ]
    if header:
        lines.insert(1, "  ".join("─" * width for width in widths))
    return lines


def plain(text: str) -> str:
    """Returns text without control characters: what stands in a history must not steer a terminal."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
