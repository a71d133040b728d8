"""What happens without the rules by which the controller chooses leaders, keeps ISR and ELR, and fences."""

from harness.defects.playing import play
from harness.defects.schedules.controller import (
    the_last_replica_loses_its_tail,
)
from harness.defects.schedules.high_watermark import alone
from harness.defects.story import Story
from harness.runs.judge import unavailable_ms
from system_under_test.controller.isr_changes import alter_partition
from system_under_test.protocol.errors import ErrorCode
from tests import controller_story
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect

# --- EL-1


def the_first_replica_lags(story: Story) -> None:
    """Broker 2 is alive and next in the assignment, but not in the ISR; the leader dies."""
    story.begin()
    story.cut(1, 2)
    story.append(acks=1)
    story.wait(isr=(1, 3))
    story.append_ok()
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("EL-1")
def test_an_election_that_ignores_the_isr_loses_acknowledged_records() -> None:
    assert play(the_first_replica_lags).is_clean
    ending = play(the_first_replica_lags, "EL-1", is_watched=False)
    assert ending.codes == {"A"}, ending
    assert play(the_first_replica_lags, "EL-1").invariants == {"INV-2"}


# --- ELR-1


@shows("ELR-1", "B-30")
def test_an_elr_that_is_never_emptied_elects_a_replica_that_fell_behind() -> None:
    expect_defect("B-30")


# --- ELR-2, ELR-3


@shows("ELR-2")
def test_without_remembering_a_leaving_member_the_election_misses_it() -> None:
    """The ELR is empty, so the last-known leader leads: flagged, but a better replica existed."""
    assert play(the_last_replica_loses_its_tail).is_clean
    ending = play(the_last_replica_loses_its_tail, "ELR-2", is_watched=False)
    assert "A" in ending.codes, ending


@shows("ELR-3")
def test_a_last_member_that_cannot_leave_leads_with_a_truncated_log() -> None:
    assert play(the_last_replica_loses_its_tail).is_clean
    assert play(the_last_replica_loses_its_tail, "ELR-3").invariants & {"INV-2", "INV-7"}
    ending = play(the_last_replica_loses_its_tail, "ELR-3", is_watched=False)
    assert "A" in ending.codes, ending


# --- ELR-8


@shows("MIN-2", "B-31")
def test_a_min_isr_limited_by_another_partition_lets_a_replica_lead_that_lost_its_log() -> None:
    expect_defect("B-31")


@shows("ELR-8", "B-32")
def test_the_last_known_leader_is_elected_while_it_is_dead() -> None:
    expect_defect("B-32")


# --- FENCE-1 to FENCE-4


def all_brokers_were_away(story: Story) -> None:
    """The partition has no leader; a member of the ELR comes back."""
    tokens = alone(story)
    gone = story.isolate(1)
    story.wait(fenced=(1,), leader=-1)
    story.heal(gone, *tokens)
    story.wait(unfenced=(1, 2, 3))
    story.run_ms(100)


@shows("FENCE-1")
def test_no_leader_is_elected_when_a_broker_returns() -> None:
    assert play(all_brokers_were_away).is_clean
    ending = play(all_brokers_were_away, "FENCE-1")
    assert ending.codes == {"L"}, ending


def a_leader_dies(story: Story) -> None:
    """The simplest fault: the leader dies and is fenced, and a client appends."""
    story.begin()
    story.kill(1)
    story.wait(fenced=(1,))
    story.run_ms(50)
    (completion,) = story.append(client=story.new_client(asks=2))
    if completion.outcome != "ok":
        story.complain("no broker replaced the dead leader")


@shows("FENCE-2")
def test_a_fenced_leader_stays_leader() -> None:
    assert play(a_leader_dies).is_clean
    assert play(a_leader_dies, "FENCE-2").invariants == {"INV-7"}
    assert "L" in play(a_leader_dies, "FENCE-2", is_watched=False).codes


@shows("FENCE-3", "B-40")
def test_two_brokers_fenced_from_one_state_are_elected_as_each_others_successors() -> None:
    expect_defect("B-40")


def a_controller_dies(story: Story) -> None:
    """All brokers are healthy; only the active controller goes."""
    story.begin()
    story.kill(story.cluster.metadata.active_controller)
    story.run_ms(1500)
    story.append_ok()


@shows("FENCE-4")
def test_a_new_controller_fences_every_broker_unless_it_grants_new_sessions() -> None:
    fine = play(a_controller_dies)
    assert fine.is_clean
    assert fine.mark_counts()["broker-fenced"] == 0
    assert unavailable_ms(fine.result.tables) == 0
    ending = play(a_controller_dies, "FENCE-4")
    assert ending.mark_counts()["broker-fenced"] >= 3
    assert unavailable_ms(ending.result.tables) > 0


# --- PCB-1


def the_last_replica_restarts(story: Story) -> None:
    """With ELR off, the last member of the ISR is killed and comes back with all it had."""
    tokens = alone(story)
    story.kill(1)
    story.wait(fenced=(1,))
    story.start(1)
    story.wait(unfenced=(1,))
    story.run_ms(50)
    story.heal(*tokens)
    story.wait(unfenced=(2, 3))


@shows("PCB-1")
def test_with_elr_off_an_isr_that_became_empty_stays_empty() -> None:
    assert play(the_last_replica_restarts, profile="kafka-4.0").is_clean
    watched = play(the_last_replica_restarts, "PCB-1", profile="kafka-4.0")
    assert watched.invariants == {"INV-7"}
    ending = play(the_last_replica_restarts, "PCB-1", profile="kafka-4.0", is_watched=False)
    assert ending.codes == {"L"}, ending


# --- CTRL-1


@shows("CTRL-1", "B-38")
def test_a_response_before_the_commit_loses_acknowledged_records() -> None:
    expect_defect("B-38")


# --- APC-1: the decision itself


@shows("APC-1")
def test_a_proposal_of_an_earlier_incarnation_counts_only_without_apc_1() -> None:
    """In 3.9 a leader may register again in its old leader epoch; its earlier proposal is about a lost log."""
    for off, expected in (
        ((), ErrorCode.STALE_BROKER_EPOCH),
        (("APC-1",), ErrorCode.NONE),
    ):
        story = controller_story.Story(controller_story.policy_of("kafka-3.9", without=off))
        story.start(1, 2, 3)
        story.topic((1, 2, 3), min_isr=2)
        request = controller_story.alter_request(
            1,
            story.image.brokers[1].broker_epoch,
            story.p.topic_id,
            leader_epoch=story.p.leader_epoch,
            partition_epoch=story.p.partition_epoch,
            isr=((1, -1), (3, -1)),
        )
        story.now_ns += 2 * controller_story.SESSION_NS
        story.restart(1)
        assert story.p.leader == 1
        response = story.apply(alter_partition(story.image, request, story.policy))
        assert response.error_code == expected
        assert story.p.isr == ((1, 3) if off else (1, 2, 3))
