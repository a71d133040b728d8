"""`laststand defects`: the bugs that the reference system can have on purpose, listed, shown and searched for."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.defect_search import add_search_options, search_defects
from harness.cli.options import (
    Subcommands,
    add_command,
    add_command_family,
    jobs_of,
    positive_number,
)
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.defects.check import Checked


def add_parser(commands: Subcommands) -> None:
    """Adds the command and its subcommands."""
    summary = (
        "list the bugs that the reference system can have on purpose, show them, or search for them"
    )
    actions = add_command_family(
        commands,
        "defects",
        summary,
        f"{summary[0].upper()}{summary[1:]}. Without ACTION it lists all.",
    )
    # `laststand defects` alone lists.
    commands.choices["defects"].set_defaults(action=list_defects, defect=[], json=False)
    listing = add_command(
        actions, "list", list_defects, "list the defects with what they do", stores_runs=False
    )
    run = add_command(
        actions,
        "run",
        run_defects,
        "run the schedule of each defect with the defect off and on, and compare what is found",
        stores_runs=False,
    )
    search = add_command(
        actions,
        "search",
        search_defects,
        "look for each defect with random faults, and count the runs that each oracle needs",
    )
    for parser in (listing, run, search):
        parser.add_argument(
            "defect",
            nargs="*",
            metavar="DEFECT",
            help="only these: an identifier such as B-18 or a name such as hw-not-gated",
        )
    run.add_argument(
        "--jobs", type=positive_number, metavar="N", help="run N at a time (default: one per core)"
    )
    add_search_options(search)


def list_defects(options: argparse.Namespace) -> int:
    """Lists defects."""
    from harness.defects.run_all import chosen_defects

    chosen = chosen_defects(options.defect)
    if options.json:
        print_json({"defects": [_described(defect) for defect in chosen]})
    else:
        show(*_listed(chosen))
    return exit_codes.VALID


def _described(defect: Any) -> dict[str, Any]:
    names = ("id", "name", "origin", "rules", "profile", "anomalies", "invariants", "sentence")
    return {name: getattr(defect, name) for name in names}


def _listed(chosen: list[Any]) -> "Iterator[RenderableType]":
    from harness.defects.table import LETTERS
    from results.tables import line, table

    yield table(
        ("id", "name", "profile", "rules off", "clients see", "what goes wrong"),
        [
            (
                defect.id,
                defect.name,
                defect.profile,
                ", ".join(defect.rules) or "-",
                " ".join(defect.anomalies) or "-",
                defect.sentence,
            )
            for defect in chosen
        ],
        folding={"rules off", "what goes wrong"},
    )
    yield line("")
    for letter in sorted({letter for defect in chosen for letter in defect.anomalies}):
        yield line(f"{letter}: {LETTERS[letter]}")


def run_defects(options: argparse.Namespace) -> int:
    """Runs the schedules of defects: 0 if each is found as described, 1 otherwise."""
    from harness.defects.run_all import chosen_defects, run_all

    chosen = chosen_defects(options.defect)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        results = list(run_all([one.id for one in chosen], jobs_of(options), progress))
    if options.json:
        print_json({"defects": [_json(one) for one in results]})
    else:
        show(*_parts(chosen, results))
    return exit_codes.INVALID if any(one.problems for one in results) else exit_codes.VALID


def _json(result: "Checked") -> dict[str, Any]:
    return {
        "id": result.id,
        "as_described": not result.problems,
        "problems": list(result.problems),
        "with_the_defect_off": list(result.control),
        "invariants": sorted(result.invariants),
        "clients_see": sorted(result.codes),
        "anomalies": sorted(result.anomalies),
    }


def _parts(chosen: list[Any], results: "list[Checked]") -> "Iterator[RenderableType]":
    from results.tables import line, table

    names = {defect.id: defect.name for defect in chosen}
    yield table(
        ("id", "name", "off", "monitor", "clients", "as described"),
        [
            (
                one.id,
                names[one.id],
                "FOUND" if one.control else "nothing",
                " ".join(sorted(one.invariants)) or "-",
                " ".join(sorted(one.codes)) or "-",
                "NO" if one.problems else "yes",
            )
            for one in results
        ],
    )
    yield line("")
    for one in results:
        for problem in one.problems:
            yield line(f"{one.id}: {problem}")
    found = sum(not one.problems for one in results)
    yield line(
        f"{found} of {len(results)} defects are found as described, "
        f"{sum(bool(one.control) for one in results)} findings with the defect off"
    )
