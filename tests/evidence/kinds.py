"""What is compared with what: each kind makes numbered cases and says which of them are wrong."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.campaigns.worker import run_seed
from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from tests.evidence.broker_runs import BrokerRuns
from tests.evidence.cases import UNTESTED, Cases
from tests.evidence.known_finding import known_reason
from tests.property import (
    brute_force,
    declared_runs,
    election_runs,
    group_histories,
    model_brute_force,
    transaction_histories,
)
from tests.property.election_runs import Conditions

ROOT = Path(__file__).resolve().parents[2]
SEED = 20
"""Of the kinds whose cases have a seed and a number."""
EXAMPLES = (
    "cluster-changes",
    "one-isolated-follower",
    "power-cuts",
    "all-faults",
    "short-power-cuts",
    "compacted",
    "faults-on-messages",
    "every-fault",
    "local-kill",
)
EXAMPLES_WITH_GROUPS = ("consumer-group",)
LONG_EXAMPLE = "long-all-faults"
EXAMPLES_LEFT_OUT = {"faults-on-messages-of-kafka": "it has no reference system"}
"""Examples that no kind runs, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of cases.

    Attributes:
        judge: Judges cases `first` to `first + count - 1`.
        chunk: How many cases are judged before the ledger is written.
        parts: The code that the result is about (`tests.evidence.meaning.digest`).
    """

    title: str
    judge: Callable[[int, int], Cases]
    chunk: int
    parts: tuple[str, ...]


def _log_levels(first: int, count: int) -> Cases:
    differences = brute_force.disagreements(first, count, SEED)
    return Cases(wrong=[f"{number}: {differ}" for number, _, differ in differences])


def _elections(conditions: Conditions) -> Callable[[int, int], Cases]:
    def judge(first: int, count: int) -> Cases:
        wrong = election_runs.wrong_verdicts(first, count, conditions)
        return Cases(wrong=[f"{seed}: {why}" for seed, why in wrong])

    return judge


def _committed_offsets(first: int, count: int) -> Cases:
    """Half of the histories have elections of the coordinator."""
    found = [
        f"{number}, elections {share}: {given}, expected {right}"
        for share in (0.0, 0.2)
        for number, _, given, right in group_histories.disagreements(
            first // 2, count // 2, seed=SEED, elections=share
        )
    ]
    return Cases(wrong=found)


def _declarations(first: int, count: int) -> Cases:
    wrong = declared_runs.wrong_verdicts(first, count)
    return Cases(wrong=[f"{number}: {why}" for number, why in wrong])


def _transactions(kind: str) -> Callable[[int, int], Cases]:
    def judge(first: int, count: int) -> Cases:
        return Cases(wrong=list(_transaction_differences(kind, first, count)))

    return judge


def _transaction_differences(kind: str, first: int, count: int) -> Iterator[str]:
    compare = {
        "lists": transaction_histories.list_differences,
        "logs": transaction_histories.log_differences,
    }[kind]
    for number in range(first, first + count):
        if differ := compare(transaction_histories.history_of(kind, SEED, number)):
            yield f"{number}: {differ}"


def _models(first: int, count: int) -> Cases:
    found = (model_brute_force.disagreement(SEED, n)[0] for n in range(first, first + count))
    return Cases(wrong=[text for text in found if text])


def _examples(names: tuple[str, ...]) -> Callable[[int, int], Cases]:
    """Each seed runs with every example, one after the other."""

    def judge(first: int, count: int) -> Cases:
        cases = Cases()
        for name, seeds in seeds_of(names, first, count).items():
            _add_swarm(cases, name, seeds.start, len(seeds))
        return cases

    return judge


def seeds_of(names: tuple[str, ...], first: int, count: int) -> dict[str, range]:
    """Returns the seeds of the examples that cases `first` to `first + count - 1` run."""

    def seed_at(number: int, place: int) -> int:
        """Returns the first seed of an example in cases from `number` on."""
        return -((place - number) // len(names))

    found = {
        name: range(seed_at(first, place), seed_at(first + count, place))
        for place, name in enumerate(names)
    }
    return {name: seeds for name, seeds in found.items() if seeds}


def _add_swarm(cases: Cases, name: str, first: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "harness.cli", "swarm", f"examples/{name}.toml"]
        command += ["--on", "simulation", "--first-seed", str(first), "--seeds", str(count)]
        command += ["--jobs", "1", "--no-spark", "--quiet", "--keep-failing", "0"]
        command += ["--results", directory]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        rows = [
            json.loads(line)
            for path in Path(directory).glob("*/rows.jsonl")
            for line in path.read_text().splitlines()
        ]
    if len(rows) != count:
        problem = f"{len(rows)} of {count} rows, {(ran.stderr or ran.stdout).strip()[-200:]}"
        cases.wrong.append(f"{name}, seeds from {first}: {problem}")
    for row in rows:
        if row["verdict"] == "unknown":
            reason = f"{name}: {unknown_reason(row)}"
            cases.unknown[reason] = cases.unknown.get(reason, 0) + 1
        elif row["verdict"] != "valid" or row["violations"] or row["error"]:
            ids = [one["id"] for one in row["anomalies"] if one["judgement"] == "forbidden"]
            if known := _known_finding(_example(name), row["seed"]):
                reason = f"{name}: {known}"
                cases.unknown[reason] = cases.unknown.get(reason, 0) + 1
                continue
            cases.wrong.append(
                f"{name}, seed {row['seed']}: {row['verdict']} {ids} {row['violations']} {row['error']}"
            )


def unknown_reason(row: dict[str, Any]) -> str:
    """Returns why the row of a campaign is unknown."""
    reasons = "; ".join(row["reasons"])
    # A run that did not end has no other reason, and is not one whose faults tested nothing.
    if row["error"]:
        return reasons
    return str(row["unknown_reason"] or f"{reasons}: {UNTESTED}")


def _example(name: str) -> Experiment:
    return experiment_file.load(ROOT / f"examples/{name}.toml", on="simulation")


def _known_finding(planned: Experiment, seed: int) -> str:
    """Returns the reason if a known finding occurred in a run of an example, which finds nothing without it.

    A run in which too little was acknowledged is unknown then too, and has no finding.
    """

    def is_right(otherwise: Experiment) -> bool:
        data = experiment_file.to_data(otherwise)
        task = {"experiment": data, "seed": seed, "arm": "other", "run": "other", "keep": False}
        row = run_seed(task)
        return not (row["verdict"] == "invalid" or row["violations"] or row["error"])

    return known_reason(planned, seed, is_right)


CLUSTER_CHANGES = BrokerRuns(
    file="examples/cluster-changes.toml",
    profiles=("kafka-3.9", "kafka-4.0", "kafka-4.1", "kafka-4.2"),
)
SEARCHED = ("kafka-4.0", "kafka-4.1")
WITHOUT_ELR = ("kafka-3.4", "kafka-3.6", "kafka-3.9")
"""Earlier releases: a leader may restart and lead on in its leader epoch, with what it has then."""
SECONDS = BrokerRuns(
    file="harness/experiments/search.toml",
    profiles=SEARCHED,
    # Faults and records are as dense as the time is short. Even so one run in five tests nothing.
    changes={
        "duration_ms": 1_000,
        "workload": {"appends_per_s": 150.0, "polls_per_s": 60.0},
        "nemesis": {"gap_ms": 100, "hold_ms": 250, "step_ms": 150},
    },
)
SECONDS_WITHOUT_ELR = replace(SECONDS, profiles=WITHOUT_ELR)
MINUTES = BrokerRuns(
    file="harness/experiments/search.toml", profiles=SEARCHED, changes={"duration_ms": 60_000}
)
SEARCHED_TRANSACTIONS = BrokerRuns(
    # Earlier releases let a late marker tear the next transaction of its producer (KAFKA-19446).
    file="harness/experiments/search-transactions.toml",
    profiles=("kafka-4.2",),
)
SEARCHED_GROUPS = BrokerRuns(file="harness/experiments/search-groups.toml", profiles=("kafka-4.1",))
TRANSACTIONS = BrokerRuns(
    file="examples/transactions.toml",
    profiles=("kafka-4.1",),
    changes={"nemesis": {"faults": ["kill", "pause", "stop", "restart", "power", "controller"]}},
)
# Not as the other long example: a run takes longer than a campaign lets a simulated run take.
LONG_TRANSACTIONS = BrokerRuns(file="examples/long-transactions.toml", profiles=("kafka-4.1",))

_LOG_LEVELS = ("checkers/kernels/linearizability.py",)
_TRANSACTIONS = ("checkers/kernels/transactions/check.py",)
_VERDICTS = ("checkers/kernels/compose.py", "checkers/kernels/log_checkers.py")
_CHECKERS = ("checkers/kernels",)
"""Of runs that show whether a verdict is right: what made the histories decides only which there were."""
_WITHOUT_TRANSACTIONS = (
    *_CHECKERS,
    "!checkers/kernels/transactions",
    "checkers/kernels/transactions/validation.py",
)
_RUNS = (
    "system_under_test",
    "harness/simulation",
    "nemesis",
    "workloads",
    "!system_under_test/real",
    "system_under_test/real/message_log.py",
    "!system_under_test/protocol/frames.py",
    "!workloads/clients/confluent.py",
    "!workloads/clients/confluent_library.py",
    "!workloads/clients/confluent_transactions.py",
    "!workloads/clients/java_client.py",
    "!workloads/clients/java_process.py",
    "!nemesis/agent",
    "!nemesis/hosts",
    "!nemesis/local",
    "!nemesis/fault_points.py",
)
"""What makes simulated runs, without what only real worlds load."""
_BROKER = (*_WITHOUT_TRANSACTIONS, *_RUNS)

KINDS: dict[str, Kind] = {
    "log-levels": Kind(
        title="small histories of logs, every level, against exhaustive search",
        judge=_log_levels,
        chunk=10_000,
        parts=_LOG_LEVELS,
    ),
    "elections": Kind(
        title="whole verdicts of random runs with elections, against the truth",
        judge=_elections(Conditions(mishaps=True)),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-gaps": Kind(
        title="likewise, with states and logs of replicas that are not recorded",
        judge=_elections(Conditions(gaps=True, mishaps=True)),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-skew": Kind(
        title="likewise, with clocks that differ",
        judge=_elections(Conditions(skew=True, mishaps=True)),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-copies": Kind(
        title="likewise, with idempotent producers that send appends again",
        judge=_elections(Conditions(copies_share=election_runs.SOME_COPIES, mishaps=True)),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-many-copies": Kind(
        title="likewise, with producers that send again all the time",
        judge=_elections(Conditions(copies_share=election_runs.MANY_COPIES, mishaps=True)),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-copies-and-gaps": Kind(
        title="likewise, and with states and logs of replicas that are not recorded",
        judge=_elections(
            Conditions(copies_share=election_runs.MANY_COPIES, gaps=True, mishaps=True)
        ),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-restarts": Kind(
        title="likewise, with leaders that restart and replicas that are down when they are elected",
        judge=_elections(Conditions(mishaps=True, restarts=True)),
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "elections-with-restarts-and-copies": Kind(
        title="likewise, with producers that send again, a min ISR that changes, and other requests",
        judge=_elections(
            Conditions(
                copies_share=election_runs.MANY_COPIES,
                mishaps=True,
                others=True,
                restarts=True,
                settings=True,
            )
        ),
        chunk=500,
        parts=_VERDICTS,
    ),
    "committed-offsets": Kind(
        title="small histories of committed offsets, against exhaustive search",
        judge=_committed_offsets,
        chunk=2_000,
        parts=("checkers/kernels/consumer_group.py",),
    ),
    "declarations": Kind(
        title="whole verdicts of random runs of a correct broker, whatever they declare",
        judge=_declarations,
        chunk=1_000,
        parts=_VERDICTS,
    ),
    "transactions-on-lists": Kind(
        title="transactions on lists, against exhaustive search",
        judge=_transactions("lists"),
        chunk=2_000,
        parts=_TRANSACTIONS,
    ),
    "transactions-on-logs": Kind(
        title="transactions on logs, against exhaustive search",
        judge=_transactions("logs"),
        chunk=2_000,
        parts=_TRANSACTIONS,
    ),
    "models": Kind(
        title="small histories of registers, sets, queues, against exhaustive search",
        judge=_models,
        chunk=10_000,
        parts=("checkers/models",),
    ),
    "examples": Kind(
        title=f"seeds of the correct broker: {', '.join(EXAMPLES)}",
        judge=_examples(EXAMPLES),
        chunk=360,
        parts=_WITHOUT_TRANSACTIONS,
    ),
    "groups": Kind(
        title=f"seeds of the correct broker: {', '.join(EXAMPLES_WITH_GROUPS)}",
        judge=_examples(EXAMPLES_WITH_GROUPS),
        chunk=100,
        parts=_WITHOUT_TRANSACTIONS,
    ),
    "cluster-changes": Kind(
        title=f"cluster changes with {', '.join(CLUSTER_CHANGES.profiles)}",
        judge=CLUSTER_CHANGES.judge,
        chunk=40,
        parts=_BROKER,
    ),
    "seconds": Kind(
        title=f"one second of random search over the whole space, {' and '.join(SEARCHED)}",
        judge=SECONDS.judge,
        chunk=100,
        parts=_BROKER,
    ),
    "seconds-without-elr": Kind(
        title=f"likewise, {', '.join(WITHOUT_ELR)}",
        judge=SECONDS_WITHOUT_ELR.judge,
        chunk=60,
        parts=_BROKER,
    ),
    "minutes": Kind(
        title=f"one minute of random search over the whole space, {' and '.join(SEARCHED)}",
        judge=MINUTES.judge,
        chunk=4,
        parts=_BROKER,
    ),
    "searched-transactions": Kind(
        title="random search with transactions, kafka-4.2",
        judge=SEARCHED_TRANSACTIONS.judge,
        chunk=50,
        parts=(*_CHECKERS, *_RUNS),
    ),
    "searched-groups": Kind(
        title="random search with consumer groups, kafka-4.1",
        judge=SEARCHED_GROUPS.judge,
        chunk=50,
        parts=_BROKER,
    ),
    "transactions": Kind(
        title="transactions with coordinator fail-over and power cuts",
        judge=TRANSACTIONS.judge,
        chunk=40,
        parts=_CHECKERS,
    ),
    "long-runs": Kind(
        title=f"runs of 30 virtual minutes with every family of faults: {LONG_EXAMPLE}",
        judge=_examples((LONG_EXAMPLE,)),
        chunk=1,
        parts=_WITHOUT_TRANSACTIONS,
    ),
    "long-transactions": Kind(
        title="20 virtual minutes of transactions with every fault that they are tested with",
        judge=LONG_TRANSACTIONS.judge,
        chunk=1,
        parts=_CHECKERS,
    ),
}


def judge(kind_id: str, first: int, count: int) -> Cases:
    """Judges some cases of a kind; here, because a process that is spawned does not import `__main__`."""
    return KINDS[kind_id].judge(first, count)
