"""What a formatted node has on its disk before its first start.

Kafka refuses to start on a disk that its StorageTool has not formatted. The tool takes seconds, and except
for `meta.properties` it writes the same for every node of a role, so it runs once per version, role and
feature levels, and its files are cached. Whatever it writes is kept: up to 4.3 a file `bootstrap.checkpoint`,
from 4.4 on a snapshot in the directory of the metadata log.

Source: KIP-631 and KIP-858 (`meta.properties` and its identifiers), KIP-1022 (feature levels).
"""

import base64
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.contracts.system import Node, Settings
from harness.errors import HarnessFailure, UsageError
from harness.java import JavaRuntime
from harness.systems.apache_kafka.cache import VersionCache
from harness.systems.apache_kafka.command import java_command
from harness.systems.apache_kafka.properties import CLUSTER_ID, PROPERTIES_FILE, node_files
from harness.systems.apache_kafka.versions import Version

META_PROPERTIES = "meta.properties"
TOOL_CLASS = "kafka.tools.StorageTool"
TOOL_TIMEOUT_S = 300
"""The tool takes two seconds; five minutes mean that it hangs, even on a busy machine."""
RESERVED_IDS = 100
"""Kafka gives the first numbers a meaning of their own, such as "unassigned"; no directory may have them."""
_LOG_DIR = "data"


def formatted_files(
    cache: VersionCache,
    java: JavaRuntime,
    role: str,
    levels: Mapping[str, int],
    *,
    release: str = "",
) -> Mapping[str, bytes]:
    """Returns the content of the files that StorageTool writes for a role, without `meta.properties`.

    Runs the tool the first time, then reads the cache.

    Args:
        cache: The version; must be fetched.
        java: Which Java runs the tool.
        role: "broker" or "controller".
        levels: Feature levels of the new cluster, see `versions.feature_levels`.
        release: An older release whose metadata version the cluster begins with; empty for the version's own.

    Returns:
        Bytes by path relative to a log directory, with "/" between parts.

    Raises:
        UsageError: The version is not fetched, or the tool refuses the feature levels or the release.
        HarnessFailure: The tool hangs.
    """
    cache.require()
    names = [role, *(f"{name}={level}" for name, level in sorted(levels.items())), release]
    kept = cache.directory / "formatted" / "_".join(re.sub(r"[^\w.=-]", "-", n) for n in names if n)
    if not kept.is_dir():
        _format_once(cache, java, role, levels, release, kept)
    return {
        path.relative_to(kept).as_posix(): path.read_bytes()
        for path in sorted(kept.rglob("*"))
        if path.is_file()
    }


def disk_files(
    version: Version,
    node: Node,
    formatted: Mapping[str, bytes],
    *,
    log_dirs: Sequence[str] = (_LOG_DIR,),
    seed: int = 0,
    generation: int = 0,
) -> dict[str, bytes]:
    """Returns everything that a formatted node has on its disk.

    Args:
        version: Of the node.
        node: Which node.
        formatted: From `formatted_files`, for its role.
        log_dirs: Names of its log directories, the one with the metadata log first.
        seed: Distinguishes clusters.
        generation: How many times its disk was formatted before. A directory that is formatted again gets
            another identifier, by which Kafka notices that its records are gone.

    Returns:
        Bytes by path relative to the directory that has the log directories.
    """
    files = {f"{log_dirs[0]}/{path}": content for path, content in formatted.items()}
    for number, name in enumerate(log_dirs):
        lines = [f"cluster.id={CLUSTER_ID}", f"node.id={node.node_id}", "version=1"]
        if has_directory_ids(version):
            identifier = directory_id(node.node_id, number, seed=seed, generation=generation)
            lines.insert(1, f"directory.id={identifier}")
        files[f"{name}/{META_PROPERTIES}"] = "".join(f"{line}\n" for line in lines).encode()
    return files


def has_directory_ids(version: Version) -> bool:
    """Whether log directories have identifiers (KIP-858)."""
    return (version.major, version.minor) >= (3, 7)


def directory_id(node_id: int, number: int, *, seed: int = 0, generation: int = 0) -> str:
    """Returns the identifier of a log directory: the same for the same arguments, and never a reserved one."""
    attempt = 0
    while True:
        text = f"laststand|{seed}|{node_id}|{number}|{generation}|{attempt}"
        value = hashlib.blake2b(text.encode(), digest_size=16).digest()
        identifier = base64.urlsafe_b64encode(value).decode().rstrip("=")
        # Kafka's own identifiers never begin with "-", because its tools would take them for options.
        if int.from_bytes(value) >= RESERVED_IDS and not identifier.startswith("-"):
            return identifier
        attempt += 1


def run_storage_tool(
    cache: VersionCache,
    java: JavaRuntime,
    directory: Path,
    levels: Mapping[str, int],
    *,
    release: str = "",
) -> None:
    """Formats the log directory that `server.properties` in a directory names.

    Raises:
        UsageError: The tool refused.
        HarnessFailure: The tool hangs.
    """
    arguments = ["format", "-t", CLUSTER_ID, "-c", str(directory / PROPERTIES_FILE)]
    if release:
        arguments += ["--release-version", release]
    for name, level in sorted(levels.items()):
        arguments += ["--feature", f"{name}={level}"]
    command = java_command(cache, java.home, str(directory), [TOOL_CLASS, *arguments])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=directory,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HarnessFailure(
            f"Kafka's StorageTool {cache.version} has not finished after {TOOL_TIMEOUT_S} s"
        ) from None
    if done.returncode:
        raise UsageError(
            f"StorageTool of Apache Kafka {cache.version} failed: {_reason(done.stdout)}"
        )


def _reason(output: str) -> str:
    """Returns the line of the tool's output that states what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    stated = [line for line in lines if "xception" in line or "rror" in line]
    return (stated or lines or ["no output"])[0 if stated else -1]


def _format_once(
    cache: VersionCache,
    java: JavaRuntime,
    role: str,
    levels: Mapping[str, int],
    release: str,
    kept: Path,
) -> None:
    node_id = {"broker": 1, "controller": 11}[role]
    # Nothing of it gets into the files; the tool only checks that the properties are complete.
    nodes = [
        Node(name="b1", role="broker", node_id=1, address="127.0.0.1:9092"),
        Node(name="c11", role="controller", node_id=11, address="127.0.0.1:9093"),
    ]
    node = next(one for one in nodes if one.node_id == node_id)
    settings = Settings(profile="", timings="kafka")
    with tempfile.TemporaryDirectory(dir=cache.directory, prefix=".formatting-") as folder:
        place = Path(folder)
        data = place / _LOG_DIR
        texts = node_files(cache.version, node, nodes, settings, log_dirs=[str(data)])
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        run_storage_tool(cache, java, place, levels, release=release)
        (data / META_PROPERTIES).unlink()
        kept.parent.mkdir(exist_ok=True)
        try:
            data.rename(kept)
        except OSError:
            # Another process was faster, with the same files.
            if not kept.is_dir():
                raise
            shutil.rmtree(data)
