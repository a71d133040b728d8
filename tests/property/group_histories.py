"""Small random histories of a consumer group's commits, and an exhaustive judge for them.

`python -m tests.property.group_histories --histories 100000` compares the kernel with the judge and prints the
first history on which they differ; `--first` continues where another call ended.

The committed offset is a register. A small correct coordinator serves two members, who lose responses; its broker
may be deposed by an election of the ISR, and go on answering from its memory. In many histories one response is
then replaced. The judge knows nothing of proofs: it tries every order of commits, reports and elections that the
events allow, and runs them on the register.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from checkers.kernels.consumer_group import CONSUMER_GROUP
from harness.contracts.run_context import LOG_CHECKERS, RunContext
from harness.contracts.verdict import Judgement
from harness.history.schema import COORDINATOR_STATES, OFFSETS_TOPIC, TABLES
from tests.anomalies.runs import state, table

NOTHING = -1
CONTEXT = RunContext(checkers=(*LOG_CHECKERS, "consumer-group"))
ACCEPTED, UNKNOWN, REFUSED = "accepted", "unknown", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit, report or election; `end` None means that no response arrived.

    `begin` and `end` are positions in the order of all events and elections.
    """

    kind: str
    process: int
    offset: int
    begin: int
    end: int | None


@dataclass(slots=True)
class _Pending:
    """The request of a member that waits for its response. Mutable."""

    step: int
    is_applied: bool = False
    seen: int = NOTHING


class _Simulation:
    """A correct coordinator and its members. Mutable: it is the run.

    Args:
        rng: Decides everything.
        elections: How often brokers are deposed, 0 to 1.
    """

    def __init__(self, rng: random.Random, elections: float) -> None:
        self._rng = rng
        self._elections = elections
        self._committed = NOTHING
        self._memories: list[int] = []
        """What each deposed coordinator knows."""
        self._late: list[int] = []
        """Commits without a response that may still take effect."""
        self._pending: dict[int, _Pending] = {}
        self._now = 0
        self.steps: list[Step] = []

    def run(self) -> list[Step]:
        for _ in range(self._rng.randint(4, 18)):
            if self._late and self._rng.random() < 0.2:
                self._committed = self._late.pop(self._rng.randrange(len(self._late)))
            if self._rng.random() < self._elections:
                self._memories.append(self._committed)
                self._begin("election", 0, NOTHING)
                continue
            process = self._rng.choice((1, 2))
            if process in self._pending:
                self._goes_on(process, self._pending[process])
            elif len(self.steps) < 8:
                kind = "commit" if self._rng.random() < 0.6 else "report"
                offset = self._rng.choice((1, 2, 3)) if kind == "commit" else NOTHING
                self._pending[process] = _Pending(len(self.steps))
                self._begin(kind, process, offset)
        return self.steps

    def _begin(self, kind: str, process: int, offset: int) -> None:
        self.steps.append(
            Step(kind=kind, process=process, offset=offset, begin=self._tick(), end=None)
        )

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _goes_on(self, process: int, pending: _Pending) -> None:
        step = self.steps[pending.step]
        if not pending.is_applied:
            pending.is_applied = True
            if step.kind == "report":
                is_stale = self._memories and self._rng.random() < 0.6
                pending.seen = self._rng.choice(self._memories) if is_stale else self._committed
            elif self._rng.random() < 0.25:
                if self._rng.random() < 0.6:
                    self._late.append(step.offset)
                del self._pending[process]
            else:
                self._committed = step.offset
        else:
            del self._pending[process]
            if self._rng.random() < 0.9:
                offset = pending.seen if step.kind == "report" else step.offset
                self.steps[pending.step] = replace(step, offset=offset, end=self._tick())


def random_history(rng: random.Random, *, elections: float = 0.0) -> list[Step]:
    """Returns what a correct group may record; in some of them one report is replaced."""
    steps = _Simulation(rng, elections).run()
    reports = [n for n, step in enumerate(steps) if step.kind == "report" and step.end is not None]
    if reports and rng.random() < 0.6:
        number = rng.choice(reports)
        steps[number] = replace(steps[number], offset=rng.choice((NOTHING, 1, 2, 3)))
    return steps


def judge_accepts(history: list[Step], *, stale: bool) -> bool:
    """Whether some order of all steps explains the history.

    Args:
        history: Its steps.
        stale: Whether reports may show what was committed at an election before their response.
    """
    steps = [step for step in history if step.kind != "report" or step.end is not None]
    # An election takes place at one moment; a commit without a response may take effect at any time, or never.
    ends = [step.begin if step.kind == "election" else step.end for step in steps]

    @cache
    def explains(done: frozenset[int], committed: int, memories: frozenset[int]) -> bool:
        left = [n for n in range(len(steps)) if n not in done]
        until = min((end for n in left if (end := ends[n]) is not None), default=None)
        if until is None:
            return True
        for number in left:
            step = steps[number]
            if step.begin > until:
                continue
            after, known = committed, memories
            if step.kind == "commit":
                after = step.offset
            elif step.kind == "election":
                known = memories | {committed} if stale else memories
            elif step.offset != committed and step.offset not in memories:
                continue
            if explains(done | {number}, after, known):
                return True
        return False

    return explains(frozenset(), NOTHING, frozenset())


def group_events(history: list[Step]) -> list[dict[str, Any]]:
    """Returns the rows of `group_events` of a history."""
    names = {
        "commit": ("commit-sent", "commit-acknowledged"),
        "report": ("committed-asked", "committed-seen"),
    }
    found: list[dict[str, Any]] = []
    for step in history:
        if step.kind == "election":
            continue
        for at, event in zip((step.begin, step.end), names[step.kind], strict=True):
            if at is None:
                continue
            is_response = event == "committed-seen"
            found.append(
                {
                    "event_index": at,
                    "at_ns": 10 * at,
                    "group": "g",
                    "process": step.process,
                    "topic": "t",
                    "partition": 0,
                    "event": event,
                    "offset": NOTHING if event == "committed-asked" else step.offset,
                    "refers_to": step.begin if is_response else -1,
                    "generation": -1,
                }
            )
    return found


def coordinator_states(history: list[Step]) -> list[dict[str, Any]]:
    """Returns the states of the only offsets partition; nobody hears of a deposed leader again."""
    elected = [step.begin for step in history if step.kind == "election"]
    rows = [state(0, 1, list(range(1, 9)), epoch=0)]
    for number, at in enumerate(elected, 1):
        rows.append(state(10 * at, number + 1, list(range(number + 1, 9)), epoch=number))
    return [
        {**row, "topic": OFFSETS_TOPIC, "metadata_offset": n, "min_isr": 1}
        for n, row in enumerate(rows)
    ]


def kernel_says(history: list[Step]) -> str:
    """Returns whether the kernel accepts or refuses a history, or does not know."""
    tables = {name: schema.empty_table() for name, schema in TABLES.items()}
    tables["group_events"] = table("group_events", group_events(history))
    tables[COORDINATOR_STATES] = table("partition_states", coordinator_states(history))
    report = CONSUMER_GROUP.check(tables, CONTEXT)
    judgements = {finding.judgement for finding in report.findings}
    if not judgements:
        return ACCEPTED
    return REFUSED if Judgement.FORBIDDEN in judgements else UNKNOWN


def judge_says(history: list[Step]) -> str:
    """Returns the right verdict: unknown if only a stale report explains the history."""
    if judge_accepts(history, stale=False):
        return ACCEPTED
    return UNKNOWN if judge_accepts(history, stale=True) else REFUSED


def disagreements(
    first: int, count: int, *, seed: int, elections: float
) -> Iterator[tuple[int, list[Step], str, str]]:
    """Yields the histories on which kernel and judge differ: number, steps, and what each of them says.

    A history that the judge refuses may be unknown to the kernel if there are elections: it looks at one
    contradiction at a time, and different ones may need different coordinators.
    """
    for number in range(first, first + count):
        history = random_history(random.Random(f"{seed}/{number}"), elections=elections)
        right, given = judge_says(history), kernel_says(history)
        if given != right and (right, given, elections > 0) != (REFUSED, UNKNOWN, True):
            yield number, history, given, right


def main(arguments: list[str] | None = None) -> int:
    """Compares, and prints the first disagreement."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.group_histories")
    parser.add_argument("--histories", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for elections in (0.0, 0.2):
        found = next(
            disagreements(options.first, options.histories, seed=options.seed, elections=elections),
            None,
        )
        if found is not None:
            number, history, given, right = found
            print(f"history {number}, elections {elections}: {given}, expected {right}")
            print("\n".join(f"  {step}" for step in history))
            return 1
    print(f"{options.histories} histories of each kind agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
