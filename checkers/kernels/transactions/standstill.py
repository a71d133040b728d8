"""Whether transactions made progress again after everything was healed.

In the final phase producers take over every transactional id, which ends what was open; then one transaction
commits, and consumers with `read_committed` read every partition to its end. If none of this made a step for
`stuck_after_ms` until the run ended, although clients tried all the time, the transactions are `stuck`. A
coordinator that does not end a transaction keeps the last stable offset where it is, and nobody can read on.

If a partition was without a leader or below min ISR in that time, that may be why, and only the partition can be
stuck (`checkers/kernels/progress.py`). Nothing is claimed either if a producer was refused for what it asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES
from checkers.expectations import Case, judge
from checkers.kernels.evidence import duration, seconds
from checkers.kernels.judging import expectations_of
from checkers.kernels.metadata_gaps import effective_min_isr
from checkers.kernels.progress import GAPS, MS, PROGRESS, REFUSALS, STUCK, may_be_stuck, patience_ns
from checkers.kernels.transactions.events import Recorded
from harness.contracts.checker import CheckerFinding
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Witness
from harness.history.op import TransactionEvent

Row = Mapping[str, Any]


def standstill(
    tables: Mapping[str, pa.Table], recorded: Sequence[Recorded], context: RunContext
) -> CheckerFinding | None:
    """Returns the finding `stuck`; None if there was progress, or if that cannot be known.

    Args:
        tables: `transaction_events`, `partition_states` and `violations`.
        recorded: The transactions of the run.
        context: What the run declares about itself.
    """
    if not may_be_stuck(context) or tables["violations"].num_rows:
        return None
    assert context.ended_ns is not None
    begin_ns = context.ended_ns - patience_ns(context)
    states = tables["partition_states"].to_pylist()
    if not _are_served(states, begin_ns):
        return None
    events = [
        row
        for row in tables["transaction_events"].to_pylist()
        if row["at_ns"] > begin_ns and row["transaction"] < 0
    ]
    if any(row["event"] == TransactionEvent.INITIALISED for row in events):
        return None
    refused = [row for row in events if row["event"] == TransactionEvent.NOT_INITIALISED]
    if any(row["error_code"] in REFUSALS for row in refused):
        return None
    late = [
        one
        for one in recorded
        if one.begin["final"] and (one.end is None or one.end["at_ns"] > begin_ns)
    ]
    if any(one.polls or (one.sends and one.outcome == "committed") for one in late):
        return None
    attempts = [*refused, *(one.begin for one in late)]
    # A poll that reaches the end of a partition returns no record either, once for each partition.
    partitions = len({(row["topic"], row["partition"]) for row in states})
    if len(attempts) <= partitions or not _went_on(attempts, begin_ns, context.ended_ns):
        return None
    what = (
        f"no producer could take over {refused[0]['transactional_id']}"
        if len(refused) > len(late)
        else "the closing reads received no record"
    )
    return _finding(what, sorted(attempts, key=lambda row: row["at_ns"]), begin_ns, context)


def stuck_partitions(
    tables: Mapping[str, pa.Table], context: RunContext
) -> tuple[CheckerFinding, ...]:
    """Returns how partitions are stuck.

    Args:
        tables: Those of `PROGRESS.tables`, of the whole run.
        context: What the run declares about itself.
    """
    if not may_be_stuck(context):
        return ()
    states = tables["partition_states"]
    places = states.group_by(["topic", "partition"]).aggregate([]).to_pylist()
    found: list[CheckerFinding] = []
    for place in sorted(places, key=lambda row: (row["topic"], row["partition"])):
        here = (pc.field("topic") == place["topic"]) & (pc.field("partition") == place["partition"])
        of_partition = {
            name: table.filter(here) if "topic" in table.column_names else table
            for name, table in ((name, tables[name]) for name in PROGRESS.tables)
        }
        found += (
            replace(one, sentence=f"{place['topic']}-{place['partition']}: {one.sentence}")
            for one in PROGRESS.check(of_partition, context).findings
        )
    return tuple(found)


def _are_served(states: Sequence[Row], begin_ns: int) -> bool:
    """Returns whether every partition had a leader and an ISR of min ISR members since then."""
    last: dict[tuple[str, int], Row] = {}
    lasting: list[Row] = []
    for row in sorted(states, key=lambda row: int(row["metadata_offset"])):
        if row["at_ns"] <= begin_ns:
            last[(row["topic"], row["partition"])] = row
        else:
            lasting.append(row)
    return all(
        row["leader"] >= 0 and len(row["isr"]) >= effective_min_isr(row)
        for row in (*last.values(), *lasting)
    )


def _went_on(attempts: Sequence[Row], begin_ns: int, ended_ns: int) -> bool:
    """Returns whether clients tried without a longer pause until the end."""
    times = [
        begin_ns,
        *sorted(row["at_ns"] for row in attempts if row["at_ns"] > begin_ns),
        ended_ns,
    ]
    pause_ns = max(after - before for before, after in pairwise(times))
    return bool(pause_ns <= (ended_ns - begin_ns) // GAPS)


def _finding(
    what: str, attempts: Sequence[Row], begin_ns: int, context: RunContext
) -> CheckerFinding:
    row = judge(
        Case(id=STUCK, is_weak=False, is_excused=False, expectations=expectations_of(context))
    )
    return CheckerFinding(
        id=STUCK,
        level=ANOMALIES[STUCK].level,
        count=1,
        judgement=row.judgement,
        rule=row.rule,
        sentence=(
            f"from {seconds(begin_ns)} until the run ended at {seconds(context.ended_ns)} {what}, although clients"
            f" tried {len(attempts)} times, and every partition had a leader and enough replicas in the ISR;"
            f" everything was healed at {seconds(context.healed_ns)}, and transactions have to make progress"
            f" within {duration(context.stuck_after_ms * MS)}"
        ),
        witnesses=tuple(
            Witness(op_index=int(one["event_index"]), text=_words(one))
            for one in (attempts[0], attempts[-1])
        ),
        details={"form": "transactions", "at_ns": begin_ns},
    )


def _words(row: Row) -> str:
    if row["event"] == TransactionEvent.NOT_INITIALISED:
        why = row["error"] or row["error_code"]
        return (
            f"process {row['process']} could not take over {row['transactional_id']} ({why})"
            f" [{seconds(row['at_ns'])}]"
        )
    return (
        f"process {row['process']} T{row['transaction']} without a record [{seconds(row['at_ns'])}]"
    )
