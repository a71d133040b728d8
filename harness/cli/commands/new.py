"""`laststand new`: writes an experiment file to start from."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command
from harness.cli.output import print_json
from harness.errors import UsageError


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "new",
        new,
        "write an experiment file that runs as it is, with every key and its description",
        stores_runs=False,
    )
    parser.add_argument(
        "name", metavar="NAME", help="name of the experiment, and of its file NAME.toml"
    )
    parser.add_argument(
        "--workload",
        default="append",
        metavar="NAME",
        help="append, consumer-group or transactions (default: %(default)s)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write this file (default: NAME.toml)"
    )


def new(options: argparse.Namespace) -> int:
    """Writes the file and prints its path; never replaces a file."""
    from harness.runs.experiment_template import template

    text = template(options.name, options.workload)
    path: Path = options.output or Path(f"{options.name}.toml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists; choose another name, or another file with -o") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    if options.json:
        print_json({"experiment": str(path)})
    else:
        print(path)
    return exit_codes.VALID
