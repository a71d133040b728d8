"""`laststand system`: fetches the systems under test that laststand does not contain."""

import argparse
from pathlib import Path

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_command_family
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.contracts.programs import Fetchable, FetchRequest
from harness.errors import UsageError
from harness.java import cache_directory
from harness.names import unknown_name


def add_parser(commands: Subcommands) -> None:
    """Adds the command and its subcommands."""
    actions = add_command_family(
        commands,
        "system",
        "fetch the systems that are tested: fetch, list",
        "Manage the systems under test that laststand does not contain.",
    )
    summary = "get a version of a system and prepare a fast start"
    parser = add_command(actions, "fetch", fetch, summary, stores_runs=False)
    parser.add_argument("system", metavar="SYSTEM", help="the system, for example apache-kafka")
    parser.add_argument("version", metavar="VERSION", help="its version, for example 4.1.2")
    parser.add_argument(
        "--repository",
        default="",
        metavar="URL",
        help="download from this Maven repository, without Maven "
        "(default: LASTSTAND_MAVEN_REPOSITORY, else as Maven is configured)",
    )
    parser.add_argument(
        "--binary",
        type=Path,
        metavar="FILE",
        help="use this program instead of fetching one, if the system consists of a single program",
    )
    parser.add_argument(
        "--no-archive",
        action="store_true",
        help="make no class-data archive; nodes start more slowly",
    )
    _add_cache(parser)
    summary = "list the systems and versions, and which of them are fetched"
    _add_cache(add_command(actions, "list", list_systems, summary, stores_runs=False))


def _add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep downloads in this directory (default: LASTSTAND_CACHE, else ~/.cache/laststand)",
    )


def fetch(options: argparse.Namespace) -> int:
    """Gets a version of a system."""
    from harness.systems.registry import SYSTEMS

    # Only this one is loaded: a broken package of another system must not matter.
    is_known = options.system in SYSTEMS.names()
    system: object = SYSTEMS.get(options.system) if is_known else None
    if not isinstance(system, Fetchable):
        raise UsageError(unknown_name("system that can be fetched", options.system, _fetchable()))
    with StandardErrorProgress(quiet=options.quiet) as progress:
        report = system.fetch(
            FetchRequest(
                version=options.version,
                cache=options.cache or cache_directory(),
                progress=progress,
                binary=options.binary,
                repository=options.repository,
                with_archive=not options.no_archive,
            )
        )
    if options.json:
        print_json({"system": options.system, **report.data})
        return exit_codes.VALID
    for line in report.lines:
        print(line)
    return exit_codes.VALID


def list_systems(options: argparse.Namespace) -> int:
    """Lists systems and versions, and which of them are fetched."""
    from results.tables import table

    rows = [
        {
            "system": name,
            "version": program.version,
            "profile": program.profile,
            "needs": program.needs,
            "is_fetched": program.is_fetched,
            "directory": str(program.directory),
        }
        for name, system in _fetchable().items()
        for program in system.programs(options.cache or cache_directory())
    ]
    if options.json:
        print_json({"systems": rows})
        return exit_codes.VALID
    names = ("system", "version", "profile", "needs", "fetched")
    cells = [
        (
            *(str(row[name]) for name in names[:4]),
            str(row["directory"]) if row["is_fetched"] else "no",
        )
        for row in rows
    ]
    show(table(names, cells))
    return exit_codes.VALID


def _fetchable() -> dict[str, Fetchable]:
    """Returns the systems whose programs can be fetched, by name."""
    from harness.systems.registry import SYSTEMS

    systems = {name: SYSTEMS.get(name) for name in SYSTEMS.names()}
    return {name: system for name, system in systems.items() if isinstance(system, Fetchable)}
