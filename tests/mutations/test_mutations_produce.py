"""What happens without the rules about when an append is acknowledged."""

from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect, play
from tests.mutations.test_mutations_high_watermark import alone

# --- PROD-4


def the_leader_dies_before_replication(story: Story) -> None:
    """B-19: an acks=all record is in the leader's log only, and the leader is killed."""
    story.begin()
    for follower in (2, 3):
        story.hold("FetchResponse", 1, follower)
    story.begin_append()
    story.run_ms(20)
    story.kill(1)
    story.wait(fenced=(1,), has_leader=True)


@shows("PROD-4", "B-19")
def test_an_acknowledgement_before_the_commit_is_broken_by_a_killed_leader() -> None:
    expect_defect("B-19", the_leader_dies_before_replication)


# --- PROD-2, PROD-5


def a_lone_leader_gets_an_acks_all_request(story: Story) -> None:
    """B-21: broker 1 is alone, below min ISR, and appends come; then another member of the ELR leads."""
    tokens = alone(story)
    story.append()
    story.kill(1)
    story.wait(fenced=(1,))
    story.heal(*tokens)
    story.wait(has_leader=True)


@shows("PROD-2", "PROD-5", "HW-1", "B-21")
def test_a_lone_leader_below_min_isr_acknowledges_records_that_are_lost() -> None:
    expect_defect("B-21", a_lone_leader_gets_an_acks_all_request)


def test_for_a_late_request_any_one_of_the_three_checks_suffices() -> None:
    off = ("PROD-2", "PROD-5", "HW-1")
    for applied in off:
        others = tuple(rule for rule in off if rule != applied)
        ending = play(a_lone_leader_gets_an_acks_all_request, *others, is_watched=False)
        assert "lost-acked-write" not in ending.forbidden, f"only {applied} applies: {ending}"


@shows("PROD-2")
def test_without_prod_2_a_lone_leader_writes_what_it_should_refuse() -> None:
    """NOT_ENOUGH_REPLICAS means that nothing was written; without the rule the client waits long."""

    def plot(story: Story) -> None:
        alone(story)
        (completion,) = story.append()
        assert completion.outcome in ("fail", "info")
        if completion.outcome == "info":
            story.complaints.append("it is unknown whether the append took place")

    assert play(plot).is_clean
    assert play(plot, "PROD-2").codes == {"L"}


# --- FOLL-3


def a_deposed_leader_has_appends_that_wait(story: Story) -> None:
    """B-24: an append waits at 1 for its followers; meanwhile 2 leads, and the same offset gets another record."""
    story.begin()
    for follower in (2, 3):
        story.hold("FetchResponse", 1, follower)
    story.begin_append()
    away = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2, isr=(2, 3))
    story.append_ok(client=story.new_client(asks=2))
    story.heal(away)
    story.until(lambda: story.partition(1).high_watermark == 11)
    story.run_ms(50)


@shows("FOLL-3", "B-24")
def test_a_deposed_leader_acknowledges_what_it_has_truncated() -> None:
    expect_defect("B-24", a_deposed_leader_has_appends_that_wait)
