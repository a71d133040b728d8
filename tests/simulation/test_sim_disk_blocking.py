"""A rename that follows a blocking fsync never survives a power cut without what was fsynced."""

from dataclasses import replace

import pytest

from harness.simulation.weather import CALM
from harness.simulation.world import World

SLOW_DISK = replace(CALM, blocking_fsync_takes_time=True, fsync_base_ns=5_000_000)


class Checkpointing:
    """Replaces a small file in the usual way: temporary file, fsync, rename, fsync of the directory."""

    def __init__(self, host):
        self.storage = host.storage

    async def start(self):
        for number in range(8):
            self.storage.write("state.tmp", b"complete %d" % number)
            self.storage.fsync_blocking("state.tmp")
            self.storage.replace("state.tmp", "state")
            self.storage.fsync_dir(".")

    async def stop(self):
        pass


@pytest.mark.parametrize(
    "mode", ["lose_all", "prefix", "torn_sector", "zero_tail", "pages", "keep_all"]
)
def test_a_checkpoint_is_either_old_or_new_after_any_power_cut(mode):
    survived = set()
    for seed in range(40):
        with World(seed, weather=SLOW_DISK) as world:
            node = world.add_node(
                "n", kind="broker", address="n:1", main=Checkpointing, observer=None
            )
            node.start()
            world.run_for(1_000_000 * (seed % 9))
            node.power_off(mode)
            if node.disk.exists("state"):
                content = node.disk.read("state")
                assert content in {b"complete %d" % number for number in range(8)}, (seed, content)
                survived.add(content)
    if mode == "keep_all":
        assert survived
