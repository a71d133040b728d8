"""Why an anomaly means what it means: definition, witnesses, the expectation applied, and the decisive moment.

The report shows it as its first panel and `laststand explain` prints it. Everything is read from the verdict and
the tables; nothing is judged here. What would change a judgement is looked up in the expectation matrix, so that
it cannot differ from what the checkers apply.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.anomalies import ANOMALIES
from checkers.expectations import MATRIX, Case, Expectations, judge
from harness.contracts.verdict import Judgement
from results.report.run import RunData, numbers, rows_of, seconds, texts
from results.report.story import (
    Entry,
    Loss,
    Story,
    broker_name,
    members,
    place_name,
    time_of,
    tone_of,
)

CUTS_MAX = 6
"""Truncations that a moment lists; the lanes and the story have all."""

_USUAL = Expectations()
_AT_LEAST_ONCE = Expectations(at_least_once=True)
_RULES = frozenset(row.rule for row in MATRIX)
_WORDS = {
    str(Judgement.FORBIDDEN): "Forbidden",
    str(Judgement.UNDECIDED): "Undecided",
    str(Judgement.ALLOWED): "Allowed by the configuration",
    str(Judgement.EXCUSED): "Excused by the faults",
    str(Judgement.INFORMATIONAL): "Not judged",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One operation that takes part in showing an anomaly. Times in nanoseconds since run start.

    Attributes:
        op_index: Row in `operations`; -1 if the verdict names none.
        text: The operation as one line.
        process: Who invoked it; -1 if it is not in the history.
        outcome: "ok", "fail" or "info"; empty if it is not in the history.
        begin_ns: When it was invoked; None if it is not in the history.
        end_ns: When it completed; None if it did not, or is not in the history.
    """

    op_index: int
    text: str
    process: int = -1
    outcome: str = ""
    begin_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The moment that decided: an election, or the first state without the records.

    Attributes:
        at_ns: Nanoseconds since run start.
        title: What happened.
        lines: Who had what before, who was elected, what was cut off afterwards.
    """

    at_ns: int
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One anomaly with everything that leads to its judgement.

    Attributes:
        number: Place in the list of all anomalies, from 1; forbidden ones come first.
        id, topic, partition, level, count, judgement, rule, sentence: As in the verdict.
        definition: What the anomaly is; empty for one of a third-party checker.
        why: The judgement with the expectation that was applied.
        otherwise: What would make it valid, one sentence each.
        witnesses: The operations that show it.
        moment: When it was decided; None if that is not in the history.
        details: Further facts of the verdict.
    """

    number: int
    id: str
    topic: str
    partition: int
    level: str
    count: int
    judgement: str
    rule: str
    sentence: str
    definition: str
    why: str
    otherwise: tuple[str, ...]
    witnesses: tuple[Witness, ...]
    moment: Moment | None
    details: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Returns where it was found, for example "t-0"."""
        return place_name(self.topic, self.partition)

    @property
    def anchor(self) -> str:
        """Returns the name of its place in the page."""
        return f"anomaly-{self.number}"

    @property
    def tone(self) -> str:
        """Returns the CSS class of its judgement."""
        return tone_of(self.judgement, otherwise="calm")

    @property
    def is_forbidden(self) -> bool:
        """Whether it makes the run invalid."""
        return self.judgement == Judgement.FORBIDDEN

    @property
    def at_ns(self) -> int | None:
        """When it was decided, otherwise when its last witness ended; None if neither is known."""
        if self.moment is not None:
            return self.moment.at_ns
        times = [time for one in self.witnesses for time in (one.begin_ns, one.end_ns)]
        return max((time for time in times if time is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Returns it for `--json`."""
        return {
            "id": self.id,
            "partition": self.place,
            "count": self.count,
            "judgement": self.judgement,
            "definition": self.definition,
            "sentence": self.sentence,
            "why": self.why,
            "otherwise": list(self.otherwise),
            "witnesses": [
                {
                    "op_index": one.op_index,
                    "process": one.process,
                    "text": one.text,
                    "invoked_ns": one.begin_ns,
                    "completed_ns": one.end_ns,
                }
                for one in self.witnesses
            ],
            "moment": None
            if self.moment is None
            else {
                "at_ns": self.moment.at_ns,
                "title": self.moment.title,
                "lines": list(self.moment.lines),
            },
        }


def arguments_of(run: RunData, losses: Sequence[Loss] = ()) -> tuple[Argument, ...]:
    """Returns every anomaly of a run's verdict, the forbidden ones first.

    Args:
        run: The run.
        losses: When records were lost (`results.report.story.find_losses`).
    """
    found = run.anomalies()
    elections = [_election_of(anomaly) for anomaly in found]
    arguments = []
    for number, anomaly in enumerate(found, start=1):
        topic, partition = str(anomaly.get("topic", "")), _integer(anomaly.get("partition"), -1)
        witnesses = tuple(_witnesses(run, anomaly))
        own = elections[number - 1]
        election = own or _election_between(found, elections, topic, partition, witnesses)
        at_ns = _loss_time(losses, number) if election is None else None
        arguments.append(
            Argument(
                number=number,
                id=str(anomaly.get("id", "unnamed")),
                topic=topic,
                partition=partition,
                level=str(anomaly.get("level", "")),
                count=_integer(anomaly.get("count"), 0),
                judgement=str(anomaly.get("judgement", "")),
                rule=str(anomaly.get("rule", "")),
                sentence=str(anomaly.get("sentence", "")),
                definition=_definition(anomaly),
                why=_why(anomaly),
                otherwise=tuple(_otherwise(anomaly)),
                witnesses=witnesses,
                moment=_moment(run, topic, partition, election, at_ns),
                details=_mapping(anomaly.get("details")),
            )
        )
    return tuple(arguments)


def with_findings(story: Story, arguments: Sequence[Argument]) -> Story:
    """Returns the story with an entry for every forbidden anomaly that has no entry yet."""
    told = {entry.anomaly for entry in story.entries}
    more = [
        Entry(
            at_ns=one.at_ns,
            kind="finding",
            title=f"{one.id} in {one.place}",
            detail=one.sentence,
            tone="bad",
            anomaly=one.number,
            weight=10,
        )
        for one in arguments
        if one.is_forbidden and one.number not in told
    ]
    # Stable: an anomaly comes after what happened at the same time.
    entries = sorted((*story.entries, *more), key=time_of)
    return replace(story, entries=tuple(entries))


def _definition(anomaly: Mapping[str, Any]) -> str:
    kind = ANOMALIES.get(str(anomaly.get("id")))
    return kind.definition if kind is not None else ""


def _why(anomaly: Mapping[str, Any]) -> str:
    judgement, rule = str(anomaly.get("judgement", "")), str(anomaly.get("rule", ""))
    word = _WORDS.get(judgement, judgement)
    return f"{word}: {rule}" if rule else word


def _otherwise(anomaly: Mapping[str, Any]) -> Iterator[str]:
    """Returns under which conditions the matrix would judge a forbidden or undecided anomaly differently."""
    judgement = str(anomaly.get("judgement"))
    if judgement not in (Judgement.FORBIDDEN, Judgement.UNDECIDED):
        yield "It does not make the run invalid."
        return
    identifier = str(anomaly.get("id"))
    if identifier not in ANOMALIES or anomaly.get("rule") not in _RULES:
        yield "The history would have to be without it: the expectation matrix does not judge it."
        return
    if identifier == "slow-recovery":
        yield "The partition would have to recover sooner, or the experiment to set a larger recovery_max_ms."
        return
    if identifier == "stuck":
        yield (
            "The partition would have to make progress, or fewer replicas than it needs would have to be alive. It"
            " is judged only if the run went on for stuck_after_ms after everything was healed."
        )
        return
    cases = (
        ("excused", Case(id=identifier, is_weak=False, is_excused=True, expectations=_USUAL)),
        ("allowed", Case(id=identifier, is_weak=True, is_excused=False, expectations=_USUAL)),
        (
            "allowed",
            Case(id=identifier, is_weak=False, is_excused=False, expectations=_AT_LEAST_ONCE),
        ),
    )
    seen = set()
    for word, case in cases:
        row = judge(case)
        if row.judgement in (Judgement.EXCUSED, Judgement.ALLOWED) and row.name not in seen:
            seen.add(row.name)
            yield f"It would be {word} if this were the case: {row.rule}."
    if not seen:
        yield "The history would have to be without it: no election and no configuration makes it valid."


def _witnesses(run: RunData, anomaly: Mapping[str, Any]) -> Iterator[Witness]:
    operations = run.tables["operations"]
    indices = numbers(operations, "op_index")
    for data in anomaly.get("witnesses", ()):
        if not isinstance(data, Mapping):
            continue
        op_index = _integer(data.get("op_index"), -1)
        text = str(data.get("text", ""))
        row = int(np.searchsorted(indices, op_index))
        if row >= len(indices) or indices[row] != op_index:
            yield Witness(op_index=op_index, text=text)
            continue
        operation = operations.slice(row, 1).to_pylist()[0]
        yield Witness(
            op_index=op_index,
            text=text,
            process=operation["process"],
            outcome=operation["outcome"],
            begin_ns=operation["invoked_ns"],
            end_ns=operation["completed_ns"],
        )


def _election_of(anomaly: Mapping[str, Any]) -> Mapping[str, Any] | None:
    election = _mapping(_mapping(anomaly.get("details")).get("election"))
    needed = (election.get("at_ns"), election.get("leader"))
    return election if all(type(value) is int for value in needed) else None


def _election_between(
    found: Sequence[Mapping[str, Any]],
    elections: Sequence[Mapping[str, Any] | None],
    topic: str,
    partition: int,
    witnesses: Sequence[Witness],
) -> Mapping[str, Any] | None:
    """Returns an election that another anomaly of the partition names, if it lies between the witnesses."""
    times = [time for one in witnesses for time in (one.begin_ns, one.end_ns) if time is not None]
    for other, election in zip(found, elections, strict=True):
        is_here = (other.get("topic"), other.get("partition")) == (topic, partition)
        if election is None or not is_here or not times:
            continue
        if min(times) <= election["at_ns"] <= max(times):
            return election
    return None


def _loss_time(losses: Sequence[Loss], anomaly: int) -> int | None:
    """Returns when the first records of an anomaly were lost; None if that is unknown, or nothing was lost."""
    times = [loss.at_ns for loss in losses if loss.anomaly == anomaly and loss.at_ns is not None]
    return min(times, default=None)


def _moment(
    run: RunData,
    topic: str,
    partition: int,
    election: Mapping[str, Any] | None,
    at_ns: int | None,
) -> Moment | None:
    if election is not None:
        at_ns = int(election["at_ns"])
    if at_ns is None:
        return None
    states = rows_of(run.tables["partition_states"], topic, partition).to_pylist()
    replicas = rows_of(run.tables["replica_states"], topic, partition)
    name = place_name(topic, partition)
    lines = [*_before(states, replicas, at_ns, name)]
    title = f"{name} continues without the records"
    if election is not None:
        title = f"{broker_name(int(election['leader']))} is elected leader of {name}"
        lines.append(_elected(election, states, at_ns))
    lines += _cuts(replicas, at_ns, name)
    return Moment(at_ns=at_ns, title=title, lines=tuple(lines))


def _before(
    states: Sequence[Mapping[str, Any]], replicas: pa.Table, at_ns: int, name: str
) -> Iterator[str]:
    """Returns who led and which replica had how much, immediately before a moment."""
    earlier = [row for row in states if row["at_ns"] < at_ns]
    leaders = [row for row in earlier if row["leader"] >= 0]
    if earlier and leaders:
        now, last = earlier[-1], leaders[-1]
        led = f"{broker_name(last['leader'])} led {name} in leader epoch {last['leader_epoch']}"
        lost = "" if now["leader"] >= 0 else "; the partition had no leader any more"
        elr = f", ELR {members(now['elr'])}" if now["elr"] else ""
        yield f"Before: {led}{lost}. ISR {members(now['isr'])}{elr}, min ISR {now['min_isr']}."
    ends = []
    owners, times = numbers(replicas, "broker"), numbers(replicas, "at_ns")
    for broker in sorted(set(owners.tolist())):
        rows = np.flatnonzero((owners == broker) & (times < at_ns))
        if len(rows):
            row = replicas.slice(int(rows[-1]), 1).to_pylist()[0]
            down = ", down" if row["role"] == "offline" else ""
            ends.append(f"{broker_name(broker)} {row['log_end_offset']:,}{down}")
    if ends:
        yield f"Log ends just before: {'; '.join(ends)}."


def _elected(election: Mapping[str, Any], states: Sequence[Mapping[str, Any]], at_ns: int) -> str:
    flagged = "flagged as unclean" if election.get("flagged") else "not flagged as unclean"
    end = election.get("log_end_offset")
    log = f" with log end {end:,}" if type(end) is int and end >= 0 else ""
    epoch = election.get("leader_epoch")
    text = f"At {seconds(at_ns)} {broker_name(int(election['leader']))} was elected"
    text += f" in leader epoch {epoch}" if type(epoch) is int else ""
    text += f"{log}, {flagged}"
    after = next((row for row in states if row["at_ns"] >= at_ns), None)
    if after is not None:
        text += f"; ISR {members(after['isr'])}"
    objection = str(election.get("objection") or "")
    return f"{text}; {objection}." if objection else f"{text}."


def _cuts(replicas: pa.Table, at_ns: int, name: str) -> Iterator[str]:
    """Returns which replicas removed records from then on."""
    owners = texts(replicas, "node")
    cuts: list[tuple[int, str, int, int]] = []
    for node in sorted(set(owners)):
        rows = replicas.filter(pa.array((owners == node).astype(bool), type=pa.bool_()))
        ends, times = numbers(rows, "log_end_offset"), numbers(rows, "at_ns")
        cut = np.flatnonzero((np.diff(ends) < 0) & (times[1:] >= at_ns)) + 1
        cuts += [
            (int(times[index]), str(node), int(ends[index - 1]), int(ends[index]))
            for index in cut.tolist()
        ]
    for time_ns, node, old, new in sorted(cuts)[:CUTS_MAX]:
        yield f"At {seconds(time_ns)} {node} cut {name} off from {old:,} to {new:,}."
    if len(cuts) > CUTS_MAX:
        yield f"{len(cuts) - CUTS_MAX} further truncations follow."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _integer(value: Any, otherwise: int) -> int:
    return value if type(value) is int else otherwise
