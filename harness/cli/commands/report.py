"""`laststand report`: renders the report of a stored run again."""

import argparse

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_run_argument
from harness.cli.output import print_json
from harness.cli.runs import open_store


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "report", report, "render the report of a stored run and print its path"
    )
    add_run_argument(parser)


def report(options: argparse.Namespace) -> int:
    """Renders a stored run's report again."""
    from harness.runs.outcomes import stored_verdict
    from results.report.build import build_report

    store = open_store(options)
    directory = store.find(options.run)
    stored_verdict(directory)
    path = build_report(directory)
    store.publish(directory)
    if options.json:
        print_json({"report": str(path)})
    else:
        print(path)
    return exit_codes.VALID
