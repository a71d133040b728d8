"""Rules of brokers and controllers as nodes: life cycle, registration, elections, quorum."""

from system_under_test.rule_catalogue.rule import Rule, always, switchable

_SHUTDOWN = (
    switchable(
        "CS-1",
        "The clean-shutdown marker is written last, after all logs of the directory were flushed, and holds "
        "the broker epoch. The file is made durable, its name in the directory is not.",
        "KIP-966, KAFKA-15582, `CleanShutdownFileHandler`",
    ),
    switchable(
        "CS-2",
        "A start is clean only if every log directory is online and all have a marker with the same broker "
        "epoch.",
        "KIP-966, `LogManager`",
    ),
    switchable(
        "CS-3",
        "The clean-shutdown marker is deleted before logs are loaded.",
        "KAFKA-10471",
    ),
    always(
        "CS-4",
        "The controller decides whether a marker is valid: its broker epoch must be the registered one. An "
        "older marker that survived proves nothing.",
        "KIP-966",
    ),
    switchable(
        "CS-5",
        "A broker that is stopped while it starts leaves a marker with its newest broker epoch, if its logs are "
        "as the last clean shutdown left them or were flushed.",
        "this project",
    ),
    switchable(
        "LIFE-1",
        "A broker registers, replays the metadata log up to its own registration, and only then loads logs "
        "and acts on metadata; it is unfenced last.",
        "KIP-631",
    ),
    always(
        "LIFE-2",
        "A registration that the same incarnation repeats keeps its broker epoch.",
    ),
    always(
        "LIFE-3",
        "A controlled shutdown first moves leadership away with the controller's consent, then flushes logs "
        "and writes checkpoints, then writes the marker.",
        "KIP-631",
    ),
)

_DIRECTORIES = (
    switchable(
        "DIR-1",
        "An error in one log directory takes that directory and its replicas offline. The broker continues with "
        "the others and reports the directory with a heartbeat, or ends if it cannot in time. The failure of the "
        "directory with the metadata log ends the broker.",
        "KIP-112, KIP-858, `log.dir.failure.timeout.ms`",
    ),
    switchable(
        "DIR-2",
        "When a broker reports a directory as offline, the controller removes its replicas in it from ISRs and "
        "from leadership. With ELR on they may become eligible leaders.",
        "KIP-858, `ReplicationControlManager`",
    ),
    switchable(
        "DIR-3",
        "A replica whose log directory is offline is not elected.",
        "KIP-858, `DirectoryId.isOnline`",
    ),
    switchable(
        "DIR-4",
        "A broker with an offline directory creates no empty log for a replica that may have its log there.",
        "KAFKA-16234, `Partition.createLogInAssignedDirectoryId`",
    ),
    switchable(
        "DIR-5",
        "A broker reports the directories of its replicas, and the controller records them without another effect "
        "on ISR or ELR, except that a replica in an offline directory leaves the ISR.",
        "KIP-858, Kafka pull request 20716",
    ),
)

_CONTROLLER = (
    switchable(
        "CTRL-1",
        "A controller sends a response only when all records that the response depends on are committed.",
        "`QuorumController`",
    ),
    always(
        "CTRL-2",
        "The records of one decision are appended as one unit.",
        "`QuorumController`",
    ),
    always(
        "CTRL-3",
        "A controller that loses leadership fails its pending responses with NOT_CONTROLLER and returns to "
        "the last committed state.",
        "`QuorumController`",
    ),
    always(
        "CTRL-4",
        "A new leader of the quorum becomes active only after it has replayed everything that precedes its "
        "epoch.",
        "`QuorumController`",
    ),
    always(
        "CTRL-5",
        "A controller that is not active refuses requests with NOT_CONTROLLER.",
        "`QuorumController`",
    ),
    switchable(
        "FENCE-1",
        "Unfencing a broker re-examines the partitions that have no leader.",
        "KIP-631",
    ),
    switchable(
        "FENCE-2",
        "Fencing a broker removes it from ISRs and from leadership.",
        "KIP-631",
    ),
    switchable(
        "FENCE-3",
        "Brokers whose sessions expired are fenced one by one, so that each step sees the result of the one "
        "before.",
        "KAFKA-13173",
    ),
    switchable(
        "FENCE-4",
        "A new active controller grants every broker a full session.",
        "KIP-631",
    ),
    always(
        "META-1",
        "A change record replaces the fields it names. It always raises the partition epoch, and the leader "
        "epoch if it names a leader, even the same one.",
        "`PartitionRegistration`",
    ),
    always(
        "META-2",
        "Brokers apply committed metadata only, in log order, at any distance behind the log end.",
        "KIP-595",
    ),
    always(
        "META-3",
        "A broker may merge several changes of a partition into one; replicas see the first and the last "
        "state only.",
        "`TopicDelta`",
    ),
    always(
        "META-4",
        "Records that were written as one unit are never seen in part.",
        "`QuorumController`",
    ),
    always(
        "META-5",
        "While a broker applies metadata, the larger of the old and the new min ISR counts; the new value "
        "takes effect when everything has been applied.",
        "this project",
    ),
    switchable(
        "META-5-RAISED",
        "A min ISR that was raised counts before the other changes of the same publish are applied.",
        "this project",
    ),
    switchable(
        "META-5-LOWERED",
        "A min ISR that was lowered counts after the other changes of the same publish have been applied.",
        "this project",
    ),
    always(
        "MIN-1",
        "A leader caps `min.insync.replicas` by the number of assigned replicas. (Switch `caps_min_isr`; before "
        "Kafka 3.7 acks=all is refused for ever in a topic with fewer replicas.)",
        "KAFKA-15583",
    ),
    switchable(
        "MIN-2",
        "The controller caps `min.insync.replicas` by the number of replicas of the partition in question. "
        "(Kafka takes the number of the topic's partition 0.)",
        "KAFKA-15583, this project",
    ),
    switchable(
        "REG-1",
        "A second incarnation of a broker is refused while the session of the first is valid.",
        "KIP-631",
    ),
    switchable(
        "REG-2",
        "A registration is clean only if it names the registered broker epoch.",
        "KIP-966",
    ),
    switchable(
        "REG-3",
        "With ELR on, a broker that registers without a clean shutdown leaves ISR and ELR of its partitions.",
        "KIP-966",
    ),
    switchable(
        "REG-4",
        "A registration removes the broker from the ISRs it is still in.",
        "KAFKA-18106",
    ),
)

_ELECTION = (
    switchable(
        "EL-1",
        "Only a live member of the ISR, or of the ELR when the ISR is empty, may be elected; the first one in"
        " assignment order.",
        "KIP-966, `PartitionChangeBuilder`",
    ),
    always(
        "EL-2",
        "Where the topic allows unclean elections, the first live replica in assignment order is elected if "
        "there is no other candidate; the partition is marked as recovering.",
        "KIP-704, `unclean.leader.election.enable`",
    ),
    switchable(
        "EL-3",
        "A preferred election makes the first replica the leader if it may lead. The old leader stays in the "
        "ISR.",
        "KIP-460, `PartitionChangeBuilder`",
    ),
    switchable(
        "EL-3-ISR",
        "A preferred election elects the first replica only if it is entitled as in any other election.",
        "KIP-460, `PartitionChangeBuilder`",
    ),
    switchable(
        "EL-4",
        "While leaders are not the preferred ones, the active controller elects these at every multiple of "
        "`leader.imbalance.check.interval.seconds` since it became active, unless "
        "`auto.leader.rebalance.enable` is off.",
        "`ReplicationControlManager`",
    ),
    switchable(
        "ELR-1",
        "An ISR of min ISR members empties the ELR.",
        "KIP-966",
    ),
    switchable(
        "ELR-2",
        "Members that leave an ISR in a change that leaves it below min ISR enter the ELR.",
        "KIP-966",
    ),
    switchable(
        "ELR-3",
        "With ELR on, the ISR may become empty.",
        "KIP-966",
    ),
    switchable(
        "ELR-4",
        "A broker that registers without a clean shutdown leaves the ELR. Fencing and clean restarts do not "
        "remove members.",
        "KIP-966",
    ),
    always(
        "ELR-5",
        "A change of the ELR alone raises the partition epoch and not the leader epoch.",
        "KIP-966",
    ),
    switchable(
        "ELR-8",
        "The last-known leader may be elected when ISR and ELR are both empty, if it is alive. Such an "
        "election is flagged as unclean.",
        "KIP-966, KAFKA-19522",
    ),
    switchable(
        "ELR-9",
        "A change of `min.insync.replicas` clears the ELRs it affects, in the same batch.",
        "KAFKA-16540",
    ),
    switchable(
        "ELR-9-LEADERLESS",
        "A change of `min.insync.replicas` leaves a partition with an empty ISR its ELR and last-known leader.",
        "this project",
    ),
    switchable(
        "ELR-9-EPOCH",
        "With ELR on, a change of `min.insync.replicas` raises the partition epoch of all partitions that it "
        "affects, so that no ISR change is accepted from a leader that does not know it.",
        "this project",
    ),
    switchable(
        "PCB-1",
        "With ELR off, the last member never leaves the ISR.",
        "`PartitionChangeBuilder`",
    ),
)

_REASSIGNMENT = (
    switchable(
        "REAS-1",
        "A reassignment completes in the first change after which the ISR has all replicas of the target; "
        "those that are removed leave the ISR with it. (Which replicas a release waits for is part of its "
        "profile.)",
        "KIP-455, KAFKA-15665, KAFKA-19975",
    ),
    switchable(
        "REAS-2",
        "A change that takes a replica away starts a leader epoch, even if the leader stays.",
        "`PartitionChangeBuilder`",
    ),
    always(
        "REAS-3",
        "A reassignment that is cancelled takes the added replicas from assignment and ISR. If the ISR is "
        "empty then, the topic must allow unclean elections, and the election is flagged as one.",
        "KIP-455, `PartitionReassignmentRevert`, this project",
    ),
    switchable(
        "REAS-4",
        "A broker that is no longer a replica leaves the ELR.",
        "this project",
    ),
)

_QUORUM = (
    switchable(
        "RAFT-1",
        "A vote, like every change of quorum state, is durable before the response.",
        "KIP-595",
    ),
    switchable(
        "RAFT-2",
        "A voter fsyncs fetched records before its next fetch.",
        "KIP-595",
    ),
    always(
        "RAFT-3",
        "A quorum leader that restarts never leads the same epoch again; it starts as resigned.",
        "KIP-595",
    ),
    always(
        "RAFT-4",
        "A quorum leader resigns if no majority of voters has fetched from it within one and a half fetch "
        "timeouts.",
        "KAFKA-15489",
    ),
    switchable(
        "RAFT-5",
        "A vote is granted only to a candidate whose log is up to date.",
        "KIP-595",
    ),
    always(
        "RAFT-6",
        "Before an election a voter requests pre-votes in the same epoch. A voter that hears from a leader "
        "refuses.",
        "KIP-996",
    ),
    switchable(
        "RAFT-7",
        "A quorum leader commits only through a record of its own epoch.",
        "KIP-595, figure 8 of the Raft paper",
    ),
    switchable(
        "RAFT-8",
        "A snapshot of the metadata contains everything that decisions depend on, and committed records only. "
        "It gets its name when its content is durable. The log below the oldest snapshot is deleted; a member "
        "that needs it, or whose last epoch is older than that of the snapshot, loads the leader's newest "
        "snapshot and continues from there.",
        "KIP-630, `SnapshotGenerator`, `KafkaMetadataLog`",
    ),
    always(
        "RAFT-9",
        "A fetch of the metadata log that waits at the quorum leader is answered when the high watermark moves. "
        "(Switch `commit_wakes_metadata_fetch`; before Kafka 4.1 only new records or the end of its wait do it.)",
        "KIP-1166",
    ),
    always(
        "RAFT-10",
        "A candidate that lost an election waits for the rest of its election timeout. (Switch "
        "`candidate_backs_off`; before Kafka 4.1 it waits for a random back-off.)",
        "`KafkaRaftClient`",
    ),
    switchable(
        "RAFT-11",
        "A voter writes the segments of its metadata log once more when it starts, and fsyncs them: after an "
        "fsync that failed, what it reads may be in the page cache only.",
        "this project; Kafka does not",
    ),
)

CLUSTER_RULES: tuple[Rule, ...] = (
    *_SHUTDOWN,
    *_DIRECTORIES,
    *_CONTROLLER,
    *_ELECTION,
    *_REASSIGNMENT,
    *_QUORUM,
)
"""All of them; `rule_catalogue.RULES` sorts them."""
