"""Where the jars of a version, and what is made from them, are kept.

    CACHE/apache-kafka/4.1.2/lib/           the jars; the directory exists only if it is complete
    CACHE/apache-kafka/4.1.2/incomplete/    verified jars of a fetch that has not finished
    CACHE/apache-kafka/4.1.2/java-KEY.jsa   class-data archive for one Java
    CACHE/apache-kafka/4.1.2/formatted/     files of a formatted node by role and feature levels

CACHE is `LASTSTAND_CACHE`, else `laststand` in `XDG_CACHE_HOME`, else `~/.cache/laststand`.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.java import JavaRuntime, cache_directory
from harness.systems.apache_kafka.jars import Jar, locked_jars, locked_tools
from harness.systems.apache_kafka.versions import NAME, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCache:
    """The cached files of one version.

    Attributes:
        version: Which one.
        directory: Absolute; may not exist.
    """

    version: Version
    directory: Path

    @property
    def lib(self) -> Path:
        """The directory of the jars."""
        return self.directory / "lib"

    @property
    def jars(self) -> tuple[Jar, ...]:
        """The jars of a node."""
        return locked_jars(self.version)

    @property
    def tools(self) -> tuple[Jar, ...]:
        """The jars that Kafka's command-line tools need in addition."""
        return locked_tools(self.version)

    @property
    def all_jars(self) -> tuple[Jar, ...]:
        """The jars of the directory: a node's, then those of the tools."""
        return (*self.jars, *self.tools)

    @property
    def jar_paths(self) -> list[Path]:
        """Paths of a node's jars in the order of the class path, whether they are there or not."""
        return [self.lib / jar.file_name for jar in self.jars]

    @property
    def tool_paths(self) -> list[Path]:
        """Paths of the class path of tools, whether the jars are there or not.

        A node's jars come first and in the same order, so that the class-data archive of nodes serves tools, too.
        """
        return [*self.jar_paths, *(self.lib / jar.file_name for jar in self.tools)]

    @property
    def is_fetched(self) -> bool:
        """Whether every jar of a node is there with its size; checksums were verified when it was fetched."""
        return self._has(self.jars)

    @property
    def has_tools(self) -> bool:
        """Whether the jars of a node and those of the tools are there; earlier releases fetched no tools."""
        return self._has(self.all_jars)

    def _has(self, jars: Iterable[Jar]) -> bool:
        try:
            return all((self.lib / jar.file_name).stat().st_size == jar.bytes for jar in jars)
        except OSError:
            return False

    def archive(self, java: JavaRuntime) -> Path:
        """Returns where the class-data archive for this Java and this place of the jars is kept."""
        key = hashlib.blake2b(f"{java.home}|{java.version}|{self.lib}".encode(), digest_size=6)
        return self.directory / f"java-{java.version}-{key.hexdigest()}.jsa"

    def require(self) -> None:
        """Checks that the version is fetched.

        Raises:
            UsageError: It is not; the sentence names the command that fetches it.
        """
        if not self.is_fetched:
            raise UsageError(
                f"the jars of Apache Kafka {self.version} are not in {self.lib}; "
                f"`{fetch_command(self.version)}` gets them"
            )


def version_cache(version: Version, root: Path | None = None) -> VersionCache:
    """Returns the cached files of a version.

    Args:
        version: Which one.
        root: The cache directory, if it is not the usual one.
    """
    root = (cache_directory() if root is None else root).absolute()
    return VersionCache(version=version, directory=root / NAME / str(version))


def fetch_command(version: Version) -> str:
    """Returns the command that fetches a version, for messages."""
    return f"laststand system fetch {NAME} {version}"
