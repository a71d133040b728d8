"""Runs tests of faults on Debian's kernel, in a virtual machine, for what the machine's own kernel does not have.

    python -m tests.containers.other_kernel [--scratch DIR] [pytest arguments]

Without arguments these are the tests of packets. Debian's kernel has netem, ifb and nftables queues, which small
kernels of virtual machines often lack. It takes about ten minutes without hardware virtualization, most of them
for the tests, two of which need more speed and are left out. Needed: root, `apt-get`,
`debootstrap`, `dpkg-deb`, `qemu-system-x86_64`, and a mirror of Debian. For a second run, keep what the
first one fetched with `--scratch`.

All is in one archive that the kernel unpacks into its memory: a minimal Debian with Python, the modules of the
kernel, this tree, and pytest from the running interpreter. There is no network and no disk, and no conftest is
loaded: tests that need Docker, Spark or other packages do not run there. The exit code is pytest's, 255 if the
machine never got that far.
"""

import argparse
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
TOOLS = "python3,iproute2,nftables,libnftables1,kmod"
DEFAULT = (
    "tests/containers/test_agent_network.py",
    "tests/containers/test_agent_network_rates.py",
    "tests/containers/test_agent_network_ends.py",
    "tests/containers/test_agent_network_kernel.py",
    "tests/containers/test_agent_netem.py",
)
# What a processor in software is too slow for: a bound of 10 ms, and a process that wakes up within one.
TOO_FAST = (
    f"{DEFAULT[0]}::test_drops_are_in_force_on_six_hosts_within_10_ms",
    f"{DEFAULT[1]}::test_a_delay_is_added_to_the_round_trip_within_a_fifth[nfqueue-5]",
)
CODE = ("harness", "nemesis", "tests", "pyproject.toml")
PACKAGES = ("pytest", "pytest-timeout", "iniconfig", "packaging", "pluggy", "pygments")
MODULES = ("kernel/net", "kernel/lib", "kernel/crypto", "kernel/drivers/net/*.ko", "modules.*")
LEFT_OUT = ("dev/", "proc/", "sys/", "boot/", "var/cache/", "var/lib/apt/", "usr/share/doc/")
LEFT_OUT += ("usr/share/locale/", "usr/share/man/", "usr/share/zoneinfo/")
MEMORY_MIB = 2048
RUN_LIMIT_S = 3600
_OUTCOME = "pytest ended with"
_INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 HOME=/root
mount -t devtmpfs none /dev; mount -t proc none /proc; mount -t sysfs none /sys; mount -t tmpfs none /tmp
exec </dev/null >/dev/ttyS0 2>&1
uname -a; ip link set lo up; cd /laststand
PYTHONPATH=/laststand/packages python3 -m pytest --noconftest --color=no -p no:cacheprovider @ARGUMENTS@
echo "{_OUTCOME} $?"
echo b > /proc/sysrq-trigger
"""


def main() -> int:
    """Builds, boots and prints; returns pytest's exit code."""
    parser = argparse.ArgumentParser(prog="other_kernel", description=__doc__.splitlines()[0])
    parser.add_argument("--scratch", type=Path, help="keep what was fetched here, and use it")
    parser.add_argument("--accel", default="tcg", help="kvm, where it works; default: %(default)s")
    options, given = parser.parse_known_args()
    arguments = given or list(DEFAULT)
    with tempfile.TemporaryDirectory(prefix="laststand-kernel-") as temporary:
        scratch: Path = (options.scratch or Path(temporary)).resolve()
        scratch.mkdir(parents=True, exist_ok=True)
        kernel = fetch(scratch)
        if options.accel == "tcg":
            arguments += [f"--deselect={test}" for test in TOO_FAST]
        install(scratch / "tree", arguments)
        archive = scratch / "archive"
        with archive.open("wb") as sink:
            write_archive(scratch / "tree", sink)
        return boot(kernel, archive, options.accel)


def fetch(scratch: Path) -> Path:
    """Fetches the system and the kernel, unless they are there; returns the kernel's image."""
    tree, package = scratch / "tree", scratch / "package"
    if not tree.exists():
        new = scratch / "new"
        shutil.rmtree(new, ignore_errors=True)
        _run("debootstrap", "--variant=minbase", f"--include={TOOLS}", SUITE, str(new))
        new.rename(tree)
    if not package.exists():
        shown = _run("apt-cache", "show", "--no-all-versions", "linux-image-amd64")
        name = re.search(r"^Depends: (linux-image-\S+)", shown, re.MULTILINE)
        if name is None:
            raise SystemExit("apt knows no linux-image-amd64; `apt-get update`, and be on Debian")
        _run("apt-get", "download", name[1], cwd=scratch)
        (deb,) = scratch.glob("linux-image-*.deb")
        _run("dpkg-deb", "-x", str(deb), str(package))
        deb.unlink()
    (kernel,) = package.glob("boot/vmlinuz-*")
    modules = Path("lib/modules", kernel.name.removeprefix("vmlinuz-"))
    for pattern in MODULES:
        for source in (package / modules).glob(pattern):
            _copy(source, tree / modules / source.relative_to(package / modules))
    _run("chroot", str(tree), "depmod", modules.name)
    return kernel


def install(tree: Path, arguments: list[str]) -> None:
    """Puts this project's code, pytest and the program that starts it into a system."""
    target = tree / "laststand"
    shutil.rmtree(target, ignore_errors=True)
    for name in CODE:
        _copy(ROOT / name, target / name)
    for name in PACKAGES:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                _copy(Path(str(file.locate())), target / "packages" / file)
    init = tree / "init"
    init.write_text(_INIT.replace("@ARGUMENTS@", shlex.join(arguments)), encoding="utf-8")
    init.chmod(0o755)


def write_archive(tree: Path, sink: BinaryIO) -> None:
    """Writes files in the form in which the kernel wants its first system (cpio, "newc")."""
    for number, (name, path) in enumerate([*_members(tree), ("TRAILER!!!", None)], start=1):
        mode, data = 0, b""
        if path is not None:
            mode = path.lstat().st_mode
            if path.is_symlink():
                data = os.fsencode(os.readlink(path))
            elif path.is_file():
                data = path.read_bytes()
        encoded = os.fsencode(name) + b"\0"
        numbers = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in numbers) + encoded
        sink.write(header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4))


def boot(kernel: Path, archive: Path, accel: str) -> int:
    """Starts the machine, prints its output, and returns what pytest returned in it."""
    command = ["qemu-system-x86_64", "-accel", accel, "-m", str(MEMORY_MIB)]
    command += ["-nographic", "-no-reboot", "-nic", "none", "-kernel", str(kernel)]
    command += ["-initrd", str(archive), "-append", "console=ttyS0 quiet panic=-1"]
    # So that it ends with this program, however that ends.
    guard = ["setpriv", "--pdeathsig", "TERM", "timeout", str(RUN_LIMIT_S)]
    code = 255
    with subprocess.Popen(
        [*guard, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as machine:
        assert machine.stdout is not None
        for line in machine.stdout:
            text = line.decode(errors="replace").rstrip()
            print(text, flush=True)
            if text.startswith(_OUTCOME):
                code = int(text.removeprefix(_OUTCOME))
    return code


def _members(tree: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if not name.startswith(LEFT_OUT) and (path.is_symlink() or path.is_file() or path.is_dir()):
            yield name, path


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, ignore=unwanted, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _run(*command: str, cwd: Path | None = None) -> str:
    print("+", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
