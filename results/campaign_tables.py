"""The schemas of the campaign tables: what every night adds to the history of all nights.

The column `night` is in none of the files: it is a partition column, in the name of the directory.
`docs/results.md` is made from this.
"""

from typing import Any

import pyarrow as pa

_I64 = pa.int64()
_F64 = pa.float64()
_STR = pa.string()
_TEXTS = pa.list_(_STR)


def _field(name: str, kind: pa.DataType, doc: str, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable, metadata={"doc": doc})


def _list_of(**columns: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(columns.items())))


RUNS = pa.schema(
    [
        _field("job", _STR, "job of the night"),
        _field("arm", _STR, "arm of the job; empty if it has only one"),
        _field("seed", _I64, "root seed"),
        _field("system", _STR, "system under test"),
        _field("profile", _STR, "feature profile of the system"),
        _field("world", _STR, "environment: simulation, local, docker or ssh"),
        _field("verdict", _STR, "valid, invalid or unknown"),
        _field("reason", _STR, "first reason of the verdict; empty when valid"),
        _field("error", _STR, "why the run did not finish; empty if it did"),
        _field("replayed", _STR, "what a replay showed; empty if there was none"),
        _field("stored", _STR, "path of the stored run; empty if only this row is kept"),
        _field("trace_hash", _STR, "hash of a simulated run; empty in other worlds"),
        _field("unexcused_lost_records", _I64, "lost acks=all records without an excuse"),
        _field(
            "excused_lost_records", _I64, "lost acks=all records that a flagged election excuses"
        ),
        _field("unavailable_ms", _F64, "time without a leader, summed over partitions"),
        _field("elapsed_ms", _F64, "length of the run in its own time"),
        _field("wall_s", _F64, "seconds that the run took on the machine"),
        _field("operations", _I64, "operations of clients"),
        _field("faults", _I64, "faults that were injected"),
        _field("violations", _I64, "broken invariants and crashes of nodes"),
        _field("signatures", _TEXTS, "signatures of its findings"),
        _field(
            "anomalies",
            _list_of(id=_STR, judgement=_STR, count=_I64),
            "anomalies by judgement, with the number of operations or records",
        ),
        _field("marks", _list_of(mark=_STR, count=_I64), "marks and how often each was reached"),
        _field(
            "repeat",
            _I64,
            "number of a repeat of a real run with a finding, which has the same seed; 0 for all others",
            nullable=True,
        ),
    ]
)

_RATE = (
    _field("recurred", _I64, "repeats of real runs that had the finding again", nullable=True),
    _field("judged_repeats", _I64, "repeats that were judged valid or invalid", nullable=True),
    _field(
        "rate_low", _F64, "low end of the 95 % interval of the rate; null without", nullable=True
    ),
    _field("rate_high", _F64, "high end of it", nullable=True),
)
"""The rate at which findings occur again in real worlds. Nights of earlier versions lack these columns."""

FINDINGS = pa.schema(
    [
        _field("signature", _STR, "the same for one bug under different seeds"),
        _field("title", _STR, "what broke, in one line"),
        _field("status", _STR, "new, open or known, as this night reported it"),
        _field("job", _STR, "job of the night"),
        _field("system", _STR, "system under test"),
        _field("profile", _STR, "feature profile of the system"),
        _field("world", _STR, "environment"),
        _field("runs", _I64, "runs of the job that have it"),
        _field("what", _STR, "anomaly, invariant, crash, unexpected-outcome or harness-error"),
        _field("expectation", _STR, "row of the expectation matrix, or statement of the invariant"),
        _field("change", _STR, "committed change at the decisive moment; empty if none"),
        _field("role", _STR, "role of the broker that broke an invariant; empty if none"),
        _field("marks", _TEXTS, "marks in the signature"),
        _field("seeds", pa.list_(_I64), "seeds of the first runs, at most five"),
        _field("stored", _TEXTS, "paths of those that are stored whole"),
        _field("confirmed", _I64, "replays of simulated runs, in all jobs, that were the same run"),
        _field("replayed", _I64, "replays of simulated runs in all jobs"),
        *_RATE,
    ]
)

JOBS = pa.schema(
    [
        _field("job", _STR, "job of the night"),
        _field("experiment", _STR, "name of its experiment"),
        _field("system", _STR, "system under test"),
        _field("profile", _STR, "feature profile of the system"),
        _field("world", _STR, "environment"),
        _field("weight", _F64, "share of the budget, relative to the other jobs"),
        _field("budget_s", _F64, "time that it was given; 0 if runs limited it"),
        _field("runs", _I64, "finished runs"),
        _field("valid", _I64, "runs judged valid"),
        _field("invalid", _I64, "runs judged invalid"),
        _field("unknown", _I64, "runs whose verdict is unknown"),
        _field("errors", _I64, "runs that the harness could not finish"),
        _field("findings", _I64, "different signatures"),
        _field("operations", _I64, "operations of clients in all runs"),
        _field("faults", _I64, "faults in all runs"),
        _field("marks", _I64, "kinds of marks that at least one run reached"),
        _field(
            "unavailable_ms_median",
            _F64,
            "median over the judged runs; null without",
            nullable=True,
        ),
        _field("elapsed_ms", _F64, "length of all judged runs in their own time"),
        _field("wall_s", _F64, "seconds that all runs took on the machine, one after the other"),
        _field("runs_per_min", _F64, "runs per minute of one worker"),
        _field("confirmed", _I64, "replays of simulated runs that were the same run"),
        _field("replayed", _I64, "replays of simulated runs"),
        _field("nondeterministic", _I64, "simulated runs that did not repeat"),
        _field("repeats", _I64, "runs that repeat a real run with a finding", nullable=True),
        *_RATE,
    ]
)

NIGHT_TABLES: dict[str, pa.Schema] = {"runs": RUNS, "findings": FINDINGS, "jobs": JOBS}
"""Every campaign table by name."""
