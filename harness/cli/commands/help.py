"""`laststand help`: prints the help of a command."""

import argparse

from harness import exit_codes
from harness.cli.options import CommandParser, Subcommands, add_command
from harness.cli.output import print_json


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "help", show_help, "print the help of a command", stores_runs=False
    )
    parser.add_argument(
        "words", nargs="*", metavar="COMMAND", help="the command, for example cluster up"
    )


def show_help(options: argparse.Namespace) -> int:
    """Prints what `COMMAND --help` prints."""
    parser: CommandParser = options.root_parser
    for word in options.words:
        parser = parser.subcommand(word)
    if options.json:
        print_json({"of": parser.prog, "help": parser.format_help()})
    else:
        parser.print_help()
    return exit_codes.VALID
