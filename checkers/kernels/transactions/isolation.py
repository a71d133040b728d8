"""Isolation levels: which anomalies each one forbids, and which levels a history keeps.

A level has a base and a strength. The base forbids phenomena; "strong-session-" also forbids those that need the
order within a process, "strong-" those that need the order in time.

| level | Adya | forbids in addition |
|---|---|---|
| read-uncommitted | PL-1 | G0, and values that nobody wrote or that are there twice |
| read-committed | PL-2 | G1a, G1b, G1c, dirty updates, reads that disagree about the order of a list |
| read-atomic | - | contradictions within a transaction, fractured reads |
| snapshot-isolation | PL-SI | G-single, lost updates |
| serializable | PL-3 | G2-item |

Two reads that disagree about the order of a list show that one of them returned what was never committed: that is
G1a (Elle's consistency models), and below read-committed it is allowed.

Snapshot isolation also forbids cycles in which no two anti-dependencies follow each other, as in a long fork.
They are reported as G2-item. Where that is found, `levels_held` does not know whether snapshot isolation holds; if
it was promised, `CycleSearch.breaks_snapshots` decides. Two transactions that append to one key must not be
concurrent, so appends that no read returned need an order too. Two orders are tried, by their ends and by their
begins; if both break snapshot isolation, it is not decided.

Kafka promises none of these. It promises that records of aborted transactions stay hidden (with
`isolation.level=read_committed`), that a committed transaction becomes visible in full, and one order per
partition. Its promise is called "kafka-read-committed". It does not isolate writers from each other: the records
of two transactions may be interleaved in one partition and differently in another one.

Source:
    Adya, Weak Consistency (1999); Bailis et al., Scalable Atomic Visibility with RAMP Transactions (2014);
    Kingsbury and Alvaro, Elle (2020); KIP-98 for Kafka.
"""

from dataclasses import dataclass

from checkers.anomalies import ANOMALIES
from checkers.kernels.transactions.found import Found, Words
from harness.contracts.checker import CheckerFinding
from harness.contracts.verdict import Judgement
from harness.errors import UsageError
from harness.names import unknown_name

KAFKA_READ_COMMITTED = "kafka-read-committed"
KAFKA_READ_UNCOMMITTED = "kafka-read-uncommitted"
_OF_KAFKA = (KAFKA_READ_COMMITTED, KAFKA_READ_UNCOMMITTED)

_ALWAYS = frozenset(
    {
        "phantom-value",
        "divergent-value",
        "duplicate",
        "duplicate-elements",
        "future-read",
        "G0",
    }
)
_COMMITTED = _ALWAYS | {
    "G1a",
    "G1b",
    "G1c",
    "dirty-update",
    "incompatible-order",
    "precommitted-read",
    "aborted-record-visible",
    "circular-reads",
    "torn-transaction",
}
_ATOMIC = _COMMITTED | {"internal", "fractured-read"}
_SNAPSHOT = _ATOMIC | {"G-single", "lost-update"}

BASES: dict[str, frozenset[str]] = {
    "read-uncommitted": _ALWAYS,
    "read-committed": _COMMITTED,
    "read-atomic": _ATOMIC,
    "snapshot-isolation": _SNAPSHOT,
    "serializable": _SNAPSHOT | {"G2-item"},
}
"""What each level forbids, the weakest level first."""

_STRENGTHS = ("", "strong-session-", "strong-")
_SUFFIXES = ("", "-process", "-realtime")

LEVELS: tuple[str, ...] = tuple(strength + base for base in BASES for strength in _STRENGTHS)
"""All levels; "strict-serializable" is another name of "strong-serializable"."""

_KAFKA_ALLOWS = {
    "G0": (
        "Kafka does not isolate writers: the records of two transactions may be interleaved in one order in one"
        " partition and in the other order in another one"
    ),
    "G1c": (
        "the cycle needs the order of records in partitions, and Kafka lets transactions interleave their records;"
        " cycles of reads alone are reported as circular-reads"
    ),
    "G-single": "a Kafka consumer reads at its own pace, so it may miss records that exist already",
    "G2-item": "a Kafka consumer reads at its own pace, so it may miss records that exist already",
    "int-send-skip": "records of other producers may lie between two records of one transaction",
}
_OF_READ_COMMITTED = frozenset(
    {"G1a", "aborted-record-visible", "precommitted-read", "circular-reads", "torn-transaction"}
)
_UNCOMMITTED_RULE = (
    "consumers with isolation.level=read_uncommitted receive records before their transaction ends"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What an anomaly means under a promise, and why."""

    judgement: Judgement
    rule: str


def levels() -> tuple[str, ...]:
    """Returns every name that a promise can have."""
    return (*LEVELS, "strict-serializable", *_OF_KAFKA)


def require_level(promise: str) -> None:
    """Refuses a promise that is no known level.

    Raises:
        UsageError: With the known levels.
    """
    if promise not in levels():
        raise UsageError(unknown_name("isolation level", promise, levels()))


def judge_isolation(identifier: str, promise: str) -> Judged:
    """Returns what an anomaly means if a level was promised.

    Args:
        identifier: The anomaly, with its suffix.
        promise: One of `levels`.

    Raises:
        UsageError: The promise is no known level.
    """
    require_level(promise)
    base, strength = split_suffix(identifier)
    if identifier == "unseen":
        return Judged(
            Judgement.INFORMATIONAL,
            "the closing reads did not get as far as these records; the verdict is unknown, not invalid",
        )
    if promise in _OF_KAFKA:
        if base in _KAFKA_ALLOWS:
            return Judged(Judgement.ALLOWED, _KAFKA_ALLOWS[base])
        if promise == KAFKA_READ_UNCOMMITTED and base in _OF_READ_COMMITTED:
            return Judged(Judgement.ALLOWED, _UNCOMMITTED_RULE)
        return Judged(
            Judgement.FORBIDDEN, f"{promise} forbids it: {ANOMALIES[identifier].definition}"
        )
    if breaks(identifier, promise):
        return Judged(Judgement.FORBIDDEN, f"{promise} forbids {base}{_SUFFIXES[strength]}")
    return Judged(Judgement.ALLOWED, f"{promise} allows {base}{_SUFFIXES[strength]}")


SEPARATE_RULE = (
    "snapshot isolation forbids a cycle in which no two anti-dependencies follow each other"
)


def promised_snapshots(promise: str) -> int | None:
    """Returns the strength of promised snapshot isolation: 0 plain, 1 session, 2 strong; None if not promised."""
    if not promise.endswith("snapshot-isolation"):
        return None
    return next(s for s in (1, 2, 0) if promise.startswith(_STRENGTHS[s]))


def promises_read_committed(promise: str) -> bool:
    """Returns whether what a committed transaction read has committed, if the promise is kept."""
    return not promise.endswith("read-uncommitted")


def needs_cycle_search(promise: str) -> bool:
    """Returns whether it matters which cycles with anti-dependencies are G-single; Kafka allows all of them."""
    return promise not in _OF_KAFKA


def needs_order_in_time(level: str) -> bool:
    """Returns whether a level of `LEVELS` forbids what only the order in time shows."""
    is_strong = level.startswith("strong-") and not level.startswith("strong-session-")
    return is_strong or level == "strict-serializable"


def split_suffix(identifier: str) -> tuple[str, int]:
    """Returns an anomaly without its suffix, and the number of the suffix: 0 none, 1 process, 2 realtime."""
    for strength in (1, 2):
        if identifier.endswith(_SUFFIXES[strength]):
            return identifier.removesuffix(_SUFFIXES[strength]), strength
    return identifier, 0


def breaks(identifier: str, level: str) -> bool:
    """Returns whether an anomaly shows that a level of `LEVELS` does not hold.

    Anomalies that no level describes, for example a lost record, break every level.
    """
    level = "strong-serializable" if level == "strict-serializable" else level
    promised = next(s for s in (1, 2, 0) if level.startswith(_STRENGTHS[s]))
    level_base = level.removeprefix(_STRENGTHS[promised])
    base, strength = split_suffix(identifier)
    if base in ("int-send-skip", "unseen"):
        return False
    is_described = any(base in forbidden for forbidden in BASES.values())
    return (base in BASES[level_base] or not is_described) and strength <= promised


def levels_held(
    findings: tuple[CheckerFinding, ...], unknown_reasons: tuple[str, ...]
) -> dict[str, str]:
    """Returns "holds", "broken" or "unknown" for every level.

    Args:
        findings: Everything that was found, under a promise of read-committed or more.
        unknown_reasons: Why more may be wrong; if there is any, no level is said to hold.
    """
    held = {}
    ids = [finding.id for finding in findings]
    for level in LEVELS:
        broken = {split_suffix(identifier)[0] for identifier in ids if breaks(identifier, level)}
        # A cycle of writes may rest on a dirty read, which does not show that its writer committed.
        is_sure = promises_read_committed(level) or broken != {"G0"}
        if broken and is_sure:
            held[level] = "broken"
        elif broken or unknown_reasons or _may_break_snapshot(ids, level):
            held[level] = "unknown"
        else:
            held[level] = "holds"
    return held


def _may_break_snapshot(ids: list[str], level: str) -> bool:
    serializable = level.replace("snapshot-isolation", "serializable")
    return serializable != level and any(breaks(identifier, serializable) for identifier in ids)


def judged(found: Found, promise: str, words: Words) -> CheckerFinding:
    """Returns a finding with what it means."""
    by_promise = judge_isolation(found.id, promise)
    judgement, rule = by_promise.judgement, by_promise.rule
    if judgement is Judgement.FORBIDDEN and found.undecided:
        judgement, rule = Judgement.UNDECIDED, found.undecided
    return CheckerFinding(
        id=found.id,
        level=ANOMALIES[found.id].level,
        count=found.count,
        judgement=judgement,
        rule=rule,
        sentence=found.sentence,
        witnesses=words.witnesses(found.transactions),
        details=found.details,
    )
