"""Random runs of three abstract brokers, with the truth about every loss, and the comparison with the verdict.

`python -m tests.property.election_runs --runs 20000 --first-seed 0` judges that many runs and prints the seed of
each wrong verdict; `--seed N` prints one run. A later call can continue with the next first seed. With `--gaps`
states of the partition or rows of replicas are missing, and with `--skew` clocks differ: then more may be unknown,
but nothing else may be said. With `--copies [SHARE]` producers are idempotent and send appends again, so that
several leaders may have written one record. With `--mishaps` what seldom happens does. With `--others` clients
also ask for log ends, are refused, and read the end in several polls. With `--restarts` processes end and start
again while the controller does not know it: a leader leads on in its epoch, perhaps without the end of its log, a
replica is elected that is down, or it ends before it hears of that. With `--settings` min ISR is raised and
lowered.

The brokers follow Kafka's rules for leaders, followers and high watermarks, except that some runs break them: they
elect a replica outside of the ISR without a flag, cut a leader's log before it is elected again, or elect with a
flag that was not justified. Since the logs are known, so is which election lost which record. Clients see less:
responses are delayed or missing, deposed leaders serve reads and acknowledge appends, epochs and offsets may be
unknown, and the replicas' logs are recorded or not.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from checkers.kernels.compose import judge_run
from checkers.kernels.history import INF_NS
from harness.contracts.run_context import LOG_CHECKERS, SESSION_CHECKER, RunContext
from harness.contracts.verdict import Judgement, Validity, Verdict
from tests.anomalies.runs import run
from tests.property.brute_force import Call
from tests.property.election_cluster import BROKERS, Choices, Cluster, holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What happened to the records that clients know to be established.

    Attributes:
        lost_for_wrong: (offset, value) of those that are gone without an excuse.
        lost_excusably: (offset, value) of those that are gone with one.
        is_tainted: Whether an election that excuses nothing gave up any established record, if only for a time, or
            brought back what another one had given up.
        cut_by_leader: Those lost for wrong that a leader cut from its own log, which only that log shows.
    """

    lost_for_wrong: tuple[tuple[int, int], ...]
    lost_excusably: tuple[tuple[int, int], ...]
    is_tainted: bool
    cut_by_leader: frozenset[tuple[int, int]] = frozenset()


def truth_of(cluster: Cluster) -> Truth:
    final = cluster.replicas[cluster.leader].log
    wrong, excused = [], []
    # Then a rule was broken, and either verdict is right.
    is_tainted = cluster.is_tainted
    cut = set()
    for (offset, record), (since, count) in cluster.established.items():
        decided = None
        for number, event in enumerate(cluster.events):
            if event.epoch < since or (event.epoch == since and event.is_election):
                continue
            if not event.is_election and number < count:
                continue
            if holds(event.log, offset, record):
                decided = None
            elif decided is None:
                decided = event.excuses or (offset, record) in event.destroyed
                is_tainted |= not decided
                if not event.is_election:
                    cut.add((offset, record.value))
        # Nobody sees the loss of a record of which a later copy came to the same offset.
        is_gone = offset >= len(final) or final[offset].value != record.value
        if (offset, record) in cluster.known and is_gone:
            (excused if decided else wrong).append((offset, record.value))
    assert cluster.known <= set(cluster.established)
    return Truth(
        lost_for_wrong=tuple(sorted(wrong)),
        lost_excusably=tuple(sorted(excused)),
        is_tainted=is_tainted,
        cut_by_leader=frozenset(cut & {*wrong}),
    )


def sampled(rows: list[dict[str, Any]], share: float, rng: random.Random) -> list[dict[str, Any]]:
    """Returns the rows that somebody sees who looks at the logs now and then, as laststand does at Apache Kafka's.

    How short a log was in between is seen. Nothing shows when a leader appended.
    """
    rows = sorted(rows, key=lambda row: int(row["at_ns"]))
    seen: list[dict[str, Any]] = []
    last: dict[int, dict[str, Any]] = {}
    kept: dict[int, int] = {}
    for row in rows:
        b, end = row["broker"], row["log_end_offset"]
        before = last.get(b)
        kept[b] = min(kept.get(b, end), end)
        if row["cause"] == "load" and before is not None:
            seen.append({**before, "at_ns": row["at_ns"] - 1, "role": "offline", "cause": "down"})
            before = None
            del last[b]
        if rng.random() >= share:
            continue
        if before is None and kept[b] < end:
            before = {**row, "log_end_offset": kept[b], "cause": "load"}
            seen.append(before)
        elif before is not None and kept[b] < before["log_end_offset"]:
            before = {**row, "log_end_offset": kept[b], "cause": "truncate"}
            seen.append(before)
        cause = "load"
        if before is not None:
            is_copy = (before["role"], before["leader_epoch"]) == ("follower", row["leader_epoch"])
            grows = end > before["log_end_offset"]
            cause = "replicate" if is_copy and row["role"] == "follower" else "observed"
            cause = cause if grows else "role"
        seen.append({**row, "cause": cause})
        last[b], kept[b] = row, end
    for row in seen:
        row["high_watermark"] = min(row["high_watermark"], row["log_end_offset"])
    return seen


Recorded = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""States of the partition and rows of replicas."""


def with_gaps(cluster: Cluster, rows: list[dict[str, Any]], rng: random.Random) -> Recorded:
    """Returns what is recorded of a run if states of the partition or rows of replicas are missing.

    Only what shows itself is left out: states between two others, the first ones, or the last ones if the final
    read is of an epoch after them; all rows of a replica, or its first ones. `without_last_rows` leaves
    out its last ones.
    """
    states = [row | {"partition_epoch": at} for at, row in enumerate(cluster.states)]
    if rng.random() < 0.7:
        first, stop = sorted(rng.sample(range(len(states) + 1), 2))
        is_shown = cluster.choices.has_epochs and cluster.choices.final_is_complete
        is_last = stop == len(states)
        if is_last and not (is_shown and states[first - 1]["leader_epoch"] < cluster.epoch):
            stop -= 1
        kept = states[stop:]
        if first < stop and kept and first and rng.random() < 0.5:
            # As in the states of a snapshot, the flag of what it does not show is lost.
            kept = [kept[0] | {"flagged": False}, *kept[1:]]
        states = [*states[:first], *kept]
    b = rng.choice(BROKERS)
    mine = [row["at_ns"] for row in rows if row["broker"] == b]
    if mine and rng.random() < 0.7:
        since_ns = rng.choice((INF_NS, rng.choice(mine)))
        rows = [row for row in rows if row["broker"] != b or row["at_ns"] >= since_ns]
    return states, rows


ENDS_EARLY_SHARE = 0.4
"""In this share of the runs with gaps the rows of one replica end before the run does."""


def without_last_rows(rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Returns rows of replicas, perhaps without the last ones of a replica, as if its recording had been cut."""
    b = rng.choice(BROKERS)
    mine = [row["at_ns"] for row in rows if row["broker"] == b]
    if not mine or rng.random() >= ENDS_EARLY_SHARE:
        return rows
    until_ns = rng.choice(mine)
    return [row for row in rows if row["broker"] != b or row["at_ns"] <= until_ns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """How far the clocks of a run are ahead of one that is right, and the largest difference of two of them."""

    clients_ns: int = 0
    controller_ns: int = 0
    brokers_ns: tuple[int, ...] = (0,) * len(BROKERS)
    error_ns: int = 0

    @classmethod
    def drawn(cls, rng: random.Random) -> "Clocks":
        error_ns = rng.choice((1, 3, 10, 30))
        ahead = [
            rng.choice((0, error_ns, rng.randint(0, error_ns))) for _ in range(2 + len(BROKERS))
        ]
        clients_ns, controller_ns, *brokers_ns = ahead
        return cls(
            clients_ns=clients_ns,
            controller_ns=controller_ns,
            brokers_ns=tuple(brokers_ns),
            error_ns=error_ns,
        )

    def of_clients(self, calls: Sequence[Call]) -> list[Call]:
        """Returns operations with the times that clients see."""
        by_ns = self.clients_ns
        return [
            replace(call, inv=call.inv + by_ns, res=None if call.res is None else call.res + by_ns)
            for call in calls
        ]

    def of_faults(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns faults with the times of their moments; clients and faults have the same clock."""
        names = ("invoked_ns", "completed_ns", "healed_ns")
        return [
            row | {name: row[name] + self.clients_ns for name in names if row[name] is not None}
            for row in rows
        ]

    def of_controller(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns what was committed with the times of the controller."""
        return [row | {"at_ns": row["at_ns"] + self.controller_ns} for row in rows]

    def of_replicas(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns rows of replicas with the times of their brokers."""
        return [row | {"at_ns": row["at_ns"] + self.brokers_ns[row["broker"] - 1]} for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under which conditions random runs take place.

    Attributes:
        gaps: Whether states of the partition and rows of replicas are missing.
        skew: Whether clocks differ.
        copies_share: In this share of the steps a leader gets an append once more; unless it is 0, producers are
            idempotent.
        mishaps: Whether producers may name an older epoch of the leader that responds, elected replicas hear of
            two elections at once, and leaders fail before they report what they wrote.
        others: Whether clients also ask for log ends, are refused, and read the end in several polls.
        restarts: Whether leaders restart within their epoch, replicas are elected that are down, and others end
            before they hear of their election.
        settings: Whether min ISR is raised and lowered, without eligible leader replicas.
    """

    gaps: bool = False
    skew: bool = False
    copies_share: float = 0.0
    mishaps: bool = False
    others: bool = False
    restarts: bool = False
    settings: bool = False

    @property
    def copies(self) -> bool:
        """Whether producers are idempotent and send appends again."""
        return self.copies_share > 0


PLAIN = Conditions()
SOME_COPIES, MANY_COPIES = 0.25, 0.7

HEARS_LATE_SHARE = 0.4
"""In this share of the runs an elected replica may follow an older leader until it hears of its election."""

MISHAPS_SHARE = 0.5
"""In this share of the runs that may have mishaps there are some."""


def random_run(
    seed: int, conditions: Conditions = PLAIN
) -> tuple[Cluster, dict[str, pa.Table], RunContext]:
    """Returns a run, its tables and its context."""
    rng = random.Random(seed)
    choices = Choices(
        has_logs=rng.random() < 0.7,
        sampled_share=rng.choice((1.0, 1.0, 0.3, 0.7)),
        has_epochs=rng.random() < 0.5,
        has_stamps=rng.random() < 0.5,
        is_broken=rng.random() < 0.5,
        elr_on=rng.random() < 0.3,
        final_is_complete=rng.random() < 0.85,
        follower_reads=rng.random() < 0.3,
    )
    late, mishaps = random.Random(f"late/{seed}"), random.Random(f"mishaps/{seed}")
    cluster = Cluster(
        rng,
        choices,
        late if late.random() < HEARS_LATE_SHARE else None,
        random.Random(f"copies/{seed}") if conditions.copies else None,
        conditions.copies_share,
        random.Random(f"others/{seed}") if conditions.others else None,
        mishaps if conditions.mishaps and mishaps.random() < MISHAPS_SHARE else None,
        random.Random(f"restarts/{seed}") if conditions.restarts else None,
        random.Random(f"settings/{seed}") if conditions.settings and not choices.elr_on else None,
    )
    min_isr = cluster.min_isr
    for _ in range(rng.choice((15, 30, 60, 120))):
        cluster.step()
    cluster.finish()
    rows = cluster.rows if choices.has_logs else []
    if not choices.has_all_logs:
        rows = sampled(rows, choices.sampled_share, rng)
    states, is_complete = cluster.states, True
    if conditions.gaps:
        of_gaps = random.Random(f"gaps/{seed}")
        states, rows = with_gaps(cluster, rows, of_gaps)
        rows = without_last_rows(rows, random.Random(f"tails/{seed}"))
        # The harness was killed before the last states were recorded; clients show no leader epochs.
        is_complete = choices.has_epochs or choices.has_stamps or of_gaps.random() < 0.6
        if not is_complete:
            states = states[: of_gaps.randint(1, len(states))]
    clocks = Clocks.drawn(random.Random(f"skew/{seed}")) if conditions.skew else Clocks()
    tables = run(
        clocks.of_clients(cluster.calls),
        states=clocks.of_controller(states),
        replicas=clocks.of_replicas(rows),
        brokers=clocks.of_controller(cluster.broker_rows),
        faults=clocks.of_faults(cluster.faults),
    )
    context = RunContext(
        elr_on=choices.elr_on,
        min_isr=min_isr,
        unclean_election_enabled=not choices.elr_on,
        acked_during_faults_min=0,
        enabled_faults=(),
        final_phase_complete=is_complete,
        clock_error_ns=clocks.error_ns,
        checkers=(*LOG_CHECKERS, SESSION_CHECKER) if conditions.copies else LOG_CHECKERS,
    )
    return cluster, tables, context


def may_be_acked_later(cluster: Cluster, value: int) -> bool:
    """Whether a leader that was elected again may have acknowledged a copy in a later epoch than it names."""
    call = cluster.calls[value]
    if cluster.copies is None or call.res is None:
        return False
    leader = next(
        (row["leader"] for row in cluster.states if row["leader_epoch"] == call.epoch), None
    )
    return any(
        row["leader"] == leader and row["leader_epoch"] > call.epoch and row["at_ns"] <= call.res
        for row in cluster.states
    )


def objection(
    cluster: Cluster,
    truth: Truth,
    verdict: Verdict,
    conditions: Conditions = PLAIN,
) -> str:
    """Returns what is wrong with a verdict, empty if nothing is."""
    choices = cluster.choices
    if truth.lost_for_wrong:
        # Only the log of a leader shows that it cut it, and that log may not be recorded.
        is_hidden = conditions.gaps or not choices.has_all_logs
        shown = {*truth.lost_for_wrong} - (truth.cut_by_leader if is_hidden else set())
        if shown and verdict.validity == Validity.VALID:
            return "valid, but records are lost without an excuse"
        # Without epochs in responses, clients may not know which of two leaders wrote a record.
        can_be_known = choices.has_all_logs and choices.has_epochs and choices.final_is_complete
        can_be_known &= not conditions.gaps and not conditions.skew and cluster.mishaps is None
        # Of two copies at one offset, clients do not know which of them the acknowledgement was about.
        lost = {*truth.lost_for_wrong} - {*truth.lost_excusably}
        can_be_known &= not all(may_be_acked_later(cluster, value) for _, value in lost)
        # Nor does anybody know which of two records a follower copied that one leader wrote at the same offset.
        cuts = [
            row["log_end_offset"]
            for row in cluster.rows
            if (row["role"], row["cause"]) == ("leader", "truncate")
        ]
        cuts += cluster.restart_cuts
        can_be_known &= all(
            offset < min(cuts, default=offset + 1) for offset, _ in truth.lost_for_wrong
        )
        if can_be_known and verdict.validity != Validity.INVALID:
            return "unknown, but records are lost without an excuse, and the logs show it"
    elif not truth.is_tainted and verdict.validity == Validity.INVALID:
        found = {one.id for one in verdict.anomalies if one.judgement == Judgement.FORBIDDEN}
        # A follower keeps what its leader lost, and copies the same append again behind that.
        if not (cluster.copies and cluster.is_torn and found == {"duplicate"}):
            return "invalid, but no record is lost without an excuse"
    return ""


def judged(seed: int, conditions: Conditions = PLAIN) -> tuple[Cluster, Truth, Verdict, str]:
    """Returns one run with its truth, its verdict, and what is wrong with that."""
    cluster, tables, context = random_run(seed, conditions)
    truth, verdict = truth_of(cluster), judge_run(tables, context)
    wrong = objection(cluster, truth, verdict, conditions)
    return cluster, truth, verdict, wrong


def wrong_verdicts(
    first_seed: int, runs: int, conditions: Conditions = PLAIN
) -> Iterator[tuple[int, str]]:
    """Yields the seed of each wrong verdict, and what is wrong with it."""
    for seed in range(first_seed, first_seed + runs):
        _, _, _, wrong = judged(seed, conditions)
        if wrong:
            yield seed, wrong


def show(seed: int, conditions: Conditions) -> None:
    """Prints one run, with what is missing in its record too, and with its true times."""
    cluster, truth, verdict, wrong = judged(seed, conditions)
    print(cluster.choices)
    for call in cluster.calls:
        print(" ", call)
    events = sorted([*cluster.states, *cluster.rows], key=lambda row: row["at_ns"])
    for row in events:
        if "isr" in row:
            flag = " FLAGGED" if row["flagged"] else ""
            print(
                f"  {row['at_ns']}: leader {row['leader']} epoch {row['leader_epoch']} isr {row['isr']}{flag}"
            )
        else:
            print(
                f"  {row['at_ns']}:     b{row['broker']} {row['role']} {row['cause']} end"
                f" {row['log_end_offset']} hw {row['high_watermark']} epoch {row['leader_epoch']}"
            )
    print(truth)
    print(verdict.validity, *verdict.reasons, sep="\n  ")
    print([(a.id, a.count, str(a.judgement)) for a in verdict.anomalies])
    print(wrong or "as it should be")


def main() -> int:
    """Judges many runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mishaps", action="store_true", help="let seldom things happen")
    parser.add_argument("--gaps", action="store_true", help="leave out states and rows of replicas")
    parser.add_argument("--skew", action="store_true", help="let clocks differ")
    parser.add_argument(
        "--copies",
        type=float,
        nargs="?",
        const=SOME_COPIES,
        default=0.0,
        metavar="SHARE",
        help=f"let producers send appends again, in this share of the steps ({SOME_COPIES})",
    )
    parser.add_argument("--others", action="store_true", help="ask for log ends, refuse appends")
    parser.add_argument("--restarts", action="store_true", help="let processes end and start again")
    parser.add_argument("--settings", action="store_true", help="let min ISR change")
    arguments = parser.parse_args()
    conditions = Conditions(
        gaps=arguments.gaps,
        skew=arguments.skew,
        copies_share=arguments.copies,
        mishaps=arguments.mishaps,
        others=arguments.others,
        restarts=arguments.restarts,
        settings=arguments.settings,
    )
    if arguments.seed is not None:
        show(arguments.seed, conditions)
        return 0
    count = 0
    stop = arguments.first_seed + arguments.runs
    for first in range(arguments.first_seed, stop, 500):
        for seed, wrong in wrong_verdicts(first, min(500, stop - first), conditions):
            print(f"seed {seed}: {wrong}", flush=True)
            count += 1
        print(f"done up to seed {min(first + 500, stop) - 1}", file=sys.stderr)
    print(f"{arguments.runs} runs from seed {arguments.first_seed}: {count} wrong verdicts")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
