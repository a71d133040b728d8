"""The library that makes a foreign program a node, and the variables that load it.

It moves the program's wall clock (`wall_clock.c`) and lets it connect from its node (`source_address.c`).

It is compiled once per machine, with the C compiler of this machine, and kept in the cache directory. A
container or a host gets it as a file of the system's program; it needs glibc and the same architecture.
"""

import hashlib
import os
import platform
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.contracts.system import EVENTS_FILE
from harness.errors import UsageError
from harness.java import cache_directory

SOURCES = tuple(sorted(Path(__file__).parent.glob("*.c")))
SKEW_FILE = "skew"
"""Name of the skew file in a node's directory, as `nemesis.agent.node` has it."""
LIMIT_S = 60


def library_path(cache: Path | None = None) -> Path:
    """Returns where the library for this machine is kept, built or not.

    Args:
        cache: The cache directory, if it is not the usual one.
    """
    text = b"".join(source.read_bytes() for source in SOURCES)
    key = hashlib.blake2b(text, digest_size=6).hexdigest()
    folder = (cache or cache_directory()).absolute() / "preload"
    return folder / f"preload-{platform.machine()}-{key}.so"


def find_library(cache: Path | None = None) -> Path | None:
    """Returns the library; None if it was not built. See `library_path`."""
    path = library_path(cache)
    return path if path.is_file() else None


def build_library(cache: Path | None = None) -> Path:
    """Builds the library unless it is there. See `library_path`.

    Raises:
        UsageError: There is no C compiler, or it refuses; the sentence says what to install.
    """
    path = library_path(cache)
    if path.is_file():
        return path
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise UsageError(
            "clock faults of foreign programs, and all faults of theirs over SSH, need a C compiler; install "
            "one (Debian: gcc and libc6-dev) or set CC"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    sources = [str(source) for source in SOURCES]
    options = ("-O2", "-Wall", "-shared", "-fPIC", "-o", str(new), *sources, "-ldl", "-lpthread")
    try:
        done = subprocess.run(
            [compiler, *options], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"the C compiler {compiler} cannot be used: {error}") from None
    if done.returncode:
        new.unlink(missing_ok=True)
        first = next(iter(done.stderr.splitlines()), "no message")
        raise UsageError(f"the C compiler {compiler} cannot build the library: {first}")
    new.replace(path)
    return path


def variables(library: Path, directory: str, node: str, *, source: str = "") -> Mapping[str, str]:
    """Returns the environment variables with which a program follows its node's skew file.

    Args:
        library: Where the library is on the node's host.
        directory: The node's directory there.
        node: The node's name.
        source: The IPv4 address from which it connects; empty to leave that to the host.
    """
    chosen = {"LASTSTAND_SOURCE": source} if source else {}
    return {
        "LD_PRELOAD": str(library),
        "LASTSTAND_SKEW": f"{directory}/{SKEW_FILE}",
        "LASTSTAND_CLOCK_EVENTS": f"{directory}/{EVENTS_FILE}",
        "LASTSTAND_NODE": node,
        **chosen,
    }
