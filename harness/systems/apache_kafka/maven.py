"""Maven on this machine: its local repository, its settings, and copying jars with it."""

import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.systems.apache_kafka.jars import Jar

TIMEOUT_S = 1800
"""Maven needs a minute with an empty local repository; half an hour means that it hangs."""
_ALL_MIRRORS = frozenset({"*", "central", "external:*"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MavenSettings:
    """What this user's `settings.xml` says about repositories.

    Attributes:
        local_repository: Where Maven keeps what it downloaded.
        mirror: Address of the mirror of the central repository; empty if there is none.
    """

    local_repository: Path
    mirror: str = ""


def maven_settings() -> MavenSettings:
    """Reads this user's settings; a missing or damaged file means the defaults."""
    home = Path.home() / ".m2"
    local, mirror = "", ""
    try:
        root = ElementTree.parse(home / "settings.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return MavenSettings(local_repository=home / "repository")
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    local = (root.findtext("localRepository") or "").strip()
    for entry in root.iterfind("mirrors/mirror"):
        names = {name.strip() for name in (entry.findtext("mirrorOf") or "").split(",")}
        if names & _ALL_MIRRORS:
            mirror = (entry.findtext("url") or "").strip()
            break
    # Maven would replace variables such as ${user.home}, which this does not.
    usable = local and "${" not in local
    return MavenSettings(
        local_repository=Path(local) if usable else home / "repository",
        mirror="" if "${" in mirror else mirror,
    )


def find_maven() -> Path | None:
    """Returns Maven's program, None if it is not installed."""
    found = shutil.which("mvn")
    return Path(found) if found else None


def copy_jars(maven: Path, jars: Iterable[Jar], target: Path) -> None:
    """Copies jars into a directory; Maven downloads those that it does not have.

    Raises:
        UsageError: Maven failed.
    """
    dependencies = [
        dependency(jar.group, jar.artifact, jar.version, jar.classifier, exclude=("*:*",))
        for jar in jars
    ]
    run_on_project(
        maven,
        project(dependencies),
        ["dependency:copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime"],
    )


def dependency(
    group: str, artifact: str, version: str, classifier: str = "", *, exclude: Iterable[str] = ()
) -> str:
    """Returns a dependency as XML; what it excludes is written "group:artifact"."""
    kind = f"<classifier>{classifier}</classifier>" if classifier else ""
    pairs = (pair.split(":") for pair in exclude)
    exclusions = "".join(
        f"<exclusion><groupId>{first}</groupId><artifactId>{second}</artifactId></exclusion>"
        for first, second in pairs
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{kind}<exclusions>{exclusions}</exclusions></dependency>"
    )


def project(dependencies: Iterable[str]) -> str:
    """Returns a project file with these dependencies."""
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>laststand</groupId>"
        "<artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>\n"
    )


def run_on_project(maven: Path, text: str, arguments: Iterable[str]) -> str:
    """Runs Maven on a project and returns its output.

    Raises:
        UsageError: Maven failed or hangs.
    """
    with tempfile.TemporaryDirectory(prefix="laststand-maven-") as folder:
        (Path(folder) / "pom.xml").write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [maven, "--batch-mode", "--no-transfer-progress", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"Maven has not finished after {TIMEOUT_S} s; {_HINT}") from None
        except OSError as error:
            raise UsageError(f"Maven cannot be started ({error.strerror}); {_HINT}") from None
    if done.returncode:
        raise UsageError(f"Maven failed: {_first_error(done.stdout)}; {_HINT}")
    return done.stdout


_HINT = "`--repository URL` fetches without Maven"


def _first_error(output: str) -> str:
    """Returns the first error of Maven's output, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("[ERROR]")]
    chosen = errors[0] if errors else lines[-1] if lines else "no output"
    return chosen.removeprefix("[ERROR]").strip().rstrip(".")
