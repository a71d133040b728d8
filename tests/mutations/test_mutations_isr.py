"""What happens without the rules about who is in the ISR, and when."""

from tests.mutations.coverage import shows
from tests.mutations.mutation_story import Story, expect_defect

def a_follower_joins_below_the_epochs_start(story: Story) -> None:
    """B-09: 3 lags, catches up half-way with a new leader whose high watermark lags, and must lead."""
    story.append_ok(7)
    story.until(lambda: story.log_end(3) == 7 and story.log_end(2) == 7)
    story.until(lambda: story.partition(2).high_watermark == 7)
    away = story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    # Broker 2 gets the records, and never hears that they are committed.
    task = story.begin_append()
    story.until(lambda: story.log_end(2) == 8)
    hold = story.hold("FetchResponse", 1, 2)
    story.until(task.done)
    story.kill(1)
    story.wait(leader=2, isr=(2,), elr=(1,))
    story.heal(hold)
    stuck = story.hold("FetchResponse", 2, 3)
    asking = story.hold("FetchRequest", 3, 2)
    story.heal(away)
    story.until(lambda: story.knows_active(2, 3))
    story.until(lambda: asking.dropped_or_stalled > 0)
    story.heal(asking)
    story.until(lambda: stuck.dropped_or_stalled > 0)
    story.run_ms(50)
    story.kill(2)
    story.wait(fenced=(2,))
    story.heal(stuck)
