"""Tables of the controller's decisions: elections that no failure causes."""

import pytest

from harness.defects.requests import elect_request
from system_under_test.config import FAST_TIMINGS
from system_under_test.controller import leader_elections
from system_under_test.controller.leader_elections import balance_leaders, elect_leaders
from system_under_test.protocol.errors import ErrorCode
from tests.controller_story import create_request
from tests.unit.system_under_test.controller.controller_fakes import Node, sleep_ms, virtually
from tests.unit.system_under_test.controller.decisions import ELR_OFF, ELR_ON, started

IMBALANCE_MS = FAST_TIMINGS.leader_imbalance_check_interval_ms


def led_by_2(**options):
    """Broker 1 was away and is in the ISR again; broker 2 leads."""
    s = started(**options)
    s.fence(1)
    s.unfence(1)
    s.propose(2, 3, 1)
    s.marks.clear()
    assert (s.p.leader, set(s.p.isr)) == (2, {1, 2, 3})
    return s


@pytest.mark.parametrize("profile", [ELR_ON, ELR_OFF])
def test_a_preferred_election_keeps_the_old_leader_in_the_isr(profile):
    s = led_by_2(profile=profile)
    epoch = s.p.leader_epoch
    assert s.elect() == ErrorCode.NONE
    assert (s.p.leader, s.p.leader_epoch, set(s.p.isr)) == (1, epoch + 1, {1, 2, 3})
    assert s.p.leader_recovery_state == 0
    assert s.marks == ["leader-elected-on-request", "elected-from-isr"]


def test_the_preferred_leader_needs_no_election():
    s = started()
    before = len(s.log)
    assert s.elect() == ErrorCode.ELECTION_NOT_NEEDED
    assert len(s.log) == before


@pytest.mark.parametrize("unclean_topic", [False, True])
def test_a_preferred_leader_that_is_fenced_or_outside_the_isr_is_not_available(unclean_topic):
    s = started()
    s.create(name="u", assignment={0: (1, 2, 3)}) if unclean_topic else None
    s.fence(1)
    assert s.elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    s.unfence(1)
    assert s.elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert s.p.leader == 2


def test_without_el_3_the_leader_stays_although_the_preferred_one_could_lead():
    s = led_by_2(without=("EL-3",))
    assert s.elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert s.p.leader == 2


def test_an_unclean_election_is_for_partitions_without_a_leader():
    s = started()
    assert s.elect(unclean=True) == ErrorCode.ELECTION_NOT_NEEDED
    s.fence(3, 2, 1)
    assert s.p.leader == -1
    assert s.elect(unclean=True) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_an_unclean_election_elects_a_live_replica_and_is_flagged_whatever_the_topic_allows():
    s = started(profile=ELR_OFF)
    s.fence(3, 2, 1)
    s.unfence(3)
    assert (s.p.leader, s.p.isr) == (-1, (1,))
    assert s.elect() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert s.elect(unclean=True) == ErrorCode.NONE
    assert (s.p.leader, s.p.isr, s.p.leader_recovery_state) == (3, (3,), 1)
    assert "elected-unclean" in s.marks


def test_a_preferred_election_is_never_unclean():
    s = started(profile=ELR_OFF)
    s.create(
        name="u",
        assignment={0: (1, 2, 3)},
        configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    s.fence(3, 2, 1)
    # A batch between the broker's return and the election that its return would cause.
    s.apply_without_election(3)
    response = elect_leaders(s.image, elect_request(("u", 0)), s.policy).response
    (result,) = response.replica_election_results[0].partition_result
    assert result.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_request_for_all_partitions_reports_only_those_that_might_have_had_an_election():
    s = led_by_2()
    s.create(name="u", assignment={0: (2, 3), 1: (1, 2)})
    response = s.apply(elect_leaders(s.image, elect_request(), s.policy))
    assert [
        (topic.topic, [one.partition_id for one in topic.partition_result])
        for topic in response.replica_election_results
    ] == [("t", [0]), ("u", [])]
    assert s.p.leader == 1


def test_unknown_partitions_and_election_types_are_refused():
    s = started()
    response = elect_leaders(s.image, elect_request(("t", 7), ("x", 0)), s.policy).response
    assert [
        one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    ] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    decision = elect_leaders(s.image, elect_request(("t", 0), kind=2), s.policy)
    assert decision.response.error_code == ErrorCode.INVALID_REQUEST
    assert not decision.records


# --- the balancing


def test_the_balancing_elects_preferred_leaders_that_may_lead_and_no_others():
    s = led_by_2()
    s.create(name="u", assignment={0: (3, 2)})
    s.fence(3)
    s.apply(balance_leaders(s.image, s.policy))
    assert s.p.leader == 1
    assert s.image.partition("u", 0).leader == 2, "broker 3 is fenced"
    assert not balance_leaders(s.image, s.policy).records


def test_one_run_of_the_balancing_is_limited(monkeypatch):
    monkeypatch.setattr(leader_elections, "BALANCED_MAX", 2)
    s = started()
    s.create(name="u", assignment=dict.fromkeys(range(5), (1, 2, 3)))
    s.fence(1)
    s.unfence(1)
    assert len(s.image.imbalanced_partitions()) == 6
    for one in s.image.imbalanced_partitions():
        s.propose(2, 3, 1, key=(one.topic_id, one.partition))
    s.apply(balance_leaders(s.image, s.policy))
    assert len(s.image.imbalanced_partitions()) == 4


async def imbalanced(**options) -> Node:
    """A controller whose partition is led by broker 2, with broker 1 in the ISR."""
    node = Node(**options)
    await node.begin(1, 2)
    request = create_request({"name": "t", "assignment": {0: (1, 2)}})
    assert (await node.answer(request)).topics[0].error_code == ErrorCode.NONE
    await node.beat(1, want_fence=True)
    await node.beat(1)
    (registration,) = node.controller.image.partitions.values()
    assert registration.leader == 2
    await node.propose(registration, 2, 1)
    return node


def leader(node: Node) -> int:
    (registration,) = node.controller.image.partitions.values()
    return registration.leader


@virtually
async def test_leadership_moves_back_at_the_first_multiple_of_the_interval():
    node = await imbalanced()
    await node.stay_alive_ms(IMBALANCE_MS - 1000)
    assert leader(node) == 2
    await node.stay_alive_ms(2000)
    assert leader(node) == 1
    assert "leader-balanced" in node.marks


@pytest.mark.parametrize("options", [{"without": ("EL-4",)}, {"balances": False}])
def test_without_el_4_or_with_the_setting_off_leadership_stays(options):
    @virtually
    async def run():
        node = await imbalanced(**options)
        await node.stay_alive_ms(2 * IMBALANCE_MS)
        assert leader(node) == 2

    run()


@virtually
async def test_without_an_imbalance_nothing_is_scheduled():
    node = Node()
    await node.begin(1, 2)
    request = create_request({"name": "t", "assignment": {0: (1, 2)}})
    await node.answer(request)
    assert not node.controller._balance_alarm.is_set
    await sleep_ms(1)
