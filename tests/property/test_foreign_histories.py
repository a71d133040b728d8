"""Logs of other tools: a correct log is valid in each format, and a damaged file never ends in a traceback.

The log is simulated here: processes append and poll concurrently, some responses are lost, and at the end one
consumer reads everything. Polls, assigns and subscribes may fail. Each history is written as Jepsen's EDN and as
JSON lines.
"""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.errors import HistoryError
from harness.history.foreign.read import read_history
from harness.runs.foreign import judge_foreign

HISTORIES = 60


@dataclass(slots=True)
class Log:
    """A correct log with gaps, and the operations of its clients. Mutable while it is simulated."""

    rng: random.Random
    records: list[tuple[int, int]] = field(default_factory=list)
    events: list[tuple[int, str, str, object]] = field(default_factory=list)
    open: dict[int, tuple[str, int]] = field(default_factory=dict)
    end: int = 0
    value: int = 0


def simulate(rng: random.Random) -> Log:
    """Returns what clients saw of a correct log; the list of events is in the order of time."""
    log = Log(rng)
    positions: dict[int, int] = {}
    for process in range(4):
        log.events += [(process, "invoke", "assign", True), (process, "ok", "assign", True)]
        positions[process] = 0
    for _ in range(rng.randrange(5, 60)):
        process = rng.randrange(4)
        if process not in log.open:
            function = rng.choice(["send", "send", "poll", "poll", "assign", "subscribe"])
            log.value += 1
            log.open[process] = function, log.value
            log.events.append((process, "invoke", function, log.value))
            continue
        function, value = log.open.pop(process)
        if function == "poll" and rng.random() < 0.8:
            found = [record for record in log.records if record[0] >= positions[process]][:3]
            if found:
                positions[process] = found[-1][0] + 1
            log.events.append((process, "ok", "poll", found))
            continue
        if function != "send":
            kind = "fail" if function == "poll" else rng.choice(["ok", "fail"])
            is_sought = (kind, function) == ("ok", "assign")
            # A failed operation may have read records or sought back; a subscription begins anywhere.
            positions[process] = 0 if is_sought else rng.choice([0, positions[process], log.end])
            log.events.append((process, kind, function, []))
            continue
        outcome = rng.choice(["ok", "ok", "ok", "info", "fail", "silent"])
        offset = None
        if outcome in ("ok", "silent") or (outcome == "info" and rng.random() < 0.5):
            log.end += rng.choice([0, 0, 1])
            offset = log.end
            log.records.append((offset, value))
            log.end += 1
        log.events.append(
            (
                process,
                outcome.replace("silent", "info"),
                "send",
                offset if outcome == "ok" else None,
            )
        )
        if outcome in ("info", "silent"):
            # A client whose operation has no known end is replaced.
            log.events += [(process, "invoke", "assign", True), (process, "ok", "assign", True)]
            positions[process] = 0
    # Only reads after the last append are final, so those of the processes above are not.
    log.events += [(8, "invoke", "send", log.value + 1), (8, "ok", "send", log.end)]
    log.records.append((log.end, log.value + 1))
    return log


def as_edn(log: Log, final: list[tuple[int, int]]) -> str:
    """Returns the history as Jepsen's EDN."""
    lines, sent = [], {}
    for process, kind, function, what in log.events:
        extra = ""
        if function == "assign":
            value, extra = "[:k]", " :seek-to-beginning? true"
        elif function == "send":
            if kind == "invoke":
                sent[process] = what
            pair = (
                sent[process] if kind == "invoke" or what is None else f"[{what} {sent[process]}]"
            )
            value = f"[[:send :k {pair}]]"
        elif function == "subscribe":
            value = "[:k]"
        elif kind != "ok":
            value = "[[:poll]]"
        else:
            value = f"[[:poll {{:k {edn_records(what)}}}]]"
        lines.append(
            f"{{:process {process}, :type :{kind}, :f :{function}, :value {value}{extra}}}"
        )
    lines += [
        "{:process 9, :type :invoke, :f :assign, :value [:k], :seek-to-beginning? true}",
        "{:process 9, :type :ok, :f :assign, :value [:k], :seek-to-beginning? true}",
        "{:process 9, :type :invoke, :f :poll, :value [[:poll]]}",
        f"{{:process 9, :type :ok, :f :poll, :value [[:poll {{:k {edn_records(final)}}}]]}}",
    ]
    return "\n".join(lines)


def edn_records(records: object) -> str:
    assert isinstance(records, list)
    return "[" + " ".join(f"[{offset} {value}]" for offset, value in records) + "]"


def as_json_lines(log: Log, final: list[tuple[int, int]]) -> str:
    """Returns the history as JSON lines, shuffled."""
    lines: list[dict[str, object]] = []
    begun: dict[int, tuple[int, object]] = {}
    for now, (process, kind, function, what) in enumerate(log.events):
        if kind == "invoke":
            begun[process] = now, what
            continue
        invoked, argument = begun.pop(process)
        line: dict[str, object] = {
            "process": process,
            "topic": "k",
            "invoked_ns": invoked,
            "completed_ns": now,
            "outcome": kind,
        }
        if function == "send":
            lines.append({**line, "kind": "append", "value": argument, "offset": what})
        elif function == "poll":
            lines.append({**line, "kind": "poll", "records": what})
    for process, (invoked, argument) in begun.items():
        line = {"process": process, "topic": "k", "invoked_ns": invoked, "outcome": "info"}
        if isinstance(argument, int) and log.open[process][0] == "send":
            lines.append({**line, "kind": "append", "value": argument})
    now = len(log.events)
    lines.append(
        {
            "kind": "poll",
            "process": 9,
            "topic": "k",
            "invoked_ns": now,
            "completed_ns": now + 1,
            "outcome": "ok",
            "position": 0,
            "records": final,
            "final": True,
        }
    )
    log.rng.shuffle(lines)
    return "\n".join(
        [json.dumps({"kind": "history", "version": 1, "sparse": True}), *map(json.dumps, lines)]
    )


WRITERS = {"edn": as_edn, "jsonl": as_json_lines}


def validity_of(path: Path, text: str) -> str:
    path.write_text(text)
    return str(judge_foreign(read_history(path)).verdict.validity)


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_correct_log_is_valid_and_without_an_acknowledged_record_it_is_not(
    tmp_path: Path, form: str, seed: int
) -> None:
    log = simulate(random.Random(seed))
    path = tmp_path / f"history.{form}"
    acked = {offset for _, kind, f, offset in log.events if (kind, f) == ("ok", "send")}
    assert validity_of(path, WRITERS[form](log, log.records)) == "valid"
    for lost in sorted(acked):
        final = [record for record in log.records if record[0] != lost]
        # Where the log ends is not recorded, so a record beyond the final reads is unknown, not lost.
        expected = "unknown" if lost == log.end else "invalid"
        assert validity_of(path, WRITERS[form](log, final)) == expected


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_damaged_file_gives_a_verdict_or_one_sentence(
    tmp_path: Path, form: str, seed: int
) -> None:
    rng = random.Random(f"damage {seed}")
    log = simulate(rng)
    path = tmp_path / f"history.{form}"
    text = WRITERS[form](log, log.records)
    for _ in range(5):
        start = rng.randrange(len(text))
        stop = min(len(text), start + rng.choice([0, 1, 1, 20]))
        damage = rng.choice(
            ["", "}", "[", '"', "9", "-", ":ok", "null", "nil", "\x00", "1e999", "\n"]
        )
        try:
            said = validity_of(path, text[:start] + damage + text[stop:])
        except HistoryError as error:
            said = str(error)
        assert said in ("valid", "invalid", "unknown") or (str(path) in said and "\n" not in said)
