"""Tables of the controller's decisions: heartbeats, fencing and sessions."""

import pytest

from system_under_test.controller.heartbeats import Sessions, heartbeat, sessions_at_activation
from system_under_test.protocol.errors import ErrorCode
from tests.controller_story import SESSION_NS, Story, heartbeat_request, policy_of
from tests.unit.system_under_test.controller.decisions import ELR_ON, started

FENCED, UNFENCED, STOPPING = "fenced", "unfenced", "stopping"


def in_state(state: str, leads: bool) -> Story:
    s = Story(policy_of(ELR_ON))
    s.start(1, 2, 3)
    s.topic((2, 3) if not leads else (1, 2, 3), 1)
    if state == FENCED:
        s.fence(1)
    if state == STOPPING:
        # A broker that leads nothing may stop at once; so it leads something until it stops.
        s.create(name="u", assignment={0: (1, 2)})
        s.beat(1, want_stop=True)
        assert s.image.brokers[1].in_controlled_shutdown
    return s


@pytest.mark.parametrize(
    ("state", "leads", "wants", "behind", "is_fenced", "should_stop"),
    [
        (FENCED, False, {"want_stop": True}, False, True, True),
        (FENCED, False, {}, False, False, False),
        (FENCED, False, {}, True, True, False),
        (FENCED, False, {"want_fence": True}, False, True, False),
        (UNFENCED, True, {"want_fence": True}, False, True, False),
        (UNFENCED, True, {"want_fence": True, "want_stop": True}, False, True, True),
        (UNFENCED, True, {"want_stop": True}, False, False, False),
        (UNFENCED, False, {"want_stop": True}, False, True, True),
        (UNFENCED, True, {}, True, False, False),
    ],
)
def test_the_heartbeat_table(state, leads, wants, behind, is_fenced, should_stop):
    s = in_state(state, leads)
    response = s.beat(1, offset=0 if behind else None, **wants)
    assert (response.is_fenced, response.should_shut_down) == (is_fenced, should_stop)
    assert response.is_caught_up is not behind
    assert s.image.brokers[1].fenced is is_fenced
    if is_fenced:
        assert not s.image.partitions_with_in_isr(1)
        assert not s.image.leads_any(1)


def test_a_broker_that_was_fenced_while_it_stopped_is_unfenced_by_a_late_heartbeat():
    """As in Kafka. It stays in controlled shutdown, so it joins no ISR."""
    s = in_state(STOPPING, leads=False)
    s.fence(1)
    assert not s.beat(1).is_fenced
    broker = s.image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
    assert not s.image.is_active(1)


def test_a_late_heartbeat_does_not_elect_a_broker_that_was_stopping():
    s = started()
    s.fence(2, 3)
    s.beat(1, want_stop=True)
    assert (s.p.leader, s.p.isr, s.p.elr) == (-1, (), (1, 3))
    s.fence(1)
    assert not s.beat(1).is_fenced
    assert (s.p.leader, s.p.isr, s.p.elr) == (-1, (), (1, 3))


def test_a_stopping_broker_waits_until_all_active_brokers_know_the_new_leaders():
    s = in_state(STOPPING, leads=False)
    assert not s.image.leads_any(1)
    assert s.image.partition("u", 0).leader == 2
    assert not s.beat(1, want_stop=True).should_shut_down
    s.beat(2)
    assert not s.beat(1, want_stop=True).should_shut_down
    s.beat(3)
    response = s.beat(1, want_stop=True)
    assert response.should_shut_down
    assert response.is_fenced


def test_a_stopping_broker_does_not_wait_for_fenced_ones():
    s = in_state(STOPPING, leads=False)
    s.fence(3)
    s.beat(2)
    assert s.beat(1, want_stop=True).should_shut_down


def test_a_new_controller_does_not_release_a_stopping_broker_on_its_predecessors_decision():
    s = in_state(STOPPING, leads=False)
    s.sessions = sessions_at_activation(s.image, s.now_ns, s.policy)
    s.beat(2)
    s.beat(3)
    assert not s.beat(1, want_stop=True).should_shut_down
    s.beat(2)
    s.beat(3)
    assert s.beat(1, want_stop=True).should_shut_down


@pytest.mark.parametrize(("broker_id", "epoch_shift"), [(1, 1), (1, -1), (9, 0)])
def test_a_heartbeat_of_another_epoch_is_refused_and_refreshes_nothing(broker_id, epoch_shift):
    s = started()
    epoch = s.image.brokers[1].broker_epoch + epoch_shift
    before = s.sessions.get(1).last_contact_ns
    outcome = heartbeat(
        s.image, heartbeat_request(broker_id, epoch, 5), s.sessions, 10**12, s.policy
    )
    assert outcome.decision.response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert outcome.decision.records == ()
    assert s.sessions.get(1).last_contact_ns == before


def test_unfencing_never_changes_the_epoch_and_enters_the_isr_only_by_election():
    s = started()
    epoch = s.image.brokers[2].broker_epoch
    s.fence(2)
    s.unfence(2)
    assert s.image.brokers[2].broker_epoch == epoch
    assert s.p.isr == (1, 3)


def test_without_fence_1_a_returning_broker_is_not_elected():
    s = started(without=("FENCE-1",))
    s.fence(2, 3, 1)
    s.unfence(3)
    assert s.p.leader == -1


def test_without_fence_2_a_dead_leader_keeps_leading():
    s = started(without=("FENCE-2",))
    s.fence(1)
    assert (s.p.leader, s.p.isr) == (1, (1, 2, 3))


def test_an_expired_session_is_refreshed_by_a_late_heartbeat():
    s = started()
    s.now_ns += 2 * SESSION_NS
    assert s.sessions.expired(s.image, s.now_ns) == [1, 2, 3]
    s.beat(2)
    assert s.sessions.expired(s.image, s.now_ns) == [1, 3]


def test_sessions_expire_in_the_order_of_last_contact_then_of_ids():
    s = started()
    s.beat(1)
    assert s.sessions.expired(s.image, s.now_ns + SESSION_NS) == [2, 3]
    assert s.sessions.stalest(s.image) == (s.sessions.get(2).last_contact_ns + SESSION_NS, 2)
    sessions = sessions_at_activation(s.image, 50, s.policy)
    assert sessions.expired(s.image, 50 + SESSION_NS) == []
    assert sessions.expired(s.image, 51 + SESSION_NS) == [1, 2, 3]


def test_without_fence_4_a_new_controller_grants_no_new_sessions():
    s = started(without=("FENCE-4",))
    sessions = sessions_at_activation(s.image, s.now_ns, s.policy)
    assert sessions.expired(s.image, s.now_ns) == [1, 2, 3]


def test_fenced_brokers_have_no_session_to_expire():
    s = started()
    s.fence(1)
    assert s.sessions.expired(s.image, s.now_ns + 2 * SESSION_NS) == [2, 3]
    assert Sessions(SESSION_NS).stalest(s.image) is None
