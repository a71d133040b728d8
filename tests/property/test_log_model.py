"""A log against a model of it: a list of batches, whatever is done and however the process ends."""

import asyncio
from dataclasses import replace
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harness.simulation.disk import SimDisk
from harness.simulation.power_cut import MODES
from harness.simulation.weather import Weather
from harness.simulation.world import World
from system_under_test.config import DEFAULT_PROFILE, LogConfig, NodeConfig, profile_features
from system_under_test.log import Log, LogManager
from system_under_test.log.verified import VerifiedBatches
from system_under_test.protocol.record_batch import decode_records, encode_batch

TOPIC_ID = UUID(int=77)


class _FixedRandom:
    def random(self):
        return 0.5

    def randrange(self, start, stop):
        return start

    def getrandbits(self, bits):
        return 1


class LogMachine(RuleBasedStateMachine):
    """Drives one log of a manager.

    `batches` is what the log should hold, as (base offset, epoch, values); `past` is every such list that it
    ever held, because a power cut may undo truncations that were not flushed.
    """

    disk_profile = "posix-strict"

    def __init__(self):
        super().__init__()
        world = World(1, weather=Weather(name="test", disk_profile=self.disk_profile))
        self.storage = SimDisk(world, "b1")
        self.batches = []
        self.start = self.end = 0
        self.epoch = 1
        self.counter = 0
        self.flushed = 0
        self.past = []
        self.open()

    def open(self):
        # Kafka's recovery keeps a batch that was truncated and came back, and so breaks what is required here.
        features = replace(profile_features(DEFAULT_PROFILE), recovery_compares_epochs=True)
        config = NodeConfig(
            node_id=1,
            role="broker",
            address="b1:9092",
            cluster_id="c",
            voters=(),
            features=features,
            log=LogConfig(segment_bytes=300),
        )
        self.manager = LogManager(self.storage, config, _FixedRandom())
        self.was_clean = self.manager.clean_broker_epoch() == 9
        self.manager.load_all()
        self.log: Log = self.manager.get_or_create("t", 0, TOPIC_ID)

    def made(self, count):
        self.counter += 1
        return [b"%d/%d" % (self.counter, index) for index in range(count)]

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def append_as_leader(self, counts):
        data = b""
        for count in counts:
            values = self.made(count)
            data += encode_batch([(None, value) for value in values], timestamp_ms=1)
            self.batches.append((self.end, self.epoch, values))
            self.end += count
        self.log.append_as_leader(VerifiedBatches.verify(data), self.epoch)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), bump=st.integers(0, 1))
    def append_as_follower(self, counts, bump):
        data = b""
        for count in counts:
            self.epoch += bump
            values = self.made(count)
            data += encode_batch(
                [(None, value) for value in values],
                timestamp_ms=1,
                base_offset=self.end,
                leader_epoch=self.epoch,
            )
            self.batches.append((self.end, self.epoch, values))
            self.end += count
        self.log.append_as_follower(data)

    @rule()
    def begin_an_epoch(self):
        self.epoch += 1
        self.log.assign_epoch(self.epoch, self.end)

    @rule(data=st.data())
    def truncate(self, data):
        offset = data.draw(st.integers(0, self.end + 2))
        self.log.truncate_to(offset)
        self.epoch += 1
        if offset < self.start:
            # It may lie in a batch that is no longer readable; then the log ends where that batch started.
            self.batches = []
            self.start = self.end = self.log.log_end_offset
            assert self.end <= offset
        elif offset < self.end:
            self.end = max(base for base, _, _ in self.batches if base <= offset)
            self.batches = [batch for batch in self.batches if batch[0] < self.end]
            self.start = min(self.start, self.end)
        self.flushed = min(self.flushed, self.end)

    @rule(ahead=st.integers(0, 3))
    def drop(self, ahead):
        self.batches = []
        self.start = self.end = self.end + ahead
        self.epoch += 1
        self.log.truncate_fully_and_start_at(self.end)
        self.flushed = min(self.flushed, self.end)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def advance_log_start(self, data):
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.advance_log_start(self.start)
        self.batches = self.readable(self.batches)
        self.manager.write_recovery_points()

    @rule()
    def flush(self):
        self.log.flush_blocking()
        self.manager.write_recovery_points()
        self.flushed = self.end

    @rule()
    def kill(self):
        self.open()
        assert not self.was_clean
        self.check_content()

    @rule(loses_power=st.booleans())
    def stop_in_order(self, loses_power):
        asyncio.run(self.manager.shutdown(9))
        self.flushed = self.end
        if loses_power:
            self.storage.power_cut("lose_all")
        self.open()
        # The name of the marker is not durable (CS-1), so a power cut may take it. The log is complete anyway.
        assert self.was_clean or loses_power
        self.check_content()

    @rule(mode=st.sampled_from(MODES))
    def power_cut(self, mode):
        """The log may be shorter, but not by what was flushed, and holds nothing that was not written."""
        self.storage.power_cut(mode)
        self.open()
        log = self.log
        data = log.read(log.log_start_offset, 1 << 30, log.log_end_offset)
        survivors = [
            (header.base_offset, header.leader_epoch, [record.value for record in records])
            for header, records in decode_records(data)
        ]
        assert any(self.is_beginning(survivors, state) for state in self.past)
        for batch in self.batches:
            if self.start < batch[0] + len(batch[2]) <= self.flushed:
                assert batch in survivors
        self.batches = survivors
        self.start = log.log_start_offset
        self.end = log.log_end_offset
        # No replica may use an epoch again for other records.
        self.epoch += 1
        self.flushed = min(self.flushed, self.end)

    @staticmethod
    def is_beginning(survivors, state):
        if not survivors:
            return True
        rest = [batch for batch in state if batch[0] >= survivors[0][0]]
        return rest[: len(survivors)] == survivors

    @invariant()
    def check_content(self):
        log = self.log
        self.past.append(list(self.batches))
        assert log.log_end_offset == self.end
        assert log.log_start_offset == self.start
        assert log.recovery_point <= self.end
        headers = [header for header in log.headers() if header.last_offset >= self.start]
        assert [(h.base_offset, h.leader_epoch) for h in headers] == [b[:2] for b in self.batches]
        data = log.read(self.start, 1 << 30, self.end)
        assert [[r.value for r in records] for _, records in decode_records(data)] == [
            values for _, _, values in self.batches
        ]
        for header in headers:
            offset = max(header.base_offset, self.start)
            assert log.epochs.epoch_at(offset) == header.leader_epoch

    def readable(self, batches):
        return [batch for batch in batches if batch[0] + len(batch[2]) > self.start]


class Ext4LogMachine(LogMachine):
    """The same on a file system whose fsync commits the whole journal."""

    disk_profile = "ext4"


LogMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
Ext4LogMachine.TestCase.settings = LogMachine.TestCase.settings
TestLogOnAStrictDisk = LogMachine.TestCase
TestLogOnExt4 = Ext4LogMachine.TestCase
