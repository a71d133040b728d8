"""For every anomaly the smallest history that has it, a near miss that does not, and the defect that produces it.

Histories are text, because people read them: tests turn the text into tables and judge it
(`tests/anomalies/test_examples.py`), and `docs/anomalies.md` prints it. Times are nanoseconds. One line each:

    0  p7  append -> ok at 1                 [1, 5]      operation 0 of process 7 appends the value 0
    1  p7  append acks=1 -> info             [6, ...]    `info`, and `ok` without an offset, have no place
    8  p1  append with 1 -> info             [6, ...]    in the record batch that began with operation 1
    2  p2  poll from 0 -> 0:0 1:3, end 2     [6, 7]      the offsets 0 and 1 hold the values 0 and 3
    3  p3  latest -> 2 from b1 in epoch 3    [8, 9]      broker and leader epoch are often left out
    4  p4  poll from 0 -> 0:corrupt, end 1   [8, 9] final
    group p8 assigned 0 generation 4                     an event of a consumer group, in order of the lines
    violation INV-1 two leaders                          a broken invariant of the reference system
    query of 0:7 read by 1 in epoch 3: timestamp -> 4 in epoch 3
                                                         that leader names offset 4 for the timestamp of 0:7;
                                                         with `leader-epoch`, as the end of its epoch
    log of b1 below 2: 0:7 1:8                           a replica's records below its high watermark
    checker idempotent-producer                          a checker that the run names in addition
    fault on b1 [10, 40]                                 when it was injected and healed
    recovery limit 20                                    recovery_max_ms; here all times are milliseconds
    healed at 40, ended at 70, stuck after 20            the final phase did not end; times in milliseconds
    state at 30: no leader, ISR 1                        a committed state; the replicas are 1 and 2
"""

from dataclasses import dataclass

from checkers.transaction_anomalies import OF_TRANSACTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The smallest history of an anomaly.

    Attributes:
        smallest: It has the anomaly.
        near_miss: It differs in one detail, and has not.
    """

    smallest: str
    near_miss: str


def _example(smallest: str, near_miss: str) -> Example:
    return Example(smallest=smallest.strip("\n"), near_miss=near_miss.strip("\n"))


EXAMPLES: dict[str, Example] = {
    "lost-acked-write": _example(
        """
0  p0  append -> ok at 0            [1, 2]
1  p1  append -> ok at 1            [3, 4]
2  p2  poll from 0 -> 0:0, end 1    [90, 91] final
""",
        """
0  p0  append -> ok at 0            [1, 2]
1  p1  append -> info               [3, ...]
2  p2  poll from 0 -> 0:0, end 1    [90, 91] final
""",
    ),
    "lost-acked-write-acks1": _example(
        """
0  p0  append -> ok at 0            [1, 2]
1  p1  append acks=1 -> ok at 1     [3, 4]
2  p2  poll from 0 -> 0:0, end 1    [90, 91] final
""",
        """
0  p0  append -> ok at 0            [1, 2]
1  p1  append acks=1 -> ok at 1     [3, 4]
2  p2  poll from 0 -> 0:0 1:1, end 2  [90, 91] final
""",
    ),
    "unseen": _example(
        """
0  p0  append -> ok at 0            [1, 2]
""",
        """
0  p0  append -> ok at 0            [1, 2]
1  p1  poll from 0 -> 0:0, end 1    [90, 91] final
""",
    ),
    "offset-reused": _example(
        """
0  p0  append -> ok at 0    [1, 2]
1  p1  append -> ok at 0    [3, 4]
""",
        """
0  p0  append -> ok at 0    [1, 2]
1  p1  append -> ok at 1    [3, 4]
""",
    ),
    "visible-regress": _example(
        """
0  p0  append -> info               [1, ...]
1  p1  poll from 0 -> 0:0           [2, 3]
2  p2  poll from 0 -> nothing, end 0  [90, 91] final
""",
        """
0  p0  append -> info               [1, ...]
1  p1  poll from 0 -> nothing       [2, 3]
2  p2  poll from 0 -> nothing, end 0  [90, 91] final
""",
    ),
    "lookup-skips-record": _example(
        """
0  p0  append -> ok at 0             [1, 2]
1  p1  poll from 0 -> 0:0            [3, 4]
query of 0:0 read by 1 in epoch 3: timestamp -> none in epoch 3
2  p1  poll from 0 -> 0:0, end 1     [90, 91] final
""",
        """
0  p0  append -> ok at 0             [1, 2]
1  p1  poll from 0 -> 0:0            [3, 4]
query of 0:0 read by 1 in epoch 3: timestamp -> none in epoch 2
2  p1  poll from 0 -> 0:0, end 1     [90, 91] final
""",
    ),
    "epoch-ends-early": _example(
        """
0  p0  append -> ok at 0             [1, 2]
1  p1  poll from 0 -> 0:0            [3, 4]
query of 0:0 read by 1 in epoch 3: leader-epoch -> 0 in epoch 4
2  p1  poll from 0 -> 0:0, end 1     [90, 91] final
""",
        """
0  p0  append -> ok at 0             [1, 2]
1  p1  poll from 0 -> 0:0            [3, 4]
query of 0:0 read by 1 in epoch 3: leader-epoch -> 1 in epoch 4
2  p1  poll from 0 -> 0:0, end 1     [90, 91] final
""",
    ),
    "committed-offset-regressed": _example(
        """
group p8 commit-acknowledged 1
group p9 committed-asked
group p9 committed-seen -1
""",
        """
group p9 committed-asked
group p8 commit-acknowledged 1
group p9 committed-seen -1
""",
    ),
    "two-acks-one-offset": _example(
        """
0  p0  append -> ok at 0    [1, 5]
1  p1  append -> ok at 0    [2, 6]
""",
        """
0  p0  append -> ok at 0    [1, 5]
1  p1  append -> ok at 1    [2, 6]
""",
    ),
    "divergent-value": _example(
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  append -> info          [1, ...]
2  p2  poll from 0 -> 0:1      [6, 7]
""",
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  append -> info          [1, ...]
2  p2  poll from 0 -> 0:0 1:1  [6, 7]
""",
    ),
    "duplicate": _example(
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  poll from 0 -> 0:0 1:0  [6, 7]
""",
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  poll from 0 -> 0:0      [6, 7]
2  p2  poll from 0 -> 0:0      [8, 9]
""",
    ),
    "failed-append-visible": _example(
        """
0  p0  append -> fail       [1, 5]
1  p1  poll from 0 -> 0:0   [6, 7]
""",
        """
0  p0  append -> info       [1, 5]
1  p1  poll from 0 -> 0:0   [6, 7]
""",
    ),
    "phantom-value": _example(
        """
0  p0  poll from 0 -> 0:77  [1, 5]
""",
        """
77  p7  append -> info       [1, ...]
78  p0  poll from 0 -> 0:77  [1, 5]
""",
    ),
    "corrupt-record": _example(
        """
0  p0  poll from 0 -> 0:corrupt  [1, 5]
""",
        """
0  p0  append -> ok at 0         [1, 5]
1  p1  poll from 0 -> 0:0        [6, 7]
""",
    ),
    "misplaced-record": _example(
        """
0  p0  poll from 0 -> 0:foreign  [1, 5]
""",
        """
0  p0  append -> ok at 0         [1, 5]
1  p1  poll from 0 -> 0:0        [6, 7]
""",
    ),
    "impossible-offset": _example(
        """
0  p0  latest -> -3    [1, 5]
""",
        """
0  p0  latest -> 0     [1, 5]
""",
    ),
    "lost-record": _example(
        """
0  p0  append -> ok at 0      [1, 5]
1  p1  append -> ok at 1      [6, 7]
2  p2  poll from 0 -> 1:1     [8, 9]
""",
        """
0  p0  append -> ok at 0      [1, 5]
1  p1  append -> ok at 1      [6, 7]
2  p2  poll from 1 -> 1:1     [8, 9]
""",
    ),
    "skipped-offset": _example(
        """
0  p0  append -> info         [1, ...]
1  p1  append -> ok at 1      [6, 7]
2  p2  poll from 0 -> 1:1     [8, 9]
""",
        """
0  p0  append -> info         [1, ...]
1  p1  append -> ok at 1      [6, 7]
2  p2  poll from 1 -> 1:1     [8, 9]
""",
    ),
    "torn-fetch": _example(
        """
0  p0  append -> ok at 0              [1, 5]
1  p1  append -> ok at 1              [1, 5]
2  p2  poll from 0 -> 0:0 1:1, end 1  [2, 5]
""",
        """
0  p0  append -> ok at 0              [1, 5]
1  p1  append -> ok at 1              [1, 5]
2  p2  poll from 0 -> 0:0 1:1, end 2  [2, 5]
""",
    ),
    "group-skipped-record": _example(
        """
0  p0  append -> ok at 0            [1, 2]
1  p1  poll from 0 -> 0:0, end 1    [90, 91] final
group p8 commit-acknowledged 1
""",
        """
0  p0  append -> ok at 0            [1, 2]
1  p8  poll from 0 -> 0:0           [3, 4]
2  p1  poll from 0 -> 0:0, end 1    [90, 91] final
group p8 commit-acknowledged 1
""",
    ),
    "phantom-commit": _example(
        """
group p9 committed-asked
group p9 committed-seen 1
""",
        """
group p8 commit-sent 1
group p9 committed-asked
group p9 committed-seen 1
""",
    ),
    "double-ownership": _example(
        """
group p8 assigned 0 generation 4
group p9 assigned 0 generation 4
""",
        """
group p8 assigned 0 generation 4
group p9 assigned 0 generation 5
""",
    ),
    "unfilled-hole": _example(
        """
0  p0  append -> ok at 1    [1, 5]
""",
        """
0  p0  append -> ok at 1    [1, 5]
1  p1  append -> info       [1, ...]
""",
    ),
    "hole-before-append": _example(
        """
0  p0  append -> ok at 1     [1, 5]
1  p1  append -> info        [6, ...]
""",
        """
0  p0  append -> ok at 1     [1, 5]
1  p1  append -> info        [5, ...]
""",
    ),
    "unplaced-append": _example(
        """
0  p0  append -> ok          [1, 5]
1  p1  append -> ok at 0     [6, 7]
""",
        """
0  p0  append -> ok          [1, 6]
1  p1  append -> ok at 0     [6, 7]
""",
    ),
    "order-inversion": _example(
        """
0  p0  append -> ok at 1     [1, 5]
1  p1  append -> ok at 0     [6, 7]
""",
        """
0  p0  append -> ok at 1     [1, 6]
1  p1  append -> ok at 0     [6, 7]
""",
    ),
    "future-read": _example(
        """
0  p0  poll from 0 -> 0:1    [1, 5]
1  p1  append -> ok at 0     [6, 7]
""",
        """
0  p0  poll from 0 -> 0:1    [1, 6]
1  p1  append -> ok at 0     [6, 7]
""",
    ),
    "late-insert": _example(
        """
0  p0  append -> info        [1, ...]
1  p1  poll from 1 -> 1:0    [2, 5]
2  p2  append -> ok at 0     [6, 7]
""",
        """
0  p0  append -> info        [1, ...]
1  p1  poll from 1 -> 1:0    [2, 6]
2  p2  append -> ok at 0     [6, 7]
""",
    ),
    "nonmonotonic-send": _example(
        """
0  p7  append -> ok at 1     [1, 5]
1  p7  append -> ok at 0     [6, 9]
""",
        """
0  p7  append -> ok at 1     [1, 5]
1  p8  append -> ok at 0     [6, 9]
""",
    ),
    "reordered-send": _example(
        """
0  p7  append -> ok at 1     [1, 9]
1  p7  append -> ok at 0     [2, 9]
""",
        """
0  p7  append -> ok at 1     [1, 9]
1  p8  append -> ok at 0     [2, 9]
""",
    ),
    "nonmonotonic-poll": _example(
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  append -> ok at 1       [1, 5]
2  p2  poll from 1 -> 0:0 1:1  [6, 7]
""",
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  append -> ok at 1       [1, 5]
2  p2  poll from 0 -> 0:0 1:1  [6, 7]
""",
    ),
    "unordered-poll": _example(
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  append -> ok at 1       [1, 5]
2  p2  poll from 0 -> 1:1 0:0  [6, 7]
""",
        """
0  p0  append -> ok at 0       [1, 5]
1  p1  append -> ok at 1       [1, 5]
2  p2  poll from 0 -> 0:0 1:1  [6, 7]
""",
    ),
    "torn-batch": _example(
        """
0  p7  append -> ok at 0              [1, 9]
1  p7  append with 0 -> info          [1, ...]
2  p7  append -> ok at 1              [10, 19]
3  p0  poll from 0 -> 0:0 1:2, end 2  [90, 91] final
""",
        """
0  p7  append -> ok at 0              [1, 9]
1  p7  append -> info                 [1, ...]
2  p7  append -> ok at 1              [10, 19]
3  p0  poll from 0 -> 0:0 1:2, end 2  [90, 91] final
""",
    ),
    "end-in-batch": _example(
        """
0  p7  append -> ok at 0              [1, 9]
1  p7  append with 0 -> ok at 1       [1, 9]
2  p1  latest -> 1                    [10, 11]
3  p0  poll from 0 -> 0:0 1:1, end 2  [90, 91] final
""",
        """
0  p7  append -> ok at 0              [1, 9]
1  p7  append with 0 -> ok at 1       [1, 9]
2  p1  latest -> 2                    [10, 11]
3  p0  poll from 0 -> 0:0 1:1, end 2  [90, 91] final
""",
    ),
    "unsent-in-batch": _example(
        """
0  p7  append -> ok at 0              [1, 9]
1  p7  append with 0 -> ok at 1       [5, 9]
2  p1  poll from 0 -> 0:0             [2, 3]
3  p0  poll from 0 -> 0:0 1:1, end 2  [90, 91] final
""",
        """
0  p7  append -> ok at 0              [1, 9]
1  p7  append with 0 -> ok at 1       [5, 9]
2  p1  poll from 0 -> 0:0             [2, 5]
3  p0  poll from 0 -> 0:0 1:1, end 2  [90, 91] final
""",
    ),
    "out-of-sequence": _example(
        """
checker idempotent-producer
0  p7  append -> ok at 1     [1, 9]
1  p7  append -> ok at 0     [2, 9]
""",
        """
checker idempotent-producer
0  p7  append -> ok at 0     [1, 9]
1  p7  append -> ok at 1     [2, 9]
""",
    ),
    "producer-gap": _example(
        """
checker idempotent-producer
0  p7  append -> ok at 0              [1, 2]
1  p7  append -> info                 [3, ...]
2  p7  append -> ok at 1              [4, 9]
3  p0  poll from 0 -> 0:0 1:2, end 2  [90, 91] final
""",
        """
checker idempotent-producer
0  p7  append -> ok at 0              [1, 2]
1  p7  append -> info                 [3, ...]
2  p8  append -> ok at 1              [4, 9]
3  p0  poll from 0 -> 0:0 1:2, end 2  [90, 91] final
""",
    ),
    "high-watermark-regression": _example(
        """
0  p0  append -> ok at 0             [1, 5]
1  p1  latest -> 1 from b1 in epoch 3  [2, 6]
2  p2  latest -> 0 from b1 in epoch 3  [7, 8]
""",
        """
0  p0  append -> ok at 0             [1, 5]
1  p1  latest -> 1 from b1 in epoch 3  [2, 6]
2  p2  latest -> 0 from b2 in epoch 4  [7, 8]
""",
    ),
    "divergent-replicas": _example(
        """
log of b1 below 2: 0:0 1:8
log of b2 below 2: 0:0 1:9
""",
        """
log of b1 below 2: 0:0 1:8
log of b2 below 1: 0:0 1:9
""",
    ),
    "unplaced-below-end": _example(
        """
0  p0  append -> ok      [1, 5]
1  p1  latest -> 0       [6, 7]
""",
        """
0  p0  append -> ok      [1, 6]
1  p1  latest -> 0       [6, 7]
""",
    ),
    "stale-end": _example(
        """
0  p0  append -> ok at 0    [1, 5]
1  p1  latest -> 0          [6, 7]
""",
        """
0  p0  append -> ok at 0    [1, 6]
1  p1  latest -> 0          [6, 7]
""",
    ),
    "lost-ack": _example(
        """
0  p0  append -> ok at 0     [1, 5]
1  p1  latest -> 0           [6, 7]
2  p2  append -> ok at 0     [8, 9]
3  p3  poll from 0 -> 0:2    [10, 11] final
""",
        """
0  p0  append -> ok at 0     [1, 5]
1  p1  latest -> 0           [6, 7]
2  p3  poll from 0 -> 0:0    [10, 11] final
""",
    ),
    "end-regression": _example(
        """
0  p0  append -> ok at 0    [1, 9]
1  p1  latest -> 1          [2, 3]
2  p2  latest -> 0          [4, 5]
""",
        """
0  p0  append -> ok at 0    [1, 9]
1  p1  latest -> 1          [2, 3]
2  p2  latest -> 0          [3, 5]
""",
    ),
    "slow-recovery": _example(
        """
recovery limit 20
fault on b1 [10, 40]
0  p0  append -> info       [41, ...]
1  p1  append -> ok at 0    [70, 75]
""",
        """
recovery limit 20
fault on b1 [10, 40]
0  p0  append -> ok at 0    [41, 60]
1  p1  append -> ok at 1    [70, 75]
""",
    ),
    "stuck": _example(
        """
healed at 40, ended at 70, stuck after 20
state at 30: no leader, ISR 1
0  p0  append -> info       [10, ...]
""",
        """
healed at 40, ended at 70, stuck after 20
state at 30: no leader, ISR none
0  p0  append -> info       [10, ...]
""",
    ),
    "invariant-broken": _example(
        """
violation INV-1 two leaders of one epoch
""",
        """
0  p0  latest -> 0    [1, 5]
""",
    ),
}
"""By anomaly."""

PRODUCED_BY: dict[str, tuple[str, ...]] = {
    "lost-acked-write": ("B-00", "B-19"),
    "lost-acked-write-acks1": ("B-14", "B-38"),
    "unseen": ("B-32",),
    "offset-reused": ("B-00", "B-12"),
    "visible-regress": ("B-00", "B-22"),
    "two-acks-one-offset": ("B-00", "B-13"),
    "divergent-value": ("B-00", "B-02"),
    "corrupt-record": ("B-51",),
    "duplicate": ("PID-1",),
    "out-of-sequence": ("PID-1",),
    "torn-fetch": ("B-22",),
    "order-inversion": ("B-00", "B-07"),
    "future-read": ("B-18", "B-22"),
    "late-insert": ("B-00", "B-10"),
    "high-watermark-regression": ("HW-5",),
    "divergent-replicas": ("B-02", "B-05", "B-07", "B-42"),
    "stale-end": ("B-00", "B-27"),
    "lost-ack": ("B-19",),
    "end-regression": ("B-00", "B-33"),
    "invariant-broken": ("B-35", "B-36"),
    "stuck": ("B-32",),
    "committed-offset-regressed": ("B-55", "B-56"),
    "double-ownership": ("B-57",),
    "lookup-skips-record": ("LO-1",),
    "epoch-ends-early": ("EC-8",),
    "session-poll-skip": ("FETCH-9",),
    "int-nonmonotonic-poll": ("FETCH-9",),
    "lost-record": ("B-70",),
    "skipped-offset": ("B-70",),
    "unordered-poll": ("B-71",),
    "nonmonotonic-poll": ("B-71",),
    "nonmonotonic-send": ("B-00",),
    "failed-append-visible": ("B-72",),
    "misplaced-record": ("B-73",),
    "impossible-offset": ("B-74",),
    "unplaced-append": ("B-75",),
    "phantom-commit": ("B-76",),
    "group-skipped-record": ("B-76",),
    "G1a": ("B-64", "B-65"),
    "precommitted-read": ("B-64",),
    "aborted-record-visible": ("B-65",),
    "torn-transaction": ("B-63", "B-66"),
    "int-poll-skip": ("B-59", "B-66"),
    "input-processed-twice": ("B-59",),
    "input-skipped": ("B-62",),
    "zombie-commit": ("B-62",),
}
"""By anomaly: defects of the reference system, or rules to switch off, whose tests show it."""

_NO_GAPS = (
    "the logs of the reference system are read by position and have no gaps, whatever rule is off"
)
_TRANSACTIONAL = (
    "no schedule of a defect shows it, and random search with the workload `transactions` did not either in 60"
    " runs with each defect"
)
_LISTS = "only transactions on lists can show it, and the workloads work on logs"

LAWFUL: dict[str, str] = dict.fromkeys(
    (
        "G0",
        "G0-process",
        "G0-realtime",
        "G1c",
        "G1c-process",
        "G1c-realtime",
        "G-single",
        "G-single-process",
        "G-single-realtime",
        "G2-item-process",
        "G2-item-realtime",
    ),
    "Kafka isolates a transaction from aborted ones, and not from others",
)
"""By anomaly: why runs of the correct system with the workload `transactions` may have it, where it is allowed."""

NOT_PRODUCED: dict[str, str] = {
    **dict.fromkeys(sorted(OF_TRANSACTIONS - PRODUCED_BY.keys() - LAWFUL.keys()), _TRANSACTIONAL),
    **dict.fromkeys(
        (
            "G1b",
            "dirty-update",
            "duplicate-elements",
            "fractured-read",
            "incompatible-order",
            "internal",
            "lost-update",
        ),
        _LISTS,
    ),
    "int-send-skip": (
        "a transaction of the workloads sends to a partition again only if it has sent to all; Kafka allows it"
    ),
    "int-nonmonotonic-send": "a transaction of the workloads sends what it has for a partition in one batch",
    "phantom-value": "no defect invents records",
    "unfilled-hole": _NO_GAPS,
    "hole-before-append": _NO_GAPS,
    "unplaced-below-end": (
        "B-75 acknowledges without an offset, but a run reads all records in the end, and from then on the offset"
        " is known"
    ),
    "reordered-send": (
        "a process has several appends in flight only if one batch has them, and no defect changes the order in a"
        " batch"
    ),
    "torn-batch": "no defect divides a batch",
    "end-in-batch": "no defect divides a batch",
    "unsent-in-batch": "no defect divides a batch",
    "producer-gap": (
        "the built-in clients send a batch when the one before it has ended, and begin a new session if it had no"
        " response; random search did not show it in 25 runs with PID-2 switched off"
    ),
    "slow-recovery": "it needs a limit, and no defect only delays a recovery",
}
"""By anomaly: why no defect of the reference system produces it."""
