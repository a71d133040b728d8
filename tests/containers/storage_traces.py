"""Storage scripts that run on the simulated disk and on a real one alike."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from system_under_test.real.storage import LOCK_FILE, RealStorage


class Door(Protocol):
    """What a script needs of a storage door."""

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

    def run(self, door: Door) -> None:
        if self.name in ("append", "write"):
            getattr(door, self.name)(self.path, _bytes(self.number, self.fill))
        elif self.name == "truncate":
            door.truncate(self.path, self.number)
        elif self.name == "replace":
            door.replace(self.path, self.target)
        else:
            getattr(door, self.name)(self.path)


def _bytes(size: int, fill: int) -> bytes:
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


def run(script: Script, door: Door) -> None:
    for call in script:
        call.run(door)


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


def random_script(seed: int, length: int) -> Script:
    """Returns a script that any disk without faults can carry out."""
    source = random.Random(seed)
    sizes: dict[str, int] = {}
    script: Script = []
    fill = seed * 1000
    while len(script) < length:
        fill += 1
        script += _random_calls(source, sizes, fill)
    return script


def _random_calls(source: random.Random, sizes: dict[str, int], fill: int) -> Script:
    """Returns the next call or two and keeps account of what files there are."""
    path = source.choice(PATHS)
    kind = source.choices(
        ("append", "truncate", "remove", "replace", "rewrite", "fsync", "fsync_dir"),
        (8, 2, 1, 1, 2, 4, 2),
    )[0]
    if kind == "append" or (path not in sizes and kind != "rewrite"):
        size = source.choice(SIZES)
        sizes[path] = sizes.get(path, 0) + size
        return [append(path, size, fill)]
    if kind == "truncate":
        sizes[path] = source.randrange(sizes[path] + 1)
        return [truncate(path, sizes[path])]
    if kind == "remove":
        del sizes[path]
        return [remove(path)]
    if kind == "replace":
        target = source.choice([other for other in PATHS if other != path])
        sizes[target] = sizes.pop(path)
        return [replace(path, target)]
    if kind == "rewrite":
        sizes[path] = source.choice(SIZES)
        new = path + ".tmp"
        calls = [write(new, sizes[path], fill)]
        calls += [fsync(new)] if source.random() < 0.7 else []
        return [*calls, replace(new, path)]
    if kind == "fsync":
        return [fsync(path)]
    return [fsync_dir(path.rpartition("/")[0])]
