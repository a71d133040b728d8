"""Findings of a run, each with a signature that is the same for one bug under other seeds.

A finding is a broken promise: a forbidden anomaly, a broken invariant, the crash of a node, or an error of the
harness. Its signature is a hash of what does not depend on the seed:

- the system: a bug of one system must not hide another system's;
- what broke: the anomaly, or the invariant and its statement;
- the expectation that was applied (the row of the matrix, by its name);
- for an anomaly, the committed change at its decisive moment, for example "leader elected from the ELR", or how a
  partition is stuck, for example "no leader";
- for an invariant, the most important role of the brokers that broke it, from committed metadata;
- names of marks that report a truncation at these brokers, if the system records marks. They only group findings;
  no verdict reads them.

The decisive moment of a loss is the election that lost the records; that of a violation is when it was noticed;
that of any other anomaly is the last election between the operations that contradict each other. Earlier changes
are listed for the reader and are not hashed: under random faults nearly every seed has its own.

One lost tail breaks many promises at once: the records are gone, their offsets are reused, and every order that
clients saw is contradicted. In one partition all anomalies that an election can cause, and that an election
separates from what they contradict, are therefore one finding.

Measured on ten defects of the reference system under random faults, up to twenty failing seeds each: a defect has
3.9 signatures on average, and 82 % of the findings are of the defect that has most of their signature. Most of the
others are two defects that switch off the same rule (B-18 and B-21); counted as one they give 89 %. With the last
three changes in the hash a defect had thirteen signatures, and that share was 87 % instead of 82 %. Without roles,
changes and marks it was 69 %.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers.anomalies import ANOMALIES
from checkers.expectations import MATRIX, Case, Expectations, judge
from harness.campaigns.committed import OTHER, ROLES, PartitionHistory, histories
from harness.contracts.verdict import Anomaly, Judgement, Verdict
from harness.history.schema import TABLES
from harness.runs.experiment import Experiment

HARNESS_ERROR = "harness-error"
CRASH = "crash"
UNEXPECTED_OUTCOME = "unexpected-outcome"
INVARIANT_BROKEN = "invariant-broken"

CHANGES_LISTED = 4
"""Committed changes before the decisive moment that a finding lists."""

MARKS_WITHIN_NS = 500_000_000
"""How long before the decisive moment a truncation counts: about an election with fast timings."""

TRUNCATION = "truncat"

FINDINGS_MAX = 20
"""Findings of one run. A run that is broken in more ways shows nothing new with the rest of them."""

_LEADING = ("lost-acked-write", "committed-offset-regressed", "visible-regress")
"""Of the anomalies of one finding, these name it, the first that is there."""

_EXPECTATION_OF = {row.rule: row.name for row in MATRIX}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise of a run.

    Attributes:
        signature: Short hash, the same for one bug under different seeds.
        title: One line for a table.
        parts: JSON-compatible. What is hashed: `system`, `what`, `expectation`, `change`, `role`, `marks`. What
            is not: `also` (further anomalies of this finding), `before` (committed changes up to the decisive
            moment), `sentence` and `at_ns` (the decisive moment, in nanoseconds since run start), both of this
            run.
    """

    signature: str
    title: str
    parts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Returns JSON-compatible data."""
        return {"signature": self.signature, "title": self.title, "parts": dict(self.parts)}


def findings_of(
    experiment: Experiment,
    tables: Mapping[str, pa.Table],
    verdict: Verdict,
    *,
    outcome: str = "",
    predicted: str = "",
) -> list[Finding]:
    """Returns the findings of a judged run, one per signature, the most severe first.

    Args:
        experiment: What was run; only its system counts.
        tables: The tables of the run (`harness.history.schema.TABLES`); a missing one counts as empty.
        verdict: Its verdict. Only forbidden anomalies are findings.
        outcome: How a scripted scenario ended; empty without one.
        predicted: How it should end. That loss is no finding; another outcome is one in any case.
    """
    is_as_predicted = bool(predicted) and outcome == predicted
    surprise = []
    if predicted and not is_as_predicted:
        surprise = [_unexpected_outcome(experiment, outcome, predicted)]
    if not any(anomaly.judgement is Judgement.FORBIDDEN for anomaly in verdict.anomalies):
        return surprise
    full = {name: tables.get(name, schema.empty_table()) for name, schema in TABLES.items()}
    run = _Run(experiment.system, full)
    anomalies = () if is_as_predicted else verdict.anomalies
    found = [*_of_anomalies(run, anomalies), *_of_violations(run)] or surprise
    unique = {finding.signature: finding for finding in reversed(found)}
    first = [unique.pop(finding.signature) for finding in found if finding.signature in unique]
    return first[:FINDINGS_MAX]


def finding_of_error(error: str) -> Finding:
    """Returns the finding of a run that the harness could not finish."""
    return _finding(what=HARNESS_ERROR, expectation=_without_numbers(error), sentence=error)


def _unexpected_outcome(experiment: Experiment, outcome: str, predicted: str) -> Finding:
    expectation = f"{experiment.scenario} ends with {predicted!r}, not with {outcome!r}"
    return _finding(
        system=experiment.system,
        what=UNEXPECTED_OUTCOME,
        expectation=expectation,
        sentence=f"The scenario {expectation} (profile {experiment.profile}).",
    )


class _Run:
    """What findings need of a run's tables."""

    def __init__(self, system: str, tables: Mapping[str, pa.Table]) -> None:
        self.system = system
        self.tables = tables
        self.partitions = histories(tables["partition_states"])
        replicas = tables["replica_states"].select(["node", "broker"])
        pairs = replicas.group_by(["node", "broker"]).aggregate([]).to_pylist()
        self._broker_of = {row["node"]: row["broker"] for row in pairs}

    def broker(self, node: str) -> int:
        """Returns the id of a broker by its name, -1 if there is none."""
        number = re.search(r"\d+$", node)
        return int(self._broker_of.get(node, number.group() if number else -1))

    def operations(self, anomaly: Anomaly) -> list[dict[str, Any]]:
        """Returns the operations that show an anomaly, in order of time."""
        table = self.tables["operations"]
        wanted = pa.array([witness.op_index for witness in anomaly.witnesses], pa.int64())
        rows: list[dict[str, Any]] = table.filter(
            pc.is_in(table.column("op_index"), value_set=wanted)
        ).to_pylist()
        return sorted(rows, key=lambda row: (row["invoked_ns"], row["op_index"]))

    def truncations(self, brokers: Collection[int], at_ns: int) -> tuple[str, ...]:
        """Returns the first name of marks that report a truncation at brokers right before a moment, if any."""
        table = self.tables["marks"]
        times = table.column("at_ns")
        inside = pc.and_(pc.greater(times, at_ns - MARKS_WITHIN_NS), pc.less_equal(times, at_ns))
        rows = table.filter(inside).select(["node", "mark"]).to_pylist()
        names = {row["mark"] for row in rows if self.broker(row["node"]) in brokers}
        # One name is enough: what else is reported of the same truncation depends on the seed.
        return tuple(sorted(name for name in names if TRUNCATION in name)[:1])


@dataclass(frozen=True, slots=True)
class _Shown:
    """An anomaly with the operations that show it, and its decisive moment."""

    anomaly: Anomaly
    operations: Sequence[Mapping[str, Any]]
    at_ns: int
    by_election: bool

    @property
    def begin_ns(self) -> int:
        return int(self.operations[0]["invoked_ns"]) if self.operations else self.at_ns

    @property
    def end_ns(self) -> int:
        ends = [_end_ns(operation) for operation in self.operations]
        return max(ends, default=self.at_ns)

    @property
    def rank(self) -> int:
        """Place among the anomalies that may name a finding."""
        known = self.anomaly.id in _LEADING
        return _LEADING.index(self.anomaly.id) if known else len(_LEADING)


def _of_anomalies(run: _Run, anomalies: Sequence[Anomaly]) -> Iterator[Finding]:
    shown = [
        _shown(run, anomaly)
        for anomaly in anomalies
        if anomaly.judgement is Judgement.FORBIDDEN and anomaly.id != INVARIANT_BROKEN
    ]
    shown.sort(key=lambda one: one.rank)  # stable: otherwise the order of the verdict, by severity
    while shown:
        lead, *others = shown
        also = [one for one in others if _is_part(one, lead)]
        shown = [one for one in others if one not in also]
        yield _of_anomaly(run, lead, sorted({one.anomaly.id for one in also}))


def _shown(run: _Run, anomaly: Anomaly) -> _Shown:
    operations = run.operations(anomaly)
    election = anomaly.details.get("election")
    if isinstance(election, Mapping) and isinstance(election.get("at_ns"), int):
        return _Shown(anomaly, operations, election["at_ns"], by_election=True)
    partition = run.partitions.get((anomaly.topic, anomaly.partition))
    if not operations:
        at_ns = anomaly.details.get("at_ns", 0)
        return _Shown(anomaly, operations, at_ns if type(at_ns) is int else 0, by_election=False)
    end_ns = max(_end_ns(operation) for operation in operations)
    at_ns = partition.election_between(operations[0]["invoked_ns"], end_ns) if partition else None
    if at_ns is None:
        return _Shown(anomaly, operations, end_ns, by_election=False)
    return _Shown(anomaly, operations, at_ns, by_election=_an_election_can_cause(anomaly.id))


def _is_part(one: _Shown, lead: _Shown) -> bool:
    """Whether an anomaly is a consequence of elections that lost records, as the leading one is."""
    a, b = one.anomaly, lead.anomaly
    return (a.topic, a.partition) == (b.topic, b.partition) and (
        lead.by_election and one.by_election and _an_election_can_cause(a.id)
    )


def _an_election_can_cause(anomaly_id: str) -> bool:
    if anomaly_id not in ANOMALIES:
        return False  # of a third-party checker
    flagged = Case(id=anomaly_id, is_weak=False, is_excused=True, expectations=Expectations())
    return judge(flagged).judgement is Judgement.EXCUSED


def _of_anomaly(run: _Run, shown: _Shown, also: Sequence[str]) -> Finding:
    anomaly, at_ns = shown.anomaly, shown.at_ns
    partition = run.partitions.get((anomaly.topic, anomaly.partition))
    change = partition.election_word(at_ns) if partition and shown.by_election else ""
    leaders = [partition.leader(at_ns)] if partition and shown.by_election else []
    return _finding(
        system=run.system,
        what=anomaly.id,
        expectation=_EXPECTATION_OF.get(anomaly.rule, anomaly.rule),
        change=change or str(anomaly.details.get("form", "")),
        marks=run.truncations(leaders, at_ns),
        also=also,
        at_ns=at_ns,
        before=partition.last_words(at_ns, CHANGES_LISTED) if partition else (),
        sentence=anomaly.sentence,
    )


def _of_violations(run: _Run) -> Iterator[Finding]:
    rows = run.tables["violations"].to_pylist()
    for row in sorted(rows, key=lambda row: (row["at_ns"], row["node"], row["sentence"])):
        name, sentence, at_ns = row["invariant"], row["sentence"], row["at_ns"]
        partition = _changed_last(run, at_ns)
        brokers = [run.broker(row["node"])] if row["node"] else _brokers_in(sentence)
        # A violation is noticed after the change that caused it, so that change counts.
        roles = [partition.role(broker, at_ns + 1) for broker in brokers] if partition else []
        role = min(roles, key=ROLES.index, default="")
        yield _finding(
            system=run.system,
            what=name or CRASH,
            expectation=_statement(sentence, name) if name else _without_numbers(sentence),
            role="" if role == OTHER else role,
            marks=run.truncations(brokers, at_ns) if name else (),
            at_ns=at_ns,
            before=partition.last_words(at_ns, CHANGES_LISTED) if partition else (),
            sentence=sentence,
        )


def _changed_last(run: _Run, at_ns: int) -> PartitionHistory | None:
    """Returns the partition whose change came last before a moment: violations name no partition."""
    return max(run.partitions.values(), key=lambda one: one.last_change(at_ns), default=None)


def _finding(
    *,
    system: str = "",
    what: str,
    expectation: str,
    at_ns: int = 0,
    change: str = "",
    role: str = "",
    marks: Sequence[str] = (),
    also: Sequence[str] = (),
    before: Sequence[str] = (),
    sentence: str,
) -> Finding:
    hashed = {
        "system": system,
        "what": what,
        "expectation": expectation,
        "change": change,
        "role": role,
        "marks": list(marks),
    }
    text = json.dumps(hashed, sort_keys=True, ensure_ascii=True)
    return Finding(
        signature=hashlib.blake2b(text.encode(), digest_size=6).hexdigest(),
        title=_title(what, expectation, [change, role, *marks]),
        parts={
            **hashed,
            "also": list(also),
            "before": list(before),
            "sentence": sentence,
            "at_ns": at_ns,
        },
    )


def _title(what: str, expectation: str, details: Sequence[str]) -> str:
    shown = ", ".join(detail for detail in details if detail)
    return f"{what}: {expectation}" + (f" ({shown})" if shown else "")


def _end_ns(operation: Mapping[str, Any]) -> int:
    completed_ns = operation["completed_ns"]
    return int(operation["invoked_ns"] if completed_ns is None else completed_ns)


def _statement(sentence: str, invariant: str) -> str:
    """Returns what must hold, without the values that broke it."""
    _, _, statement = sentence.partition(f"{invariant}: ")
    return _without_numbers((statement or sentence).partition(" (")[0])


def _brokers_in(sentence: str) -> list[int]:
    """Returns the brokers that the values of a broken invariant name."""
    found = re.search(r"\bbrokers?=\(?([\d, ]+)", sentence)
    return [int(number) for number in re.findall(r"\d+", found.group(1))] if found else []


def _without_numbers(text: str) -> str:
    """Returns a sentence without what differs between runs: node names, paths, addresses and numbers."""
    text = re.sub(r"(/[\w.+:@=-]+)+/?", "PATH", text)
    text = re.sub(r"\b0x[0-9a-fA-F]+\b|\b[bch]\d+\b", "X", text)
    return re.sub(r"\d+(\.\d+)?", "N", text)
