"""Random histories of a correct compacted log, and what damages one record of it.

`python -m tests.property.compacted_histories --count 3000 --first 1` judges each history and one damage of it,
and prints every wrong verdict.
"""

import argparse
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from checkers.final_reads import judge_with_final_reads
from harness.contracts.run_context import (
    BATCH_CHECKER,
    LOG_CHECKERS,
    QUERY_CHECKER,
    SESSION_CHECKER,
    RunContext,
)
from harness.contracts.verdict import Validity, Verdict
from tests.anomalies.runs import offset_query, run
from tests.anomalies.test_compacted_logs import keyed
from tests.property.brute_force import Call

LAST_KEY = "z"
"""Of the last record, behind which nothing is read."""
OUTCOMES = ("offset", "offset", "offset", "no offset", "in the log", "late", "nowhere", "fail")
"""What becomes of a batch, and what its producer hears: its offset, success, nothing, or that it failed."""
DAMAGES = ("dropped", "dropped everywhere", "another value")


@dataclass(slots=True)
class CompactedHistory:
    """What clients saw of one correct log that a cleaner works on. Mutable while it is made.

    Attributes:
        random: Decides everything.
        calls: The operations.
        keys: The key of each append, by its op index.
        queries: Rows of `offset_queries`.
        log: Offset and value of every record that is there.
        placed: Offset and value of every record that was ever there.
        ends: Where the log ended, behind each batch.
    """

    random: Random
    calls: list[Call] = field(default_factory=list)
    keys: dict[int, str] = field(default_factory=dict)
    queries: list[dict[str, Any]] = field(default_factory=list)
    log: list[tuple[int, int]] = field(default_factory=list)
    placed: list[tuple[int, int]] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])
    late: list[list[int]] = field(default_factory=list)
    sessions: list[int] = field(default_factory=lambda: [10, 20])
    now: int = 10
    end: int = 0
    is_idempotent: bool = False
    is_sent_twice: bool = False

    @staticmethod
    def of(number: int) -> "CompactedHistory":
        """Returns the history with a number."""
        history = CompactedHistory(random=Random(number))
        kind = history.random.choice(("plain", "plain", "idempotent", "sent twice"))
        history.is_idempotent = kind == "idempotent"
        history.is_sent_twice = kind == "sent twice"
        steps = (history._append, history._append, history._poll, history._latest, history._clean)
        for _ in range(history.random.randint(5, 20)):
            history.now += history.random.randint(2, 8)
            history.random.choice(steps)()
            if history.late and history.random.random() < 0.2:
                history._land(history.late.pop())
        history._end()
        return history

    @property
    def context(self) -> RunContext:
        """What the run declares."""
        checkers = [*LOG_CHECKERS, QUERY_CHECKER]
        # A copy of one record of a batch is not a part of another one, but nothing shows that.
        checkers += [] if self.is_sent_twice else [BATCH_CHECKER]
        checkers += [SESSION_CHECKER] if self.is_idempotent else []
        return RunContext(
            compacted=True,
            at_least_once=self.is_sent_twice,
            checkers=tuple(checkers),
            enabled_faults=(),
            acked_during_faults_min=0,
        )

    def _add(self, kind: str, process: int, **more: Any) -> None:
        res = self.now + self.random.randint(1, 4)
        self.calls.append(
            Call(op=len(self.calls), kind=kind, process=process, inv=self.now, res=res, **more)
        )

    def _land(self, values: list[int]) -> None:
        for value in values:
            self.log.append((self.end, value))
            self.placed.append((self.end, value))
            self.end += 1
        self.ends.append(self.end)

    def _append(self) -> None:
        outcome = self.random.choice(OUTCOMES)
        if outcome == "late" and self.is_idempotent:
            outcome = "in the log"  # a session has one request in flight
        number = self.random.randrange(len(self.sessions))
        is_lost = outcome in ("in the log", "late", "nowhere")
        process = self.sessions[number]
        if is_lost:
            # A client that does not know what became of a record goes on as another process.
            self.sessions[number] += 1
        first = len(self.calls)
        values = list(range(first, first + self.random.choice((1, 1, 2, 3))))
        acks = -1 if self.is_idempotent else self.random.choice((-1, -1, 1, 0))
        if outcome in ("offset", "no offset", "in the log"):
            if self.is_sent_twice and self.random.random() < 0.3:
                self._land(values)  # the first attempt, whose response was lost
            base = self.end
            self._land(values)
            if self.is_sent_twice and self.random.random() < 0.2:
                self.late.append(values)
        if outcome == "late":
            self.late.append(values)
        is_known = outcome == "offset" and acks != 0
        for index, value in enumerate(values):
            self.keys[value] = self.random.choice("abc")
            self._add("append", process, acks=acks, batch=None if index == 0 else first)
            call = replace(self.calls[-1], res=self.calls[first].res)
            if is_known:
                call = replace(call, offset=base + index)
            if is_lost:
                res = self.random.choice((None, call.res)) if index == 0 else self.calls[first].res
                call = replace(call, outcome="info", res=res)
            if outcome == "fail":
                call = replace(call, outcome="fail")
            self.calls[-1] = call
        self.now += 4

    def _poll(self) -> None:
        reach = self.random.randint(0, len(self.log))
        visible = self.log[:reach]
        position = self.random.choice([0, *(offset for offset, _ in visible)])
        found = [row for row in visible if row[0] >= position][: self.random.choice((1, 3, 99))]
        is_known = self.random.random() < 0.8
        self._add("poll", 50, position=position if is_known else -1, records=tuple(found))
        self.now += 4
        if found and self.random.random() < 0.5:
            self._ask(self.calls[-1])

    def _ask(self, poll: Call) -> None:
        """A leader is asked about a record that was read. It has it, or the first one behind it that is left."""
        offset, value = self.random.choice(poll.records)
        self._clean()
        left = next(one for one, _ in self.log if one >= offset)
        self.queries.append(
            offset_query(
                "timestamp",
                query_index=len(self.queries),
                op_index=poll.op,
                record_offset=offset,
                record_value=value,
                known_epoch=0,
                leader_epoch=0,
                asked=1000 + offset,
                found=1000 + left,
                offset=left,
                invoked_ns=self.now,
                completed_ns=self.now + 1,
            )
        )

    def _latest(self) -> None:
        # A log end may be stale, but it is between two batches.
        self._add(
            "latest", 51, offset=self.random.choice((self.end, self.random.choice(self.ends)))
        )

    def _clean(self) -> None:
        """Removes some of the records that a later one of their key replaces."""
        for row in self.log[:-1]:
            later = self.log[self.log.index(row) + 1 :]
            is_replaced = any(self.keys[value] == self.keys[row[1]] for _, value in later)
            if is_replaced and self.random.random() < 0.4:
                self.log.remove(row)

    def _end(self) -> None:
        self.now += 20
        self.keys[len(self.calls)] = LAST_KEY
        self._add("append", 99, offset=self.end)
        self._land([self.calls[-1].op])
        self.now += 20
        self._add("latest", 60, offset=self.end, final=True)
        position, left = 0, list(self.log)
        while left:
            self.now += 10
            count = self.random.randint(1, 4)
            records, left = tuple(left[:count]), left[count:]
            self._add("poll", 60, position=position, records=records, end=self.end, final=True)
            position = records[-1][0] + 1
            if left and self.random.random() < 0.3:
                position = left[0][0]  # what was removed in between has no record to show for it

    def damaged(self) -> list[Call]:
        """Returns the calls with a damage: of one record that all replicas acknowledged and that nothing replaced.

        Returns:
            No calls if there is no such record but the last one of the log.
        """
        last = {self.keys[value]: (offset, value) for offset, value in self.log}
        rows = []
        for offset, value in last.values():
            append = self.calls[value]
            is_sure = append.outcome == "ok" and append.acks == -1
            is_known = append.offset == offset or (append.offset is None and not self.is_sent_twice)
            if is_sure and is_known and self.keys[value] != LAST_KEY:
                rows.append(offset)
        if not rows:
            return []
        offset, damage = self.random.choice(sorted(rows)), self.random.choice(DAMAGES)
        calls = []
        for call in self.calls:
            if call.kind == "poll" and (call.final or damage == "dropped everywhere"):
                kept = damage == "another value"
                records = tuple(
                    (at, len(self.calls) if at == offset else value)
                    for at, value in call.records
                    if kept or at != offset
                )
                call = replace(call, records=records)
            calls.append(call)
        return calls

    def judged(self, calls: list[Call] | None = None, *, with_queries: bool = True) -> Verdict:
        """Returns the verdict of the history, or of other calls with its keys."""
        calls = self.calls if calls is None else calls
        queries = self.queries if with_queries else []
        tables = {**run(calls, offset_queries=queries), **keyed(calls, self.keys)}
        return judge_with_final_reads(tables, self.context)


def wrong_verdicts(number: int) -> list[str]:
    """Returns a sentence for each wrong verdict of a history, and of the history with a damage."""
    history = CompactedHistory.of(number)
    verdict = history.judged()
    wrong = []
    if verdict.validity != Validity.VALID:
        wrong.append(f"history {number} is correct, and {verdict.validity}: {verdict.reasons[0]}")
    calls = history.damaged()
    # A query is about a record that a poll returned, which it may not have in the damaged history.
    if calls and history.judged(calls, with_queries=False).validity == Validity.VALID:
        wrong.append(f"history {number} is valid with a damaged record")
    return wrong


def main() -> None:
    """Judges histories and prints every wrong verdict."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--first", type=int, default=1)
    arguments = parser.parse_args()
    for number in range(arguments.first, arguments.first + arguments.count):
        for sentence in wrong_verdicts(number):
            print(sentence, flush=True)
    print(f"{arguments.count} histories judged")


if __name__ == "__main__":
    main()
