"""What happens without the rules about leader epochs where followers ask for the ends of epochs (TRUNC-4).

Before KIP-595 a follower compared its log with the leader's once per leader epoch, with OffsetForLeaderEpoch, and
fetches compared nothing. What that comparison missed stayed in the log.
"""

import pytest

from system_under_test.defects import EPOCH_REQUESTS
from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect, play
from tests.mutations.test_mutations_fetch import a_deposed_leader_has_a_short_tail
from tests.mutations.test_mutations_log import (
    and_a_follower_keeps_its_records,
    two_leaders_die_in_a_row,
)


@pytest.mark.parametrize(
    "plot",
    [
        a_deposed_leader_has_a_short_tail,
        and_a_follower_keeps_its_records,
        two_leaders_die_in_a_row,
    ],
)
def test_with_all_rules_epoch_requests_find_every_divergence(plot: object) -> None:
    ending = play(plot, profile=EPOCH_REQUESTS)  # type: ignore[arg-type]
    assert ending.is_clean, ending


@shows("EC-3", "B-02")
def test_an_end_offset_without_its_epoch_makes_a_diverged_log_look_equal() -> None:
    expect_defect("B-02", and_a_follower_keeps_its_records)


# --- LEAD-3


def a_leader_returns_before_it_appends(story: Story) -> None:
    """B-03: 1 leads again in an epoch without records; 2 has a newer epoch than 1 has entries for.

    Broker 2 has an acknowledged record, and has not heard that it is committed.
    """
    story.begin()
    story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    task = story.begin_append()
    story.until(lambda: story.log_end(2) == 11)
    silence = story.hold("FetchResponse", 1, 2)
    story.until(task.done)
    away_1 = story.isolate(1)
    story.wait(fenced=(1,), leader=2, isr=(2,), elr=(1,))
    story.append_ok(acks=1, client=story.new_client(asks=2))
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=-1)
    story.heal(away_1)
    story.wait(leader=1, isr=(1,))
    story.heal(away_2)
    story.wait(unfenced=(2,))
    story.until(lambda: story.partition(2).leader_epoch == story.state.leader_epoch)
    story.until(lambda: story.log_end(2) < 12)
    story.kill(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(silence)


@shows("LEAD-3", "B-03")
def test_a_leader_without_an_entry_lets_a_follower_cut_a_committed_record() -> None:
    expect_defect("B-03", a_leader_returns_before_it_appends)


# --- FOLL-2


def a_follower_misses_an_intermediate_leader(story: Story) -> None:
    """B-04: 1 leads, then 2, then 1 again; the metadata of 3 show it only that 1 leads in a newer epoch."""
    story.begin()
    cut = story.cut(1, 2)
    story.append(5, acks=1)
    story.until(lambda: story.log_end(3) == 15)
    # From here on broker 3 hears nothing: neither from its leader, which would refuse its epoch, nor of metadata.
    silence = story.cut(1, 3)
    stalled = story.stall_metadata(3)
    story.until(lambda: sum(hold.dropped_or_stalled for hold in stalled) > 0)
    away_1 = story.cut_from_controllers(1)
    story.wait(fenced=(1,), leader=2)
    story.heal(away_1, cut)
    client = story.new_client(asks=2)
    story.append_ok(5, acks=1, client=client)
    story.wait(isr=(1, 2))
    story.until(lambda: story.log_end(1) == 15)
    away_2 = story.isolate(2)
    story.wait(fenced=(2,), leader=1)
    story.run_ms(700)  # a fetch of metadata that was sent before has timed out
    story.merge_metadata(3)
    story.heal(stalled)
    story.until(lambda: story.partition(3).leader_epoch == story.state.leader_epoch)
    story.run_ms(1200)  # a fetch with the older epoch has timed out
    story.heal(silence)
    story.wait(isr=(1, 3))
    story.append_ok(client=story.new_client(asks=1))
    story.read(story.new_client(asks=1))
    story.kill(1)
    story.wait(fenced=(1,), leader=3)
    story.heal(away_2)


@shows("FOLL-2", "B-04")
def test_a_fetcher_that_is_not_restarted_keeps_records_that_its_leader_truncated() -> None:
    expect_defect("B-04", a_follower_misses_an_intermediate_leader)
