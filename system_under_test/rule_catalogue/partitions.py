"""Rules that a broker applies to its partitions: appends, fetches, ISR, high watermark."""

from system_under_test.rule_catalogue.rule import Rule, always, switchable

_ISR_CHANGES = (
    always(
        "AP-1",
        "An AlterPartition request carries the leader's broker epoch, the leader epoch, the partition epoch, "
        "and the proposed ISR with the broker epoch of every member; -1 stands for an epoch that the leader "
        "does not know.",
        "KIP-497, KIP-903",
    ),
    always(
        "AP-2",
        "A broker has at most one AlterPartition request in flight, on a separate connection, and at most "
        "one queued proposal per partition.",
        "KIP-497",
    ),
    switchable(
        "AP-3",
        "A proposal has no timeout. After a lost connection, a retriable error or a change of controller it "
        "is sent again to the active controller.",
        "KIP-497, KAFKA-14010",
    ),
    switchable(
        "AP-4",
        "An AlterPartition error that does not exclude that the change was applied keeps the change pending. "
        "Only an error that proves the opposite returns to the last committed ISR.",
        "KIP-497",
    ),
    switchable(
        "APC-1",
        "The controller refuses an AlterPartition request whose broker epoch is not the registered one.",
        "KIP-497",
    ),
    switchable(
        "APC-2",
        "The controller refuses an AlterPartition request with an older partition epoch.",
        "KIP-497",
    ),
    switchable(
        "APC-3",
        "The controller refuses a new ISR with a member that is fenced or shutting down.",
        "KIP-841, KAFKA-13916",
    ),
    switchable(
        "APC-3-EPOCH",
        "The controller refuses a new ISR with a member that is registered with another broker epoch than the "
        "leader saw.",
        "KIP-903, KAFKA-14139",
    ),
    always(
        "ISR-1",
        "A leader has at most one pending ISR change per partition.",
        "KIP-497",
    ),
    switchable(
        "ISR-2",
        "All lagging members leave the ISR in one proposal. Until the controller commits it, the leader "
        "counts on the larger ISR.",
        "KIP-497",
    ),
    switchable(
        "ISR-3",
        "A fetch of a follower is what makes the leader propose to add it, one follower per proposal.",
        "KIP-497",
    ),
    switchable(
        "ISR-4",
        "A follower joins the ISR only if its log end has reached the high watermark and the start offset of "
        "the leader epoch.",
        "KAFKA-7128",
    ),
    switchable(
        "ISR-5",
        "A follower joins the ISR only if it is not fenced, not shutting down, and fetched with its current "
        "broker epoch.",
        "KIP-841, KIP-903, KAFKA-13916",
    ),
    always(
        "ISR-7",
        "The test of a follower, the proposal and the broker epochs in it belong to one critical section.",
        "KAFKA-15221",
    ),
)

_EPOCHS = (
    switchable(
        "EC-1",
        "A new leader epoch is made durable when it is assigned.",
        "KIP-101",
    ),
    always(
        "EC-2",
        "Every append, on leader and follower, records the epoch of its batch before the batch itself.",
        "KIP-101",
    ),
    switchable(
        "EC-3",
        "The end offset of an epoch is reported together with the epoch that was found, which may be an older"
        " one.",
        "KIP-279, KAFKA-6361",
    ),
    always(
        "EC-4",
        "A truncation drops the epochs that begin at or after the new log end; a log that begins later keeps "
        "the epoch of its first record.",
        "KIP-101",
    ),
    always(
        "EC-5",
        "Removals from the epoch cache need not be durable at once: loading a log drops entries beyond its "
        "end.",
        "KAFKA-15046, KAFKA-16541",
    ),
    always(
        "EC-6",
        "Recovery adds the epochs of records whose entries were lost, if they are newer than the newest entry.",
        "`LogSegment.recover`",
    ),
    switchable(
        "EC-7",
        "A log that moves to another directory keeps all its epochs, also those without records.",
        "KAFKA-15608",
    ),
    switchable(
        "EC-8",
        "The leader epoch of a new leader begins at its log end, not at its high watermark.",
        "KIP-101",
    ),
    switchable(
        "TRUNC-1",
        "A follower truncates by leader epoch, not to its high watermark, and repeats the comparison until "
        "both logs agree.",
        "KIP-101, KIP-279, KIP-595",
    ),
    always(
        "TRUNC-2",
        "After OFFSET_OUT_OF_RANGE a follower truncates to the leader's log end, or starts anew at the "
        "leader's log start.",
        "`AbstractFetcherThread`",
    ),
    switchable(
        "TRUNC-3",
        "A truncation lowers the recovery point and writes its checkpoint before anything is appended.",
        "`LogManager`",
    ),
    always(
        "TRUNC-4",
        "The response to a fetch shows a follower where it diverges. With the switch `truncation` set to "
        "`offsets_for_leader_epoch` fetches compare nothing, and in every new leader epoch a follower asks with "
        "OffsetForLeaderEpoch, until both logs agree, before it fetches.",
        "KIP-101, KIP-279, KIP-595; `AbstractFetcherThread`",
    ),
)

_FETCH = (
    always(
        "FETCH-0",
        "A leader never processes a fetch after a newer one of the same follower. Kafka has fetch sessions "
        "for this; here each fetcher has one connection with one request in flight.",
        "KIP-227",
    ),
    always(
        "FETCH-1",
        "A fetch is checked in a fixed order: partition, leader epoch, leadership, assignment, divergence, "
        "range. The offsets in the response are taken before records are read.",
        "`ReplicaManager`, `Partition`",
    ),
    switchable(
        "FETCH-2",
        "A fetch with an older leader epoch is refused with FENCED_LEADER_EPOCH, one with a newer epoch "
        "with UNKNOWN_LEADER_EPOCH.",
        "KIP-320",
    ),
    always(
        "FETCH-3",
        "Only the leader of a partition serves replicas and lists offsets. A consumer may also fetch from a "
        "follower, below the follower's high watermark (KIP-392).",
    ),
    always(
        "FETCH-4",
        "A fetch of a broker that is not an assigned replica is refused with UNKNOWN_LEADER_EPOCH, because "
        "the leader's metadata may lag; without an epoch in the request, with NOT_LEADER_OR_FOLLOWER.",
        "`Partition`",
    ),
    switchable(
        "FETCH-5",
        "The leader compares a follower's last fetched epoch with its own epochs and reports where the two "
        "diverge.",
        "KIP-595, KAFKA-12996",
    ),
    switchable(
        "FETCH-6",
        "A consumer reads below the high watermark only.",
    ),
    always(
        "FETCH-7",
        "A fetch that finds too few bytes waits until there are enough, its time is over, or its partition "
        "changes.",
        "`DelayedFetch`",
    ),
    switchable(
        "FETCH-8",
        "A read goes on in the next segment only from the end of the one before: a batch that no longer fits ends "
        "the response.",
        "`LocalLog.read`",
    ),
    switchable(
        "FETCH-9",
        "What a response has from several segments is in the order of its offsets.",
    ),
    always(
        "FF-1",
        "A follower has one fetch in flight per leader, with all partitions that are ready.",
        "`AbstractFetcherThread`",
    ),
    switchable(
        "FF-2",
        "A follower uses a fetch response only if the partition is still at the same fetcher, leader epoch "
        "and offset, and verifies checksums before it appends.",
        "`AbstractFetcherThread`",
    ),
    switchable(
        "FS-1",
        "Only a fetch that was read without error and does not diverge updates what the leader knows of a "
        "follower.",
        "KAFKA-13141, KAFKA-8400",
    ),
    switchable(
        "FS-2",
        "A fetch of an older broker epoch is refused.",
        "KIP-903, KAFKA-15221",
    ),
    always(
        "FS-3",
        "A follower is caught up at a fetch that reaches the leader's log end, or the log end at its previous"
        " fetch.",
        "`Replica`",
    ),
    always(
        "FS-4",
        "The offset of a fetch is the follower's log end; it may be lower than before.",
        "`Replica`",
    ),
    switchable(
        "FS-4-EPOCH",
        "The log end and the broker epoch of a fetch are recorded together.",
        "KAFKA-15221",
    ),
    always(
        "FS-5",
        "A follower is in sync while its log end equals the leader's, or it was caught up within "
        "`replica.lag.time.max.ms`.",
        "`replica.lag.time.max.ms`",
    ),
)

_LEADERS_AND_FOLLOWERS = (
    always(
        "FOLL-1",
        "A follower ignores a registration with an older partition epoch.",
        "KIP-497",
    ),
    switchable(
        "FOLL-2",
        "A follower restarts its fetcher on every new leader epoch, also when the leader stays the same.",
        "KAFKA-7164",
    ),
    switchable(
        "FOLL-3",
        "A leader that loses leadership fails its pending produce requests.",
        "`ReplicaManager`",
    ),
    always(
        "FOLL-4",
        "A follower fetches from its log end. A log without leader epochs is first truncated to its high "
        "watermark.",
        "`ReplicaManager`",
    ),
    always(
        "LEAD-1",
        "A leader ignores a registration with an older partition epoch.",
        "KIP-497",
    ),
    switchable(
        "LEAD-2",
        "A registration with a newer partition epoch cancels a pending ISR change.",
        "KIP-497, `Partition.makeLeader`",
    ),
    switchable(
        "LEAD-3",
        "A new leader records its leader epoch before it serves.",
        "KAFKA-7415",
    ),
    always(
        "LEAD-4",
        "A new leader epoch resets what the leader knows of its followers; members of the ISR start as caught"
        " up.",
        "`Partition`",
    ),
    switchable(
        "LEAD-5",
        "A leader re-examines the high watermark when its ISR changes.",
        "KAFKA-13091",
    ),
    switchable(
        "LEAD-6",
        "A registration whose partition epoch an AlterPartition response has already brought leaves a pending ISR"
        " change alone.",
        "stricter than `Partition.makeLeader`, which cancels the change",
    ),
)

_HIGH_WATERMARK = (
    switchable(
        "HW-1",
        "The high watermark moves only while the committed ISR has min ISR members.",
        "KIP-966, KAFKA-15583",
    ),
    always(
        "HW-2",
        "The high watermark is the smallest log end among the leader and the replicas it has to wait for.",
        "`Partition`",
    ),
    switchable(
        "HW-3",
        "The high watermark waits for the maximal ISR, not only for the committed one.",
        "KIP-497",
    ),
    switchable(
        "HW-4",
        "The high watermark also waits for replicas outside the ISR that are caught up and may join it, in the "
        "incarnation that fetched (ISR-5).",
        "`Partition`, KIP-903",
    ),
    switchable(
        "HW-4-ELIGIBLE",
        "The high watermark waits for no replica outside the ISR that may not join it.",
        "KAFKA-15021",
    ),
    switchable(
        "HW-5",
        "The high watermark of a leader never moves back.",
        "`Partition`",
    ),
    always(
        "HW-6",
        "A follower takes the leader's high watermark, limited to its own log; it may move back.",
        "`UnifiedLog`",
    ),
    switchable(
        "HW-7",
        "A truncation lowers the high watermark to the new log end.",
        "`UnifiedLog`",
    ),
    switchable(
        "HW-8",
        "After a start the checkpointed high watermark is limited to the log.",
    ),
    switchable(
        "HW-9",
        "A new leader starts from the high watermark it knows, not from its log end.",
    ),
    switchable(
        "LO-1",
        "The latest offset is refused while the high watermark is below the start offset of the leader epoch.",
        "KIP-207",
    ),
    switchable(
        "LO-2",
        "An offset that is not available is refused with an error; -1 without an error means that there is none.",
        "KIP-207",
    ),
)

_LOG = (
    switchable(
        "LOG-1",
        "An acknowledgement does not wait for fsync.",
        "`log.flush.interval.messages`",
    ),
    switchable(
        "REC-1",
        "Recovery verifies checksums and cuts the log at the first bad batch. A batch that is older than the "
        "epoch cache has for its offset is kept. (Switch `recovery_compares_epochs`; with it the log is cut "
        "there, too.)",
        "`LogLoader`, `LogSegment.recover`",
    ),
    always(
        "REC-2",
        "High watermarks are checkpointed periodically and at shutdown; a checkpoint is a lower bound.",
        "`ReplicaManager`",
    ),
)

_LOG_START = (
    switchable(
        "RET-1",
        "Retention deletes whole segments, the oldest first, and only below the high watermark.",
        "`UnifiedLog`",
    ),
    switchable(
        "RET-2",
        "A follower raises its log start to its leader's.",
        "KIP-107",
    ),
    switchable(
        "RET-3",
        "DeleteRecords is complete when the log starts of all replicas that are alive have reached the offset.",
        "KIP-107",
    ),
)

_CLEANER = (
    switchable(
        "CLEAN-1",
        "The cleaner changes neither the active segment nor anything at or above the high watermark.",
        "`LogCleanerManager`",
    ),
    switchable(
        "CLEAN-2",
        "A tombstone stays for delete.retention.ms after the pass of the cleaner that first met it.",
        "KIP-534",
    ),
    switchable(
        "CLEAN-3",
        "The cleaner keeps the last batch of every idempotent producer, if need be without records.",
        "`Cleaner`",
    ),
)

_PRODUCE = (
    switchable(
        "PID-1",
        "A batch that an idempotent producer repeats is not appended again.",
        "KIP-98",
    ),
    switchable(
        "PID-2",
        "The sequences of an idempotent producer have no gaps.",
        "KIP-98",
    ),
    switchable(
        "PID-3",
        "A batch of an older producer epoch is refused.",
        "KIP-98",
    ),
    switchable(
        "PID-4",
        "A follower remembers producers while it appends.",
        "KIP-98",
    ),
    switchable(
        "PID-5",
        "Loading and truncation rebuild the state of producers.",
        "KIP-98",
    ),
    switchable(
        "PID-6",
        "The response to a batch that an idempotent producer repeats waits for its commit, as the first one did, "
        "and has its offset.",
        "KIP-98",
    ),
    always(
        "PROD-1",
        "A produce request is checked in a fixed order: whether the partition exists, whether the request has one "
        "batch, acks, leadership, min ISR, the batch and its records, sequences.",
        "`KafkaApis`, `ReplicaManager`, `Partition`",
    ),
    switchable(
        "PROD-2",
        "acks=all is refused, and nothing is written, while the committed ISR is below min ISR.",
        "`min.insync.replicas`",
    ),
    always(
        "PROD-3",
        "acks=0 has no response, acks=1 is acknowledged after the leader's append, and acks=all waits with "
        "REQUEST_TIMED_OUT as its response if nothing else happens. The response has the offset of what was "
        "appended, whatever its error.",
        "`DelayedProduce`",
    ),
    switchable(
        "PROD-4",
        "acks=all is acknowledged when the high watermark has passed the records.",
        "`DelayedProduce`",
    ),
    switchable(
        "PROD-4-ISR",
        "acks=all waits for every replica that the high watermark waits for, not only for min ISR of them.",
        "`DelayedProduce`",
    ),
    switchable(
        "PROD-5",
        "acks=all is not acknowledged without error if the ISR fell below min ISR before the commit.",
        "`Partition`",
    ),
    always(
        "PROD-6",
        "A produce request that waits while leadership is lost ends with NOT_LEADER_OR_FOLLOWER, whatever "
        "happens to its records.",
        "this project",
    ),
    switchable(
        "PROD-7",
        "What is refused with NOT_ENOUGH_REPLICAS is not written: min ISR is compared before the append.",
        "`Partition`",
    ),
    switchable(
        "PROD-8",
        "Every partition of a request gets its own batch.",
    ),
)

_GROUPS = (
    switchable(
        "GRP-1",
        "A group's offset commit is acknowledged when the high watermark has passed it.",
    ),
    switchable(
        "GRP-2",
        "A member that names another generation of its group is refused.",
    ),
    switchable(
        "GRP-3",
        "Members receive their shares of a generation when the assignment is in the log and committed.",
    ),
    switchable(
        "GRP-4",
        "A new coordinator serves a group when it has loaded the group's offsets and generation from the log.",
    ),
    switchable(
        "GRP-5",
        "DeleteGroups deletes a group only while it has no members, and OffsetDelete the offsets of a topic only"
        " while no member subscribes to it.",
        "KIP-229, KIP-496; ClassicGroup.validateDeleteGroup, isSubscribedToTopic",
    ),
    switchable(
        "GRP-6",
        "A member of a consumer group that names another epoch than its own is fenced. It may name the epoch"
        " before if it owns nothing that its newest assignment lacks.",
        "KIP-848; `GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid`",
    ),
    switchable(
        "GRP-7",
        "A member of a consumer group gets a partition when no other member has it or still has to give it up.",
        "KIP-848; `CurrentAssignmentBuilder`",
    ),
    switchable(
        "GRP-8",
        "A member of a consumer group stays in its epoch until it reports that it has given up what its target"
        " lacks.",
        "KIP-848; `CurrentAssignmentBuilder`",
    ),
    switchable(
        "GRP-9",
        "The response to a member of a consumer group is sent when everything it depends on is committed.",
        "`CoordinatorRuntime`",
    ),
    switchable(
        "GRP-10",
        "A consumer gets the instance id of another one when that one has left, for good or for a moment.",
        "KIP-345, KIP-848; `throwIfInstanceIdIsUnreleased`",
    ),
    switchable(
        "GRP-11",
        "A member of a consumer group is removed when its session is over, or its time to give up partitions.",
        "KIP-848; `group.consumer.session.timeout.ms`, `max.poll.interval.ms`",
    ),
    switchable(
        "GRP-12",
        "A member of a consumer group commits offsets in its own epoch only.",
        "KIP-848; `ConsumerGroup.validateOffsetCommit`",
    ),
    switchable(
        "GRP-13",
        "A committed offset is that of the next record to read, also when a new coordinator has loaded it.",
        "`OffsetAndMetadata`",
    ),
)

PARTITION_RULES: tuple[Rule, ...] = (
    *_ISR_CHANGES,
    *_EPOCHS,
    *_FETCH,
    *_LEADERS_AND_FOLLOWERS,
    *_HIGH_WATERMARK,
    *_LOG,
    *_LOG_START,
    *_CLEANER,
    *_PRODUCE,
    *_GROUPS,
)
"""All of them; `rule_catalogue.RULES` sorts them."""
