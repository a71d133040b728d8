"""Which schedule shows which defect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.defects import groups
from harness.defects.playing import SEGMENT_BYTES
from harness.defects.schedules import (
    administration,
    controller,
    directories,
    epoch_requests,
    fetch,
    high_watermark,
    isr,
    late_fetches,
    lifecycle,
    log,
    min_isr,
    produce,
    producers,
    raft,
    transactions,
)
from harness.defects.story import Plot
from system_under_test.defects import LETTERS as LETTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What a story needs, and what happens in it.

    Attributes:
        plot: What happens.
        min_isr: Of the topic.
        brokers: How many there are; the partition begins on the first three.
        log_dirs: Of each broker.
        partitions: Of the topic.
        segment_bytes: Of every segment.
        properties: Kafka's properties of the nodes.
        workload: Settings of the clients (`workloads.append_config.AppendConfig`).
    """

    plot: Plot
    min_isr: int = 2
    brokers: int = 3
    log_dirs: int = 1
    partitions: int = 1
    segment_bytes: int = SEGMENT_BYTES
    properties: Mapping[str, str] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)


SCHEDULES: dict[str, Schedule] = {
    "B-00": Schedule(plot=controller.the_last_replica_loses_its_tail),
    "B-01": Schedule(plot=log.two_leaders_die_in_a_row),
    "B-02": Schedule(plot=log.and_a_follower_keeps_its_records),
    "B-03": Schedule(plot=epoch_requests.a_leader_returns_before_it_appends),
    "B-04": Schedule(plot=epoch_requests.a_follower_misses_an_intermediate_leader),
    "B-05": Schedule(plot=fetch.a_deposed_leader_has_a_short_tail),
    "B-06": Schedule(plot=late_fetches.a_fetch_of_an_older_leader_epoch_arrives),
    "B-07": Schedule(plot=log.all_replicas_but_one_stop_in_order),
    "B-08": Schedule(plot=isr.a_diverging_fetch_counts),
    "B-09": Schedule(plot=isr.a_follower_joins_below_the_epochs_start),
    "B-10": Schedule(plot=isr.an_empty_incarnation_joins),
    "B-11": Schedule(plot=late_fetches.a_fetch_of_an_older_incarnation_arrives),
    "B-12": Schedule(plot=isr.a_fenced_replica_joins),
    "B-13": Schedule(plot=isr.an_expansion_is_applied_before_the_leader_knows),
    "B-14": Schedule(plot=isr.a_shrink_is_only_proposed),
    "B-15": Schedule(plot=isr.a_proposal_arrives_twice),
    "B-16": Schedule(plot=isr.a_response_gets_lost),
    "B-17": Schedule(plot=administration.removed_and_added_in_one_step),
    "B-18": Schedule(plot=high_watermark.a_lone_leader_commits),
    "B-19": Schedule(plot=produce.the_leader_dies_before_replication),
    "B-20": Schedule(plot=min_isr.one_follower_has_no_copy),
    "B-21": Schedule(plot=produce.a_lone_leader_gets_an_acks_all_request),
    "B-22": Schedule(plot=fetch.a_consumer_reads_an_unreplicated_record),
    "B-23": Schedule(plot=high_watermark.a_new_leader_has_a_tail),
    "B-24": Schedule(plot=produce.a_deposed_leader_has_appends_that_wait),
    "B-25": Schedule(plot=controller.the_last_replica_loses_its_tail),
    "B-26": Schedule(plot=lifecycle.a_marker_of_an_earlier_stop_survives),
    "B-27": Schedule(plot=controller.the_last_replica_loses_its_tail),
    "B-29": Schedule(plot=min_isr.min_isr_is_raised_behind_the_leader, min_isr=1),
    "B-29b": Schedule(
        plot=min_isr.min_isr_is_raised_in_the_publish_that_shrinks_the_isr, min_isr=1
    ),
    "B-29c": Schedule(plot=min_isr.min_isr_is_lowered_in_the_publish_that_deposes_the_leader),
    "B-28": Schedule(plot=directories.followers_move_while_the_leader_is_alone, log_dirs=2),
    "B-30": Schedule(plot=controller.an_old_elr_member_falls_behind),
    "B-30b": Schedule(plot=min_isr.min_isr_is_lowered_for_the_last_member),
    "B-31": Schedule(plot=producers.the_first_partition_has_one_replica),
    "B-32": Schedule(plot=controller.the_last_known_leader_is_dead, min_isr=1),
    "B-33": Schedule(plot=lifecycle.a_leader_is_back_before_it_was_fenced),
    "B-34": Schedule(plot=administration.added_cancelled_and_added_again, brokers=4),
    "B-35": Schedule(plot=raft.a_vote_is_forgotten),
    "B-36": Schedule(plot=raft.a_voter_forgets_what_it_acknowledged),
    "B-37": Schedule(plot=raft.a_record_of_an_old_epoch_reaches_a_majority),
    "B-38": Schedule(plot=controller.a_deposed_controller_responds),
    "B-40": Schedule(plot=controller.two_sessions_end_at_once),
    "B-41": Schedule(plot=administration.a_reassignment_to_a_broker_that_is_away, brokers=4),
    "B-42": Schedule(plot=lifecycle.a_broker_acts_on_old_metadata),
    "B-43": Schedule(plot=isr.only_the_lagging_replica_leaves),
    "B-44": Schedule(plot=high_watermark.a_replica_stops_in_order),
    "B-45": Schedule(plot=min_isr.a_proposal_is_lost),
    "B-46": Schedule(plot=directories.a_leader_moves_before_its_epoch_has_records, log_dirs=2),
    "B-48": Schedule(plot=min_isr.min_isr_is_lowered_without_a_leader),
    "B-49": Schedule(plot=directories.a_disk_is_replaced_after_an_orderly_stop, log_dirs=2),
    "B-50": Schedule(plot=high_watermark.a_last_known_leader_comes_back_shorter, min_isr=1),
    "B-51": Schedule(plot=fetch.a_bit_flips_on_the_leaders_disk),
    "B-52": Schedule(plot=producers.a_retry_meets_a_new_leader),
    "B-53": Schedule(plot=raft.controllers_start_from_snapshots, properties=raft.OFTEN),
    "B-54": Schedule(plot=administration.a_lagging_replica_is_preferred),
    "B-58": Schedule(plot=transactions.a_batch_arrives_after_the_marker),
    "B-59": Schedule(plot=transactions.the_coordinator_dies_with_its_decision),
    "B-60": Schedule(plot=transactions.a_decision_waits_for_its_partition),
    "B-61": Schedule(plot=transactions.a_decision_waits_for_its_partition),
    "B-62": Schedule(plot=transactions.two_producers_have_one_transactional_id),
    "B-63": Schedule(plot=transactions.a_producer_is_too_slow),
    "B-64": Schedule(plot=transactions.a_consumer_reads_during_a_transaction),
    "B-65": Schedule(plot=transactions.a_consumer_reads_an_aborted_transaction),
    "B-66": Schedule(plot=transactions.a_marker_of_an_old_coordinator_arrives),
    "B-67": Schedule(plot=transactions.nothing_ends_a_transaction),
    "B-68": Schedule(plot=lifecycle.a_member_of_the_elr_is_stopped_while_it_starts),
    "B-69": Schedule(plot=isr.news_of_the_expansion_before_is_late),
    "B-70": Schedule(
        plot=fetch.and_of_some_records_only_it_learns,
        segment_bytes=1000,
        workload={"record_bytes_max": 400, "poll_max_bytes": 700},
    ),
    "B-71": Schedule(
        plot=fetch.a_consumer_reads_many_segments,
        segment_bytes=1000,
        workload={"record_bytes_max": 400, "fetches_per_poll_max": 3},
    ),
    "B-72": Schedule(plot=produce.a_lone_leader_refuses_an_append),
    "B-73": Schedule(
        plot=produce.a_request_names_two_partitions,
        partitions=4,
        workload={"partitions_per_request_max": 2},
    ),
    "B-74": Schedule(plot=high_watermark.a_new_leader_is_asked_for_the_log_end),
    "B-75": Schedule(
        plot=produce.a_batch_is_sent_again_before_it_is_replicated,
        workload={"enable_idempotence": True, "request_timeout_ms": 500},
    ),
    "B-77": Schedule(plot=log.and_both_leaders_die),
    "B-78": Schedule(plot=transactions.a_marker_arrives_twice),
    "B-79": Schedule(plot=raft.a_controller_starts_after_a_failed_fsync),
}
"""Directed schedules of one partition by identifier of the defect."""

GROUP_FAULTS: dict[str, str] = {
    "B-55": groups.KILLED,
    "B-56": groups.CUT_OFF,
    "B-57": groups.CUT_OFF,
    "B-76": groups.KILLED,
}
"""What hits the coordinators of a consumer group, by identifier of the defect."""

TRANSACTION_DEFECTS = tuple(
    identifier
    for identifier, schedule in SCHEDULES.items()
    if schedule.plot.__module__ == transactions.__name__
)
"""Defects that only clients with transactions see."""
