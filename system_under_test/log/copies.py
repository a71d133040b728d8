"""The files of a log that moves to another directory of its broker, and what a crash leaves of them.

The copy has its final name from the beginning, and a file that marks it as unfinished. To finish the move, the
source is marked as superseded, then the mark of the copy is removed, and then the source. So at every moment
exactly one of the two is the log.

Source:
    KIP-113. Kafka gives the copy another name (`-future`) and renames both; a crash between the two renames is
    resolved by an operator.
"""

from collections.abc import Sequence

from system_under_test.log.checkpoints import PARTITION_METADATA, replace_file
from system_under_test.runtime import Storage

UNFINISHED_MARK = "unfinished-copy"
SUPERSEDED_MARK = "superseded"


def mark_unfinished(storage: Storage, path: str) -> None:
    """Marks a log that is about to be created as the copy of another one, durably."""
    replace_file(storage, f"{path}/{UNFINISHED_MARK}", b"")


def mark_superseded(storage: Storage, path: str) -> None:
    """Marks the source of a copy that is about to become the log, durably."""
    replace_file(storage, f"{path}/{SUPERSEDED_MARK}", b"")


def mark_finished(storage: Storage, path: str) -> None:
    """Makes a copy the log; its source must be marked as superseded before."""
    storage.remove(f"{path}/{UNFINISHED_MARK}")
    storage.fsync_dir(path)


def remove_log_files(storage: Storage, path: str) -> None:
    """Removes every file of a log; its topic id and its marks last, so that a rest of it is recognised."""
    last = (PARTITION_METADATA, UNFINISHED_MARK, SUPERSEDED_MARK)
    names = storage.list(path)
    for name in sorted(names, key=lambda name: last.index(name) if name in last else -1):
        storage.remove(f"{path}/{name}")


def finish_moves(
    storage: Storage, directories: Sequence[str], *, are_all_online: bool
) -> frozenset[str]:
    """Finishes the moves that a crash interrupted; called before any log is opened.

    Args:
        storage: The node's files.
        directories: Names of the log directories that are online.
        are_all_online: Whether these are all of the broker.

    Returns:
        Paths of logs that must not be opened: superseded by a copy in a directory that is offline.
    """
    paths = [f"{name}/{log}" for name in directories for log in storage.list(name)]
    unfinished = [path for path in paths if storage.exists(f"{path}/{UNFINISHED_MARK}")]
    for path in unfinished:
        remove_log_files(storage, path)
    complete = [path for path in paths if path not in unfinished]
    ignored = set()
    for path in complete:
        if not storage.exists(f"{path}/{SUPERSEDED_MARK}"):
            continue
        log = path.rpartition("/")[2]
        if any(other != path and other.rpartition("/")[2] == log for other in complete):
            remove_log_files(storage, path)
        elif are_all_online:
            # There is no copy any more, or none was finished.
            storage.remove(f"{path}/{SUPERSEDED_MARK}")
            storage.fsync_dir(path)
        else:
            ignored.add(path)
    return frozenset(ignored)
