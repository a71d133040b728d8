"""The result of a night as Markdown for job summaries, and as tables for a terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType

from results.report.night_charts import number_text
from results.tables import line, table
from results.text import markdown_text as md

FINDINGS_MAX = 50
"""Findings in a job summary; the page has them all."""

TITLE_MAX = 90
"""Longer titles are cut in a terminal; the signature identifies the finding."""

COMMANDS_MAX = 3


def night_markdown(result: Mapping[str, Any]) -> str:
    """Returns summary.md of a night.

    Args:
        result: The result of the night (`harness.campaigns.night_result`).
    """
    lines = [f"# Night {md(result['night'])}: {md(result['sentence'])}", ""]
    if result["alarms"]:
        lines.append("**Simulated runs did not repeat. No result of the simulation counts.**")
        lines.append("")
        lines += [
            f"* {md(a['job'])}, seed {a['seed']}: {md(a['replayed'])}" for a in result["alarms"]
        ]
        lines.append("")
    rows = _rows(result)
    if rows:
        lines += ["| | finding | runs | since | signature |", "|---|---|---|---|---|"]
        lines += [
            f"| {'**' + status + '**' if fails else status} | {md(title)} | {runs} | {since} | `{signature}` |"
            for status, title, runs, since, signature, fails in rows[:FINDINGS_MAX]
        ]
        if len(rows) > FINDINGS_MAX:
            lines += ["", f"{len(rows) - FINDINGS_MAX} further findings are in nightly.html."]
        lines.append("")
    for finding in result["findings"][:FINDINGS_MAX]:
        lines += _markdown_details(finding)
    lines += _markdown_jobs(result)
    return "\n".join(lines).rstrip("\n") + "\n"


def night_parts(result: Mapping[str, Any]) -> list[RenderableType]:
    """Returns the result of a night for the terminal: findings, and commands that repeat the failing ones."""
    code = result["exit_code"]
    style = {0: "green", 2: "yellow"}.get(code, "bold red")
    parts: list[RenderableType] = [line(f"night {result['night']}: {result['sentence']}", style)]
    parts += [
        line(f"  {alarm['job']}, seed {alarm['seed']}: {alarm['replayed']}", "bold red")
        for alarm in result["alarms"]
    ]
    parts += [line(f"unknown: {reason}", "yellow") for reason in _unknown_reasons(result)]
    parts += [line(f"  {command}") for command in _unknown_commands(result)]
    rows = [row[:5] for row in _rows(result)]
    if rows:
        cells = [(status, _cut(title), *others) for status, title, *others in rows]
        names = ("", "finding", "runs", "since", "signature")
        parts += [line(""), table(names, cells, right={"runs"}, folding={"finding"})]
    parts += [
        line(f"{finding['signature']} in {rate_text(rate)}")
        for finding in result["findings"]
        for rate in finding["rates"]
    ]
    failing = [finding for finding in result["findings"] if finding["fails"]]
    commands = [
        next((e["command"] for e in finding["examples"] if e["command"]), "") for finding in failing
    ]
    commands = [command for command in commands if command]
    if commands:
        parts += [line(""), line("repeat a failing run:")]
        parts += [line(f"  {command}") for command in commands[:COMMANDS_MAX]]
    parts += [
        line(f"expired: {entry['signature']} on {entry['expiry']} ({entry['reason']})")
        for entry in result["expired"]
    ]
    return parts


def rate_text(rate: Mapping[str, Any]) -> str:
    """Returns how often a finding occurred again in the repeats of a job, as a sentence without a full stop."""
    low, high = (f"{100 * rate[end]:.0f}" for end in ("low", "high"))
    repeats = rate["repeats"]
    flaky = ", so it is flaky" if rate["is_flaky"] else ""
    return (
        f"{rate['job']}: it occurred again in {rate['recurred']} of {repeats} "
        f"{'repeat' if repeats == 1 else 'repeats'} (95 % interval {low} to {high} %){flaky}"
    )


def _rows(result: Mapping[str, Any]) -> list[tuple[str, str, str, str, str, bool]]:
    """Returns (status, title, runs, since, signature, whether it fails the night) of every finding."""
    found = [
        (
            str(one["status"]),
            str(one["title"]),
            number_text(one["runs"]),
            str(one["first_night"]),
            str(one["signature"]),
            bool(one["fails"]),
        )
        for one in result["findings"]
    ]
    gone = [
        ("resolved", str(one["title"]), "0", str(one["last_night"]), str(one["signature"]), False)
        for one in result["resolved"]
    ]
    return found + gone


def _markdown_details(finding: Mapping[str, Any]) -> list[str]:
    if not finding["fails"]:
        known = finding["known"]
        ticket = f" ({md(known['ticket'])})" if known["ticket"] else ""
        text = f"* `{finding['signature']}` is known{ticket}: {md(known['reason'])}"
        return [text, "", *_markdown_rates(finding)]
    lines = [f"## {md(finding['title'])}", "", md(str(finding["parts"].get("sentence", "")))]
    if finding["note"]:
        lines.append(f"({md(finding['note'])})")
    lines.append("")
    lines += _markdown_rates(finding)
    lines += [f"* {entry['at_s']:.3f} s: {md(entry['title'])}" for entry in finding["story"]] + (
        [""] if finding["story"] else []
    )
    shrunk = finding["shrunk"]
    if shrunk:
        size = f"{shrunk['after']['faults']} of {shrunk['before']['faults']} faults"
        lines += [f"The smallest run that shows it ({size}): {md(shrunk['cause'])}", ""]
        lines += ["```", shrunk["command"], "```", ""]
    commands = [example["command"] for example in finding["examples"] if example["command"]]
    if commands:
        lines += ["```", *commands[:COMMANDS_MAX], "```", ""]
    return lines


def _markdown_rates(finding: Mapping[str, Any]) -> list[str]:
    lines = [f"* {md(rate_text(rate))}" for rate in finding["rates"]]
    return [*lines, ""] if lines else []


def _markdown_jobs(result: Mapping[str, Any]) -> list[str]:
    names = ("job", "world", "runs", "valid", "invalid", "unknown", "errors", "findings", "faults")
    lines = ["## Coverage", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(md(str(job[name])) for name in names)} |" for job in result["jobs"]]
    reasons = [f"* unknown: {md(reason)}" for reason in _unknown_reasons(result)]
    commands = _unknown_commands(result)
    lines += ["", *reasons] if reasons else []
    return [*lines, "", "```", *commands, "```"] if commands else lines


def _unknown_commands(result: Mapping[str, Any]) -> list[str]:
    """Returns what repeats the first unknown run of each job; results of earlier versions do not say."""
    return [job["unknown_command"] for job in result["jobs"] if job.get("unknown_command")]


def _unknown_reasons(result: Mapping[str, Any]) -> list[str]:
    return [
        f"{job['job']}: {reason}" for job in result["jobs"] for reason in job["unknown_reasons"]
    ]


def _cut(title: str) -> str:
    return title if len(title) <= TITLE_MAX else title[: TITLE_MAX - 1] + "…"
