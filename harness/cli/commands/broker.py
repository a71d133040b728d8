"""`laststand broker`: runs one node of the reference system."""

import argparse
from pathlib import Path

from harness.cli.options import Subcommands, add_command


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "broker",
        broker,
        "run one node, broker or controller, until SIGTERM",
        stores_runs=False,
    )
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        metavar="FILE",
        help="read the node's configuration from this file (node.toml)",
    )
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="stop when standard input closes, as nodes of a run do",
    )


def broker(options: argparse.Namespace) -> int:
    """Runs one node of the reference system."""
    from harness.systems.reference.adapter import run_node

    return run_node(options.config, ends_with_stdin=options.until_stdin_closes)
