"""Storage in memory for tests: what is written, what is durable, and a power cut between them.

The model is the harshest of POSIX: only `fsync` makes content durable, only `fsync_dir` makes names durable.
"""

import errno


class _File:
    def __init__(self) -> None:
        self.cached = b""
        self.durable = b""


class MemoryStorage:
    """Implements `Storage`; counts calls and fails on demand.

    Attributes:
        calls: Every mutating call as (operation, path), in order.
        failing: Operations that raise `EIO`.
        space: Bytes that may still be appended; an append beyond that writes a prefix and raises `ENOSPC`.
    """

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self.calls: list[tuple[str, str]] = []
        self.failing: set[str] = set()
        self.space: int | None = None

    def exists(self, path):
        return path in self._names

    def list(self, directory):
        prefix = f"{directory}/" if directory else ""
        names = {
            path[len(prefix) :].split("/")[0] for path in self._names if path.startswith(prefix)
        }
        return sorted(names)

    def size(self, path):
        return len(self._file(path).cached)

    def read(self, path, offset=0, length=-1):
        self._check("read", path)
        content = self._file(path).cached
        return content[offset:] if length < 0 else content[offset : offset + length]

    def append(self, path, data):
        self._call("append", path)
        file = self._names.setdefault(path, _File())
        if self.space is not None and len(data) > self.space:
            file.cached += data[: self.space]
            self.space = 0
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if self.space is not None:
            self.space -= len(data)
        file.cached += data

    def write(self, path, data):
        self._call("write", path)
        self._names.setdefault(path, _File()).cached = data

    def truncate(self, path, size):
        self._call("truncate", path)
        file = self._file(path)
        file.cached = file.cached[:size]

    def replace(self, source, target):
        self._call("replace", target)
        self._names[target] = self._names.pop(source)

    def remove(self, path):
        self._call("remove", path)
        self._file(path)
        del self._names[path]

    async def fsync(self, path):
        self._sync(path, "fsync")

    def fsync_blocking(self, path):
        self._sync(path, "fsync_blocking")

    def fsync_dir(self, directory):
        self._call("fsync_dir", directory)
        folders = {path.rpartition("/")[0] for path in self._names}
        for path in list(self._durable_names):
            folder = path.rpartition("/")[0]
            # A directory is removed with its last file.
            is_gone = folder not in folders and folder.rpartition("/")[0] == directory
            if folder == directory or (folder and is_gone):
                del self._durable_names[path]
        for path, file in self._names.items():
            if path.rpartition("/")[0] == directory:
                self._durable_names[path] = file

    def power_cut(self):
        """Forgets everything that is not durable; a new process may use the storage afterwards."""
        self._names = dict(self._durable_names)
        for file in self._names.values():
            file.cached = file.durable

    def corrupt(self, path, position, *, flip=1):
        """Flips bits of one byte, in the cache and on the disk."""
        file = self._file(path)
        content = bytearray(file.cached)
        content[position] ^= flip
        file.cached = file.durable = bytes(content)

    def _file(self, path):
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._names[path]

    def _sync(self, path, operation):
        self._call(operation, path)
        file = self._file(path)
        file.durable = file.cached

    def _call(self, operation, path):
        self._check(operation, path)
        self.calls.append((operation, path))

    def _check(self, operation, path):
        if operation in self.failing:
            raise OSError(errno.EIO, "input/output error", path)
