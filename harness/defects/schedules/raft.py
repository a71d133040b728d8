"""Schedules of defects: raft."""

from typing import Any

from harness.defects.story import Story, node_name


def controllers(story: Story) -> tuple[int, int, int]:
    """Returns the active controller, then the other two."""
    active = story.cluster.metadata.active_controller
    first, second = (node for node in story.cluster.controllers.values() if node != active)
    return active, first, second


def _the_others_go_on(story: Story, follower: int, absent: int, cut: Any) -> None:
    """A follower loses power, and elects with the controller that was cut off, without the active one."""
    story.power(follower)
    gone = story.isolate(story.cluster.metadata.active_controller)
    story.heal(cut)
    story.start(follower)
    story.until(lambda: story.cluster.metadata.active_controller in (follower, absent))
    story.run_ms(1000)
    story.heal(gone)


def a_voter_forgets_what_it_acknowledged(story: Story) -> None:
    """B-36: two of three controllers commit a change of the ISR; one loses power, the other is cut off."""
    story.begin()
    _, follower, absent = controllers(story)
    cut = story.isolate(absent)
    away = story.isolate(3)
    story.wait(fenced=(3,), isr=(1, 2))
    story.append_ok()
    _the_others_go_on(story, follower, absent, cut)
    story.heal(away)
    story.run_ms(500)


def a_controller_starts_after_a_failed_fsync(story: Story) -> None:
    """B-79: an fsync fails at one of two connected controllers; it starts again, and later loses power."""
    story.begin()
    _, follower, absent = controllers(story)
    cut = story.isolate(absent)
    disk = story.world.nodes[node_name(follower)].disk
    fault = disk.io_error("fsync", "data/__cluster_metadata-0/0")
    away = story.isolate(3)
    story.until(lambda: not story.world.nodes[node_name(follower)].is_alive)
    disk.heal(fault)
    story.start(follower)
    story.wait(fenced=(3,), isr=(1, 2))
    _the_others_go_on(story, follower, absent, cut)
    story.heal(away)
    story.run_ms(500)


def a_vote_is_forgotten(story: Story) -> None:
    """B-35: a new leader of the quorum is cut off before anybody has a record of it; its voters lose power."""
    story.begin()
    active, *others = controllers(story)
    holds = [
        story.hold("FetchResponse", source, None) for source in story.cluster.controllers.values()
    ]
    story.kill(active)
    story.until(lambda: any(story.leads_quorum(node) for node in others))
    first = next(node for node in others if story.leads_quorum(node))
    (voter,) = (node for node in others if node != first)
    cut = story.isolate(first)
    story.run_ms(20)
    story.power(voter)
    story.start(voter, active)
    story.heal(*holds)
    story.until(lambda: any(story.leads_quorum(node) for node in (voter, active)))
    story.run_ms(500)
    story.heal(cut)
    story.run_ms(500)


OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "300",
    "metadata.log.segment.bytes": "1000",
    "metadata.max.retention.bytes": "0",
}
"""A snapshot every few records; the log before the older of two snapshots is deleted."""


def newest_snapshots(story: Story) -> list[int]:
    """Returns up to which offset the newest snapshot of each controller goes."""
    nodes: Any = (story.world.nodes[name] for name in story.cluster.controllers)
    ids = [node.process.raft._quorum.snapshots.newest for node in nodes]
    return [-1 if newest is None else newest.end_offset for newest in ids]


def controllers_start_from_snapshots(story: Story) -> None:
    """B-53: 1 is the only member of the ISR, 3 is eligible; then all controllers start again from snapshots.

    Broker 1 then loses records that 1 and 3 had acknowledged together. 3 has them, if it is still eligible.
    """
    story.begin()
    away = [story.isolate(2)]
    story.wait(fenced=(2,), isr=(1, 3))
    story.append_ok(3)
    away.append(story.isolate(3))
    story.until(lambda: (story.state.isr, story.state.elr) == ((1,), (3,)))
    offset = story.cluster.metadata.offset
    story.until(lambda: min(newest_snapshots(story)) > offset)
    story.kill(*story.cluster.controllers.values())
    story.start(*story.cluster.controllers.values())
    story.until(lambda: story.cluster.metadata.offset > max(newest_snapshots(story)))
    story.power(1, keep_records=10)
    story.wait(fenced=(1,))
    story.heal(*away)
    story.start(1)
    story.until(lambda: story.state.leader != -1)


def a_record_of_an_old_epoch_reaches_a_majority(story: Story) -> None:
    """B-37, figure 8 of the Raft paper: a record of an old epoch is on two of three controllers, and is replaced.

    `first` alone has a record of its epoch. `second` leads the next epoch and alone has another record at that
    offset. `first` leads again and replicates its old record to `third`, but nothing of its new epoch. Then
    `first` is gone, and `second` wins, because its last epoch is newer than that of the old record.
    """
    story.begin()
    names = story.cluster.controllers.values()
    for name in story.cluster.controllers:
        story.world.nodes[name].host.random.always.add("raft-fetch-one-batch")
    first, *others = controllers(story)
    start = story.quorum(first).log_end_offset
    story.until(lambda: all(story.quorum(node).log_end_offset == start for node in others))
    holds = [story.hold("FetchResponse", source, None) for source in names]
    away = story.isolate(3)
    story.until(lambda: story.quorum(first).log_end_offset > start)
    cut = story.isolate(first)
    story.until(lambda: any(story.leads_quorum(node) for node in others))
    second = next(node for node in others if story.leads_quorum(node))
    (third,) = (node for node in others if node != second)
    second_epoch = story.quorum(second).epoch
    story.until(lambda: story.quorum(second).log_end_offset > start)
    story.run_ms(5)
    story.kill(second)
    story.heal(cut)
    story.until(lambda: story.leads_quorum(first) and story.quorum(first).epoch > second_epoch)
    story.heal(*holds)
    story.until(lambda: story.quorum(third).log_end_offset > start)
    again = story.hold("FetchResponse", first, third)
    story.until(lambda: again.dropped_or_stalled > 0)
    story.run_ms(5)
    story.kill(first)
    story.start(second)
    story.until(lambda: story.leads_quorum(second))
    story.heal(again, away)
    story.start(first)
    story.run_ms(500)
