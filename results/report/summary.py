"""The verdict and the story as Markdown, for job summaries."""

from results.report.run import RunData, levels_text, seconds
from results.report.story import Story, place_name, time_of, when
from results.text import markdown_text as _md

LINES_MAX = 60
"""Story lines of a summary; the report has the rest."""

LOST_MAX = 20


def markdown(run: RunData, story: Story) -> str:
    """Returns summary.md of a run."""
    verdict = run.verdict or {}
    validity = str(verdict.get("validity", "not judged"))
    lines = [f"# {_md(validity)}: {_md(run.id)}", ""]
    lines.extend(f"* {_md(str(reason))}" for reason in verdict.get("reasons", ()))
    lines.extend(["", "| | |", "|---|---|"])
    lost = verdict.get("unexcused_lost_records", run.fact("unexcused_lost_records"))
    rows = [
        ("unexcused lost records", lost),
        *([("levels", levels_text(run))] if levels_text(run) else []),
        ("seed", run.fact("seed")),
        ("profile", run.fact("profile")),
        ("world", run.world),
        ("trace hash", run.fact("trace_hash", run.fact("trace", "none"))),
    ]
    if run.again_command:
        rows.append((run.again_word, f"`{run.again_command}`"))
    lines.extend(f"| {name} | {_md(str(value))} |" for name, value in rows)
    lines.extend(_anomaly_table(run))
    lines.extend(["", "## The story", ""])
    heavy = sorted(story.entries, key=lambda entry: (-entry.weight, time_of(entry)))[:LINES_MAX]
    shown = {id(entry) for entry in heavy}
    for entry in story.entries:
        if id(entry) not in shown:
            continue
        changes = "; ".join(f"{c.name} {c.before} → {c.after}" for c in entry.changes)
        tail = ". ".join(part for part in (changes, entry.detail) if part)
        strong = "**" if entry.tone == "bad" else ""
        lines.append(
            f"* {when(entry.at_ns)} {strong}{_md(entry.title)}{strong}"
            + (f" ({_md(tail)})" if tail else "")
        )
        lines.extend(
            f"    * offset {record.offset}, key {_md(record.key)}, value {record.value}, "
            f"acknowledged at {seconds(record.acked_ns) or 'an unknown time'}"
            for record in entry.lost[:LOST_MAX]
        )
    hidden = story.omitted + len(story.entries) - len(heavy)
    if hidden:
        lines.extend(["", f"{hidden} less important entries are left out."])
    return "\n".join(lines) + "\n"


def _anomaly_table(run: RunData) -> list[str]:
    anomalies = run.anomalies()
    if not anomalies:
        return []
    lines = [
        "",
        "## Anomalies",
        "",
        "| anomaly | where | count | judgement | |",
        "|---|---|---|---|---|",
    ]
    for anomaly in anomalies:
        place = place_name(str(anomaly.get("topic")), anomaly.get("partition", -1))
        cells = [
            str(anomaly.get("id")),
            place,
            str(anomaly.get("count")),
            str(anomaly.get("judgement")),
            str(anomaly.get("sentence", "")),
        ]
        lines.append("| " + " | ".join(_md(cell) for cell in cells) + " |")
    return lines
