"""`laststand completion`: prints a script that completes commands and options in a shell."""

import argparse
from collections.abc import Iterator

from harness import exit_codes
from harness.cli.options import CommandParser, Subcommands, add_command
from harness.cli.output import print_json

SHELLS = ("bash", "zsh", "tcsh")
FILES = frozenset({"experiment", "config", "hosts"})
FOLDERS = frozenset({"run", "results", "directory"})
"""Arguments by the name they are parsed into. A stored run is completed as its directory."""


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "completion",
        completion,
        "print a completion script for a shell",
        stores_runs=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell to print the script for")


def completion(options: argparse.Namespace) -> int:
    """Prints a completion script."""
    import shtab

    parser: CommandParser = options.root_parser
    _describe_values(parser)
    script = shtab.complete(parser, shell=options.shell)
    if options.json:
        print_json({"shell": options.shell, "script": script})
    else:
        print(script)
    return exit_codes.VALID


def _describe_values(parser: CommandParser) -> None:
    """Adds to every argument what its value can be: a file, a directory, or one of a few names."""
    import shtab

    from harness.environments.registry import ENVIRONMENTS
    from harness.scenarios import FAMILIES
    from harness.systems.registry import SYSTEMS

    systems = [SYSTEMS.get(name) for name in SYSTEMS.built_in]
    names = {
        "on": ENVIRONMENTS,
        "profile": [name for system in systems for name in system.profiles],
        "timings": [name for system in systems for name in system.timings],
        "scenario": FAMILIES,
        "variant": [variant for family in FAMILIES.values() for variant in family],
    }
    for argument in _arguments(parser):
        if argument.dest in FILES:
            # The attribute is shtab's interface; argparse does not declare it.
            setattr(argument, "complete", shtab.FILE)  # noqa: B010
        elif argument.dest in FOLDERS:
            setattr(argument, "complete", shtab.DIRECTORY)  # noqa: B010
        elif argument.dest in names:
            argument.choices = list(names[argument.dest])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _arguments(below)
        else:
            yield action
