"""Apache Kafka for tests: the jars of a version as `laststand system fetch` keeps them, or a skip."""

import pytest

from harness.errors import UsageError
from harness.java import JavaRuntime
from harness.systems.apache_kafka.cache import VersionCache, fetch_command, version_cache
from harness.systems.apache_kafka.java import find_kafka_java
from harness.systems.apache_kafka.versions import parse_version


def kafka_or_skip(version: str) -> tuple[VersionCache, JavaRuntime]:
    """Returns the jars of a version and a Java that suits them; skips the test if either is missing."""
    cache = version_cache(parse_version(version))
    if not cache.is_fetched:
        pytest.skip(f"no jars of Apache Kafka {version}: `{fetch_command(cache.version)}`")
    try:
        return cache, find_kafka_java(cache.version)
    except UsageError as error:
        pytest.skip(str(error))
