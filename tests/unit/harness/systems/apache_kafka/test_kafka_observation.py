"""History rows from Kafka's committed metadata: recorded logs, registrations, transactions, snapshots."""

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import Event, Node
from harness.contracts.violation import Violation
from harness.systems.apache_kafka.observation import KafkaObservation
from system_under_test.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from system_under_test.protocol.metadata_codec import encode_record
from system_under_test.protocol.record_batch import encode_batch
from system_under_test.real.events import format_event
from tests.unit.harness.systems.apache_kafka.recorded import VERSIONS, recorded

NODES = [
    *(Node(name=f"c{i}", role="controller", node_id=i, address=f"c{i}:1") for i in (11, 12, 13)),
    *(Node(name=f"b{i}", role="broker", node_id=i, address=f"b{i}:1") for i in (1, 2, 3)),
]
TOPIC = UUID(int=5)
WITH_ELR = ("4.0.2", "4.1.2", "4.4.0")
ELR = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
MIN_ISR = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
BEGIN, END, ABORT = (bytes((1, kind, 0, 0)) for kind in (23, 24, 25))


class Observed:
    """An observation and what it recorded. Mutable."""

    def __init__(self, *, levels: Mapping[str, int] | None = None) -> None:
        self.view = CommittedMetadata()
        self.rows: list[tuple[str, tuple[Any, ...]]] = []
        self.violations: list[Violation] = []
        self.observation = KafkaObservation(
            NODES,
            self.view,
            lambda table, row: self.rows.append((table, row)),
            self.violations.append,
            levels=levels,
        )
        self.now_ns = 0
        self.end = 0

    def event(self, node: str, event: str, **fields: Any) -> None:
        self.now_ns += 1
        line = format_event(self.now_ns, node, event, fields)
        parsed = self.observation.parse(line)
        assert isinstance(parsed, Event)
        self.observation.take(parsed, self.now_ns)

    def committed(self, data: bytes, first: int, end: int) -> None:
        self.event("c11", "committed", first=first, end=end, data=data.hex())

    def batch(self, *records: Any) -> None:
        """Commits records as one batch."""
        self.framed(*(kafka_record(record) for record in records))

    def framed(self, *values: bytes) -> None:
        """Commits framed records as one batch."""
        data = encode_batch(
            [(None, value) for value in values], timestamp_ms=1, base_offset=self.end
        )
        self.committed(data, self.end, self.end + len(values))
        self.end += len(values)

    def of(self, table: str) -> list[tuple[Any, ...]]:
        return [row for name, row in self.rows if name == table]


def kafka_record(record: Any) -> bytes:
    """Returns a record as Kafka frames it; its registrations differ from those of the reference system."""
    if not isinstance(record, RegisterBrokerRecord):
        return encode_record(record)
    ids = struct.pack(">i?", record.broker_id, False) + record.incarnation_id.bytes
    flags = struct.pack("??", record.fenced, record.in_controlled_shutdown)
    no_endpoints, no_features, no_rack, no_tags = b"\1", b"\1", b"\0", b"\0"
    fields = ids + struct.pack(">q", record.broker_epoch) + no_endpoints + no_features + no_rack
    return b"\1\0\3" + fields + flags + no_tags


def registered(broker: int, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker, incarnation_id=UUID(int=epoch), broker_epoch=epoch, address=""
    )


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC, partition_id=0, **fields)


def partition(
    isr: tuple[int, ...], *, elr: tuple[int, ...] = (), index: int = 0
) -> PartitionRecord:
    return PartitionRecord(
        topic_id=TOPIC,
        partition_id=index,
        replicas=(1, 2, 3),
        isr=isr,
        leader=isr[0] if isr else -1,
        eligible_leader_replicas=elr,
    )


# --- feature levels ---


@pytest.mark.parametrize(
    ("expected", "doubt"),
    [
        (1, ""),
        (0, "feature level eligible.leader.replicas.version 1 and not 0, so it does not promise"),
    ],
)
def test_the_levels_with_which_the_first_topic_is_created_must_be_the_expected_ones(
    expected: int, doubt: str
) -> None:
    seen = Observed(levels={ELR.name: expected})
    seen.batch(ELR)
    assert seen.observation.doubt == ""
    seen.batch(TopicRecord(topic_id=TOPIC, name="t"))
    assert doubt in seen.observation.doubt
    assert bool(doubt) == bool(seen.observation.doubt)


def test_a_level_that_is_changed_after_the_first_topic_raises_no_doubt() -> None:
    seen = Observed(levels={ELR.name: 0})
    seen.batch(TopicRecord(topic_id=TOPIC, name="t"))
    seen.batch(ELR)
    assert seen.observation.doubt == ""


@pytest.mark.parametrize(("version", "level"), [("4.0.2", 0), ("4.1.2", 1), ("4.4.0", 1)])
def test_the_levels_of_recorded_logs_are_known_before_the_first_topic(
    version: str, level: int
) -> None:
    right, wrong = Observed(levels={ELR.name: level}), Observed(levels={ELR.name: 1 - level})
    log = recorded(version)
    for each in (right, wrong):
        each.committed(log.log, 0, log.end)
    assert right.observation.doubt == ""
    assert f"{ELR.name} {level} and not {1 - level}" in wrong.observation.doubt


# --- recorded logs ---


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_log_gives_rows_and_the_view_of_its_end(version: str) -> None:
    log = recorded(version)
    observed = Observed()
    observed.committed(log.log, 0, log.end)
    assert not observed.violations
    assert observed.view.offset == log.end - 1
    assert observed.observation.features == log.facts["features"]
    assert set(observed.view.brokers) == {1, 2, 3}
    assert observed.view.is_fenced(3), "it was stopped at the end"
    assert not observed.view.is_fenced(1)
    assert not observed.view.is_fenced(2)
    partitions = observed.of("partition_states")
    last = [row for row in partitions if row[2] == "t"][-1]
    assert (sorted(last[7]), last[10], last[13]) == ([1, 2], [1, 2, 3], 2), "ISR, replicas, min ISR"
    assert {row[2] for row in partitions} == {"t", "u"}
    changes = [(row[2], row[4]) for row in observed.of("broker_states")]
    assert changes.count((1, "registered")) == 2
    assert (1, "fenced") in changes
    assert (3, "fenced") in changes
    # Broker 1 was killed while it was in the ISR. Its registration is known to be unclean if it was in the ELR.
    was_in_elr = any(1 in row[8] for row in partitions)
    clean = [row[5] for row in observed.of("broker_states") if row[4] == "registered"]
    assert clean == [None, None, None, False if was_in_elr else None]
    assert was_in_elr == (version in WITH_ELR)


def test_a_state_has_the_moment_when_it_was_not_committed_yet() -> None:
    """The times of events are those of the machine, those of rows are since the run began."""
    log = recorded("4.0.2")
    rows = {}
    for name, after in (("late", {"after_ns": 1_030}), ("early", {"after_ns": 0}), ("old", {})):
        observed = Observed()
        fields = {"first": 0, "end": log.end, "data": log.log.hex(), **after}
        event = Event(at_ns=1_050, node="c11", event="committed", fields=fields)
        observed.observation.take(event, 250)
        rows[name] = {(row[0], row[14]) for row in observed.of("partition_states")}
    assert rows == {"late": {(250, 230)}, "early": {(250, 0)}, "old": {(250, 250)}}


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_in_pieces_gives_the_same_rows(version: str) -> None:
    log = recorded(version)
    whole, pieces = Observed(), Observed()
    whole.committed(log.log, 0, log.end)
    for offset in range(0, log.end, 3):
        pieces.committed(log.log, offset, min(offset + 3, log.end))
    # The last column of a state is a time, too.
    without_time = [[(table, row[1:14]) for table, row in each.rows] for each in (whole, pieces)]
    assert without_time[0] == without_time[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_and_the_log_after_it_give_the_same_view(version: str) -> None:
    log = recorded(version)
    whole, later = Observed(), Observed()
    whole.committed(log.log, 0, log.end)
    end, epoch, data = log.snapshot
    later.event("c12", "snapshot", end_offset=end, epoch=epoch, leader=12, data=data.hex())
    assert not later.violations
    assert later.view.offset == end - 1
    assert later.view.active_controller == 12
    assert {row[1] for row in later.of("broker_states")} == {end - 1}
    later.committed(log.log, end, log.end)
    assert not later.violations
    assert later.view.partitions["t-0"] == whole.view.partitions["t-0"]
    assert later.view.brokers == whole.view.brokers
    assert later.view.offset == whole.view.offset


# --- what Kafka's controller does with the ELR ---


def test_clearing_the_elr_also_clears_it_for_partitions_without_a_leader() -> None:
    observed = Observed()
    observed.batch(ELR, TopicRecord(name="t", topic_id=TOPIC), MIN_ISR, partition((), elr=(1, 3)))
    observed.batch(ClearElrRecord(topic_name="t"))
    assert observed.view.partitions["t-0"].elr == ()
    assert observed.of("partition_states")[-1][8] == []


# --- registrations ---


def after_registration(*before: Any, state: PartitionRecord, elr: bool = True) -> bool | None:
    """Returns what is recorded of a registration of broker 1 that follows these records in its batch."""
    observed = Observed()
    features = (ELR,) if elr else (NoOpRecord(),)
    observed.batch(*features, TopicRecord(name="t", topic_id=TOPIC), MIN_ISR, state)
    observed.batch(*before, registered(1, 40))
    (row,) = observed.of("broker_states")
    assert row[2:5] == (1, 40, "registered")
    return row[5]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("records", "state", "clean"),
    [
        # Removed from the ELR by its own registration.
        ([change(eligible_leader_replicas=(3,))], partition((), elr=(1, 3)), False),
        ([change(eligible_leader_replicas=())], partition((2,), elr=(1,)), False),
        # The only member of the ISR.
        ([change(isr=(), leader=-1)], partition((1,)), False),
        # The ISR becomes smaller than min ISR: a clean registration would keep it in the ELR.
        ([change(isr=(2,), leader=2)], partition((1, 2)), False),
        ([change(isr=(2,), leader=2, eligible_leader_replicas=(1,))], partition((1, 2)), None),
        # A clean one leaves a large ISR as well.
        ([change(isr=(2, 3), leader=2)], partition((1, 2, 3)), None),
        # The ISR grew meanwhile, which empties the ELR.
        ([change(isr=(2, 3), eligible_leader_replicas=())], partition((2,), elr=(1,)), None),
        # Not about this broker, or nothing at all.
        ([change(eligible_leader_replicas=(1,))], partition((), elr=(1, 3)), None),
        ([], partition((), elr=(1,)), None),
        # Another record lies between: the change belongs to another request.
        ([change(eligible_leader_replicas=()), NoOpRecord()], partition((), elr=(1,)), None),
        # The partition changed twice in the batch.
        ([change(leader=-1), change(eligible_leader_replicas=())], partition((), elr=(1,)), None),
    ],
)
def test_a_registration_is_unclean_only_if_its_batch_proves_it(
    records: list[Any], state: PartitionRecord, clean: bool | None
) -> None:
    assert after_registration(*records, state=state) is clean


@pytest.mark.parametrize(
    ("epoch", "last_known", "min_isr", "clean"),
    [
        (4, 2, 2, False),  # the registration wrote the change
        (5, 2, 2, None),  # another request did
        (4, 3, 2, None),  # another election
        (4, 2, 1, None),  # one member is min ISR, which empties the ELR as well
    ],
)
def test_a_registration_that_leaves_only_the_last_known_leader_was_unclean(
    epoch: int, last_known: int, min_isr: int, clean: bool | None
) -> None:
    observed = Observed()
    setting = replace(MIN_ISR, value=str(min_isr))
    state = partition((), elr=(1,))
    known = replace(state, leader=-1, last_known_elr=(last_known,))
    observed.batch(ELR, TopicRecord(name="t", topic_id=TOPIC), setting, known)
    observed.batch(change(isr=(2,), leader=2, eligible_leader_replicas=()), registered(1, epoch))
    assert observed.of("broker_states")[-1][5] is clean


def test_without_elr_nothing_is_known_of_a_registration() -> None:
    removed = change(isr=(2,), leader=2)
    assert after_registration(removed, state=partition((1, 2)), elr=False) is None


def test_a_release_that_computes_min_isr_from_partition_0_proves_less() -> None:
    """Partition 0 has one replica, so the effective min ISR of partition 1 is 1 there, and its ELR stays empty."""
    observed = Observed()
    alone = PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1,), isr=(1,), leader=1)
    topic = TopicRecord(name="t", topic_id=TOPIC)
    observed.batch(ELR, topic, MIN_ISR, alone, partition((1, 2), index=1))
    shrunk = PartitionChangeRecord(topic_id=TOPIC, partition_id=1, isr=(2,), leader=2)
    observed.batch(shrunk, registered(1, 40))
    assert observed.of("broker_states")[-1][5] is None


def test_a_change_of_log_directories_has_no_row() -> None:
    observed = Observed()
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=40, log_dirs=(UUID(int=9),))
    observed.batch(registered(1, 40), change)
    assert [row[4] for row in observed.of("broker_states")] == ["registered"]


def test_a_registration_that_the_same_incarnation_repeats_is_one_registration() -> None:
    observed = Observed()
    observed.batch(registered(1, 40))
    observed.batch(
        registered(1, 40),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=40, fenced=False),
    )
    observed.batch(registered(1, 40))
    assert [row[4] for row in observed.of("broker_states")] == ["registered", "unfenced"]
    assert observed.view.is_fenced(1), "the repeated record says so"
    observed.batch(registered(1, 41))
    assert [row[4] for row in observed.of("broker_states")][2:] == ["registered"]


# --- transactions ---


def test_records_of_a_transaction_apply_when_it_ends() -> None:
    observed = Observed()
    topic = encode_record(TopicRecord(name="t", topic_id=TOPIC))
    observed.framed(BEGIN, topic)
    observed.framed(encode_record(partition((1,))))
    assert observed.view.partitions == {}
    assert observed.view.offset == 2
    observed.framed(END)
    assert observed.view.partitions["t-0"].isr == (1,)
    assert observed.of("partition_states")[0][1] == 2, "the offset of the record"


def test_records_of_an_aborted_transaction_do_not_apply() -> None:
    observed = Observed()
    topic = encode_record(TopicRecord(name="t", topic_id=TOPIC))
    observed.framed(BEGIN, topic, encode_record(partition((1,))), ABORT)
    assert observed.view.partitions == {}
    assert observed.view.offset == 3
    observed.framed(topic, encode_record(partition((2,))))
    assert observed.view.partitions["t-0"].isr == (2,)


# --- violations, replicas ---


def test_a_record_that_does_not_fit_is_a_violation_and_ends_the_observation() -> None:
    observed = Observed()
    observed.batch(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=True))
    assert [violation.invariant for violation in observed.violations] == ["INV-8"]
    observed.batch(TopicRecord(name="t", topic_id=TOPIC), partition((1,)))
    assert not observed.of("partition_states")


def test_a_violation_of_the_reader_is_passed_on() -> None:
    observed = Observed()
    observed.event("c12", "violation", invariant="INV-5", sentence="the log differs")
    (violation,) = observed.violations
    assert (violation.node, violation.invariant) == ("c12", "INV-5")
    assert "the log differs" in violation.sentence


def replica(observed: Observed, end: int, cause: str) -> None:
    observed.event(
        "b1",
        "replica",
        topic="t",
        partition=0,
        log_end_offset=end,
        high_watermark=1,
        log_start_offset=0,
        leader_epoch=2,
        role="follower",
        cause=cause,
    )


def test_a_broker_that_goes_down_takes_its_replicas_offline_with_their_last_log_end() -> None:
    observed = Observed()
    replica(observed, 4, "load")
    replica(observed, 5, "replicate")
    observed.observation.node_went_down("b1", 90)
    observed.observation.node_went_down("b1", 91)
    observed.observation.node_started("b1", 95)
    replica(observed, 3, "observed")
    rows = [(row[0], row[5], row[9], row[10]) for row in observed.of("replica_states")]
    assert rows == [
        (1, 4, "follower", "load"),
        (2, 5, "follower", "replicate"),
        (90, 5, "offline", "down"),
        (3, 3, "follower", "load"),
    ]


# --- min ISR ---


def test_a_setting_that_changes_min_isr_has_rows_of_the_partitions_that_it_changes() -> None:
    """With ELR off no record of the partition says so. A setting of their own comes before that of the cluster."""
    observed = Observed()
    own, other = TOPIC, UUID(int=6)
    observed.batch(TopicRecord(name="t", topic_id=own), MIN_ISR, partition((1, 2)))
    observed.batch(
        TopicRecord(name="u", topic_id=other), replace(partition((1, 2)), topic_id=other)
    )

    def changed_by(record: ConfigRecord) -> list[tuple[str, int, int]]:
        """Returns topic, min ISR and partition epoch of the rows of a setting."""
        known = len(observed.of("partition_states"))
        observed.batch(record)
        rows = observed.of("partition_states")[known:]
        return [(row[2], row[13], row[6]) for row in rows]

    assert changed_by(replace(MIN_ISR, value="1")) == [("t", 1, 0)]
    assert changed_by(replace(MIN_ISR, value="1")) == []
    assert changed_by(replace(MIN_ISR, name="retention.ms", value="9")) == []
    cluster = replace(MIN_ISR, resource_type=4, resource_name="", value="3")
    assert changed_by(cluster) == [("u", 3, 0)]
    assert changed_by(replace(MIN_ISR, value=None)) == [("t", 3, 0)]
