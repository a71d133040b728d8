"""`laststand list`: lists the stored runs."""

import argparse

from harness import exit_codes
from harness.cli.options import Subcommands, add_command
from harness.cli.output import print_json, show
from harness.cli.runs import open_store


def add_parser(commands: Subcommands) -> None:
    """Adds the command."""
    add_command(commands, "list", list_runs, "list the stored runs, newest first")


def list_runs(options: argparse.Namespace) -> int:
    """Lists the stored runs, newest first."""
    entries = open_store(options).list()
    if options.json:
        rows = [
            {
                "run": entry.id,
                "seed": entry.seed,
                "verdict": entry.verdict,
                "profile": entry.summary.get("profile", ""),
                "unexcused_lost_records": entry.unexcused_lost_records,
            }
            for entry in entries
        ]
        print_json({"runs": rows})
        return exit_codes.VALID
    if not entries:
        print(f"no runs in {options.results} yet; `laststand reproduce` makes one")
        return exit_codes.VALID
    from results.tables import table

    cells = [
        (
            entry.verdict,
            str(entry.summary.get("profile", "")),
            str(entry.unexcused_lost_records),
            entry.id,
        )
        for entry in entries
    ]
    show(table(("verdict", "profile", "lost", "run"), cells, right={"lost"}))
    return exit_codes.VALID
