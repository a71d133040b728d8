"""What real ext4 and xfs leave after a power cut is among what the simulated disk allows.

The same script runs on a simulated disk and on a loop-mounted image; the image is cut off from its journal and
mounted again; then the files that are left must be an outcome that the model could have chosen
(`legal_outcomes.py`).

Four groups: a table of small cases, whose outcome the model predicts exactly; random scripts, in every mode; small
cases in which kernels write back early; and what they write back by themselves in up to a minute.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from harness.simulation.disk import SimDisk
from harness.simulation.weather import CALM
from harness.simulation.world import World
from nemesis.agent.disks.disk import NodeDisk
from nemesis.agent.disks.images import sync_filesystem
from nemesis.agent.disks.power_cut import CutPlan, CutReport, cut
from nemesis.agent.disks.synthesis import MODES
from tests.containers import storage_traces as traces
from tests.containers.disk_rig import FILESYSTEMS, disk_folder, make
from tests.containers.legal_outcomes import Files, Lengths, is_legal, why_illegal
from tests.containers.storage_traces import (
    Script,
    append,
    fsync,
    fsync_dir,
    random_script,
    read_files,
    real_storage,
    remove,
    truncate,
    write,
)
from tests.parts import parts

move = traces.replace

S = 1_000_000_000


def _bytes_of(call: traces.Call) -> bytes:
    return traces.content(call.number, call.fill)


RANDOM_SCRIPTS = 20
SCRIPTS_PER_MODE = 6
"""In each part."""


@pytest.fixture(scope="module")
def disks() -> Iterator[dict[str, NodeDisk]]:
    with disk_folder() as folder:
        yield {name: make(folder, name, name) for name in FILESYSTEMS}


@pytest.fixture(params=FILESYSTEMS)
def disk(request: pytest.FixtureRequest, disks: dict[str, NodeDisk]) -> NodeDisk:
    return disks[request.param]


_numbers = count()


def really(disk: NodeDisk, script: Script, plan: CutPlan | None = None) -> tuple[Files, CutReport]:
    """Runs a script on a real disk, cuts its power and returns what is left."""
    root = disk.data / f"trace{next(_numbers)}"
    root.mkdir()
    (root / traces.LOCK_FILE).touch()
    sync_filesystem(disk.data)
    storage = real_storage(root)
    try:
        traces.run(script, storage)
        (report,) = cut([disk], [plan or CutPlan()], lambda _: storage.close())
    finally:
        storage.close()
    left = read_files(root)
    shutil.rmtree(root)
    return left, report


def simulated(profile: str, *, background: bool = False) -> SimDisk:
    weather = replace(CALM, disk_profile=profile, background_writeback=background)
    return World(1, weather=weather).add_node("b1", kind="broker", address="b1:1").disk


def predicted(profile: str, script: Script, mode: str = "lose_all") -> Files:
    disk = simulated(profile)
    traces.run(script, disk)
    disk.power_cut(mode)
    return {path: disk.read(path) for path in disk.files}


# The table


DURABLE = [append("f", 5000), fsync("f")]
TABLE: dict[str, Script] = {
    "create, write, fsync of the file": [append("f", 3000), fsync("f")],
    "rename over, synced": [*DURABLE, write("f.tmp", 900, 2), fsync("f.tmp"), move("f.tmp", "f")],
    "rename over, not synced": [*DURABLE, write("f.tmp", 900, 2), move("f.tmp", "f")],
    "rename over, fsync of the directory": [
        *DURABLE,
        write("f.tmp", 900, 2),
        fsync("f.tmp"),
        move("f.tmp", "f"),
        fsync_dir(""),
    ],
    "truncate": [*DURABLE, truncate("f", 700)],
    "unlink": [*DURABLE, remove("f")],
    "records after an fsync": [
        *[append("f", 300, n) for n in range(10)],
        fsync("f"),
        *[append("f", 300, n) for n in range(5)],
    ],
    "rewritten in place": [*DURABLE, write("f", 5000, 2)],
    "unlink, then an fsync of another file": [
        *DURABLE,
        remove("f"),
        append("other", 10),
        fsync("other"),
    ],
    "never synced": [append("f", 9000)],
    "fsync of an unchanged file": [
        *DURABLE,
        append("g", 10),
        fsync("g"),
        remove("f"),
        fsync("g"),
    ],
    "fsync of a file that others made durable": [
        append("f", 5000),
        fsync("f"),
        move("f", "h"),
        append("g", 10),
        fsync("g"),
        remove("g"),
        fsync("h"),
    ],
    "fsync of a renamed file": [*DURABLE, append("g", 10), fsync("g"), move("f", "h"), fsync("h")],
    "fsync of a file that was cut and nothing else": [
        *DURABLE,
        append("g", 10),
        fsync("g"),
        append("f", 900),
        truncate("f", 5000),
        remove("g"),
        fsync("f"),
    ],
    "fsync of an unchanged folder": [
        append("d/f", 10),
        append("e/g", 10),
        fsync_dir("e"),
        move("d/f", "d/h"),
        fsync_dir("e"),
    ],
    "fsync of a folder that is gone": [
        append("d/f", 10),
        fsync("d/f"),
        remove("d/f"),
        fsync_dir("d"),
    ],
}


@pytest.mark.parametrize("case", TABLE)
def test_the_model_predicts_what_a_kernel_loses_in_an_immediate_power_cut(
    disk: NodeDisk, case: str
) -> None:
    script = TABLE[case]
    left, _ = really(disk, script)
    assert left == predicted(disk.filesystem, script)
    lax = simulated("posix-strict")
    traces.run(script, lax)
    assert is_legal(lax, left), "what a kernel does is allowed where only POSIX's promises hold"


# Random scripts


def judge(disk: NodeDisk, script: Script, plan: CutPlan) -> tuple[str, CutReport]:
    """Returns why what was left is illegal, "" if it is legal; and the report."""
    left, report = really(disk, script, plan)
    model = simulated(disk.filesystem)
    traces.run(script, model)
    return why_illegal(model, left), report


@pytest.mark.parametrize("first", parts([0, RANDOM_SCRIPTS], quick=1))
def test_whatever_kernels_lose_after_random_scripts_is_legal(disk: NodeDisk, first: int) -> None:
    bites = 0
    for seed in range(first, first + RANDOM_SCRIPTS):
        script = random_script(seed, 4 + seed % 22)
        problem, report = judge(disk, script, CutPlan(mode="lose_all", seed=seed))
        assert not problem, f"seed {seed}: {problem}\n{script}"
        bites += report.took_effect
    assert bites > RANDOM_SCRIPTS / 2


@pytest.mark.parametrize("first", parts([1000, 1000 + SCRIPTS_PER_MODE], quick=1))
@pytest.mark.parametrize("mode", MODES)
def test_content_restored_after_random_scripts_is_legal(
    disk: NodeDisk, mode: str, first: int
) -> None:
    kept_bytes = lost_bytes = 0
    for seed in range(first, first + SCRIPTS_PER_MODE):
        script = random_script(seed, 4 + seed % 22)
        problem, report = judge(disk, script, CutPlan(mode=mode, seed=seed))
        assert not problem, f"{mode}, seed {seed}: {problem}\n{script}"
        kept_bytes += report.kept_bytes
        lost_bytes += report.lost_bytes
    assert (kept_bytes > 0) == (mode != "lose_all")
    assert (lost_bytes > 0) == (mode != "keep_all")


# The question itself


@pytest.mark.long
def test_every_outcome_that_the_model_chooses_is_legal() -> None:
    outcomes = set()
    for seed in range(60):
        script = random_script(seed, 4 + seed % 22)
        for mode in MODES:
            before, after = simulated("ext4"), simulated("ext4")
            traces.run(script, before)
            traces.run(script, after)
            after.random.seed(seed)
            after.power_cut(mode)
            left = {path: after.read(path) for path in after.files}
            assert is_legal(before, left), (seed, mode)
            outcomes.add((seed, tuple(sorted(left.items()))))
    assert len(outcomes) > 120


@pytest.mark.parametrize(
    "damage",
    [
        "a durable byte is lost",
        "a durable byte is changed",
        "a durable file is gone",
        "a byte is invented",
        "a file is invented",
        "a byte that was not durable is changed",
        "it ends where it never ended",
    ],
)
def test_an_illegal_outcome_is_rejected(disk: NodeDisk, damage: str) -> None:
    script = [append("f", 5000), fsync("f"), append("f", 3000, 2)]
    left, _ = really(disk, script, CutPlan(mode="keep_all"))
    model = simulated(disk.filesystem)
    lengths = Lengths(model)
    lengths.run(script)
    assert is_legal(model, left)
    whole = left["f"]
    damaged: dict[str, Files] = {
        "a durable byte is lost": {"f": whole[:4999]},
        "a durable byte is changed": {"f": bytes([whole[0] ^ 1]) + whole[1:]},
        "a durable file is gone": {},
        "a byte is invented": {"f": whole + b"x"},
        "a file is invented": {"f": whole, "g": b""},
        "a byte that was not durable is changed": {"f": whole[:-1] + bytes([whole[-1] ^ 1])},
        "it ends where it never ended": {"f": whole[:7000]},
    }
    assert not is_legal(model, damaged[damage])
    assert not is_legal(model, damaged[damage], lengths)


# What kernels write back early


OTHER = [append("other", 10, 9), fsync("other")]
RENAMED_EARLY = [*DURABLE, write("t", 5000, 2), move("t", "f"), *OTHER, append("f", 3000, 3)]
CUT_EARLY = [append("f", 9000), truncate("f", 655), append("f", 5000, 3), *OTHER]
RENAMED_THEN_CUT = [*DURABLE, write("t", 1531, 2), move("t", "f"), *OTHER, truncate("f", 747)]
CUT_TWICE = [append("f", 9000), truncate("f", 1531), *OTHER, truncate("f", 747)]
CUT_IN_PLACE = [
    append("f", 13000),
    fsync("f"),
    truncate("f", 1055),
    append("f", 4000, 2),
    truncate("f", 3055),
    append("f", 9000, 3),
]
GREW_IN_ITS_BLOCK = [*DURABLE, append("f", 2000, 2), *OTHER, truncate("f", 6000)]
EARLY: dict[str, tuple[str, Script, int]] = {
    "ext4: a rename writes the file back, which then ends inside a page": (
        "ext4",
        RENAMED_EARLY,
        5000,
    ),
    "xfs: a cut writes the file back, which then ends inside a page": ("xfs", CUT_EARLY, 655),
    "ext4: what was written back and cut later is back": ("ext4", RENAMED_THEN_CUT, 1531),
    "xfs: what was written back and cut later is back": ("xfs", CUT_TWICE, 1531),
    "xfs: new bytes after a cut replace old ones although the cut is undone": (
        "xfs",
        CUT_IN_PLACE,
        13000,
    ),
    "ext4: what grew in its block and was cut later is as long again": (
        "ext4",
        GREW_IN_ITS_BLOCK,
        7000,
    ),
}


@pytest.mark.parametrize("case", EARLY)
def test_the_model_allows(disks: dict[str, NodeDisk], case: str) -> None:
    filesystem, script, size = EARLY[case]
    left, _ = really(disks[filesystem], script)
    model = simulated(filesystem)
    traces.run(script, model)
    assert why_illegal(model, left) == ""
    assert len(left["f"]) == size, "this kernel wrote it back early"
    assert len(left["f"]) != len(predicted(filesystem, script)["f"]) or case.startswith("xfs: new")
    assert why_illegal(model, {**left, "f": left["f"] + b"x"}), "and nothing else is allowed"
    if left["f"][-1]:
        assert why_illegal(model, {**left, "f": left["f"][:-1]})


@pytest.mark.parametrize("case", EARLY)
def test_the_model_chooses_the_early_write_backs_that_kernels_do(case: str) -> None:
    filesystem, script, size = EARLY[case]
    chosen = set()
    for seed in range(60):
        for mode in MODES:
            model = simulated(filesystem)
            traces.run(script, model)
            model.random.seed(seed)
            model.power_cut(mode)
            if model.exists("f"):
                chosen.add(model.read("f"))
    assert any(len(content) == size for content in chosen)
    if case.startswith("xfs: new"):
        old, new = _bytes_of(script[0]), _bytes_of(script[3])
        assert old[:1055] + new[:2000] + bytes(4096 - 3055) + old[4096:] in chosen


# What kernels write by themselves


WAITS_S = {"append": (2, 8, 20, 60), "unlink": (1, 4, 12, 20, 50)}
LATE_S = {"ext4": 15, "xfs": 45}
"""How much later than the model a kernel may write back, by file system.

Its flusher and its journal wake at moments of their own, 5 s apart each, and a busy machine delays both. The
journal of xfs wakes every 30 s: a length that the flusher wrote just too late for one commit waits for the next.
"""
LATE_MAX_S = 2
"""How late a cut may be so that nothing was written back in time for the shortest waits; ext4 needs 5 s."""
TICK_S = 0.02
RECORD_BYTES = 100


@dataclass
class Wait:
    """One real and one simulated disk that get the same appends until their power is cut.

    The simulated disk's clock is late by `late_s`. What the model has written back by then, the kernel must have;
    what the kernel wrote back earlier is legal anyway.
    """

    case: str
    seconds: int
    late_s: int
    disk: NodeDisk
    model: SimDisk
    left: Files | None = None
    took_s: float = 0

    def __post_init__(self) -> None:
        self.lengths = Lengths(self.model)
        self.storage = real_storage(self.disk.data / "trace")
        sync_filesystem(self.disk.data)
        self.began_s = time.monotonic()
        if self.case == "unlink":
            self.do([append("marker", 30), fsync("marker"), remove("marker")])

    def do(self, script: Script) -> None:
        timeline = self.model.timeline
        model_s = time.monotonic() - self.began_s - self.late_s
        timeline.run_for(max(0, int(model_s * S) - timeline.now))
        traces.run(script, self.storage)
        self.lengths.run(script)

    @property
    def is_due(self) -> bool:
        return self.left is None and time.monotonic() - self.began_s >= self.seconds

    def end(self) -> None:
        self.do([])
        self.took_s = time.monotonic() - self.began_s
        cut([self.disk], [CutPlan()], lambda _: self.storage.close())
        self.left = read_files(self.disk.data / "trace")


def wait_for_kernels(folder: Path) -> dict[tuple[str, str, int], Wait]:
    """Appends to many disks side by side and cuts each when its time has come."""
    waits = {}
    # The longest wait begins first, so that no short one is over before the last disk exists.
    plan = sorted(
        ((case, seconds) for case, times in WAITS_S.items() for seconds in times),
        key=lambda wait: -wait[1],
    )
    try:
        for case, seconds in plan:
            for filesystem in FILESYSTEMS:
                disk = make(folder, f"{filesystem}-{case}-{seconds}", filesystem)
                model = simulated(filesystem, background=True)
                waits[filesystem, case, seconds] = Wait(
                    case, seconds, LATE_S[filesystem], disk, model
                )
        number = 0
        while open_waits := [wait for wait in waits.values() if wait.left is None]:
            number += 1
            for wait in open_waits:
                if wait.is_due:
                    wait.end()
                else:
                    wait.do([append("log", RECORD_BYTES, number)])
            time.sleep(TICK_S)
    finally:
        for wait in waits.values():
            wait.storage.close()
    return waits


@pytest.mark.slow
@pytest.mark.long  # more than a minute, during which no other test can use disks
def test_what_kernels_write_back_by_themselves_is_legal() -> None:
    """A marker comes back seconds after its removal, and a log that is never synced loses 30 seconds or more."""
    with disk_folder() as folder:
        waits = wait_for_kernels(folder)
        found = {}
        for key, wait in waits.items():
            assert wait.left is not None
            assert why_illegal(wait.model, wait.left, wait.lengths) == "", key
            found[key] = wait.left
    for filesystem in FILESYSTEMS:
        assert "marker" not in found[filesystem, "unlink", 50]
    assert len(found["ext4", "append", 60]["log"]) > 0, "xfs may know its length only later"
    assert "marker" not in found["ext4", "unlink", 12], "ext4 commits its journal every 5 s"
    # What is not written back yet: a busy machine may cut the power so late that it is.
    late = {
        key: wait.took_s for key, wait in waits.items() if wait.took_s > wait.seconds + LATE_MAX_S
    }
    early = [
        *(((filesystem, "append", 2), "log", False) for filesystem in FILESYSTEMS),
        *(((filesystem, "unlink", 1), "marker", True) for filesystem in FILESYSTEMS),
        (("xfs", "unlink", 20), "marker", True),  # xfs commits its journal only every 30 s
    ]
    for key, name, is_left in early:
        if key not in late:
            assert (name in found[key]) == is_left, key
    if any(key in late for key, _, _ in early):
        pytest.skip(f"the machine was too busy to cut the power in time: {late}")
