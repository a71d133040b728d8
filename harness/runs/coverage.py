"""What a simulated run reached, as a set of named features, and how close each invariant came to failing.

All of it is computed from the recorded tables after the run, apart from the order of messages and marks and from
the decisions of rules (`harness.environments.simulated.rule_decisions`), which runs record only on request. Names
of nodes, partitions and offsets are left out, so that runs of different clusters can reach the same feature.

| feature | reached if |
|---|---|
| `mark M xN` | the nodes took the rare branch M at least N times together; N is a power of two up to 8 |
| `marks M > M2` | M2 followed M at the same node |
| `M after MESSAGE` | MESSAGE was the last message that had arrived at the node when it took the branch M |
| `partition S > S2` | committed metadata of a partition went from shape S to S2 |
| `replica R > R2` | a replica went from role and cause R to R2 |
| `fault F in S` | F took effect while the partition in the worst state had the shape S |
| `fault F > M` | M was the first mark after F took effect, within `REACTION_NS` |
| `rule R in F: yes` | in the function F, the condition with the switch of the rule R was true; or false (`no`) |
| `margin INV-N D` | the smallest margin of an invariant was D (`margins_of`) |
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from harness.errors import UsageError
from harness.runs.experiment import Experiment
from harness.runs.margins import margins_of
from harness.runs.result import RunResult

REACTION_NS = 100_000_000
"""A mark that comes later is rarely a consequence of the fault."""
COUNTS = (1, 2, 4, 8)
BEFORE = "no partition"
_Shape = str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a run reached.

    Attributes:
        features: Names of features, sorted.
        margins: The smallest margin by invariant; see `margins_of`.
    """

    features: tuple[str, ...]
    margins: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Returns what `run.json` has of it."""
        return {"features": list(self.features), "margins": dict(self.margins)}

    def to_row(self) -> dict[str, Any]:
        """Returns what a row has of it: `coverage` are the hashes of `feature_names`, in the same order."""
        return {
            "coverage": [hash_of(name) for name in self.features],
            "feature_names": list(self.features),
            "margins": dict(self.margins),
        }


def check_has_coverage(experiment: Experiment) -> None:
    """Raises `UsageError` if runs of an experiment have no coverage."""
    if not experiment.environment.is_simulated:
        raise UsageError(
            f"the experiment runs on {experiment.on!r}, and only simulated runs have coverage; omit --coverage"
        )


def hash_of(feature: str) -> str:
    """Returns the hash of a feature: 8 hexadecimal digits."""
    return blake2b(feature.encode(), digest_size=4).hexdigest()


def coverage_of(result: RunResult) -> Coverage:
    """Returns what a run reached."""
    tables = result.tables
    marks = _columns(tables["marks"], "node", "mark", "at_ns")
    faults = _columns(tables["faults"], "fault", "took_effect", "completed_ns", "heals")
    states = list(_partition_shapes(tables["partition_states"]))
    margins = margins_of(tables)
    features: set[str] = set()
    features.update(_of_marks(marks))
    features.update(f"{mark} after {message}" for mark, message in result.message_orders)
    features.update(f"rule {decision}" for decision in result.rule_decisions)
    features.update(_of_shapes(states))
    features.update(_of_replicas(tables["replica_states"]))
    features.update(_of_faults(faults, states, marks))
    features.update(f"margin {invariant} {margin}" for invariant, margin in margins.items())
    return Coverage(features=tuple(sorted(features)), margins=margins)


def shape_of(state: Mapping[str, Any]) -> _Shape:
    """Returns the shape of a row of `partition_states`: leader, ISR against min ISR, ELR, recovery."""
    isr, min_isr = len(state["isr"]), state["min_isr"]
    parts = ["led" if state["leader"] >= 0 else "no leader"]
    if isr == len(state["replicas"]):
        parts.append("full ISR")
    elif isr <= 1:
        parts.append(f"ISR {isr}")
    else:
        parts.append("ISR below replicas")
    if isr < min_isr:
        parts.append("below min")
    if state["elr"]:
        parts.append(f"ELR {min(len(state['elr']), 2)}")
    if state["last_known_elr"]:
        parts.append("last-known leader")
    if state["leader_recovery_state"]:
        parts.append("recovering")
    if state["flagged"]:
        parts.append("unclean")
    return ", ".join(parts)


def _of_marks(marks: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    counts: dict[str, int] = {}
    last: dict[str, str] = {}
    for node, mark, _ in marks:
        counts[mark] = counts.get(mark, 0) + 1
        if node in last:
            yield f"marks {last[node]} > {mark}"
        last[node] = mark
    for mark, count in counts.items():
        yield from (f"mark {mark} x{least}" for least in COUNTS if count >= least)


@dataclass(frozen=True, slots=True)
class _Changed:
    """A partition's shape from a time on; `is_new_epoch` if its leader epoch changed then."""

    at_ns: int
    name: tuple[str, int]
    shape: _Shape
    is_new_epoch: bool
    isr: int


def _partition_shapes(table: Any) -> Iterator[_Changed]:
    epochs: dict[tuple[str, int], int] = {}
    for state in table.to_pylist():
        name = (state["topic"], state["partition"])
        epoch = state["leader_epoch"]
        yield _Changed(
            state["at_ns"],
            name,
            shape_of(state),
            epochs.get(name, epoch) != epoch,
            len(state["isr"]),
        )
        epochs[name] = epoch


def _of_shapes(states: Iterable[_Changed]) -> Iterator[str]:
    last: dict[tuple[str, int], _Shape] = {}
    for state in states:
        how = " in a new epoch" if state.is_new_epoch else ""
        yield f"partition {last.get(state.name, BEFORE)} > {state.shape}{how}"
        last[state.name] = state.shape


def _of_replicas(table: Any) -> Iterator[str]:
    last: dict[tuple[str, str, int], str] = {}
    rows = _columns(table, "node", "topic", "partition", "role", "cause")
    for node, topic, partition, role, cause in rows:
        if cause in ("append", "replicate", "high-watermark", "observed"):
            continue
        key, now = (node, topic, partition), f"{role} by {cause}"
        if key in last:
            yield f"replica {last[key]} > {now}"
        last[key] = now


def _of_faults(
    faults: Iterable[tuple[str, bool, int | None, bool]],
    states: list[_Changed],
    marks: list[tuple[str, str, int]],
) -> Iterator[str]:
    mark_times = [at_ns for _, _, at_ns in marks]
    in_force = sorted(
        (completed_ns, fault)
        for fault, took_effect, completed_ns, heals in faults
        if took_effect and not heals and completed_ns is not None
    )
    current: dict[tuple[str, int], _Changed] = {}
    changes = iter(states)
    change = next(changes, None)
    for at_ns, fault in in_force:
        while change is not None and change.at_ns <= at_ns:
            current[change.name] = change
            change = next(changes, None)
        if current:
            worst = min(current.values(), key=lambda one: (one.isr, one.shape))
            yield f"fault {fault} in {worst.shape}"
        index = bisect_right(mark_times, at_ns)
        if index < len(marks) and mark_times[index] - at_ns <= REACTION_NS:
            yield f"fault {fault} > {marks[index][1]}"


def _columns(table: Any, *names: str) -> list[tuple[Any, ...]]:
    """Returns the rows of some columns; several times as fast as rows with all of them."""
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
