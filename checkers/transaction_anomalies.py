"""Rows of the table of anomalies for transactions; `checkers.anomalies` adds them to its own.

Cycles come in three forms. The plain form needs only the values that were read and written. `-process` also
needs the order of two transactions of one process, `-realtime` that one transaction was complete before another
one was invoked. `checkers/kernels/transactions/isolation.py` states which isolation levels each of them breaks.
"""

Row = tuple[str, str, str, str, str]
"""Identifier, level, definition, what is counted, source."""

_ADYA = "Adya, Weak Consistency (1999), "
_ELLE = "Kingsbury and Alvaro, Elle (2020)"
_JEPSEN = "Jepsen, kafka workload"
_KIP_98 = "KIP-98, exactly-once delivery"

_CYCLES = (
    (
        "G0",
        "Transactions form a cycle in which each one wrote a version of a key just before the next one's.",
        _ADYA + "G0 (dirty write)",
    ),
    (
        "G1c",
        "Transactions form a cycle in which each one wrote a version before the next one's, or a version that the"
        " next one read, at least once the latter.",
        _ADYA + "G1c (circular information flow)",
    ),
    (
        "G-single",
        "Transactions form a cycle of writes and reads with exactly one transaction that read a version before the"
        " next one replaced it.",
        _ADYA + "G-single (read skew)",
    ),
    (
        "G2-item",
        "Transactions form a cycle of writes and reads with several transactions that read a version before the"
        " next one replaced it.",
        _ADYA + "G2-item (write skew)",
    ),
    (
        "circular-reads",
        "Transactions form a cycle in which each one read a record of the one before it, although records become"
        " visible only when their transaction commits.",
        _KIP_98 + "; Jepsen calls it G1c without ww-deps",
    ),
)

_STRENGTHS = (
    ("", "integrity", ""),
    ("-process", "order", " The cycle also needs the order of transactions in a process."),
    ("-realtime", "order", " The cycle also needs the order of transactions in time."),
)

_CYCLE_ROWS: tuple[Row, ...] = tuple(
    (
        base + suffix,
        level,
        definition + more,
        "groups of transactions that depend on each other in cycles",
        source,
    )
    for base, definition, source in _CYCLES
    for suffix, level, more in _STRENGTHS
)

TRANSACTION_ROWS: tuple[Row, ...] = (
    *_CYCLE_ROWS,
    (
        "G1a",
        "integrity",
        "A committed transaction read a value of an aborted one.",
        "reads",
        _ADYA + "G1a (aborted read)",
    ),
    (
        "G1b",
        "integrity",
        "A committed transaction read a value that another one wrote, and that was not the last one it wrote to"
        " the key.",
        "reads",
        _ADYA + "G1b (intermediate read)",
    ),
    (
        "dirty-update",
        "integrity",
        "A committed transaction's value follows an aborted one's in a list.",
        "keys",
        _ELLE,
    ),
    (
        "lost-update",
        "integrity",
        "Two committed transactions read the same version of a key and then wrote to it.",
        "versions",
        "Berenson et al., A Critique of ANSI SQL Isolation Levels (1995), P4",
    ),
    (
        "fractured-read",
        "integrity",
        "A transaction read one value that another one wrote, but an older version of another key that the other"
        " one wrote too.",
        "pairs of transactions",
        "Bailis et al., RAMP Transactions (2014)",
    ),
    (
        "internal",
        "integrity",
        "A transaction read something else than it had read and written itself before, or its appends are not in"
        " its own order.",
        "transactions times keys",
        _ELLE,
    ),
    (
        "incompatible-order",
        "integrity",
        "Two reads of a list disagree about its order.",
        "reads that differ from the longest one",
        _ELLE,
    ),
    (
        "duplicate-elements",
        "integrity",
        "A list holds one value twice, although it was appended once.",
        "reads",
        _ELLE,
    ),
    (
        "precommitted-read",
        "integrity",
        "A consumer received a record before the commit of its transaction was requested, for example within that"
        " transaction itself, or behind a record of a transaction whose commit was requested only afterwards.",
        "records",
        _JEPSEN + "; " + _KIP_98,
    ),
    (
        "aborted-record-visible",
        "integrity",
        "A poll of a transaction that did not commit itself returned a record of an aborted transaction.",
        "records",
        _KIP_98 + "; isolation.level=read_committed holds for every poll",
    ),
    (
        "torn-transaction",
        "integrity",
        "The closing reads returned some records of a transaction, but not all of them.",
        "transactions",
        _KIP_98,
    ),
    (
        "int-send-skip",
        "order",
        "Between two records that one transaction sent to a partition there is a record of another one.",
        "pairs of records",
        _JEPSEN,
    ),
    (
        "int-nonmonotonic-send",
        "order",
        "Records that one transaction sent to a partition got offsets that do not grow in the order of sending.",
        "pairs of records",
        _JEPSEN,
    ),
    (
        "int-poll-skip",
        "integrity",
        "The polls of one transaction passed over a record that was committed, or with read_uncommitted over any"
        " record.",
        "pairs of records",
        _JEPSEN,
    ),
    (
        "int-nonmonotonic-poll",
        "order",
        "The polls of one transaction returned an offset of a partition twice, or went back.",
        "pairs of records",
        _JEPSEN,
    ),
    (
        "session-poll-skip",
        "integrity",
        "Between two transactions of one consumer, its polls passed over a record that was committed, or with"
        " read_uncommitted over any record, although no partition was assigned anew.",
        "pairs of records",
        _JEPSEN + ", poll-skip",
    ),
    (
        "session-nonmonotonic-poll",
        "order",
        "Between two committed transactions of one consumer, its polls went back, although no partition was"
        " assigned anew.",
        "pairs of records",
        _JEPSEN + ", nonmonotonic-poll",
    ),
    (
        "input-processed-twice",
        "integrity",
        "Two committed transactions of one consumer group consumed the same record and committed its offset.",
        "records",
        _KIP_98 + ", consume-transform-produce",
    ),
    (
        "input-skipped",
        "integrity",
        "A consumer group committed an offset beyond a committed record that none of its transactions consumed."
        " Records before the first offset that a transaction of the group consumed do not count, even if it"
        " aborted: the group may have begun there.",
        "records",
        _KIP_98 + ", consume-transform-produce",
    ),
    (
        "zombie-commit",
        "integrity",
        "A transaction committed although another producer had taken its transactional id over before its commit"
        " was requested. A transaction of unknown outcome committed if a read_committed consumer received one of"
        " its records after the request.",
        "transactions",
        _KIP_98 + ", fencing of zombies",
    ),
)

OF_TRANSACTIONS = frozenset(row[0] for row in TRANSACTION_ROWS)
"""Anomalies that only histories of transactions can have."""
