"""Whether a real disk may look like this after a power cut, according to the simulated disk.

The model chooses with random numbers; here every choice that it could make counts. It may keep any beginning of
its journal, and then for every file that has a name, independently, anything that one of its modes may leave:

* nothing beyond the durable bytes;
* the content up to a page or sector boundary, or all of it;
* that, cut at a page, followed by zeros up to at most the length that the process saw;
* any subset of the pages that were not durable, zeros in between, up to the last page that is there;
* a page up to where the file ended when write-back of it began, then zeros; in a block that was there before, up
  to any sector.

A file that was cut or replaced, where the journal does not have that yet, is exactly what it was; except that what
had begun to be written back of it may be there as well, and the page of the cut may be as it was written since.

The model knows which calls make a kernel begin to write back. When the kernel does so by itself, every few
seconds, it does not know how long the file was at that moment, to the byte; `Lengths` does, for tests that wait
for that.
"""

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

from harness.simulation.disk import SimDisk
from harness.simulation.inode import PAGE_BYTES, SECTOR_BYTES, Inode, Patch
from tests.containers.storage_traces import Script

Files = dict[str, bytes]


class Lengths:
    """Runs calls on a simulated disk and remembers what every file was since it was last made durable.

    Args:
        disk: The disk; all calls go through this.
    """

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self._sizes: dict[int, set[int]] = {}
        self._before_cuts: dict[int, list[bytes]] = {}
        self._alive: list[Inode] = []  # so that no number is given again

    def run(self, script: Script) -> None:
        """Runs a script."""
        for call in script:
            inode = self.disk.files.get(call.path)
            if inode is not None and call.name in ("truncate", "write"):
                self._before_cuts.setdefault(id(inode), []).append(bytes(inode.data))
            call.run(self.disk)
            inode = self.disk.files.get(call.path)
            if inode is None:
                continue
            if id(inode) not in self._sizes:
                self._alive.append(inode)
                self._sizes[id(inode)] = set()
            if call.name == "fsync_blocking":
                self._sizes[id(inode)].clear()
                self._before_cuts.pop(id(inode), None)
            self._sizes[id(inode)].add(len(inode.data))

    def sizes(self, inode: Inode) -> set[int]:
        """Returns how long a file was after each call since it was last made durable."""
        return self._sizes.get(id(inode), set())

    def versions(self, inode: Inode) -> list[bytes]:
        """Returns what it was then; only the longest of those that merely grew."""
        return [*self._before_cuts.get(id(inode), []), bytes(inode.data)]


def is_legal(disk: SimDisk, left: Files, lengths: Lengths | None = None) -> bool:
    """Whether a power cut of the simulated disk, now, could leave these files and no others."""
    return why_illegal(disk, left, lengths) == ""


def why_illegal(disk: SimDisk, left: Files, lengths: Lengths | None = None) -> str:
    """Returns why no power cut of the simulated disk, now, could leave this; "" if one could.

    Args:
        disk: The disk.
        left: All files.
        lengths: Also allows that a file was written back by the kernel itself at any moment since its last sync.
    """
    disk.settle()
    problems = []
    for kept in range(len(disk.journal) + 1):
        problem = _problem(*_after(disk, kept), left, lengths)
        if not problem:
            return ""
        problems.append(f"with {kept} of {len(disk.journal)} journal entries: {problem}")
    return "; ".join(problems)


def _after(disk: SimDisk, kept: int) -> tuple[dict[str, Inode], dict[int, Inode]]:
    """Commits a beginning of the journal of a copy; returns its durable names, and what each copy is a copy of."""
    copied: Any = SimpleNamespace()
    memo: dict[int, Any] = {}
    copied.names, copied.journal = deepcopy((disk.names, disk.journal), memo)
    originals = [*disk.names.values(), *(entry.inode for entry in disk.journal)]
    SimDisk.commit(copied, copied.journal[:kept])
    names: dict[str, Inode] = copied.names
    return names, {id(memo[id(inode)]): inode for inode in originals}


def _problem(
    names: dict[str, Inode], originals: dict[int, Inode], left: Files, lengths: Lengths | None
) -> str:
    if set(names) != set(left):
        return f"names are {sorted(names)}, found {sorted(left)}"
    for path, content in left.items():
        inode = names[path]
        is_known = lengths is not None and _is_earlier(
            inode,
            content,
            lengths.versions(originals[id(inode)]),
            lengths.sizes(originals[id(inode)]),
        )
        if not is_known and not is_legal_content(inode, content):
            return (
                f"{path}: found {len(content)} bytes; {inode.durable_size} are durable "
                f"of {len(inode.data)}, with {len(inode.truncations)} cuts that are not"
            )
    return ""


def is_legal_content(inode: Inode, content: bytes) -> bool:
    """Whether one of the modes may leave this of a file."""
    durable = inode.durable_image()
    if inode.may_be_as_cut or not (inode.truncations or inode.durable is not None):
        whole = inode.with_holes(bytes(inode.data))
        if _is_written_back(content, whole, len(durable), inode.ends, ()):
            return True
    if _is_written_back(content, durable, len(durable), (), inode.patches):
        return True
    undone = inode.undone_cut
    return undone is not None and _is_written_back(
        content, undone.image, len(durable), undone.ends, inode.patches
    )


def _is_written_back(
    content: bytes, whole: bytes, start: int, ends: tuple[int, ...], patches: tuple[Patch, ...]
) -> bool:
    """Whether every page is one that may be there; the first `start` bytes are durable."""
    if not start <= len(content) <= len(whole):
        return False
    return all(
        _is_page(content[at : at + PAGE_BYTES], whole[at : at + PAGE_BYTES], start - at, at, ends)
        or any(patch.start == at and patch.applied_to(content) == content for patch in patches)
        for at in range(0, len(content), PAGE_BYTES)
    )


def _is_page(found: bytes, cached: bytes, durable: int, at: int, ends: tuple[int, ...]) -> bool:
    """Whether a page has what was cached, up to a place where write-back may have stopped, then zeros.

    Args:
        found: The page, shorter if the file ends in it.
        cached: The whole page.
        durable: How many of its bytes are durable, if it is more than none.
        at: Where the page begins.
        ends: Where the file ended when write-back began.
    """
    least = min(max(durable, 0), len(cached))
    places = {least, len(cached), *(end - at for end in ends if least < end - at < len(cached))}
    if ends or 0 < durable < PAGE_BYTES:  # the block was there; any of its sectors may be new
        places |= set(range(least + -least % SECTOR_BYTES, len(cached), SECTOR_BYTES))
    elif len(found) % SECTOR_BYTES == 0 and len(found) >= least:
        places.add(len(found))
    return any(
        place <= len(found) and found == cached[:place].ljust(len(found), b"\0") for place in places
    )


def _is_earlier(inode: Inode, content: bytes, versions: list[bytes], sizes: set[int]) -> bool:
    """Whether the kernel may have written this of what the file was at some moment since its last sync."""
    if inode.truncations or inode.durable is not None or not sizes:
        return False
    durable = inode.durable_image()
    if not content.startswith(durable) or len(content) > max(sizes):
        return False
    return any(
        all(
            _is_earlier_page(
                content[at : at + PAGE_BYTES],
                version[at : at + PAGE_BYTES],
                {size - at for size in sizes} | {len(durable) - at},
            )
            for at in range(0, len(content), PAGE_BYTES)
        )
        for version in versions
    )


def _is_earlier_page(found: bytes, cached: bytes, ends: set[int]) -> bool:
    """Whether a page has what was cached, up to a place where it may have ended, and then nothing but zeros."""
    written = len(found.rstrip(b"\0"))
    may_end = written % SECTOR_BYTES == 0 or written in ends or written == len(cached)
    return may_end and found[:written] == cached[:written]
