"""Judging histories that other tools recorded.

A log is judged by the same checkers as a run, with what the file declares. It has no committed metadata, no
replica states and no faults, so nothing excuses a loss. A verdict is unknown if a line could not be interpreted:
both a violation and its absence could rest on that line.
"""

import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from checkers.expectations import Case, Expectations, judge
from checkers.final_reads import at_best_unknown, judge_with_final_reads
from checkers.kernels.evidence import Evidence
from checkers.kernels.levels import BROKEN, UNKNOWN
from harness.contracts.run_context import BATCH_CHECKER, LOG_CHECKERS, RunContext
from harness.contracts.verdict import Anomaly, Validity, Verdict, Witness
from harness.errors import HistoryError
from harness.history.foreign.events import OK
from harness.history.foreign.log_tables import Contradiction, LogHistory
from harness.history.foreign.read import Declaration, ForeignHistory, Workload
from harness.runs.foreign_models import ModelOptions, judge_model
from harness.runs.foreign_transactions import judge_list_append
from harness.runs.foreign_verdict import ForeignVerdict, Named
from harness.runs.judge import verdict_summary

OPERATIONS_NAMED_MAX = 30
"""Operations that an output lists with their lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """What a user states about a history beyond the file.

    Attributes:
        model: For objects that a model judges.
        promise: The isolation level that transactions were promised; empty for the default.
    """

    model: ModelOptions = field(default_factory=ModelOptions)
    promise: str = ""


def judge_foreign(history: ForeignHistory, options: JudgeOptions | None = None) -> ForeignVerdict:
    """Judges a history.

    Raises:
        UsageError: The history cannot be judged as the options say, or shows no model.
        HistoryError: An operation cannot be judged by the model; the sentence names its line.
    """
    options = options or JudgeOptions()
    if history.log is not None:
        if history.declaration.compacted:
            _refuse_records_without_key(history.path, history.log)
        verdict = _in_words_of_file(_judge_log(history.log, history.declaration), history.log)
        named = _named(verdict, history.log)
        judged = ForeignVerdict(verdict=verdict, model=str(Workload.LOG), named=named)
    elif history.workload == Workload.LIST_APPEND:
        verdict, named = judge_list_append(history, options.promise)
        judged = ForeignVerdict(verdict=verdict, model=str(Workload.LIST_APPEND), named=named)
    else:
        judged = judge_model(history, options.model)
        verdict = _unless_vacuous(judged.verdict, history)
    return replace(judged, verdict=_capped(verdict, history))


def foreign_summary(history: ForeignHistory, judged: ForeignVerdict) -> dict[str, Any]:
    """Returns what `--json` prints."""
    return {
        "file": str(history.path),
        "format": str(history.format),
        "model": judged.model,
        **verdict_summary(judged.verdict),
        "operations": history.operation_count,
        "not_interpreted": history.problems.count,
        "events_of_no_client": {
            f"{process} {function}".rstrip(): count
            for (process, function), count in sorted(history.not_clients.items())
        },
        "operations_without_facts": dict(sorted(history.silent.items())),
        "named_operations": [
            {"operation": number, "line": line, "text": text} for number, line, text in judged.named
        ],
        "longest_order": [
            {"operation": number, "line": line, "text": text, "state": state}
            for number, line, text, state in judged.order
        ],
    }


def _refuse_records_without_key(path: Path, log: LogHistory) -> None:
    operations = log.tables["operations"]
    without = operations.filter((pc.field("kind") == "append") & (pc.field("key") == ""))
    if without.num_rows:
        number = without.column("op_index")[0].as_py()
        raise HistoryError(
            f"{path}, line {log.lines[number]}: an append has no key, but the topic is declared as compacted;"
            " state the keys of all appends, or do not declare it as compacted (`--no-compacted`)"
        )


def _unless_vacuous(verdict: Verdict, history: ForeignHistory) -> Verdict:
    """Returns the verdict, unknown instead of valid if nothing was tested."""
    if verdict.validity != Validity.VALID or any(one.outcome == OK for one in history.operations):
        return verdict
    return replace(
        verdict, validity=Validity.UNKNOWN, reasons=("no operation was ok, so nothing was tested",)
    )


def _judge_log(log: LogHistory, declared: Declaration) -> Verdict:
    batch = log.tables["operations"].column("batch")
    context = RunContext(
        checkers=(*LOG_CHECKERS, BATCH_CHECKER) if len(batch) > batch.null_count else LOG_CHECKERS,
        enabled_faults=(),
        acked_during_faults_min=0,
        final_phase_complete=declared.final_reads_complete,
        clock_error_ns=declared.clock_error_ns,
        log_start_offset=declared.log_start_offset,
        sparse_offsets=declared.sparse,
        at_least_once=declared.at_least_once,
        compacted=declared.compacted,
        log_ends_recorded=log.tables["end_offsets_seen"].num_rows > 0,
    )
    verdict = judge_with_final_reads(log.tables, context)
    verdict = _with_contradictions(verdict, log)
    if context.log_ends_recorded and not context.log_start_offset:
        # The kernel has judged appends without an offset: final reads up to a log end would contain them.
        return verdict
    unread = _acked_and_unread(log.tables)
    if not unread:
        return verdict
    which, they = ("1 append was", "it") if unread == 1 else (f"{unread} appends were", "they")
    place = "below the log start, or lost" if context.log_start_offset else "lost"
    reason = f"{which} acknowledged without an offset and never read; {they} may be {place}"
    return at_best_unknown(verdict, [reason])


_SENTENCES = {
    "future-read": (
        "op {first} polled the record at offset {offset}, and the same operation sent it only afterwards, as op"
        " {second}"
    ),
    "nonmonotonic-send": (
        "op {first} is at offset {offset}; the same transaction then sent op {second}, which is at"
        " offset {other}"
    ),
}


def _with_contradictions(verdict: Verdict, log: LogHistory) -> Verdict:
    """Returns the verdict with what the order inside of operations shows to be wrong."""
    evidence = Evidence(log.tables["operations"])
    found: dict[tuple[str, str], list[Contradiction]] = {}
    for one in log.contradictions:
        found.setdefault((one.id, one.topic), []).append(one)
    added = tuple(_contradicted(evidence, ones) for ones in found.values())
    if not added:
        return verdict
    return replace(
        verdict,
        validity=Validity.INVALID,
        reasons=(
            *(f"{one.id} in {one.topic}-0 ({one.count}): {one.sentence}" for one in added),
            *verdict.reasons,
        ),
        anomalies=(*added, *verdict.anomalies),
        levels=verdict.levels | {one.level: BROKEN for one in added},
    )


def _contradicted(evidence: Evidence, ones: list[Contradiction]) -> Anomaly:
    first = min(ones, key=lambda one: (one.first, one.second))
    case = Case(id=first.id, is_weak=False, is_excused=False, expectations=Expectations())
    row = judge(case)
    return Anomaly(
        id=first.id,
        level=case.level,
        topic=first.topic,
        partition=0,
        count=len(ones),
        judgement=row.judgement,
        rule=row.rule,
        sentence=_SENTENCES[first.id].format(**asdict(first)),
        witnesses=tuple(
            Witness(op_index=op, text=evidence.describe(op)) for op in (first.first, first.second)
        ),
    )


def _acked_and_unread(tables: dict[str, pa.Table]) -> int:
    """Returns how many appends that must not be lost have no offset and were returned by no poll."""
    acked = tables["operations"].filter(
        (pc.field("kind") == "append")
        & (pc.field("outcome") == "ok")
        & (pc.field("acks") == -1)
        & pc.field("offset").is_null()
    )
    read = pc.is_in(acked.column("op_index"), value_set=tables["records_read"].column("value"))
    was_read: int = pc.sum(read).as_py() or 0  # null for no row
    return int(acked.num_rows) - was_read


def _capped(verdict: Verdict, history: ForeignHistory) -> Verdict:
    """Returns the verdict, unknown if something could not be interpreted."""
    problems = history.problems
    if not problems.count:
        return verdict
    rest = problems.count - len(problems.sentences)
    more = (f"{rest} more could not be interpreted",) if rest else ()
    return replace(
        verdict,
        validity=Validity.UNKNOWN,
        reasons=(
            f"not everything in the history could be interpreted ({problems.count}), and the verdict may depend"
            " on it",
            *problems.sentences,
            *more,
            *verdict.reasons,
        ),
        # What breaks a level may rest on it, too.
        levels=dict.fromkeys(verdict.levels, UNKNOWN),
    )


def _in_words_of_file(verdict: Verdict, log: LogHistory) -> Verdict:
    """Returns the verdict without the numbers that stand for the values of the file."""

    def value(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"the value {log.phantoms[number]} " if number in log.phantoms else found[0]

    def reworded(text: str) -> str:
        return re.sub(r"\bthe value (\d+) ", value, text)

    def anomaly(one: Anomaly) -> Anomaly:
        witnesses = tuple(
            replace(witness, text=re.sub(r"\bappend v=\d+ ", "append ", witness.text))
            for witness in one.witnesses
        )
        is_phantom = one.id == "phantom-value"
        sentence = reworded(one.sentence) if is_phantom else one.sentence
        return replace(one, sentence=sentence, witnesses=witnesses)

    reasons = tuple(
        reworded(reason) if reason.startswith("phantom-value ") else reason
        for reason in verdict.reasons
    )
    return replace(verdict, reasons=reasons, anomalies=tuple(map(anomaly, verdict.anomalies)))


def _named(verdict: Verdict, log: LogHistory) -> Named:
    """Returns the operations and values that the verdict's sentences name by number."""
    named: dict[int, tuple[int, int | None, str]] = {}
    for anomaly in verdict.anomalies:
        for witness in anomaly.witnesses:
            number = witness.op_index
            if 0 <= number < len(log.lines):
                named[number] = number, int(log.lines[number]), witness.text
        if anomaly.id == "phantom-value":
            for number, value in log.phantoms.items():
                named[number] = number, None, f"the value {value}, which was never appended"
                if len(named) >= OPERATIONS_NAMED_MAX:
                    break
    return tuple(named[number] for number in sorted(named))[:OPERATIONS_NAMED_MAX]
