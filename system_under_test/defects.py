"""Known replication bugs that the reference system can have on purpose.

A defect is a set of rules that are not applied, in a profile. Letters (`LETTERS`) name what it does to clients,
and a test in `tests/mutations` proves each of them: with the rules the same faults do no harm, without them the
harm is found. `docs/defects.md` lists all defects. Identifiers are stable. Numbers without a defect are bugs of
parts that do not exist here, or bugs that have no defect of their own (`related_bugs.py`).
"""

from dataclasses import dataclass
from difflib import get_close_matches

from system_under_test.config import DEFAULT_PROFILE

EPOCH_REQUESTS = "kafka-4.1-epoch-requests"
"""Where followers ask for the ends of epochs; with KIP-595 the leader finds a divergence in every fetch."""

BEFORE_TRANSACTION_EPOCHS = "kafka-3.9"
"""Where all transactions of a producer have the same epoch; with KIP-890 the epoch alone prevents the defect."""

LETTERS: dict[str, str] = {
    "A": "a record that was acknowledged with acks=all is lost, and no flagged election excuses it",
    "V": "a record that a consumer had read is gone",
    "D": "one offset showed two values",
    "C": "a corrupt record was read",
    "L": "something that should work fails, or works only after a timeout",
    "T": "a transaction took effect in part, or its outcome was another one than its producer was told",
    "U": "a record that an idempotent producer sent once is in the log twice",
    "G": "a consumer group lost an acknowledged commit, a partition had two owners in one generation, or a record"
    " was passed over that no member had processed",
    "R": "a consumer skipped a record, or received records in another order or those of another partition",
    "E": "a producer was told that its append had failed, and the record is in the log",
    "O": "a client was told an offset that no log has",
}
"""What clients see, by letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One known bug.

    Attributes:
        id: Stable identifier, for example "B-18".
        name: For the command line, for example "hw-not-gated".
        origin: The Kafka issue or proposal that describes it; "plausible" when it follows from the rule alone.
        rules: Identifiers of the rules that are switched off (`rules.SWITCHABLE_RULES`); none if the profile
            itself lacks what would prevent it.
        profile: Where it does its harm.
        anomalies: Keys of `LETTERS`, the most important first; empty if only the invariants show it.
        invariants: Those that the monitor may find broken first (`docs/invariants.md`).
        sentence: What goes wrong.
    """

    id: str
    name: str
    origin: str
    rules: tuple[str, ...]
    sentence: str
    profile: str = DEFAULT_PROFILE
    anomalies: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()


_ALL: tuple[Defect, ...] = (
    Defect(
        id="B-00",
        name="last-replica-standing",
        origin="KIP-966",
        rules=(),
        profile="kafka-4.0",
        anomalies=("A", "V", "D"),
        sentence="With ELR off the last member of the ISR leads again, whatever it lost meanwhile.",
    ),
    Defect(
        id="B-01",
        name="truncate-to-hw",
        origin="KIP-101",
        rules=("TRUNC-1",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A follower cuts its log at its own high watermark instead of comparing epochs.",
    ),
    Defect(
        id="B-02",
        name="end-offset-without-epoch",
        origin="KIP-279, KAFKA-6361",
        rules=("EC-3",),
        profile=EPOCH_REQUESTS,
        anomalies=("D",),
        invariants=("INV-2", "INV-4"),
        sentence="A leader that never had a follower's epoch does not report it, and the two logs stay different.",
    ),
    Defect(
        id="B-03",
        name="epoch-not-recorded",
        origin="KAFKA-7415",
        rules=("LEAD-3",),
        profile=EPOCH_REQUESTS,
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A leader records its epoch at its first append. Until then a follower with a newer epoch"
        " truncates to its high watermark.",
    ),
    Defect(
        id="B-04",
        name="fetcher-not-restarted",
        origin="KAFKA-7164",
        rules=("FOLL-2",),
        profile=EPOCH_REQUESTS,
        anomalies=("D",),
        invariants=("INV-2", "INV-4"),
        sentence="A fetcher keeps its position when its leader leads again in a new leader epoch.",
    ),
    Defect(
        id="B-05",
        name="no-divergence-check",
        origin="plausible (before KIP-595)",
        rules=("FETCH-5",),
        anomalies=("A", "D"),
        invariants=("INV-2", "INV-4"),
        sentence="A leader does not compare its epochs with a follower's and accepts a different history.",
    ),
    Defect(
        id="B-06",
        name="fetch-not-fenced",
        origin="KIP-320, KAFKA-7395",
        rules=("FETCH-2",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A delayed fetch of an older leader epoch counts for a follower that has truncated since.",
    ),
    Defect(
        id="B-07",
        name="epochs-not-written",
        origin="KAFKA-15046, KAFKA-16541",
        rules=("EC-1",),
        anomalies=("A", "D"),
        invariants=("INV-4",),
        sentence="Leader epochs are kept in memory only; after a restart a different history looks equal.",
    ),
    Defect(
        id="B-08",
        name="diverging-fetch-counts",
        origin="KAFKA-13141, KAFKA-8400",
        rules=("FS-1",),
        anomalies=("A", "D"),
        invariants=("INV-2", "INV-4"),
        sentence="A follower whose log diverges counts as caught up and joins the ISR.",
    ),
    Defect(
        id="B-09",
        name="join-below-epoch-start",
        origin="KAFKA-7128",
        rules=("ISR-4",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A follower joins the ISR at a new leader's lagging high watermark, below the epoch's start.",
    ),
    Defect(
        id="B-10",
        name="no-broker-epoch-check",
        origin="KIP-903, KAFKA-14139",
        rules=("APC-3-EPOCH",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A broker that restarted empty is added to the ISR because of a fetch of its former incarnation.",
    ),
    Defect(
        id="B-11",
        name="fetch-of-an-old-incarnation",
        origin="KAFKA-15221",
        rules=("FS-2", "FS-4-EPOCH"),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A delayed fetch of a broker's former incarnation counts as progress of the new one.",
    ),
    Defect(
        id="B-12",
        name="fenced-replica-joins",
        origin="KIP-841, KAFKA-13916",
        rules=("ISR-5", "APC-3"),
        profile="kafka-3.9",
        anomalies=("A",),
        sentence="A fenced replica joins the ISR, and stays in it when it loses its log.",
    ),
    Defect(
        id="B-13",
        name="hw-on-committed-isr",
        origin="plausible (before KIP-497)",
        rules=("HW-3",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="The high watermark does not wait for a replica whose addition to the ISR is under way.",
    ),
    Defect(
        id="B-14",
        name="optimistic-shrink",
        origin="plausible",
        rules=("ISR-2",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="A leader counts on a smaller ISR before the controller has agreed.",
    ),
    Defect(
        id="B-15",
        name="no-partition-epoch-check",
        origin="plausible",
        rules=("APC-2",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="A late copy of an AlterPartition request brings a lagging replica back into the ISR.",
    ),
    Defect(
        id="B-16",
        name="rollback-on-any-error",
        origin="plausible",
        rules=("AP-4",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="A leader takes back an ISR change that was refused, although an earlier attempt was applied.",
    ),
    Defect(
        id="B-17",
        name="expand-from-stale-state",
        origin="plausible",
        rules=("ISR-3",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A leader adds a follower by what it knew of it, although the follower's log was deleted since.",
    ),
    Defect(
        id="B-18",
        name="hw-not-gated",
        origin="KIP-966 without KAFKA-15583",
        rules=("HW-1",),
        anomalies=("V",),
        invariants=("INV-2",),
        sentence="With ELR on, a leader below min ISR still moves the high watermark.",
    ),
    Defect(
        id="B-19",
        name="ack-after-append",
        origin="plausible",
        rules=("PROD-4",),
        anomalies=("A",),
        sentence="acks=all is acknowledged as soon as the leader has the records.",
    ),
    Defect(
        id="B-20",
        name="ack-at-min-isr-copies",
        origin="plausible",
        rules=("PROD-4-ISR",),
        anomalies=("A",),
        sentence="acks=all is acknowledged when min ISR replicas have the records, although the ISR is larger.",
    ),
    Defect(
        id="B-21",
        name="min-isr-ignored",
        origin="plausible",
        rules=("PROD-2", "PROD-5", "HW-1"),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A leader that is the only member of the ISR acknowledges acks=all despite min.insync.replicas.",
    ),
    Defect(
        id="B-22",
        name="read-to-log-end",
        origin="plausible",
        rules=("FETCH-6",),
        anomalies=("V", "D"),
        invariants=("INV-6",),
        sentence="Consumers read above the high watermark.",
    ),
    Defect(
        id="B-23",
        name="new-leader-trusts-its-log-end",
        origin="plausible",
        rules=("HW-9",),
        anomalies=("V",),
        invariants=("INV-2",),
        sentence="A new leader starts with its log end as its high watermark.",
    ),
    Defect(
        id="B-24",
        name="ack-without-leadership",
        origin="plausible",
        rules=("FOLL-3",),
        anomalies=("A",),
        sentence="Appends that wait at a deposed leader are acknowledged when it has caught up as a follower.",
    ),
    Defect(
        id="B-25",
        name="unclean-registration-unnoticed",
        origin="KIP-966 without its detection",
        rules=("REG-3",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A broker that cannot prove a clean shutdown keeps its place in ISR and ELR.",
    ),
    Defect(
        id="B-26",
        name="any-marker-is-clean",
        origin="KAFKA-10471",
        rules=("REG-2", "CS-3"),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="The marker of an earlier clean shutdown survives, and the controller accepts it as proof.",
    ),
    Defect(
        id="B-27",
        name="elr-kept-when-unclean",
        origin="plausible",
        rules=("ELR-4",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="An unclean registration removes a broker from the ISR, but not from the ELR.",
    ),
    Defect(
        id="B-28",
        name="elr-erased-by-a-directory",
        origin="Apache Kafka 4.0.0 to 4.2.1; apache/kafka pull request 20716",
        rules=("DIR-5",),
        anomalies=("A",),
        sentence="A report that a replica is in another log directory erases the ELR of its partition.",
    ),
    Defect(
        id="B-29",
        name="min-isr-raised-behind-the-leader",
        origin="Apache Kafka 4.0.2 to 4.4.0",
        rules=("ELR-9-EPOCH",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="A leader that does not know that min ISR was raised gets a smaller ISR, and commits with it.",
    ),
    Defect(
        id="B-29b",
        name="partitions-before-min-isr",
        origin="plausible",
        rules=("META-5-RAISED",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="A leader applies a smaller ISR before the larger min ISR of one publish, and commits alone.",
    ),
    Defect(
        id="B-29c",
        name="min-isr-before-partitions",
        origin="plausible",
        rules=("META-5-LOWERED",),
        invariants=("INV-2",),
        sentence="A deposed leader applies a smaller min ISR before the rest of the publish, and commits alone.",
    ),
    Defect(
        id="B-30",
        name="elr-not-cleared",
        origin="plausible",
        rules=("ELR-1",),
        anomalies=("A",),
        invariants=("INV-7",),
        sentence="The ELR keeps its members when the ISR, at min ISR again, commits records without them.",
    ),
    Defect(
        id="B-30b",
        name="elr-kept-under-another-min-isr",
        origin="KAFKA-16540",
        rules=("ELR-9",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="The ELR keeps its members when min ISR is lowered, and the leader commits records without them.",
    ),
    Defect(
        id="B-31",
        name="min-isr-of-partition-0",
        origin="Apache Kafka 4.0.2 to 4.4.0",
        rules=("MIN-2",),
        anomalies=("A",),
        sentence="The controller limits the min ISR of all partitions of a topic to the replicas of partition 0.",
    ),
    Defect(
        id="B-32",
        name="dead-last-known-leader",
        origin="KAFKA-19522",
        rules=("ELR-8",),
        anomalies=("L",),
        invariants=("INV-7",),
        sentence="The last-known leader is elected although it is dead.",
    ),
    Defect(
        id="B-33",
        name="registration-keeps-isr",
        origin="KAFKA-18106",
        rules=("REG-4",),
        profile="kafka-4.0",
        anomalies=("A",),
        sentence="A broker that registers before its old session was fenced stays leader, with an empty log.",
    ),
    Defect(
        id="B-34",
        name="elr-beyond-the-replicas",
        origin="plausible",
        rules=("REAS-4",),
        anomalies=("A",),
        invariants=("INV-7",),
        sentence="The ELR keeps a broker that is no longer a replica. Added again, it may lead with an empty log.",
    ),
    Defect(
        id="B-35",
        name="vote-not-synced",
        origin="plausible",
        rules=("RAFT-1",),
        invariants=("INV-5", "INV-8"),
        sentence="A voter of the metadata quorum forgets its vote in a power cut and votes again.",
    ),
    Defect(
        id="B-36",
        name="metadata-not-synced",
        origin="plausible",
        rules=("RAFT-2",),
        invariants=("INV-5",),
        sentence="A voter of the metadata quorum acknowledges records that a power cut can take away.",
    ),
    Defect(
        id="B-37",
        name="old-epoch-committed",
        origin="figure 8 of the Raft paper",
        rules=("RAFT-7",),
        invariants=("INV-5",),
        sentence="A quorum leader commits a record of an older epoch, held by a majority, that is later replaced.",
    ),
    Defect(
        id="B-38",
        name="response-before-commit",
        origin="plausible",
        rules=("CTRL-1",),
        anomalies=("A",),
        invariants=("INV-3",),
        sentence="The controller responds before a change is committed, and its successor never learns of it.",
    ),
    Defect(
        id="B-40",
        name="fenced-from-one-state",
        origin="KAFKA-13173",
        rules=("FENCE-3",),
        anomalies=("L",),
        invariants=("INV-7",),
        sentence="Two brokers whose sessions expire together are fenced from one state, and each change elects"
        " the other.",
    ),
    Defect(
        id="B-41",
        name="reassigned-below-min-isr",
        origin="KAFKA-15665",
        rules=("REAS-1",),
        profile="kafka-4.0",
        anomalies=("A",),
        sentence="A reassignment completes although its ISR has fewer members than min ISR; the others delete "
        "their logs.",
    ),
    Defect(
        id="B-42",
        name="metadata-before-catch-up",
        origin="plausible",
        rules=("LIFE-1",),
        anomalies=("A", "D"),
        invariants=("INV-2", "INV-4"),
        sentence="A broker acts on old metadata before it has caught up, and appends as the leader it used to be.",
    ),
    Defect(
        id="B-43",
        name="no-hw-after-isr-change",
        origin="KAFKA-13091",
        rules=("LEAD-5",),
        anomalies=("L",),
        sentence="After the ISR shrinks, nothing moves the high watermark of an idle partition.",
    ),
    Defect(
        id="B-44",
        name="hw-waits-for-ineligible",
        origin="KAFKA-15021",
        rules=("HW-4-ELIGIBLE",),
        anomalies=("L",),
        sentence="The high watermark waits for a broker that stopped cleanly, for as long as the lag limit.",
    ),
    Defect(
        id="B-45",
        name="isr-change-not-repeated",
        origin="KAFKA-14010",
        rules=("AP-3",),
        anomalies=("L",),
        sentence="A proposal that no controller decided about is not sent again, and its leader waits for ever.",
    ),
    Defect(
        id="B-46",
        name="epochs-lost-by-a-move",
        origin="KAFKA-15608",
        rules=("EC-7",),
        anomalies=("L",),
        sentence="A replica that moves to another log directory forgets the epochs that have no records yet.",
    ),
    Defect(
        id="B-48",
        name="elr-cleared-without-a-leader",
        origin="Apache Kafka 4.1.2 and 4.4.0",
        rules=("ELR-9-LEADERLESS",),
        anomalies=("L",),
        sentence="A change of min.insync.replicas erases ELR and last-known leader of a leaderless partition. No"
        " broker can be elected any more.",
    ),
    Defect(
        id="B-49",
        name="marker-of-one-directory",
        origin="plausible",
        rules=("CS-2",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="The marker of one log directory vouches for another one that was replaced by an empty disk.",
    ),
    Defect(
        id="B-50",
        name="hw-above-log-end",
        origin="plausible",
        rules=("HW-7",),
        invariants=("INV-9",),
        sentence="A truncation leaves the high watermark above the log end.",
    ),
    Defect(
        id="B-51",
        name="crc-not-verified",
        origin="plausible",
        rules=("FF-2",),
        anomalies=("C",),
        sentence="Followers copy a batch whose checksum is wrong, so that it is committed.",
    ),
    Defect(
        id="B-52",
        name="producer-state-not-rebuilt",
        origin="plausible",
        rules=("PID-4", "PID-5"),
        anomalies=("U",),
        sentence="A new leader knows no producers and takes a retry for a new batch.",
    ),
    Defect(
        id="B-53",
        name="snapshot-without-elr",
        origin="plausible",
        rules=("RAFT-8",),
        anomalies=("A",),
        invariants=("INV-5",),
        sentence="A snapshot of the metadata has no ELR, and controllers that start from it forget who may lead.",
    ),
    Defect(
        id="B-54",
        name="preferred-election-ignores-isr",
        origin="plausible",
        rules=("EL-3-ISR",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A preferred election makes the first replica the leader although it is not in the ISR.",
    ),
    Defect(
        id="B-55",
        name="coordinator-starts-empty",
        origin="plausible",
        rules=("GRP-4",),
        anomalies=("G",),
        sentence="A new group coordinator does not load what its predecessor stored, and reports that nothing is"
        " committed.",
    ),
    Defect(
        id="B-56",
        name="commit-before-replication",
        origin="plausible",
        rules=("GRP-1",),
        anomalies=("G",),
        sentence="A group coordinator acknowledges a commit that only it has, and its successor does not know it.",
    ),
    Defect(
        id="B-57",
        name="assignment-before-replication",
        origin="plausible",
        rules=("GRP-3",),
        anomalies=("G",),
        sentence="Members work in a generation that only their coordinator has, and its successor gives the number"
        " to another generation.",
    ),
    Defect(
        id="B-58",
        name="hanging-transaction",
        origin="KIP-890, KAFKA-14402",
        rules=("TXN-12",),
        profile=BEFORE_TRANSACTION_EPOCHS,
        anomalies=("L",),
        sentence="A batch that arrives after the marker of its transaction begins another one, which nothing"
        " ends.",
    ),
    Defect(
        id="B-59",
        name="decision-before-replication",
        origin="plausible",
        rules=("TXN-6",),
        anomalies=("A", "T"),
        sentence="A coordinator confirms a commit that only it has, and its successor aborts the transaction.",
    ),
    Defect(
        id="B-60",
        name="coordinator-forgets-decisions",
        origin="plausible",
        rules=("TXN-7",),
        anomalies=("L",),
        sentence="A new coordinator does not send the markers of transactions that its predecessor has decided.",
    ),
    Defect(
        id="B-61",
        name="marker-sent-once",
        origin="plausible",
        rules=("TXN-8",),
        anomalies=("L",),
        sentence="A marker that a partition could not take is not sent again.",
    ),
    Defect(
        id="B-62",
        name="transactional-id-without-epochs",
        origin="plausible (before KIP-98)",
        rules=("TXN-9", "TXN-10"),
        anomalies=("A", "D", "T"),
        sentence="A new producer gets the epoch of the one before, and neither fences the other.",
    ),
    Defect(
        id="B-63",
        name="slow-producer-not-fenced",
        origin="plausible",
        rules=("TXN-9",),
        profile=BEFORE_TRANSACTION_EPOCHS,
        anomalies=("T",),
        sentence="A producer whose transaction exceeded its timeout commits the rest of it as another"
        " transaction.",
    ),
    Defect(
        id="B-64",
        name="lso-ignores-open-transactions",
        origin="plausible",
        rules=("TXN-1",),
        anomalies=("T",),
        sentence="The last stable offset is the high watermark, and consumers read what may be aborted.",
    ),
    Defect(
        id="B-65",
        name="aborted-transactions-not-listed",
        origin="plausible",
        rules=("TXN-5",),
        anomalies=("T",),
        sentence="Fetch responses do not name aborted transactions, and consumers return their records.",
    ),
    Defect(
        id="B-66",
        name="old-coordinator-not-fenced",
        origin="plausible",
        rules=("TXN-4",),
        profile=BEFORE_TRANSACTION_EPOCHS,
        anomalies=("T",),
        sentence="A late marker of a coordinator that was replaced ends a transaction of its successor.",
    ),
    Defect(
        id="B-67",
        name="no-transaction-timeout",
        origin="plausible",
        rules=("TXN-11",),
        anomalies=("L",),
        sentence="The transaction of a producer that has gone is never aborted.",
    ),
    Defect(
        id="B-68",
        name="stop-while-starting-is-unclean",
        origin="Apache Kafka 4.0.2 to 4.4.0",
        rules=("CS-5",),
        anomalies=("A",),
        sentence="A member of the ELR that is stopped while it starts leaves it, although its log is intact.",
    ),
    Defect(
        id="B-69",
        name="proposal-cancelled-by-old-news",
        origin="Apache Kafka 4.0.2 to 4.4.0",
        rules=("LEAD-6",),
        anomalies=("A",),
        invariants=("INV-2", "INV-3"),
        sentence="A leader that hears of an ISR change once more forgets the next one, which may be in force, and"
        " commits records without the member that it adds.",
    ),
    Defect(
        id="B-70",
        name="read-passes-over-a-batch",
        origin="plausible",
        rules=("FETCH-8",),
        anomalies=("A", "R"),
        sentence="A read leaves out the batches of a segment that no longer fit, and goes on in the next segment.",
    ),
    Defect(
        id="B-71",
        name="segments-in-reverse",
        origin="plausible",
        rules=("FETCH-9",),
        anomalies=("R",),
        sentence="A response that spans several segments has the newest one first.",
    ),
    Defect(
        id="B-72",
        name="refused-after-append",
        origin="plausible",
        rules=("PROD-7",),
        anomalies=("E",),
        sentence="A leader below min ISR writes a batch before it refuses it.",
    ),
    Defect(
        id="B-73",
        name="one-batch-for-all-partitions",
        origin="plausible",
        rules=("PROD-8",),
        anomalies=("A", "R"),
        sentence="Every partition that a produce request names gets the batch of the first one.",
    ),
    Defect(
        id="B-74",
        name="no-offset-and-no-error",
        origin="plausible",
        rules=("LO-2",),
        anomalies=("O",),
        sentence="A leader that does not know its high watermark yet reports -1 as the log end.",
    ),
    Defect(
        id="B-75",
        name="repeated-batch-not-awaited",
        origin="plausible",
        rules=("PID-6",),
        anomalies=("A",),
        sentence="A batch that is sent again is acknowledged at once, without its offset, although it is not"
        " committed.",
    ),
    Defect(
        id="B-76",
        name="loaded-offsets-are-one-too-far",
        origin="plausible",
        rules=("GRP-13",),
        anomalies=("G",),
        sentence="A new coordinator takes the committed offsets in its log for those of the last records that were"
        " processed.",
    ),
    Defect(
        id="B-77",
        name="epoch-begins-at-high-watermark",
        origin="plausible",
        rules=("EC-8",),
        anomalies=("A", "V", "D"),
        invariants=("INV-1",),
        sentence="A new leader says that its epoch begins at its high watermark; followers cut what is above it.",
    ),
    Defect(
        id="B-78",
        name="late-marker-ends-next-transaction",
        origin="KAFKA-19446, KIP-1228; Apache Kafka 4.0 and 4.1",
        rules=("TXN-14",),
        profile="kafka-4.2",
        anomalies=("T",),
        sentence="A marker that arrives twice ends the next transaction of its producer too, which has its epoch.",
    ),
    Defect(
        id="B-79",
        name="page-cache-trusted-after-a-failed-fsync",
        origin="Rebello et al., Can Applications Recover from fsync Failures? (2020)",
        rules=("RAFT-11",),
        invariants=("INV-5",),
        sentence="A controller whose fsync failed counts what it finds in its log at the next start as durable,"
        " although it is in the page cache only.",
    ),
)

DEFECTS: dict[str, Defect] = {defect.id: defect for defect in _ALL}
"""Every defect by its identifier."""


def find_defect(name: str) -> Defect:
    """Returns a defect by its identifier or its name.

    Raises:
        ValueError: There is no such defect; the sentence suggests one and lists the identifiers.
    """
    by_name = {defect.name: defect for defect in _ALL}
    by_id = {defect.id.lower(): defect for defect in _ALL}
    found = by_id.get(name.lower()) or by_name.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), by_name, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no defect is called {name!r}{hint} (known: {', '.join(DEFECTS)})")
    return found
