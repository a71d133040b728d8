"""The verdict of a run as tables for the terminal."""

from pathlib import Path

from rich.console import RenderableType

from checkers.idle_faults import why_all_idle
from results.layout import RunFiles
from results.report.fault_words import is_repair
from results.report.run import RunData, levels_text, seconds
from results.report.story import find_losses, place_name
from results.tables import line, table, word

LOST_MAX = 20
"""Lost records that the terminal shows; the report has more."""


def terminal_summary(run_dir: Path, *, replay: str = "", explain: str = "") -> list[RenderableType]:
    """Returns the verdict of a run as lines and tables; `results.tables.as_text` makes text of them.

    Args:
        run_dir: The run.
        replay: The command that replays it, if it can be replayed; that of the report by default.
        explain: The command that explains its findings; left out by default.

    Raises:
        HistoryError: The run is missing or damaged.
    """
    run = RunData(run_dir)
    verdict = run.verdict or {}
    lost = verdict.get("unexcused_lost_records", run.fact("unexcused_lost_records"))
    facts = [
        ("run", run.id),
        ("seed", run.fact("seed")),
        ("profile", run.fact("profile")),
        ("world", run.world),
        ("trace hash", run.fact("trace_hash", run.fact("trace", "none"))),
        ("unexcused lost records", str(lost)),
        *([("levels", levels_text(run))] if levels_text(run) else []),
        *_fault_facts(run),
        *_watch_facts(run),
    ]
    return [
        *verdict_lines(
            str(verdict.get("validity", "not judged")),
            [str(reason) for reason in verdict.get("reasons", ())],
        ),
        line(""),
        table(("", " "), facts, header=False),
        *_anomaly_parts(run),
        *_loss_parts(run),
        *_next_steps(run, run_dir, replay, explain),
    ]


def _fault_facts(run: RunData) -> list[tuple[str, str]]:
    """Returns how many faults took effect, and why some did not; a run that is valid says so, too."""
    harmful = [row for row in run.tables["faults"].to_pylist() if not is_repair(row["fault"])]
    if not harmful:
        return []
    idle = [row for row in harmful if not row["took_effect"]]
    took = len(harmful) - len(idle)
    facts = [("faults", f"{len(harmful)}, {took} of them took effect")]
    if idle:
        facts.append(("without effect", why_all_idle(idle)))
    return facts


def _watch_facts(run: RunData) -> list[tuple[str, str]]:
    """Returns what the live watch saw, and whether that ended the main phase."""
    seen = run.fact("stopped_early", "")
    if not seen:
        return []
    reasons: list[str] = run.tables["run_facts"].column("incomplete_reason").to_pylist()
    reason = reasons[-1] if reasons else ""
    if seen in reason:
        return [("stopped early", seen)]
    # What ended the run in another way hides whether the watch had ended its main phase.
    when = "" if reason else "after the main phase, so nothing was ended early: "
    return [("violation seen", when + seen)]


def verdict_lines(validity: str, reasons: list[str]) -> list[RenderableType]:
    """Returns the verdict in capitals, and its reasons below it."""
    return [word(validity.upper()), *(line(f"  {reason}") for reason in reasons)]


def _anomaly_parts(run: RunData) -> list[RenderableType]:
    rows = [
        (
            str(anomaly.get("id")),
            str(anomaly.get("level")),
            place_name(str(anomaly.get("topic")), anomaly.get("partition", -1)),
            str(anomaly.get("count")),
            str(anomaly.get("judgement")),
        )
        for anomaly in run.anomalies()
    ]
    if not rows:
        return []
    names = ("anomaly", "breaks", "where", "count", "judgement")
    return [line(""), table(names, rows, right={"count"})]


def _loss_parts(run: RunData) -> list[RenderableType]:
    rows = [
        (
            seconds(loss.at_ns) or "unknown",
            place_name(loss.topic, loss.partition),
            "unknown" if record.offset is None else str(record.offset),
            record.key,
            str(record.value),
            seconds(record.acked_ns),
        )
        for loss in find_losses(run)
        for record in loss.records
    ]
    if not rows:
        return []
    names = ("lost at", "where", "offset", "key", "value", "acked at")
    right = {"lost at", "offset", "value", "acked at"}
    parts: list[RenderableType] = [line(""), table(names, rows[:LOST_MAX], right=right)]
    if len(rows) > LOST_MAX:
        parts.append(line(f"and {len(rows) - LOST_MAX} more"))
    return parts


def _next_steps(run: RunData, run_dir: Path, replay: str, explain: str) -> list[RenderableType]:
    report = RunFiles(run_dir).report
    rows = [("report", str(report))] if report.exists() else []
    if explain and run.anomalies():
        rows.append(("explain", explain))
    if run.again_command:
        again = replay if replay and run.is_repeatable else run.again_command
        rows.append((run.again_word, again))
    width = max((len(name) for name, _ in rows), default=0)
    return [line(""), *(line(f"{name:<{width}}  {text}") for name, text in rows)]
