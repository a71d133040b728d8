"""Known replication bugs that the reference system can have on purpose.

A defect is rules that are not applied, in a profile. What it does to clients is written next to it in letters, and
a test in `tests/mutations` proves every line: with the rules the same faults do no harm, without them the harm is
found. Identifiers are stable; the missing numbers are bugs of parts that do not exist here.

| letter | what clients see                                                                 |
|--------|----------------------------------------------------------------------------------|
| A      | a record that was acknowledged with acks=all is lost, and nothing excuses it      |
| V      | a record that a consumer had read is gone                                         |
| D      | one offset showed two values                                                      |
| C      | a corrupt record was read                                                         |
| L      | something that should work does not, or only after a time-out                     |
| U      | a record that an idempotent producer sent once is in the log twice                |
"""

from dataclasses import dataclass
from difflib import get_close_matches

from system_under_test.config import DEFAULT_PROFILE


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
        anomalies: Letters of the table above, what matters most first; empty if only the invariants show it.
        invariants: Which of them the monitor may find broken first (`docs/invariants.md`).
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
        anomalies=("D",),
        invariants=("INV-2", "INV-4"),
        sentence="A leader that never had a follower's epoch does not say so, and the two logs differ for ever.",
    ),
    Defect(
        id="B-03",
        name="epoch-not-recorded",
        origin="KAFKA-7415",
        rules=("LEAD-3",),
        anomalies=("L",),
        sentence="A leader knows its epoch only from its first append on, and cannot place followers until then.",
    ),
    Defect(
        id="B-05",
        name="no-divergence-check",
        origin="plausible (before KIP-595)",
        rules=("FETCH-5",),
        anomalies=("A", "D"),
        invariants=("INV-2", "INV-4"),
        sentence="A leader does not compare its epochs with a follower's and keeps one that has another history.",
    ),
    Defect(
        id="B-07",
        name="epochs-not-written",
        origin="KAFKA-15046, KAFKA-16541",
        rules=("EC-1",),
        anomalies=("A", "D"),
        invariants=("INV-4",),
        sentence="Leader epochs are kept in memory only; after a restart another history looks equal.",
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
        rules=("APC-3",),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A broker that restarted empty is added to the ISR on the word of its former incarnation.",
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
        id="B-18",
        name="hw-not-gated",
        origin="KIP-966 without KAFKA-15583",
        rules=("HW-1",),
        anomalies=("V",),
        invariants=("INV-2",),
        sentence="With ELR on, a leader below min ISR moves the high watermark all the same.",
    ),
    Defect(
        id="B-19",
        name="ack-after-append",
        origin="plausible",
        rules=("PROD-4",),
        anomalies=("A",),
        sentence="acks=all is answered as soon as the leader has the records.",
    ),
    Defect(
        id="B-21",
        name="min-isr-ignored",
        origin="plausible",
        rules=("PROD-2", "PROD-5", "HW-1"),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="A leader that is alone in the ISR acknowledges acks=all, whatever min.insync.replicas says.",
    ),
    Defect(
        id="B-22",
        name="read-to-log-end",
        origin="plausible",
        rules=("FETCH-6",),
        anomalies=("V", "D"),
        sentence="Consumers read above the high watermark.",
    ),
    Defect(
        id="B-23",
        name="new-leader-believes-its-log-end",
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
        sentence="A broker that cannot prove an orderly stop keeps its place in ISR and ELR.",
    ),
    Defect(
        id="B-26",
        name="any-marker-is-clean",
        origin="KAFKA-10471",
        rules=("REG-2", "CS-3"),
        anomalies=("A",),
        invariants=("INV-2",),
        sentence="The clean-shutdown marker of an earlier stop survives, and the controller takes it for proof.",
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
        id="B-30",
        name="elr-not-cleared",
        origin="plausible (related: KAFKA-16540)",
        rules=("ELR-1",),
        anomalies=("A",),
        invariants=("INV-7",),
        sentence="The ELR outlives an ISR that has min ISR members again, and commits without it.",
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
        id="B-35",
        name="vote-not-synced",
        origin="plausible",
        rules=("RAFT-1",),
        invariants=("INV-5", "INV-8"),
        sentence="A voter of the metadata quorum forgets its vote in a power cut and gives it again.",
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
        sentence="A quorum leader commits a record of an older epoch by its majority alone, and it is replaced.",
    ),
    Defect(
        id="B-38",
        name="answer-before-commit",
        origin="plausible",
        rules=("CTRL-1",),
        anomalies=("A",),
        invariants=("INV-3",),
        sentence="The controller answers before a change is committed, and its successor never hears of it.",
    ),
    Defect(
        id="B-40",
        name="fenced-from-one-state",
        origin="KAFKA-13173",
        rules=("FENCE-3",),
        anomalies=("L",),
        invariants=("INV-7",),
        sentence="Two brokers whose sessions end together are fenced from one state, each in favour of the other.",
    ),
    Defect(
        id="B-42",
        name="metadata-before-catch-up",
        origin="plausible",
        rules=("LIFE-1",),
        anomalies=("A", "D"),
        invariants=("INV-2", "INV-4"),
        sentence="A broker acts on its old metadata before it has caught up, and writes as the leader it was.",
    ),
    Defect(
        id="B-43",
        name="no-hw-after-isr-change",
        origin="KAFKA-13091",
        rules=("LEAD-5",),
        anomalies=("L",),
        sentence="After a shrink of the ISR nobody moves the high watermark of an idle partition.",
    ),
    Defect(
        id="B-44",
        name="hw-waits-for-ineligible",
        origin="KAFKA-15021",
        rules=("HW-4-ELIGIBLE",),
        anomalies=("L",),
        sentence="The high watermark waits for a broker that stopped in order, for as long as the lag limit.",
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
)

DEFECTS: dict[str, Defect] = {defect.id: defect for defect in _ALL}
"""Every defect by its identifier."""


def find_defect(name: str) -> Defect:
    """Returns a defect by its identifier or its name.

    Raises:
        ValueError: There is no such defect; the sentence suggests one and lists the identifiers.
    """
    by_name = {defect.name: defect for defect in _ALL}
    found = DEFECTS.get(name.upper()) or by_name.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), by_name, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no defect is called {name!r}{hint} (known: {', '.join(DEFECTS)})")
    return found
