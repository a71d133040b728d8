"""What the commands for single runs share: the store, the printed summary, the exit code."""

import argparse
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import parse_judging_options
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.errors import UsageError, usage_errors_of
from results.layout import DEFAULT_ROOT, RunFiles, is_run_name
from results.store import RunStore
from results.text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from checkers.spark import SparkOptions
    from harness.runs.experiment import Experiment

EXIT_CODE_OF = {
    "valid": exit_codes.VALID,
    "invalid": exit_codes.INVALID,
    "unknown": exit_codes.UNKNOWN,
}
_BY_SEVERITY = (exit_codes.VALID, exit_codes.UNKNOWN, exit_codes.INVALID)


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_store(options: argparse.Namespace, *, to_write: bool = False) -> RunStore:
    """Returns the run store that `--results` names.

    Raises:
        UsageError: It is not a directory, or cannot be created; or it is a URI that cannot be opened.
        HarnessFailure: The store at a URI cannot be read.
    """
    if _URI.match(str(options.results)):
        return _open_remote(options.results)
    root = Path(options.results)
    try:
        if to_write:
            root.mkdir(parents=True, exist_ok=True)
        if root.exists() and not root.is_dir():
            raise UsageError(f"--results {root} is not a directory")
    except OSError as error:
        raise UsageError(f"--results {root} cannot be a directory: {error.strerror}") from None
    return RunStore(root)


def _open_remote(uri: str) -> RunStore:
    """Opens a store at a URI, and learns what is in it: an unreachable one is reported before a run is made."""
    # Loading Arrow takes a quarter of a second, which most commands would waste.
    from results.remote_store import RemoteStore

    store = RemoteStore(uri)
    try:
        store.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{store.root}, the working directory for {uri}, cannot be made: {error.strerror}"
        ) from None
    store.refresh()
    return store


def spark_for(options: argparse.Namespace, store: RunStore) -> "SparkOptions":
    """Returns the Spark options for judging runs of a store.

    Raises:
        UsageError: See `parse_judging_options`; or the workers of the master cannot read the store.
    """
    spark = parse_judging_options(options)
    if spark.enabled and spark.is_cluster and not store.is_shared:
        raise UsageError(
            f"the workers of {spark.master} cannot read {store.place}, which is a directory of this machine; name "
            "the store by a URI that they read too, such as --results s3a://bucket/runs or, on a disk that all "
            "machines mount, --results file:///mnt/runs; or judge with --no-spark"
        )
    return spark


def run_and_judge(
    options: argparse.Namespace,
    experiment: "Experiment",
    *,
    file: Path | None = None,
    coverage: bool = False,
) -> int:
    """Runs an experiment once, prints its summary, and returns the exit code of its verdict.

    Args:
        options: The command line.
        experiment: What to run.
        file: The file that it was read from, which errors about it name.
        coverage: Whether to report what the run reached; it is simulated then.
    """
    from harness.runs.execute import judge, record

    store = open_store(options, to_write=True)
    spark = spark_for(options, store)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        with usage_errors_of(file):
            directory = record(experiment, options.seed, store, progress, coverage=coverage)
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
        show(*run_parts(options, directory, summary))


def command_for(options: argparse.Namespace, directory: Path, command: str, *more: str) -> str:
    """Returns a command about a stored run that works as printed, whatever store it is in."""
    name, store = str(directory), str(options.results)
    resolved = directory.resolve()
    is_inside = bool(_URI.match(store)) or resolved.parent.parent == Path(store).resolve()
    if is_inside and is_run_name(resolved.name):
        name = f"{resolved.parent.name}/{resolved.name}"
    words = ["laststand", command, name, *more]
    # Without `--results`, a command would look in, and store its own runs in, another store.
    if store != str(DEFAULT_ROOT):
        words += ["--results", store]
    return shlex.join(words)


def run_parts(
    options: argparse.Namespace, directory: Path, summary: Mapping[str, Any]
) -> "list[RenderableType]":
    """Returns the summary of a judged run as lines and tables."""
    from results.report.terminal import terminal_summary, verdict_lines
    from results.tables import line

    if "report_error" in summary:
        error = plain(str(summary["report_error"]))
        print(f"laststand: no report could be made: {error}", file=sys.stderr)
        parts = verdict_lines(summary["verdict"], list(summary["reasons"]))
    else:
        parts = terminal_summary(
            directory,
            replay=command_for(options, directory, "replay"),
            explain=command_for(options, directory, "explain"),
        )
    if "predicted" in summary:
        as_predicted = bool(summary["as_predicted"])
        word = "as predicted" if as_predicted else "NOT as predicted"
        sentence = f"outcome {summary['outcome']!r}, predicted {summary['predicted']!r}: {word}"
        parts += [line(""), line(sentence, "" if as_predicted else "bold red")]
    if "coverage" in summary:
        parts += [line(""), *map(line, coverage_sentences(summary["coverage"]))]
    return parts


def coverage_sentences(coverage: Mapping[str, Any]) -> list[str]:
    """Returns how much a run reached, and its smallest margins; `--json` and `run.json` have the names."""
    kinds = Counter(name.split()[0] for name in coverage["features"])
    decisions = kinds["rule"]
    margins = ", ".join(f"{name} {margin}" for name, margin in coverage["margins"].items())
    return [
        f"coverage: {len(coverage['features'])} features, {decisions} of them decisions of rules",
        *([f"smallest margins: {margins}"] if margins else []),
    ]
