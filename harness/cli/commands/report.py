"""`laststand report`: renders the report of a stored run again."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_run_argument
from harness.cli.output import print_json
from harness.cli.progress import StandardErrorProgress
from harness.cli.runs import open_store
from harness.errors import UsageError


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "report", report, "render the report of a stored run and print its path"
    )
    add_run_argument(parser)
    parser.add_argument(
        "--messages",
        action="store_true",
        help="repeat the run, which must be simulated, and add the messages around the decisive moment; "
        "the report of a real run whose nodes recorded them has them anyway",
    )


def report(options: argparse.Namespace) -> int:
    """Renders a stored run's report again."""
    from harness.runs.outcomes import stored_verdict
    from results.report.build import build_report

    store = open_store(options)
    directory = store.find(options.run)
    stored_verdict(directory)
    if options.messages:
        _add_messages(options, directory)
    path = build_report(directory)
    store.publish(directory)
    if options.json:
        print_json({"report": str(path)})
    else:
        print(path)
    return exit_codes.VALID


def _add_messages(options: argparse.Namespace, directory: Path) -> None:
    """Stores the messages around the moment that decided the most important anomaly.

    Raises:
        UsageError: The run has no such moment, or is not simulated.
    """
    from harness.runs.messages import record_messages
    from results.report.argument import arguments_of
    from results.report.run import RunData
    from results.report.spacetime import store_messages, window_of
    from results.report.story import find_losses

    run = RunData(directory)
    arguments = arguments_of(run, find_losses(run))
    first = next((one for one in arguments if one.tone != "calm"), None)
    window_ns = None if first is None else window_of(first, run.end_ns)
    if window_ns is None:
        raise UsageError(
            f"{directory} has no anomaly with a decisive moment, so there are no messages to show; "
            "leave --messages out"
        )
    with StandardErrorProgress(quiet=options.quiet) as progress:
        progress.message("repeating the run to record its messages")
        store_messages(run, window_ns, record_messages(directory, *window_ns))
