"""Committed metadata in words: elections, losses of members, roles."""

import pyarrow as pa

from harness.campaigns.committed import (
    IN_ELR,
    IN_ISR,
    LEADER,
    OTHER,
    OUT_OF_SYNC,
    PartitionHistory,
    histories,
)
from harness.history.schema import PARTITION_STATES


def state(at_ns, leader, isr, *, elr=(), last_known=(), epoch=0, flagged=False, partition=0):
    return {
        "at_ns": at_ns,
        "metadata_offset": at_ns,
        "topic": "t",
        "partition": partition,
        "leader": leader,
        "leader_epoch": epoch,
        "partition_epoch": at_ns,
        "isr": list(isr),
        "elr": list(elr),
        "last_known_elr": list(last_known),
        "replicas": [1, 2, 3],
        "leader_recovery_state": 0,
        "flagged": flagged,
        "min_isr": 2,
    }


LAST_REPLICA_STANDING = [
    state(1, 1, [1, 2, 3]),
    state(2, 1, [1, 2]),
    state(3, 1, [1, 2, 3]),
    state(4, 1, [1, 3]),
    state(5, 1, [1]),
    state(6, -1, [1], epoch=1),
    state(7, 1, [1], epoch=2),
    state(8, 1, [1, 2], epoch=2),
]


def test_the_words_are_those_of_elections_and_lost_members_without_names():
    partition = PartitionHistory(LAST_REPLICA_STANDING)
    assert partition.last_words(100, 9) == (
        "ISR shrinks",
        "ISR shrinks to 1",
        "no leader",
        "leader elected from the ISR",
    )
    assert partition.last_words(6, 2) == ("ISR shrinks to 1", "no leader")
    assert partition.last_words(1, 9) == ()


def test_the_order_of_rows_does_not_matter():
    turned = PartitionHistory(LAST_REPLICA_STANDING[::-1])
    assert turned.changes == PartitionHistory(LAST_REPLICA_STANDING).changes


def test_an_election_states_where_the_leader_came_from():
    words = {
        "from the ISR": state(2, 2, [2], epoch=1),
        "from the ELR": state(2, 3, [3], epoch=1),
        "from the last-known ELR": state(2, 4, [4], epoch=1),
        "from outside the ISR": state(2, 5, [5], epoch=1),
    }
    before = state(1, 1, [1, 2], elr=[3], last_known=[4])
    for origin, after in words.items():
        assert PartitionHistory([before, after]).election_word(2) == f"leader elected {origin}"
    unclean = {**words["from the ELR"], "flagged": True}
    history = PartitionHistory([before, unclean])
    assert history.election_word(2) == "leader elected uncleanly from the ELR"
    assert history.election_word(1) == ""


def test_a_change_of_the_epoch_alone_is_an_election_too():
    """The same leader may be elected again; its epoch shows it."""
    history = PartitionHistory([state(1, 1, [1]), state(2, 1, [1], epoch=1)])
    assert history.election_between(0, 2) == 2


def test_the_isr_below_min_isr_and_empty_have_words_of_their_own():
    large = {**state(1, 1, [1, 2, 3, 4]), "min_isr": 3}
    small = {**state(2, 1, [1, 2]), "min_isr": 3}
    assert PartitionHistory([large, small]).last_words(9, 9) == ("ISR shrinks below min ISR",)
    empty = [state(1, 1, [1], elr=[2]), state(2, -1, [], elr=[1, 2], epoch=1)]
    assert PartitionHistory(empty).last_words(9, 9) == ("no leader; ISR is empty",)


def test_roles_are_those_right_before_a_moment():
    partition = PartitionHistory([state(1, 1, [1, 2], elr=[3]), state(5, 2, [2], epoch=1)])
    assert [partition.role(broker, 5) for broker in (1, 2, 3, 9)] == [LEADER, IN_ISR, IN_ELR, OTHER]
    assert [partition.role(broker, 6) for broker in (1, 2)] == [OUT_OF_SYNC, LEADER]
    assert partition.role(1, 1) == OTHER, "the partition did not exist yet"
    assert (partition.leader(0), partition.leader(4), partition.leader(5)) == (-1, 1, 2)


def test_the_last_election_in_a_window_counts():
    partition = PartitionHistory(LAST_REPLICA_STANDING)
    assert partition.election_between(0, 100) == 7
    assert partition.election_between(7, 100) is None
    assert partition.election_between(0, 6) is None, "a partition without a leader elected none"


def test_each_partition_has_its_own_history():
    rows = [state(1, 1, [1]), state(2, 2, [2], partition=1), state(3, -1, [1], epoch=1)]
    table = pa.Table.from_pylist(rows, schema=PARTITION_STATES)
    by_place = histories(table)
    assert list(by_place) == [("t", 0), ("t", 1)]
    assert by_place["t", 0].last_change(9) == 3
    assert by_place["t", 1].last_change(1) == -1
