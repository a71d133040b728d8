"""What happens without the rules about the high watermark and what clients learn of it."""

from harness.contracts.verdict import Validity
from harness.defects.playing import play
from harness.defects.schedules.high_watermark import (
    a_last_known_leader_comes_back_shorter,
)
from harness.defects.schedules.log import commit_unheard_of
from harness.defects.story import Story
from harness.history.op import Outcome, QueryKind
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect
from tests.unit.system_under_test.broker.replica_fakes import Broker

# --- HW-1


@shows("HW-1", "B-18")
def test_a_high_watermark_that_moves_below_min_isr_exposes_records_that_disappear() -> None:
    expect_defect("B-18")


# --- HW-9


@shows("HW-9", "B-23")
def test_a_new_leader_that_trusts_its_log_end_exposes_records_that_disappear() -> None:
    expect_defect("B-23")


# --- HW-4, HW-4-ELIGIBLE


@shows("HW-4-ELIGIBLE", "B-44")
def test_a_high_watermark_that_waits_for_a_stopped_replica_delays_appends() -> None:
    expect_defect("B-44")


def chase(*without: str) -> Broker:
    """A follower chases the leader: at each fetch the leader has one record beyond the fetch offset."""
    broker = Broker(without=without, min_isr=1)
    broker.lead(isr=(1,))
    broker.produce("first", acks=1)
    for offset in range(5):
        broker.produce("one more", acks=1)
        broker.clock.now_ns += 1_000_000
        broker.follower_fetch(2, offset + 1)
    return broker


@shows("HW-4")
def test_without_waiting_for_caught_up_replicas_a_follower_never_joins_a_busy_leader() -> None:
    assert chase().alter.proposed == (1, 2)
    assert chase("HW-4").alter.sent == []


# --- HW-5


def a_member_comes_back_empty(story: Story) -> None:
    """Broker 2 lost its log and is back so soon that the high watermark still waits for it (HW-4)."""
    story.begin()
    story.power(2, keep_records=0)
    story.wait(fenced=(2,))
    copying = story.hold("FetchResponse", 1, 2)
    asking = story.hold("FetchRequest", 2, 1)
    story.start(2)
    story.until(lambda: story.knows_active(1, 2) and asking.dropped_or_stalled > 0)
    story.heal(asking)
    story.until(lambda: copying.dropped_or_stalled > 0)
    story.run_ms(150)


@shows("HW-5")
def test_without_hw_5_a_leaders_high_watermark_moves_back() -> None:
    assert play(a_member_comes_back_empty).is_clean
    assert play(a_member_comes_back_empty, "HW-5").invariants == {"INV-9"}
    unwatched = play(a_member_comes_back_empty, "HW-5", is_watched=False)
    assert unwatched.result.violations == []
    assert unwatched.forbidden == {"high-watermark-regression"}


# --- HW-7, HW-8


@shows("HW-7", "B-50")
def test_a_high_watermark_above_the_log_end_after_a_truncation_breaks_an_invariant() -> None:
    expect_defect("B-50")


@shows("HW-8")
def test_a_high_watermark_above_the_log_end_after_a_start_breaks_an_invariant() -> None:
    assert play(a_last_known_leader_comes_back_shorter, min_isr=1).is_clean
    ending = play(a_last_known_leader_comes_back_shorter, "HW-8", min_isr=1)
    assert ending.invariants == {"INV-9"}


# --- LO-2


@shows("LO-2", "B-74")
def test_a_leader_that_does_not_know_the_log_end_reports_an_impossible_one() -> None:
    expect_defect("B-74")


# --- LO-1


def a_new_leader_is_asked_for_offsets(story: Story) -> None:
    """A consumer has read offset 10, and a new leader that does not know that is asked about offsets."""
    commit_unheard_of(story)
    story.poll()
    story.latest()
    story.hold("FetchRequest", 3, 2)
    story.kill(1)
    story.wait(leader=2)
    story.until(lambda: story.partition(2).is_leader)
    response = story.latest(story.new_client(asks=2))
    if response.outcome is Outcome.OK and response.offset is not None and response.offset < 11:
        story.complain("a committed record is not counted any more")
    # The first question after a death finds a closed connection.
    for _ in range(3):
        story.ask_about_newest(QueryKind.TIMESTAMP)


@shows("LO-1")
def test_without_lo_1_a_new_leader_reports_offsets_before_it_knows_what_is_committed() -> None:
    control = play(a_new_leader_is_asked_for_offsets, workload={"queries_per_s": 1.0})
    assert control.is_clean, str(control)
    ending = play(a_new_leader_is_asked_for_offsets, "LO-1", workload={"queries_per_s": 1.0})
    assert {"end-regression", "lookup-skips-record"} <= {one.id for one in ending.verdict.anomalies}
    assert ending.verdict.validity is Validity.INVALID
    assert ending.complaints
