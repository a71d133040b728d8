"""The harness follows committed metadata although controllers report only what is behind their snapshots."""

from typing import Any
from uuid import UUID

import pytest

from harness.contracts.metadata import CommittedMetadata
from harness.contracts.system import Event, Node
from harness.systems.reference.observation import MISSING_NS_MAX, EventObservation
from harness.systems.reference.states import SNAPSHOT_LOADED, MetadataWitness, NodeObserver
from system_under_test.invariants import InvariantViolation
from system_under_test.metadata.records import NoOpRecord, TopicRecord
from system_under_test.real.events import record_to_text

RECORDS = [TopicRecord(name=f"t{number}", topic_id=UUID(int=number + 1)) for number in range(6)]


class Bench:
    """Two controllers that report to one witness."""

    def __init__(self) -> None:
        self.view = CommittedMetadata()
        self.witness = MetadataWitness(self.view, lambda *_: None, lambda: 0)
        self.one, self.two = (
            NodeObserver(name, node_id, self.witness, lambda *_: None, lambda: 0)
            for name, node_id in (("c11", 11), ("c12", 12))
        )

    def report(self, observer: NodeObserver, *offsets: int) -> None:
        for offset in offsets:
            observer.metadata_committed(offset, 1, RECORDS[offset])

    def load(self, observer: NodeObserver, end_offset: int) -> None:
        observer.mark(SNAPSHOT_LOADED, end_offset=end_offset, epoch=1, log_start_offset=0)

    @property
    def topics(self) -> list[str]:
        return list(self.witness.image.topics_by_name)


def test_a_controller_may_begin_behind_its_snapshot() -> None:
    bench = Bench()
    bench.report(bench.one, 0, 1, 2)
    bench.load(bench.two, 3)
    bench.report(bench.two, 3, 4)
    bench.report(bench.one, 3)
    assert bench.topics == ["t0", "t1", "t2", "t3", "t4"]
    assert bench.view.offset == 4


def test_records_behind_a_snapshot_wait_for_what_it_covers() -> None:
    """Reports of two hosts may be read in another order than they were made."""
    bench = Bench()
    bench.load(bench.two, 3)
    bench.report(bench.two, 3, 4)
    assert bench.topics == []
    assert bench.witness.missing is not None
    assert bench.witness.missing.offset == 0
    bench.report(bench.one, 0, 1, 2)
    assert bench.topics == ["t0", "t1", "t2", "t3", "t4"]
    assert bench.witness.missing is None


def test_records_that_wait_must_agree_as_well() -> None:
    bench = Bench()
    bench.load(bench.two, 3)
    bench.report(bench.two, 3)
    bench.load(bench.one, 3)
    with pytest.raises(InvariantViolation, match="INV-5"):
        bench.one.metadata_committed(3, 2, RECORDS[3])
    bench.report(bench.one, 0, 1, 2)
    with pytest.raises(InvariantViolation, match="INV-5"):
        bench.one.metadata_committed(3, 1, NoOpRecord())


@pytest.mark.parametrize("next_offset", [1, 4, 5])
def test_a_controller_that_leaves_a_gap_or_repeats_breaks_inv_5(next_offset: int) -> None:
    bench = Bench()
    bench.report(bench.one, 0, 1, 2, 3, 4, 5)
    bench.report(bench.two, 0, 1, 2)
    with pytest.raises(InvariantViolation, match="no gaps"):
        bench.report(bench.two, next_offset)


def test_a_process_that_starts_again_without_a_snapshot_begins_at_offset_0() -> None:
    bench = Bench()
    bench.report(bench.one, 0, 1, 2)
    bench.report(bench.one, 0, 1, 2, 3)
    assert bench.view.offset == 3


def event(at_ns: int, node: str, kind: str, /, **fields: Any) -> Event:
    return Event(at_ns=at_ns, node=node, event=kind, fields=fields)


def test_a_run_is_doubted_if_nobody_reports_what_a_snapshot_covers() -> None:
    nodes = [Node(name="c11", node_id=11, role="controller", address="127.0.0.1:1")]
    observation = EventObservation(nodes, CommittedMetadata(), lambda *_: None, lambda _: None)
    details = {"end_offset": 3, "epoch": 1, "log_start_offset": 3}
    observation.take(event(1, "c11", "mark", name=SNAPSHOT_LOADED, details=details), 1)
    record = record_to_text(3, 1, RECORDS[3])
    observation.take(event(2, "c11", "metadata", record=record), 2)
    assert observation.doubt == ""
    late = MISSING_NS_MAX + 3
    observation.take(event(late, "c11", "mark", name="other", details={}), late)
    assert "no controller reported the metadata record at offset 0" in observation.doubt
