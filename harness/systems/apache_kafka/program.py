"""`laststand system fetch apache-kafka`: the jars, the class-data archive and the library that moves the clock."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.contracts.programs import FetchReport, FetchRequest, Program
from harness.contracts.progress import ProgressDisplay
from harness.errors import HarnessFailure, UsageError
from harness.systems.apache_kafka.cache import VersionCache, version_cache
from harness.systems.apache_kafka.versions import (
    NAME,
    SUPPORTED,
    feature_levels,
    java_range,
    parse_version,
    profile_name,
)


def fetch_program(request: FetchRequest) -> FetchReport:
    """Downloads a version; makes a class-data archive if this machine has a suitable Java."""
    from harness.systems.apache_kafka.fetch import fetch as fetch_jars

    if request.binary is not None:
        raise UsageError(
            f"{NAME} consists of jars, which have no single program; leave --binary out"
        )
    cache = version_cache(parse_version(request.version), request.cache)
    fetched = fetch_jars(cache, request.progress, repository=request.repository)
    archive, notice = None, ""
    if request.with_archive:
        archive, notice = _make_archive(cache, request.progress)
    clock, clock_notice = _build_clock_library(request.cache)
    data: dict[str, Any] = {
        "version": str(cache.version),
        "directory": str(cache.lib),
        "jars": len(cache.all_jars),
        "bytes": sum(jar.bytes for jar in cache.all_jars),
        "was_there": fetched.was_there,
        "reused": fetched.reused,
        "downloaded": fetched.downloaded,
        "archive": None if archive is None else str(archive),
        "notice": notice,
        "clock_library": None if clock is None else str(clock),
        "clock_notice": clock_notice,
    }
    lines = [
        f"{NAME} {cache.version}: {data['jars']} jars, {data['bytes'] >> 20} MiB in {cache.lib}"
    ]
    if notice:
        lines.append(f"notice: {notice}; nodes start without a class-data archive, and more slowly")
    if clock_notice:
        lines.append(f"notice: {clock_notice}; until then, clock faults are refused")
    return FetchReport(lines=lines, data=data)


def _make_archive(cache: VersionCache, progress: ProgressDisplay) -> tuple[Path | None, str]:
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


def _build_clock_library(cache: Path) -> tuple[Path | None, str]:
    """Returns the library that moves the clock of a JVM, or why there is none."""
    from harness.systems.preload.library import build_library

    try:
        return build_library(cache), ""
    except UsageError as error:
        return None, str(error)


def known_programs(root: Path) -> Sequence[Program]:
    """Returns all supported versions."""
    found = []
    for version in SUPPORTED:
        cache = version_cache(version, root)
        found.append(
            Program(
                version=str(version),
                profile=profile_name(version, feature_levels(version)),
                needs=str(java_range(version)),
                is_fetched=cache.is_fetched,
                directory=cache.lib,
            )
        )
    return found
