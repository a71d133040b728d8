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
        id="B-05",
        name="no-divergence-check",
        origin="plausible (before KIP-595)",
        rules=("FETCH-5",),
        anomalies=("A", "D"),
        invariants=("INV-2", "INV-4"),
        sentence="A leader does not compare its epochs with a follower's and keeps one that has another history.",
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
)

DEFECTS: dict[str, Defect] = {defect.id: defect for defect in _ALL}
"""Every defect by its identifier."""


def find_defect(name: str) -> Defect:
    """Returns a defect by its identifier or its name.

    Raises:
        ValueError: There is no such defect; the sentence suggests one and says where all are listed.
    """
    by_name = {defect.name: defect for defect in _ALL}
    found = DEFECTS.get(name.upper()) or by_name.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), by_name, n=1) or get_close_matches(
            name.upper(), DEFECTS, n=1
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no defect is called {name!r}{hint} (there are {len(DEFECTS)})")
    return found
