"""Storage scripts that run on the simulated disk and on a real one alike."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from system_under_test.real.storage import LOCK_FILE, RealStorage


class Storage(Protocol):
    """The storage operations that a script needs."""

    def append(self, path: str, data: bytes) -> None: ...
    def write(self, path: str, data: bytes) -> None: ...
    def truncate(self, path: str, size: int) -> None: ...
    def replace(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def fsync_blocking(self, path: str) -> None: ...
    def fsync_dir(self, directory: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its name, the path, and what else it takes."""

    name: str
    path: str
    target: str = ""
    number: int = 0
    fill: int = 0

    def run(self, storage: Storage) -> None:
        if self.name in ("append", "write"):
            getattr(storage, self.name)(self.path, content(self.number, self.fill))
        elif self.name == "truncate":
            storage.truncate(self.path, self.number)
        elif self.name == "replace":
            storage.replace(self.path, self.target)
        else:
            getattr(storage, self.name)(self.path)


def content(size: int, fill: int) -> bytes:
    """Returns bytes without zeros, so that zeros are known to be the disk's."""
    return bytes(1 + byte % 255 for byte in random.Random(fill).randbytes(size))


Script = list[Call]


def append(path: str, size: int, fill: int = 1) -> Call:
    return Call("append", path, number=size, fill=fill)


def write(path: str, size: int, fill: int = 1) -> Call:
    return Call("write", path, number=size, fill=fill)


def truncate(path: str, size: int) -> Call:
    return Call("truncate", path, number=size)


def replace(source: str, target: str) -> Call:
    return Call("replace", source, target=target)


def remove(path: str) -> Call:
    return Call("remove", path)


def fsync(path: str) -> Call:
    return Call("fsync_blocking", path)


def fsync_dir(path: str) -> Call:
    return Call("fsync_dir", path)


def run(script: Script, storage: Storage) -> None:
    for call in script:
        call.run(storage)


def read_files(root: Path) -> dict[str, bytes]:
    """Returns all files below a directory, except the storage's own lock."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            if name != LOCK_FILE:
                found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def real_storage(root: Path) -> RealStorage:
    return RealStorage(root)


PATHS = ("a/0.log", "a/1.log", "b/0.log", "checkpoint", "b/checkpoint")
SIZES = (1, 17, 500, 512, 4000, 4096, 5000, 9000, 20000)
KINDS = {
    "append": 8,
    "truncate": 2,
    "remove": 1,
    "replace": 1,
    "rewrite": 2,
    "fsync": 4,
    "fsync_dir": 2,
}


class TraceMaker:
    """Makes random scripts that any disk without faults can execute. Mutable; one script each.

    It keeps account of what there is, and of what has changed since everything was last made durable, because an
    fsync of something unchanged is a separate case.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fill = seed * 1000
        self.sizes: dict[str, int] = {}
        self.changed: set[str] = set()
        self.script: Script = []

    def make(self, length: int) -> Script:
        """Returns a script of at least so many calls."""
        while len(self.script) < length:
            kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
            path = self.random.choice(PATHS)
            if path not in self.sizes and kind != "rewrite":
                kind = "append"
            getattr(self, kind)(path)
        return self.script

    def append(self, path: str) -> None:
        size = self.random.choice(SIZES)
        self.fill += 1
        self.script.append(append(path, size, self.fill))
        if path not in self.sizes:
            self.changed.add(_folder(path))
        self.changed.add(path)
        self.sizes[path] = self.sizes.get(path, 0) + size

    def truncate(self, path: str) -> None:
        self.sizes[path] = self.random.randrange(self.sizes[path] + 1)
        self.script.append(truncate(path, self.sizes[path]))
        self.changed.add(path)

    def remove(self, path: str) -> None:
        del self.sizes[path]
        self.script.append(remove(path))
        self.changed.discard(path)
        self.changed.add(_folder(path))

    def replace(self, path: str) -> None:
        self._move(path, self.random.choice([other for other in PATHS if other != path]))

    def rewrite(self, path: str) -> None:
        new = path + ".tmp"
        self.sizes[new] = self.random.choice(SIZES)
        self.fill += 1
        self.script.append(write(new, self.sizes[new], self.fill))
        self.changed |= {new, _folder(new)}
        if self.random.random() < 0.7:
            self.fsync(new)
        self._move(new, path)

    def _move(self, source: str, target: str) -> None:
        self.script.append(replace(source, target))
        self.sizes[target] = self.sizes.pop(source)
        self.changed |= {target, _folder(source), _folder(target)}
        self.changed.discard(source)

    def fsync(self, path: str) -> None:
        if path not in self.changed:
            self.append(path)
        self.script.append(fsync(path))
        self.changed.clear()

    def fsync_dir(self, path: str) -> None:
        folder = _folder(path)
        if folder in self.changed:
            self.script.append(fsync_dir(folder))
            self.changed.clear()


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def random_script(seed: int, length: int) -> Script:
    """Returns a random script of at least so many calls; the same seed gives the same."""
    return TraceMaker(seed).make(length)
