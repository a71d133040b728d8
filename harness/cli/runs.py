"""What the commands for single runs share: the store, the printed summary, the exit code."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import parse_spark_options
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError
from results.layout import RunFiles
from results.store import RunStore
from results.text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.runs.experiment import Experiment

EXIT_CODE_OF = {
    "valid": exit_codes.VALID,
    "invalid": exit_codes.INVALID,
    "unknown": exit_codes.UNKNOWN,
}
_BY_SEVERITY = (exit_codes.VALID, exit_codes.UNKNOWN, exit_codes.INVALID)


def open_store(options: argparse.Namespace, *, to_write: bool = False) -> RunStore:
    """Returns the run store that `--results` names.

    Raises:
        UsageError: It is not a directory, or cannot be created.
    """
    root: Path = options.results
    try:
        if to_write:
            root.mkdir(parents=True, exist_ok=True)
        if root.exists() and not root.is_dir():
            raise UsageError(f"--results {root} is not a directory")
    except OSError as error:
        raise UsageError(f"--results {root} cannot be a directory: {error.strerror}") from None
    return RunStore(root)


def run_and_judge(options: argparse.Namespace, experiment: "Experiment") -> int:
    """Runs an experiment once, prints its summary, and returns the exit code of its verdict."""
    from harness.runs.execute import judge, record

    spark = parse_spark_options(options)
    store = open_store(options, to_write=True)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        directory = record(experiment, options.seed, store, progress)
        (summary,) = judge([directory], store, spark, progress)
    print_run(options, directory, summary)
    return EXIT_CODE_OF[summary["verdict"]]


def worst_exit_code(summaries: list[dict[str, Any]]) -> int:
    """Returns the exit code of the worst verdict."""
    codes = (EXIT_CODE_OF[summary["verdict"]] for summary in summaries)
    return max(codes, key=_BY_SEVERITY.index)


def print_run(options: argparse.Namespace, directory: Path, summary: Mapping[str, Any]) -> None:
    """Prints the summary of a judged run."""
    if options.json:
        report_path = str(RunFiles(directory).report)
        print_json({**summary, "directory": str(directory), "report": report_path})
    else:
        show(*run_parts(directory, summary))


def run_parts(directory: Path, summary: Mapping[str, Any]) -> "list[RenderableType]":
    """Returns the summary of a judged run as lines and tables."""
    from results.report.terminal import terminal_summary, verdict_lines
    from results.tables import line

    if "report_error" in summary:
        error = plain(str(summary["report_error"]))
        print(f"laststand: no report could be made: {error}", file=sys.stderr)
        parts = verdict_lines(summary["verdict"], list(summary["reasons"]))
    else:
        parts = terminal_summary(directory)
    if "predicted" in summary:
        as_predicted = bool(summary["as_predicted"])
        word = "as predicted" if as_predicted else "NOT as predicted"
        sentence = f"outcome {summary['outcome']!r}, predicted {summary['predicted']!r}: {word}"
        parts += [line(""), line(sentence, "" if as_predicted else "bold red")]
    return parts
