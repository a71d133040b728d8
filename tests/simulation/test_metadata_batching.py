"""A scenario can force a broker to apply several metadata changes as one (META-3)."""

import json

from harness.defects.playing import play
from harness.defects.story import Story
from harness.scenarios import steps
from harness.scenarios.common import heal, inject


def run_steps(story: Story, *script: steps.Step) -> None:
    """Runs steps of a scenario in a story."""
    interpreter = steps.Story(
        story.cluster,
        story.nemesis,
        story.producer,
        story.consumer,
        topic="t",
        partition=0,
        run_on_client=None,  # type: ignore[arg-type]  # these steps need no client
    )
    story.do(interpreter.run(script))


def leader_moves_and_returns(story: Story) -> None:
    """Broker 3 collects: leader 1 stops, 2 leads, 1 returns, 2 stops, and 1 leads again."""
    story.begin()
    epoch = story.partition(3).leader_epoch
    run_steps(story, inject("stall-b3", "stall_metadata", "b3"))
    story.stop(1)
    story.wait(leader=2)
    story.start(1)
    story.until(lambda: 1 in story.state.isr)
    story.stop(2)
    story.wait(leader=1)
    assert story.partition(3).leader_epoch == epoch
    run_steps(story, heal("stall-b3"))
    assert story.partition(3).leader_epoch == story.state.leader_epoch >= epoch + 2
    story.start(2)
    story.append_ok(3)


def test_a_replica_sees_only_the_last_of_several_leader_epochs() -> None:
    ending = play(leader_moves_and_returns)
    assert ending.is_clean, str(ending)
    rows = ending.result.tables["marks"].to_pylist()
    merged = [
        json.loads(row["details"])["count"]
        for row in rows
        if row["node"] == "b3" and row["mark"] == "metadata-batches-merged"
    ]
    assert len(merged) == 1
    assert merged[0] > 2


def test_the_same_steps_give_the_same_trace() -> None:
    first, second = (play(leader_moves_and_returns).result.trace_hash for _ in range(2))
    assert first == second
