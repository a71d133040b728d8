"""`laststand trace`: exports a stored run for Perfetto and chrome://tracing."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_run_argument
from harness.cli.output import print_json
from harness.cli.runs import open_store
from harness.errors import UsageError
from results.layout import RunFiles


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "trace", trace, "write a stored run as a trace for ui.perfetto.dev"
    )
    add_run_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write this file (default: trace.json in the run's directory)",
    )


def trace(options: argparse.Namespace) -> int:
    """Writes the trace of a stored run and prints its path."""
    from results.report.trace import write_trace

    store = open_store(options)
    directory = store.find(options.run)
    path: Path = options.output or RunFiles(directory).trace
    try:
        count = write_trace(directory, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    if options.output is None:
        store.publish(directory)
    if options.json:
        print_json({"trace": str(path), "events": count})
    else:
        print(path)
    return exit_codes.VALID
