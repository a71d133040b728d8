"""Tables of the controller's decisions: the change of one partition, and the elections in it."""

from uuid import UUID

import pytest

from system_under_test.config import PROFILES
from system_under_test.controller.election import ElectedFrom
from system_under_test.controller.partition_change import ChangeContext, build_change
from system_under_test.metadata.image import PartitionRegistration
from system_under_test.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from system_under_test.rules import Rules
from tests.unit.system_under_test.controller.decisions import ELR_ON

TOPIC_ID = UUID(int=7)


def registration(**fields) -> PartitionRegistration:
    defaults = {
        "topic": "t",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
    }
    return PartitionRegistration(**{**defaults, **fields})


def built(
    before: PartitionRegistration,
    target_isr=None,
    *,
    alive=(1, 2, 3),
    elr_on=True,
    min_isr=2,
    unclean=False,
    unclean_replicas=(),
    without=(),
    profile=ELR_ON,
    recovery_state=None,
):
    context = ChangeContext(
        acceptable=lambda broker_id: broker_id in alive,
        min_isr=min_isr,
        elr_on=elr_on,
        features=PROFILES[profile],
        unclean_allowed=unclean,
        unclean_replicas=frozenset(unclean_replicas),
        rules=Rules(without),
    )
    return build_change(
        before, context, target_isr=target_isr, target_recovery_state=recovery_state
    )


def test_no_target_and_nothing_to_elect_writes_no_record():
    assert built(registration()) is None


def test_the_same_isr_in_another_order_writes_no_record():
    assert built(registration(), (3, 2, 1)) is None


def test_a_shrink_above_min_isr_writes_the_isr_alone():
    change = built(registration(), (1, 3))
    assert change.record == PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=(1, 3))
    assert change.elected_from is ElectedFrom.NOTHING
    assert [mark.name for mark in change.marks()] == ["isr-shrunk"]


def test_a_shrink_below_min_isr_remembers_the_removed_members():
    change = built(registration(isr=(1, 3), elr=()), (1,))
    assert change.record.eligible_leader_replicas == (3,)
    assert built(registration(isr=(1,), elr=(3,)), (1,)) is None


def test_an_isr_of_min_isr_empties_elr_and_last_known_elr():
    before = registration(isr=(1,), elr=(2, 3), last_known_elr=(1,))
    change = built(before, (1, 2))
    assert change.record.eligible_leader_replicas == ()
    assert change.record.last_known_elr == ()
    assert change.after.partition_epoch == 1


def test_without_elr_1_the_elr_outlives_an_isr_of_min_isr():
    change = built(registration(isr=(1,), elr=(2,)), (1, 3), without=("ELR-1",))
    assert change.after.elr == (2,)
    # It may never be in both.
    assert built(registration(isr=(1,), elr=(2,)), (1, 2), without=("ELR-1",)).after.elr == ()


def test_without_elr_2_no_replica_is_remembered():
    change = built(registration(isr=(1, 3)), (1,), without=("ELR-2",))
    assert change.after.elr == ()


def test_a_broker_outside_the_replicas_never_enters_the_elr():
    before = registration(replicas=(1, 2, 3), isr=(1,), elr=(4,))
    assert built(before, (), alive=(2,)).after.elr == (1,)


def test_the_elected_elr_member_becomes_the_isr_and_leaves_the_elr():
    before = registration(isr=(), leader=-1, elr=(2, 3), last_known_elr=(1,), leader_epoch=4)
    change = built(before)
    assert change.elected_from is ElectedFrom.ELR
    assert (change.after.leader, change.after.isr, change.after.elr) == (2, (2,), (3,))
    assert (change.after.leader_epoch, change.after.last_known_elr) == (5, ())
    assert change.record.leader_recovery_state is None


def test_the_elr_does_not_count_while_the_isr_has_members():
    before = registration(isr=(1,), leader=-1, elr=(2,))
    assert built(before, alive=(2, 3)) is None


def test_the_leader_stays_while_it_is_entitled():
    change = built(registration(leader=3), (2, 3))
    assert change.record.leader == LEADER_UNCHANGED


def test_elections_follow_the_assignment_not_the_isr():
    before = registration(replicas=(3, 1, 2), isr=(1, 2, 3), leader=3)
    assert built(before, (2, 1), alive=(1, 2)).after.leader == 1


def test_with_elr_off_the_last_member_stays_in_the_isr_without_leading():
    change = built(registration(isr=(1,)), (), alive=(2, 3), elr_on=False)
    assert change.record.isr is None
    assert (change.after.leader, change.after.isr) == (-1, (1,))


def test_without_pcb_1_the_last_member_is_forgotten():
    change = built(registration(isr=(1,)), (), alive=(2, 3), elr_on=False, without=("PCB-1",))
    assert (change.after.leader, change.after.isr, change.after.elr) == (-1, (), ())


def test_without_elr_3_the_last_member_stays_unless_another_replica_is_elected():
    stays = built(registration(isr=(1,), elr=(3,)), (), alive=(2,), without=("ELR-3",))
    assert (stays.after.leader, stays.after.isr, stays.after.elr) == (-1, (1,), (3,))
    elected = built(registration(isr=(1,), elr=(3,)), (), alive=(2, 3), without=("ELR-3",))
    assert (elected.after.leader, elected.after.isr, elected.after.elr) == (3, (3,), (1,))


def test_turning_elr_off_drops_the_elr_at_the_next_change():
    change = built(registration(isr=(1,), elr=(3,)), elr_on=False)
    assert change.record == PartitionChangeRecord(
        topic_id=TOPIC_ID, partition_id=0, eligible_leader_replicas=()
    )


def test_an_unclean_replica_enters_no_elr():
    before = registration(isr=(1, 3), elr=())
    change = built(before, (3,), alive=(3,), unclean_replicas=(1,))
    assert (change.after.leader, change.after.isr, change.after.elr) == (3, (3,), ())


LAST_KNOWN = {"isr": (), "leader": -1, "elr": (), "last_known_elr": (1,)}


@pytest.mark.parametrize(
    ("fields", "alive", "rules", "leader"),
    [
        (LAST_KNOWN, (1, 2), (), 1),
        (LAST_KNOWN, (2, 3), (), -1),
        (LAST_KNOWN, (2, 3), ("ELR-8",), 1),
        ({**LAST_KNOWN, "elr": (3,)}, (1, 2), (), -1),
        ({**LAST_KNOWN, "last_known_elr": (1, 2)}, (1, 2), (), -1),
        ({**LAST_KNOWN, "last_known_elr": ()}, (1, 2), (), -1),
    ],
)
def test_the_last_known_leader_leads_only_alone_alive_and_with_both_sets_empty(
    fields, alive, rules, leader
):
    change = built(registration(**fields), alive=alive, without=rules)
    assert (-1 if change is None else change.after.leader) == leader
    if change is not None:
        assert change.elected_from is ElectedFrom.LAST_KNOWN_LEADER
        assert change.after.leader_recovery_state == 1
        assert (change.after.isr, change.after.last_known_elr) == ((1,), ())


def test_no_leader_is_not_remembered_as_last_known_leader():
    # ELR was off when the leader went; then it was switched on (B-47).
    before = registration(isr=(1,), leader=-1)
    change = built(before, (), alive=(2,), unclean_replicas=(1,))
    assert change.after.isr == ()
    assert change.after.last_known_elr == ()


@pytest.mark.parametrize(
    ("min_isr", "rules", "elr"), [(1, (), ()), (2, (), (1,)), (1, ("ELR-1",), (1,))]
)
def test_a_leader_elected_from_the_elr_empties_it_if_it_may_commit_alone(min_isr, rules, elr):
    # Min ISR was lowered to 1 while the partition had no leader (B-48): broker 1 will miss what 3 commits now.
    before = registration(isr=(), leader=-1, elr=(1, 3))
    change = built(before, alive=(3,), min_isr=min_isr, without=rules)
    assert change.elected_from is ElectedFrom.ELR
    assert (change.after.leader, change.after.isr, change.after.elr) == (3, (3,), elr)


def test_the_last_known_leader_comes_before_an_unclean_election():
    assert built(registration(**LAST_KNOWN), unclean=True).after.leader == 1
    change = built(registration(**LAST_KNOWN), alive=(2, 3), unclean=True)
    assert change.elected_from is ElectedFrom.UNCLEAN
    assert (change.after.leader, change.after.isr, change.after.last_known_elr) == (2, (2,), ())


def test_a_flagged_election_of_a_recovering_partition_writes_no_recovery_state():
    before = registration(**LAST_KNOWN, leader_recovery_state=1)
    assert built(before).record.leader_recovery_state is None


def test_without_el_1_any_live_replica_leads_unflagged():
    before = registration(isr=(1,), elr=(3,))
    change = built(before, (), alive=(2, 3), without=("EL-1",))
    assert change.elected_from is ElectedFrom.ANY_REPLICA
    assert (change.after.leader, change.after.isr, change.after.elr) == (2, (2,), ())
    assert change.after.leader_recovery_state == 0


def test_old_metadata_versions_raise_the_leader_epoch_on_a_shrink_only():
    options = {"elr_on": False, "profile": "kafka-3.4"}
    shrunk = built(registration(), (1, 2), **options)
    assert (shrunk.after.leader, shrunk.after.leader_epoch) == (1, 1)
    grown = built(registration(isr=(1,)), (1, 2), **options)
    assert grown.after.leader_epoch == 0
    swapped = built(registration(isr=(1, 2)), (1, 3), **options)
    assert swapped.after.leader_epoch == 1


def test_recovery_ends_with_the_proposal_that_requests_it():
    before = registration(isr=(1,), leader_recovery_state=1)
    change = built(before, (1,), recovery_state=0)
    assert change.after.leader_recovery_state == 0
    assert change.after.leader_epoch == 0
