"""How an ISR grows and shrinks: proposals, responses, and their effect on the high watermark."""

import pytest

from system_under_test.broker.interfaces import IsrResponse
from system_under_test.broker.isr import (
    Committed,
    PendingExpand,
    PendingShrink,
    ResponseAction,
    action_for,
    expand,
    shrink,
)
from system_under_test.protocol.errors import ErrorCode
from system_under_test.rules import Rules
from tests.unit.system_under_test.broker.replica_fakes import LAG_NS, Broker, batch
from tests.unit.system_under_test.broker.test_partition_leader import append, lead_with_followers_at


def test_a_pending_expansion_counts_the_new_member():
    state = expand(Committed(isr=(1, 3)), 2)
    assert (state.isr, state.maximal_isr, state.proposed_isr) == ((1, 3), (1, 3, 2), (1, 3, 2))


def test_a_pending_shrink_still_counts_the_old_members():
    state = shrink(Committed(isr=(1, 2, 3)), (2,), Rules())
    assert (state.isr, state.maximal_isr, state.proposed_isr) == ((1, 2, 3), (1, 2, 3), (1, 3))


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (0, ResponseAction.COMMIT),
        (107, ResponseAction.ROLL_BACK),
        (55, ResponseAction.ROLL_BACK),
        (3, ResponseAction.STAY_PENDING),
        (100, ResponseAction.STAY_PENDING),
        (74, ResponseAction.STAY_PENDING),
        (95, ResponseAction.STAY_PENDING),
        (42, ResponseAction.STAY_PENDING),
        (108, ResponseAction.STAY_PENDING),
        (41, ResponseAction.RESEND),
        (-1, ResponseAction.RESEND),
        (7, ResponseAction.RESEND),
    ],
)
def test_responses_are_handled_as_in_the_table(error, action):
    assert action_for(error, Rules()) is action


def test_without_ap4_a_final_error_rolls_back():
    assert action_for(95, Rules(("AP-4",))) is ResponseAction.ROLL_BACK
    assert action_for(-1, Rules(("AP-4",))) is ResponseAction.RESEND


# --- shrink


def test_all_lagging_members_leave_in_one_request():
    broker = lead_with_followers_at(2)
    append(broker, "x")
    broker.clock.now_ns = LAG_NS + 1
    broker.partition.shrink_if_lagging()
    proposal = broker.alter.last
    assert proposal.isr_with_epochs == ((1, 101),)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (1, 1)
    assert isinstance(broker.partition.leadership.state, PendingShrink)
    assert "isr-shrink-proposed" in broker.marks


def test_a_follower_at_the_log_end_stays_however_long_ago_it_fetched():
    """FS-5: at the log end."""
    broker = lead_with_followers_at(2)
    broker.clock.now_ns = 10 * LAG_NS
    broker.partition.shrink_if_lagging()
    assert broker.alter.sent == []


def test_a_follower_within_the_lag_limit_stays():
    """FS-5: within the limit."""
    broker = lead_with_followers_at(2)
    append(broker, "x")
    broker.clock.now_ns = LAG_NS
    broker.partition.shrink_if_lagging()
    assert broker.alter.sent == []


def test_a_member_that_is_no_replica_counts_as_lagging():
    broker = lead_with_followers_at(1)
    broker.register(replicas=(1, 2), isr=(1, 2, 3))
    broker.partition.shrink_if_lagging()
    assert broker.alter.proposed == (1, 2)


def test_one_change_at_a_time():
    """ISR-1."""
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2)
    append(broker, "x")
    broker.clock.now_ns = 2 * LAG_NS
    broker.partition.shrink_if_lagging()
    broker.follower_fetch(3, 3)
    assert len(broker.alter.sent) == 1


def test_the_high_watermark_moves_only_when_the_shrink_is_committed():
    broker = lead_with_followers_at(2)
    append(broker, "x")
    broker.clock.now_ns = LAG_NS + 1
    broker.follower_fetch(2, 3)
    broker.partition.shrink_if_lagging()
    assert broker.alter.proposed == (1, 2)
    assert broker.high_watermark == 2
    broker.alter.accept()
    assert broker.high_watermark == 3
    assert broker.partition.replica.partition_epoch == 2
    assert broker.partition.isr_changes.shrinks == 1


def test_without_isr2_the_smaller_isr_counts_at_once():
    broker = lead_with_followers_at(2, without=("ISR-2",))
    append(broker, "x")
    broker.clock.now_ns = LAG_NS + 1
    broker.follower_fetch(2, 3)
    broker.partition.shrink_if_lagging()
    assert broker.high_watermark == 3


def test_a_follower_proposes_nothing():
    broker = Broker()
    broker.follow(2)
    broker.clock.now_ns = 10 * LAG_NS
    broker.partition.shrink_if_lagging()
    assert broker.alter.sent == []


# --- expand


def test_a_follower_at_the_high_watermark_joins_even_if_it_was_slow():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    append(broker, "x")
    broker.clock.now_ns = 9 * LAG_NS
    broker.follower_fetch(3, 2)
    assert broker.alter.last.isr_with_epochs == ((1, 101), (2, 102), (3, 103))
    assert isinstance(broker.partition.leadership.state, PendingExpand)
    broker.alter.accept()
    assert broker.partition.leadership.state.isr == (1, 2, 3)
    assert broker.partition.isr_changes.expands == 1


def test_a_follower_below_the_high_watermark_does_not_join():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 1)
    assert broker.alter.sent == []


@pytest.mark.parametrize(("without", "joins"), [((), False), (("ISR-4",), True)])
def test_a_follower_below_the_start_of_the_leader_epoch_does_not_join(without, joins):
    """KAFKA-7128: the new leader's high watermark is 1, but everything up to 3 may be committed."""
    broker = Broker(without=without)
    broker.follow(2)
    broker.replicate(batch("a", epoch=1), batch("b", "c", base_offset=1, epoch=1), high_watermark=1)
    broker.lead(isr=(1, 2))
    broker.follower_fetch(3, 1)
    assert (len(broker.alter.sent) == 1) is joins
    broker.follower_fetch(3, 3)
    assert broker.alter.proposed == (1, 2, 3)


@pytest.mark.parametrize("state", ["fenced", "stopping"])
@pytest.mark.parametrize(("without", "joins"), [((), False), (("ISR-5",), True)])
def test_a_fenced_or_stopping_follower_does_not_join(state, without, joins):
    broker = lead_with_followers_at(2, without=without)
    broker.register(isr=(1, 2))
    getattr(broker.metadata, state).add(3)
    broker.follower_fetch(3, 2)
    assert (len(broker.alter.sent) == 1) is joins


def test_a_follower_joins_only_with_the_epoch_that_the_metadata_know():
    """ISR-7: when the fetch returns, the proposal is made, with the epoch that was tested."""
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    # Newer than our metadata: maybe the next publish knows it.
    broker.follower_fetch(3, 2, broker_epoch=203)
    assert broker.alter.sent == []
    broker.metadata.epochs[3] = 203
    broker.follower_fetch(3, 2, broker_epoch=203)
    assert broker.alter.last.isr_with_epochs[-1] == (3, 203)


def test_before_kip_903_broker_epochs_are_not_checked():
    broker = lead_with_followers_at(2, profile="kafka-3.4")
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2, broker_epoch=99)
    assert broker.alter.last.isr_with_epochs == ((1, -1), (2, -1), (3, -1))


def test_a_fetch_by_a_former_incarnation_changes_nothing():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    broker.metadata.epochs[3] = 203
    broker.follower_fetch(3, 0, broker_epoch=203)
    late = broker.follower_fetch(3, 2, broker_epoch=103)
    assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.partition.leadership.followers[3].log_end_offset == 0
    assert broker.alter.sent == []
    assert "fenced-fetch" in broker.marks


def test_without_fs2_the_former_incarnation_is_kept_out_by_isr5():
    broker = lead_with_followers_at(2, without=("FS-2",))
    broker.register(isr=(1, 2))
    broker.metadata.epochs[3] = 203
    assert broker.follower_fetch(3, 2, broker_epoch=103).error_code == 0
    assert broker.alter.sent == []


def test_a_member_that_has_not_fetched_yet_is_proposed_without_epoch():
    """AP-1: -1 stands for an epoch that the leader does not know."""
    broker = Broker()
    broker.lead(isr=(1, 2))
    broker.follower_fetch(3, 0)
    assert broker.alter.last.isr_with_epochs == ((1, 101), (2, -1), (3, 103))


def test_an_isr_below_min_isr_may_grow_at_the_gated_high_watermark():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1,))
    append(broker, "x")
    broker.follower_fetch(2, 2)
    assert broker.alter.proposed == (1, 2)


# --- responses


def pending_expansion(**options) -> Broker:
    broker = lead_with_followers_at(2, **options)
    broker.register(isr=(1, 2))
    broker.follower_fetch(3, 2)
    assert broker.partition.leadership.state.is_pending
    return broker


@pytest.mark.parametrize("error", [107, 55])
def test_a_change_that_was_certainly_not_applied_returns_to_the_committed_isr(error):
    broker = pending_expansion()
    broker.alter.answer(IsrResponse(error=error))
    assert broker.partition.leadership.state.maximal_isr == (1, 2)
    assert not broker.partition.leadership.state.is_pending
    assert broker.partition.isr_changes.failures == 1


@pytest.mark.parametrize("error", [3, 100, 74, 95, 42, 108])
def test_a_change_that_may_have_been_applied_stays_pending_until_metadata_arrive(error):
    broker = pending_expansion()
    broker.alter.answer(IsrResponse(error=error))
    assert broker.partition.leadership.state.maximal_isr == (1, 2, 3)
    assert len(broker.alter.sent) == 1
    broker.register(isr=(1, 2))
    assert broker.partition.leadership.state.maximal_isr == (1, 2)


def test_without_ap4_the_leader_forgets_a_change_that_may_be_in_force():
    broker = pending_expansion(without=("AP-4",))
    broker.alter.answer(IsrResponse(error=95))
    assert broker.partition.leadership.state.maximal_isr == (1, 2)


@pytest.mark.parametrize("error", [41, -1, 7])
def test_other_errors_send_the_same_proposal_again(error):
    broker = pending_expansion()
    broker.alter.answer(IsrResponse(error=error))
    assert len(broker.alter.sent) == 2
    assert broker.alter.sent[0][0] == broker.alter.sent[1][0]
    broker.alter.accept()
    assert broker.partition.leadership.state.isr == (1, 2, 3)


def test_a_response_for_a_state_that_metadata_replaced_is_ignored():
    broker = pending_expansion()
    broker.register(isr=(1,))
    broker.alter.accept()
    assert broker.partition.leadership.state.isr == (1,)


def test_a_response_after_the_loss_of_leadership_is_ignored():
    broker = pending_expansion()
    leadership = broker.partition.leadership
    partition = broker.follow(2)
    broker.alter.accept()
    assert partition.leadership is None
    assert leadership.state.isr == ()
    assert partition.replica.partition_epoch == broker.registration.partition_epoch
    assert partition.isr_changes.expands == 0


def test_a_response_of_an_older_partition_epoch_is_ignored():
    broker = pending_expansion()
    broker.alter.answer(
        IsrResponse(error=0, leader_id=1, leader_epoch=1, isr=(1, 2, 3), partition_epoch=0)
    )
    assert broker.partition.leadership.state.is_pending
    assert broker.partition.isr_changes.failures == 1


def test_a_response_of_another_leader_epoch_is_ignored():
    broker = pending_expansion()
    broker.alter.answer(
        IsrResponse(error=0, leader_id=1, leader_epoch=2, isr=(1, 2, 3), partition_epoch=9)
    )
    assert broker.partition.leadership.state.is_pending


def test_a_rolled_back_expansion_no_longer_holds_the_high_watermark():
    broker = pending_expansion()
    append(broker, "x")
    broker.clock.now_ns += 2 * LAG_NS
    broker.follower_fetch(2, 3)
    assert broker.high_watermark == 2
    broker.alter.answer(IsrResponse(error=ErrorCode.INELIGIBLE_REPLICA))
    assert broker.high_watermark == 3


def test_a_registration_overtaken_by_a_response_still_changes_the_assignment():
    broker = pending_expansion()
    broker.alter.accept()
    broker.register(
        isr=(1, 2, 3),
        replicas=(1, 2, 3, 4),
        partition_epoch=broker.partition.replica.partition_epoch,
    )
    assert list(broker.partition.leadership.followers) == [2, 3, 4]


def test_a_response_with_an_equal_partition_epoch_ends_the_change():
    broker = pending_expansion()
    epoch = broker.partition.replica.partition_epoch
    broker.alter.answer(
        IsrResponse(error=0, leader_id=1, leader_epoch=1, isr=(1, 2), partition_epoch=epoch)
    )
    assert not broker.partition.leadership.state.is_pending


def test_a_proposal_that_cannot_be_queued_was_not_attempted():
    broker = lead_with_followers_at(2)
    broker.register(isr=(1, 2))
    broker.alter.accepts = False
    broker.follower_fetch(3, 2)
    assert not broker.partition.leadership.state.is_pending
    broker.alter.accepts = True
    broker.follower_fetch(3, 2)
    assert broker.partition.leadership.state.is_pending


def test_without_lead2_a_registration_does_not_cancel_a_change():
    broker = pending_expansion(without=("LEAD-2",))
    broker.register(isr=(1,))
    assert broker.partition.leadership.state.is_pending


def with_the_record_of_the_change_before(**options):
    """A leader proposed to add 3; then the record arrives whose content a response has already brought."""
    broker = lead_with_followers_at(2, **options)
    broker.register(isr=(1,))
    broker.follower_fetch(2, 2)
    broker.alter.accept()
    broker.follower_fetch(3, 2)
    broker.register(isr=(1, 2))  # partition epoch as in the response
    assert broker.registration.partition_epoch == broker.partition.replica.partition_epoch
    return broker


def test_the_record_of_a_completed_change_does_not_cancel_the_next_one():
    """LEAD-6: the registration repeats the response, and the next proposal may already be in force."""
    broker = with_the_record_of_the_change_before()
    assert broker.partition.leadership.state.maximal_isr == (1, 2, 3)
    assert "isr-change-cancelled" not in broker.marks
    broker.alter.accept()
    assert broker.partition.leadership.state.isr == (1, 2, 3)


def test_without_lead6_the_leader_forgets_the_next_change_as_in_kafka():
    broker = with_the_record_of_the_change_before(without=("LEAD-6",))
    leadership = broker.partition.leadership
    assert leadership.state.maximal_isr == (1, 2)
    assert "isr-change-cancelled" in broker.marks
    broker.alter.accept()
    assert leadership.state.isr == (1, 2)
    broker.register(isr=(1, 2, 3))
    assert leadership.state.isr == (1, 2, 3)
