"""What a system under test needs from this machine (`laststand doctor --system`)."""

from pathlib import Path

from harness.cli.doctor import Finding
from harness.errors import UsageError
from harness.names import unknown_name
from harness.systems.apache_kafka.cache import fetch_command, version_cache
from harness.systems.apache_kafka.java import find_kafka_java
from harness.systems.apache_kafka.versions import NAME, SUPPORTED, Version, parse_version
from harness.systems.preload.library import find_library
from harness.systems.registry import REFERENCE


def examine_system(system: str, cache: Path | None = None) -> list[Finding]:
    """Examines what a system needs.

    Args:
        system: Its name, with ":" and a version or without.
        cache: The cache directory, if it is not the usual one.

    Returns:
        One finding per thing. With a version, something that is missing is bad; without one, versions that are not
        fetched are only listed.

    Raises:
        UsageError: There is no such system or version.
    """
    name, separator, text = system.partition(":")
    if name == REFERENCE and not separator:
        return [Finding(name=REFERENCE, is_good=True, text="is a part of laststand")]
    if name != NAME:
        raise UsageError(unknown_name("system", name, [REFERENCE, NAME]))
    if separator:
        return _version(parse_version(text), cache)
    return [_listed(version, cache) for version in SUPPORTED]


def _listed(version: Version, root: Path | None) -> Finding:
    cache = version_cache(version, root)
    return Finding(
        name=f"{NAME}:{version}",
        is_good=True,
        text=f"in {cache.lib}" if cache.is_fetched else "not fetched",
        hint="" if cache.is_fetched else f"`{fetch_command(version)}`",
        state="" if cache.is_fetched else "--",
    )


def _version(version: Version, root: Path | None) -> list[Finding]:
    cache = version_cache(version, root)
    command = f"`{fetch_command(version)}`"
    is_fetched = cache.is_fetched
    jars = Finding(
        name="jars",
        is_good=is_fetched,
        text=f"{len(cache.jars)} jars in {cache.lib}" if is_fetched else f"missing in {cache.lib}",
        hint="" if is_fetched else command,
    )
    try:
        java = find_kafka_java(version)
    except UsageError as error:
        return [jars, Finding(name="kafka java", is_good=False, text=str(error))]
    found = Finding(
        name="kafka java",
        is_good=True,
        text=f"{java.version} from {java.source} ({java.home})",
    )
    archive = cache.archive(java)
    if archive.exists():
        text, hint = f"{archive.stat().st_size >> 20} MiB in {archive}", ""
    else:
        text, hint = "none for this Java: nodes take twice as long to start", command
    # Only the start is slower without it: not a failure.
    findings = [jars, found, Finding(name="kafka archive", is_good=True, text=text, hint=hint)]
    library = find_library(root)
    clock = f"{library}" if library else "not built: clock faults are refused"
    hint = "" if library else command
    return [*findings, Finding(name="kafka clock", is_good=True, text=clock, hint=hint)]
