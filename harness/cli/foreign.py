"""Checking a history from elsewhere: what is printed, and the exit code."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import EXIT_CODE_OF
from harness.errors import UsageError
from results.text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.history.foreign.read import ForeignHistory, Format, Stated

ORDER_SHOWN = 8
"""Operations of the longest order that are shown; `--json` has them all."""


def _refuse_unfit(
    options: argparse.Namespace, path: Path, history: "ForeignHistory", stated: "Stated"
) -> None:
    """Refuses options that mean nothing for what a file is about."""
    from harness.history.foreign.read import Stated, Workload
    from harness.runs.foreign_models import model_of

    if history.log is None and stated != Stated():
        raise UsageError(
            f"acks, gaps, retries and log starts can be stated for logs only; {path} is judged as"
            f" {model_of(history)}"
        )
    for option, workload, what, judged in (
        ("promise", Workload.LIST_APPEND, "an isolation level", "list-append"),
        ("initial", Workload.MODEL, "an initial value", "models"),
        ("time_limit", Workload.MODEL, "a time limit", "models"),
    ):
        if getattr(options, option) is not None and history.workload != workload:
            raise UsageError(
                f"{what} can be stated for {judged} only, and {path} is judged as {model_of(history)}; leave out"
                f" --{option.replace('_', '-')}"
            )


def check_file(options: argparse.Namespace, path: Path, *, acks: int | None) -> int:
    """Judges the history in a file, prints the verdict, and returns its exit code.

    If a picture is asked for and cannot be made, standard error says why, after the verdict.

    Args:
        options: Of the command.
        path: The file.
        acks: What producers requested, if the user states it.

    Raises:
        UsageError: An option is not for what the file is about.
        HistoryError: The file cannot be read, or is not a history.
    """
    from checkers.kernels.transactions.isolation import require_level
    from harness.history.foreign.json_lines import read_value
    from harness.history.foreign.read import Format, Stated, read_history
    from harness.runs.foreign import JudgeOptions, foreign_summary, judge_foreign
    from harness.runs.foreign_models import NOT_STATED, TIME_LIMIT_S, ModelOptions

    if options.promise is not None:
        require_level(options.promise)
    if options.initial is not None:
        # Reading the file may take long. Only its format decides which value this is.
        read_value(options.initial, origin="--initial")
    stated = Stated(
        acks=acks,
        sparse=options.sparse,
        at_least_once=options.at_least_once,
        compacted=options.compacted,
        log_start_offset=options.log_start_offset,
    )
    with StandardErrorProgress(quiet=options.quiet) as progress:
        progress.message(f"reading {path}")
        history = read_history(
            path,
            form=Format(options.format or Format.AUTO),
            model=options.model or "",
            stated=stated,
        )
        _refuse_unfit(options, path, history, stated)
        judge_options = JudgeOptions(
            model=ModelOptions(
                initial=NOT_STATED
                if options.initial is None
                else _initial(options.initial, history.format),
                time_limit_s=options.time_limit or TIME_LIMIT_S,
            ),
            promise=options.promise or "",
        )
        progress.message(f"judging {history.operation_count} operations")
        judged = judge_foreign(history, judge_options)
    summary = foreign_summary(history, judged)
    if options.json:
        print_json(summary)
    else:
        show(*_parts(summary))
    # Only after the verdict, which does not depend on the picture; neither does the exit code.
    objection = "" if options.picture is None else _write_picture(options.picture, judged.picture)
    if objection:
        sys.stdout.flush()
        print(f"laststand: {plain(objection)}", file=sys.stderr)
    return EXIT_CODE_OF[summary["verdict"]]


def _initial(text: str, form: "Format") -> Any:
    """Returns the value that --initial states, with numbers that are equal to those of the file."""
    from harness.history.foreign.edn import read_one
    from harness.history.foreign.json_lines import read_value
    from harness.history.foreign.read import Format

    return (read_value if form == Format.JSONL else read_one)(text, origin="--initial")


def _parts(summary: dict[str, Any]) -> "list[RenderableType]":
    """Returns the summary of a judged history as lines and tables."""
    from results.report.run import text_of_levels
    from results.report.terminal import verdict_lines
    from results.tables import line, table

    levels = text_of_levels(summary["levels"])
    others = {**summary["events_of_no_client"], **summary["operations_without_facts"]}
    facts = [
        ("file", summary["file"]),
        ("format", summary["format"]),
        ("judged as", summary["model"]),
        ("operations", str(summary["operations"])),
        ("not judged", ", ".join(f"{name} ({count})" for name, count in others.items()) or "none"),
        # Models state none.
        *([("levels", levels)] if levels else []),
    ]
    parts = [
        *verdict_lines(summary["verdict"], summary["reasons"]),
        line(""),
        table(("", " "), facts, header=False),
    ]
    if summary["anomalies"]:
        rows = [(one["id"], str(one["count"]), one["judgement"]) for one in summary["anomalies"]]
        names = ("anomaly", "count", "judgement")
        parts += [line(""), table(names, rows, right={"count"})]
    if summary["named_operations"]:
        rows = [
            (str(one["operation"]), "" if one["line"] is None else str(one["line"]), one["text"])
            for one in summary["named_operations"]
        ]
        columns = ("op", "line", "what it is")
        parts += [line(""), table(columns, rows, right={"op", "line"})]
    if summary["longest_order"]:
        parts += _order(summary["longest_order"])
    return parts


def _order(steps: list[dict[str, Any]]) -> "list[RenderableType]":
    """Returns the end of the longest order that the model allows."""
    from results.tables import line, table

    before = f", the last {ORDER_SHOWN} of {len(steps)} operations"
    rows = [
        (
            str(one["operation"]),
            "" if one["line"] is None else str(one["line"]),
            one["text"],
            one["state"],
        )
        for one in steps[-ORDER_SHOWN:]
    ]
    columns = ("op", "line", "what it is", "state after it")
    return [
        line(""),
        line(
            f"the longest order that the model allows{before if len(steps) > ORDER_SHOWN else ''}:"
        ),
        table(columns, rows, right={"op", "line"}),
    ]


def _write_picture(path: Path, picture: str) -> str:
    """Writes a picture, if there is one; returns why the file was not written, empty if it was."""
    if not picture:
        return (
            f"{path} was not written, because there is nothing to draw: a picture shows an object that a model did"
            " not find valid"
        )
    try:
        path.write_text(picture + "\n", encoding="utf-8")
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return ""
