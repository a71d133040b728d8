"""What a consumer group promises, judged from what it was given and what it committed."""

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from harness.history.schema import TABLES
from workloads.append import ProcessIds
from workloads.consumer_group import (
    ConsumerGroup,
    GroupLedger,
    GroupWorkloadConfig,
)

KEY = ("t", 0)
NOTHING_COMMITTED = -1001


def committed(ledger: GroupLedger, offset: int) -> None:
    ledger.commit_invoked(KEY, offset)
    ledger.commit_acknowledged(KEY, offset)


def test_a_group_that_got_everything_below_its_commit_has_no_findings() -> None:
    ledger = GroupLedger()
    ledger.committed_seen(KEY, NOTHING_COMMITTED, at_least=ledger.acknowledged(KEY))
    ledger.delivered(KEY, [(0, 10), (1, 11)])
    committed(ledger, 2)
    ledger.committed_seen(KEY, 2, at_least=ledger.acknowledged(KEY))
    assert ledger.findings({KEY: [(0, 10), (1, 11), (2, 12)]}) == []


def test_a_record_below_the_commit_that_no_member_got_was_withheld() -> None:
    ledger = GroupLedger()
    ledger.delivered(KEY, [(0, 10), (2, 12)])
    committed(ledger, 3)
    (finding,) = ledger.findings({KEY: [(0, 10), (1, 11), (2, 12)]})
    assert "t-0: offset 3 is committed, but 1 records below it" in finding
    assert finding.endswith("the first at offset 1")


def test_another_record_at_the_same_offset_does_not_count_as_delivered() -> None:
    ledger = GroupLedger()
    ledger.delivered(KEY, [(0, 99)])
    committed(ledger, 1)
    assert len(ledger.findings({KEY: [(0, 10)]})) == 1
    assert ledger.findings({KEY: [(0, 10)]}, excused=[KEY]) == []


@pytest.mark.parametrize("seen", [4, NOTHING_COMMITTED])
def test_a_committed_offset_that_went_back_is_a_finding(seen: int) -> None:
    ledger = GroupLedger()
    committed(ledger, 3)
    committed(ledger, 7)
    ledger.committed_seen(KEY, seen, at_least=ledger.acknowledged(KEY))
    (finding,) = ledger.findings({})
    assert "a commit of offset 7 was acknowledged" in finding


def test_a_commit_without_an_answer_may_be_carried_out_late() -> None:
    ledger = GroupLedger()
    ledger.commit_invoked(KEY, 4)
    committed(ledger, 7)
    ledger.committed_seen(KEY, 4, at_least=ledger.acknowledged(KEY))
    assert ledger.findings({}) == []
    ledger.committed_seen(KEY, 5, at_least=ledger.acknowledged(KEY))
    assert len(ledger.findings({})) == 1


def test_a_commit_that_was_acknowledged_after_the_question_proves_nothing() -> None:
    ledger = GroupLedger()
    at_least = ledger.acknowledged(KEY)
    committed(ledger, 7)
    ledger.committed_seen(KEY, NOTHING_COMMITTED, at_least=at_least)
    assert ledger.findings({}) == []


def test_only_final_reads_say_what_the_log_holds() -> None:
    group = ConsumerGroup(
        ("127.0.0.1:9",),
        GroupWorkloadConfig(),
        recorder=None,  # type: ignore[arg-type]
        run_id=1,
        topic_partitions=[KEY],
        ids=ProcessIds(),
        random=None,  # type: ignore[arg-type]
    )
    committed(group.ledger, 2)
    group.ledger.delivered(KEY, [(0, 10)])
    read = {"topic": "t", "partition": 0, "offset": 1, "value": 11}

    def findings(*, final: bool, flagged: bool = False) -> list[str]:
        operations = pa.table({"op_index": [5], "final": [final]})
        records = pa.table({name: [value] for name, value in ({"op_index": 5} | read).items()})
        states = pa.table({"topic": ["t"], "partition": [0], "flagged": [flagged]})
        tables = {"operations": operations, "records_read": records, "partition_states": states}
        assert tables.keys() <= TABLES.keys()
        return group.findings(tables)

    assert findings(final=False) == []
    assert len(findings(final=True)) == 1
    assert findings(final=True, flagged=True) == []
