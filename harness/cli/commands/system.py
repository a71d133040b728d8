"""`laststand system`: fetches the systems under test that laststand does not contain."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import exit_codes
from harness.cli.options import Subcommands, add_command, add_command_family
from harness.cli.output import print_json, show
from harness.cli.progress import StandardErrorProgress
from harness.errors import HarnessFailure, UsageError
from harness.names import unknown_name

if TYPE_CHECKING:
    from harness.systems.apache_kafka.cache import VersionCache


def add_parser(commands: Subcommands) -> None:
    """Adds the command and its subcommands."""
    actions = add_command_family(
        commands,
        "system",
        "fetch the systems that are tested: fetch, list",
        "Manage the systems under test that laststand does not contain.",
    )
    summary = "download a version of a system and prepare a fast start"
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
    """Downloads a version of a system; makes a class-data archive if this machine has a suitable Java."""
    from harness.systems.apache_kafka.cache import version_cache
    from harness.systems.apache_kafka.fetch import fetch as fetch_jars
    from harness.systems.apache_kafka.versions import NAME, parse_version

    if options.system != NAME:
        raise UsageError(unknown_name("system that can be fetched", options.system, [NAME]))
    cache = version_cache(parse_version(options.version), options.cache)
    with StandardErrorProgress(quiet=options.quiet) as progress:
        fetched = fetch_jars(cache, progress, repository=options.repository)
        archive, notice = None, ""
        if not options.no_archive:
            archive, notice = _make_archive(cache, progress)
        clock, clock_notice = _build_clock_library(options.cache)
    data: dict[str, Any] = {
        "system": NAME,
        "version": str(cache.version),
        "directory": str(cache.lib),
        "jars": len(cache.jars),
        "bytes": sum(jar.bytes for jar in cache.jars),
        "was_there": fetched.was_there,
        "reused": fetched.reused,
        "downloaded": fetched.downloaded,
        "archive": None if archive is None else str(archive),
        "notice": notice,
        "clock_library": None if clock is None else str(clock),
        "clock_notice": clock_notice,
    }
    if options.json:
        print_json(data)
        return exit_codes.VALID
    print(f"{NAME} {cache.version}: {data['jars']} jars, {data['bytes'] >> 20} MiB in {cache.lib}")
    if notice:
        print(f"notice: {notice}; nodes start without a class-data archive, and more slowly")
    if clock_notice:
        print(f"notice: {clock_notice}; until then, clock faults are refused")
    return exit_codes.VALID


def _make_archive(
    cache: "VersionCache", progress: StandardErrorProgress
) -> tuple[Path | None, str]:
    """Returns the class-data archive, or why there is none."""
    from harness.systems.apache_kafka.archive import make_archive
    from harness.systems.apache_kafka.java import find_kafka_java

    try:
        java = find_kafka_java(cache.version)
        if not cache.archive(java).exists():
            progress.message("making the class-data archive (once, about 20 s)")
        return make_archive(cache, java), ""
    except (UsageError, HarnessFailure) as error:
        return None, str(error)


def _build_clock_library(cache: Path | None) -> tuple[Path | None, str]:
    """Returns the library that moves the clock of a JVM, or why there is none."""
    from harness.systems.preload.library import build_library

    try:
        return build_library(cache), ""
    except UsageError as error:
        return None, str(error)


def list_systems(options: argparse.Namespace) -> int:
    """Lists systems and versions, and which of them are fetched."""
    from harness.systems.apache_kafka.cache import version_cache
    from harness.systems.apache_kafka.versions import (
        NAME,
        SUPPORTED,
        feature_levels,
        java_range,
        profile_name,
    )
    from results.tables import table

    rows = []
    for version in SUPPORTED:
        cache = version_cache(version, options.cache)
        rows.append(
            {
                "system": NAME,
                "version": str(version),
                "profile": profile_name(version, feature_levels(version)),
                "java": str(java_range(version)),
                "is_fetched": cache.is_fetched,
                "directory": str(cache.lib),
            }
        )
    if options.json:
        print_json({"systems": rows})
        return exit_codes.VALID
    names = ("system", "version", "profile", "needs", "fetched")
    cells = [
        (
            str(row["system"]),
            str(row["version"]),
            str(row["profile"]),
            str(row["java"]),
            str(row["directory"]) if row["is_fetched"] else "no",
        )
        for row in rows
    ]
    show(table(names, cells))
    return exit_codes.VALID
