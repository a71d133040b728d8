"""What the simulated disk allows a power cut to leave, as a question: may a real disk look like this?

The model chooses with random numbers; here every choice that it could make counts. It may keep any beginning of its
journal, and then for every file that has a name, independently, anything that one of its modes may leave:

* nothing beyond the durable bytes;
* the content up to a page or sector boundary, or all of it;
* that, cut at a page, followed by zeros up to at most the length that the process saw;
* any subset of the pages that were not durable, zeros in between, up to the last page that is there.

A file that was cut or replaced, where the journal does not have that yet, is exactly what it was.
"""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from harness.simulation.disk import SimDisk
from harness.simulation.inode import PAGE_BYTES, SECTOR_BYTES, Inode

Files = dict[str, bytes]


def is_legal(disk: SimDisk, left: Files) -> bool:
    """Whether a power cut of the simulated disk, now, could leave these files and no others."""
    return why_illegal(disk, left) == ""


def why_illegal(disk: SimDisk, left: Files) -> str:
    """Returns why no power cut of the simulated disk could leave this, per beginning of its journal; "" if one could."""
    disk.settle()
    problems = []
    for kept in range(len(disk.journal) + 1):
        problem = _problem(_after(disk, kept), left)
        if not problem:
            return ""
        problems.append(f"with {kept} of {len(disk.journal)} journal entries: {problem}")
    return "; ".join(problems)


def _after(disk: SimDisk, kept: int) -> dict[str, Inode]:
    """Returns the durable names and their files once a beginning of the journal is committed."""
    copied: Any = SimpleNamespace()
    copied.names, copied.journal = deepcopy((disk.names, disk.journal))
    SimDisk.commit(copied, copied.journal[:kept])
    names: dict[str, Inode] = copied.names
    return names


def _problem(names: dict[str, Inode], left: Files) -> str:
    if set(names) != set(left):
        return f"names are {sorted(names)}, found {sorted(left)}"
    for path, content in left.items():
        inode = names[path]
        if not is_legal_content(inode, content):
            return (
                f"{path}: found {len(content)} bytes; {inode.durable_size} are durable "
                f"of {len(inode.data)}, with {len(inode.truncations)} cuts that are not"
            )
    return ""


def is_legal_content(inode: Inode, content: bytes) -> bool:
    """Whether one of the modes may leave this of a file."""
    durable = inode.durable_image()
    if content == durable:
        return True
    if inode.truncations or inode.durable is not None:
        return False
    start, whole = inode.durable_size, inode.with_holes(bytes(inode.data))
    if not start <= len(content) <= len(whole) or content[:start] != whole[:start]:
        return False
    return (
        _is_prefix(content, whole)
        or _is_prefix_and_zeros(content, whole, start)
        or _is_some_pages(content, whole, start)
    )


def _is_prefix(content: bytes, whole: bytes) -> bool:
    is_boundary = len(content) == len(whole) or len(content) % SECTOR_BYTES == 0
    return is_boundary and whole.startswith(content)


def _is_prefix_and_zeros(content: bytes, whole: bytes, start: int) -> bool:
    boundaries = [start, *range(start - start % PAGE_BYTES + PAGE_BYTES, len(content), PAGE_BYTES)]
    return any(
        content[:at] == whole[:at] and not content[at:].strip(b"\0")
        for at in boundaries
        if at <= len(content)
    )


def _is_some_pages(content: bytes, whole: bytes, start: int) -> bool:
    at = start
    while at < len(content):
        end = min(len(whole), at - at % PAGE_BYTES + PAGE_BYTES)
        piece = content[at:end]
        if end > len(content) or (piece != whole[at:end] and piece.strip(b"\0")):
            return False
        at = end
    return True
