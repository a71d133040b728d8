"""The image of a node: builds it from a Dockerfile, with or without a registry."""

import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.environments.hosts.bundle import (
    MACHINE,
    PYTHON,
    add_file,
    bundle_files,
    bundle_version,
)
from harness.errors import HarnessFailure, UsageError

REPOSITORY = "laststand-node"
DEBOOTSTRAP_BASE = "laststand-base"
DEFAULT_BASE = f"python:{PYTHON}-slim"
DEBIAN_SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""Debian's release with each version of Python."""
DEBOOTSTRAP_PACKAGES = "python3"
DOCKERFILE = Path(__file__).parent / "Dockerfile"
BUILD_LIMIT_S = 600

Report = Callable[[str], None]


def image_name() -> str:
    """Returns the name of the image with the current code."""
    return f"{REPOSITORY}:{bundle_version(with_agent=False)}"


def has_image(engine: Any) -> bool:
    """Whether an engine has the image with the current code."""
    return bool(engine.images.list(name=image_name()))


def build(engine: Any, base: str, report: Report) -> str:
    """Builds the image from a base image; returns its name.

    Args:
        engine: A client of the Docker SDK.
        base: An image with Python in the harness's version; it is pulled if the engine does not have it.
        report: Called with each line of progress.

    Raises:
        HarnessFailure: The build failed, or the base has another version of Python.
    """
    from docker.errors import APIError, BuildError

    name = image_name()
    report(f"building {name} on {base}")
    try:
        _, lines = engine.images.build(
            fileobj=_context(),
            custom_context=True,
            buildargs={"BASE": base},
            tag=name,
            rm=True,
            timeout=BUILD_LIMIT_S,
        )
    except (BuildError, APIError) as error:
        raise HarnessFailure(
            f"the image cannot be built on {base}: {_first_line(error)}; `laststand image build "
            "--from-debootstrap` needs no registry"
        ) from None
    for line in lines:
        text = str(line.get("stream", "")).strip()
        if text:
            report(text)
    _check(engine, name, base)
    return name


def debootstrap_base(engine: Any, report: Report) -> str:
    """Makes a base image from Debian's packages alone; returns its name.

    Raises:
        UsageError: debootstrap is missing, or no Debian release has this version of Python.
        HarnessFailure: It failed.
    """
    if PYTHON not in DEBIAN_SUITES:
        known = ", ".join(DEBIAN_SUITES)
        raise UsageError(
            f"no known Debian release has Python {PYTHON} (known: {known}); use --base"
        )
    if shutil.which("debootstrap") is None:
        raise UsageError("debootstrap is not installed; `apt-get install debootstrap`")
    name = f"{DEBOOTSTRAP_BASE}:{DEBIAN_SUITES[PYTHON]}"
    if engine.images.list(name=name):
        report(f"{name} exists already")
        return name
    with tempfile.TemporaryDirectory(prefix="laststand-base-") as folder:
        root = Path(folder) / "root"
        report(f"debootstrap {DEBIAN_SUITES[PYTHON]} (about half a minute)")
        done = subprocess.run(
            [
                "debootstrap",
                "--variant=minbase",
                f"--include={DEBOOTSTRAP_PACKAGES}",
                DEBIAN_SUITES[PYTHON],
                str(root),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise HarnessFailure(f"debootstrap failed: {lines[-1] if lines else 'no output'}")
        report("importing it")
        archive = Path(folder) / "root.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        engine.api.import_image_from_file(str(archive), *_split(name))
    return name


def _split(name: str) -> tuple[str, str]:
    repository, _, tag = name.rpartition(":")
    return repository, tag


def _context() -> io.BytesIO:
    """Returns the build context as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        add_file(archive, "Dockerfile", DOCKERFILE.read_bytes())
        for name, path in bundle_files(with_agent=False).items():
            add_file(archive, f"bundle/{name}", path.read_bytes())
    buffer.seek(0)
    return buffer


def _check(engine: Any, name: str, base: str) -> None:
    """Raises `HarnessFailure` if an image cannot import the code of a node."""
    from docker.errors import ContainerError

    code = (
        "import sys, platform; print('%d.%d' % sys.version_info[:2], platform.machine()); "
        "import system_under_test.process"
    )
    try:
        engine.containers.run(
            name, ["python3", "-c", code], remove=True, network_mode="none", stderr=True
        )
    except ContainerError as error:
        lines = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise HarnessFailure(
            f"{base} cannot run a node; it needs Python {PYTHON} on {MACHINE}: "
            f"{lines[-1] if lines else error}"
        ) from None
    except Exception as error:
        raise HarnessFailure(f"{base} cannot run a node: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    text = str(getattr(error, "explanation", None) or getattr(error, "msg", None) or error)
    return re.sub(r"\s+", " ", text).strip()[:300]
