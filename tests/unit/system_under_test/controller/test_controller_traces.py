"""The golden metadata traces of the last-replica-standing bug, through the pure decisions.

Each test is a schedule of `docs/variants.md` (V1 to V13) as the controller sees it: sessions expire, brokers
register with or without proof of a clean shutdown, leaders propose ISRs. P1 stands for `kafka-3.6`, P2 for
`kafka-4.0` and P3 for `kafka-4.1`.
"""

import pytest

from tests.controller_story import Story, policy_of

P1, P2, P3 = "kafka-3.6", "kafka-4.0", "kafka-4.1"
ELR_OFF = [P1, "kafka-3.9", P2]


def story(profile: str, assignment=(1, 2, 3), min_isr: int = 2, **kwargs) -> Story:
    unclean = kwargs.pop("unclean", False)
    s = Story(policy_of(profile, **kwargs))
    s.start(*sorted(assignment))
    s.topic(assignment, min_isr, unclean=unclean)
    s.marks.clear()
    return s


def expect(s: Story, leader, isr, elr, lkl, leader_epoch, partition_epoch, recovering=False):
    assert s.state() == {
        "leader": leader,
        "isr": isr,
        "elr": set(elr),
        "lkl": lkl,
        "LE": leader_epoch,
        "PE": partition_epoch,
        "recovering": recovering,
    }


# --- V3: the canonical scenario


@pytest.mark.parametrize("profile", ELR_OFF)
def test_v3_with_elr_off_the_last_replica_standing_leads_again_unflagged(profile):
    s = story(profile)
    expect(s, 1, (1, 2, 3), {}, (), 0, 0)
    s.fence(2)
    expect(s, 1, (1, 3), {}, (), 0, 1)
    s.fence(3)
    expect(s, 1, (1,), {}, (), 0, 2)
    s.fence(1)
    expect(s, -1, (1,), {}, (), 1, 3)
    s.unfence(2)
    expect(s, -1, (1,), {}, (), 1, 3)
    s.register(1)
    expect(s, -1, (1,), {}, (), 1, 3)
    s.unfence(1)
    expect(s, 1, (1,), {}, (), 2, 4)
    s.unfence(3)
    expect(s, 1, (1,), {}, (), 2, 4)
    assert s.propose(1, 2).partition_epoch == 5
    assert s.propose(1, 2, 3).partition_epoch == 6
    expect(s, 1, (1, 2, 3), {}, (), 2, 6)
    assert "elected-from-isr" in s.marks
    assert "elected-unclean" not in s.marks


def test_v3_with_elr_on_a_complete_replica_leads():
    s = story(P3)
    s.fence(2)
    expect(s, 1, (1, 3), {}, (), 0, 1)
    s.fence(3)
    expect(s, 1, (1,), {3}, (), 0, 2)
    s.fence(1)
    expect(s, -1, (), {1, 3}, (1,), 1, 3)
    s.unfence(2)
    expect(s, -1, (), {1, 3}, (1,), 1, 3)
    s.register(1)
    expect(s, -1, (), {3}, (1,), 1, 4)
    s.unfence(1)
    expect(s, -1, (), {3}, (1,), 1, 4)
    s.unfence(3)
    expect(s, 3, (3,), {}, (), 2, 5)
    assert "elected-from-elr" in s.marks
    assert s.propose(3, 1).partition_epoch == 6
    assert s.propose(3, 1, 2).partition_epoch == 7
    expect(s, 3, (3, 1, 2), {}, (), 2, 7)


def test_v3_with_elr_on_and_broker_3_back_before_broker_1_registers():
    s = story(P3)
    s.fence(2, 3, 1)
    s.unfence(3)
    expect(s, 3, (3,), {1}, (), 2, 4)
    s.register(1)
    expect(s, 3, (3,), {}, (), 2, 5)


def test_v3_with_elr_on_and_broker_3_back_before_broker_1_is_fenced():
    s = story(P3)
    s.fence(2, 3)
    s.unfence(3)
    expect(s, 1, (1,), {3}, (), 0, 2)
    s.fence(1)
    expect(s, 3, (3,), {1}, (), 1, 3)


def test_v3_on_kafka_3_4_every_shrink_starts_a_leader_epoch():
    s = story("kafka-3.4")
    s.fence(2)
    expect(s, 1, (1, 3), {}, (), 1, 1)
    s.fence(3)
    expect(s, 1, (1,), {}, (), 2, 2)
    s.fence(1)
    expect(s, -1, (1,), {}, (), 3, 3)
    s.restart(1)
    expect(s, 1, (1,), {}, (), 4, 4)
    s.unfence(2)
    # An expansion is no shrink.
    s.propose(1, 2)
    expect(s, 1, (1, 2), {}, (), 4, 5)


def test_v3b_one_alter_partition_puts_both_followers_into_the_elr():
    s = story(P3)
    s.propose(1)
    expect(s, 1, (1,), {2, 3}, (), 0, 1)
    s.fence(1)
    # The first live member of the ELR in assignment order: no unavailability beyond the session timeout.
    expect(s, 2, (2,), {1, 3}, (), 1, 2)
    s.restart(1)
    expect(s, 2, (2,), {3}, (), 1, 3)


def test_v3b_two_alter_partitions_put_the_later_follower_into_the_elr():
    s = story(P3)
    s.propose(1, 3)
    s.propose(1)
    expect(s, 1, (1,), {3}, (), 0, 2)
    s.fence(1)
    expect(s, 3, (3,), {1}, (), 1, 3)


@pytest.mark.parametrize("profile", ELR_OFF)
def test_v3b_with_elr_off_the_partition_waits_for_the_dead_leader_and_elects_it(profile):
    s = story(profile)
    s.propose(1)
    s.fence(1)
    expect(s, -1, (1,), {}, (), 1, 2)
    s.restart(1)
    expect(s, 1, (1,), {}, (), 2, 3)


def test_v3c_a_controlled_shutdown_keeps_the_elr_membership():
    s = story(P3)
    s.stop(2)
    s.stop(3)
    assert s.p.elr == (3,)
    s.fence(1)
    s.register(1)
    assert s.p.elr == (3,)
    s.register(3, clean=True)
    assert s.p.elr == (3,)
    assert "clean-registration" in s.marks
    s.unfence(3)
    assert (s.p.leader, s.p.isr) == (3, (3,))


# --- V1, V2, V6: small sets


def test_v1_with_min_isr_1_the_last_known_leader_is_elected_and_flagged():
    s = story(P3, assignment=(1, 2), min_isr=1)
    s.fence(2)
    expect(s, 1, (1,), {}, (), 0, 1)
    s.fence(1)
    expect(s, -1, (), {1}, (1,), 1, 2)
    s.register(1)
    expect(s, -1, (), {}, (1,), 1, 3)
    s.unfence(1)
    expect(s, 1, (1,), {}, (), 2, 4, recovering=True)
    assert "elected-last-known-leader" in s.marks
    s.unfence(2)
    # The leader's next accepted proposal ends the recovery.
    s.propose(1, 2)
    expect(s, 1, (1, 2), {}, (), 2, 5)


@pytest.mark.parametrize("profile", ELR_OFF)
def test_v1_with_elr_off_the_same_election_is_not_flagged(profile):
    s = story(profile, assignment=(1, 2), min_isr=1)
    s.fence(2, 1)
    s.restart(1)
    expect(s, 1, (1,), {}, (), 2, 3)


def test_v2_with_elr_on_the_partition_waits_for_the_complete_replica():
    s = story(P3, assignment=(1, 2), min_isr=2)
    s.fence(2)
    expect(s, 1, (1,), {2}, (), 0, 1)
    s.fence(1)
    expect(s, -1, (), {1, 2}, (1,), 1, 2)
    s.restart(1)
    expect(s, -1, (), {2}, (1,), 1, 3)
    s.unfence(2)
    expect(s, 2, (2,), {}, (), 2, 4)


def test_v6_with_min_isr_1_elr_does_not_help_three_replicas_either():
    s = story(P3, min_isr=1)
    s.fence(2, 3)
    expect(s, 1, (1,), {}, (), 0, 2)
    s.fence(1)
    s.unfence(2, 3)
    s.restart(1)
    assert (s.p.leader, s.p.leader_recovery_state) == (1, 1)


# --- V4, V8: clean stop, kill


def test_v4c_after_an_orderly_stop_the_first_member_back_leads():
    s = story(P3)
    s.fence(2, 3)
    s.stop(1)
    assert set(s.p.elr) == {1, 3}
    s.restart(1, clean=True)
    assert s.p.leader == 1
    assert s.p.leader_recovery_state == 0


def test_v8_a_kill_ends_the_elr_membership_like_a_power_loss():
    s = story(P3)
    s.fence(2, 3, 1)
    s.restart(1)
    assert s.p.elr == (3,)
    assert s.p.leader == -1


# --- V7, V9: more lossy brokers than the guarantee allows


def test_v7_power_failure_of_all_ends_with_a_flagged_last_known_leader():
    s = story(P3)
    s.fence(1)
    expect(s, 2, (2, 3), {}, (), 1, 1)
    s.fence(2)
    expect(s, 3, (3,), {2}, (), 2, 2)
    s.fence(3)
    expect(s, -1, (), {2, 3}, (3,), 3, 3)
    s.register(1)
    s.register(2)
    s.register(3)
    assert s.p.elr == ()
    s.unfence(1, 2)
    assert s.p.leader == -1
    s.unfence(3)
    assert (s.p.leader, s.p.isr, s.p.leader_recovery_state) == (3, (3,), 1)


@pytest.mark.parametrize("profile", ELR_OFF)
def test_v7_with_elr_off_the_last_one_fenced_leads_again(profile):
    s = story(profile)
    s.fence(1, 2, 3)
    assert (s.p.leader, s.p.isr) == (-1, (3,))
    s.restart(1)
    s.restart(2)
    assert s.p.leader == -1
    s.restart(3)
    assert (s.p.leader, s.p.isr, s.p.leader_recovery_state) == (3, (3,), 0)


@pytest.mark.parametrize("last_to_register", [1, 3])
def test_v9_two_lossy_members_end_with_the_last_known_leader_although_broker_2_is_complete(
    last_to_register,
):
    s = story(P3)
    s.fence(2, 3, 1)
    s.unfence(2)
    first = 4 - last_to_register
    s.restart(first)
    assert s.p.leader == -1
    s.restart(last_to_register)
    assert (s.p.leader, s.p.isr, s.p.elr) == (1, (1,), ())
    assert s.p.leader_recovery_state == 1
    assert "elected-last-known-leader" in s.marks


# --- V12: unclean election


@pytest.mark.parametrize("profile", ELR_OFF)
def test_v12_with_elr_off_the_first_live_replica_is_elected_and_flagged(profile):
    """EL-2: in assignment order, and the partition is recovering."""
    s = story(profile, unclean=True)
    s.propose(1, 3)
    s.propose(1)
    s.fence(1)
    expect(s, 2, (2,), {}, (), 1, 3, recovering=True)
    assert "elected-unclean" in s.marks


def test_v12_with_elr_on_a_live_elr_member_is_elected_cleanly():
    s = story(P3, unclean=True)
    s.propose(1, 3)
    s.propose(1)
    s.fence(1)
    expect(s, 3, (3,), {1}, (), 1, 3)


def test_v12_with_elr_on_and_all_elr_members_fenced_an_unclean_election_follows_at_once():
    s = story(P3, unclean=True)
    s.propose(1, 3)
    s.propose(1)
    s.fence(3)
    s.fence(1)
    expect(s, 2, (2,), {}, (), 1, 3, recovering=True)


def test_the_sweep_elects_uncleanly_only_where_the_topic_allows_it():
    """EL-2: the topic decides."""
    s = story(P2, unclean=True)
    s.create(name="u", assignment={0: (1, 2, 3)})
    s.fence(2, 3, 1)
    assert len(s.image.leaderless_partitions()) == 2
    # 2 comes back unnoticed: only the sweep finds it.
    s.apply_without_election(2)
    s.sweep()
    assert (s.p.leader, s.p.isr, s.p.leader_recovery_state) == (2, (2,), 1)
    assert s.image.partition("u", 0).leader == -1


# --- V13: larger sets


def test_v13_five_replicas_with_min_isr_3():
    s = story(P3, assignment=(1, 2, 3, 4, 5), min_isr=3)
    s.fence(5, 4)
    assert (s.p.isr, s.p.elr) == ((1, 2, 3), ())
    s.fence(3)
    assert (s.p.isr, set(s.p.elr)) == ((1, 2), {3})
    s.fence(2)
    assert (s.p.isr, set(s.p.elr)) == ((1,), {2, 3})
    s.fence(1)
    s.restart(1)
    s.restart(2)
    assert (s.p.leader, set(s.p.elr)) == (-1, {3})
    s.unfence(3)
    assert (s.p.leader, s.p.leader_recovery_state) == (3, 0)


# --- replay


def test_replaying_the_log_of_a_scenario_gives_the_same_image():
    s = story(P3)
    s.fence(2, 3, 1)
    s.restart(1)
    s.unfence(3)
    s.propose(3, 1)
    standby = Story(s.policy)
    standby.write(*s.log[1:])
    assert standby.image == s.image
