"""Whether a search finds defects in fewer runs than another one, and what coverage costs.

`python -m benchmarks.bench_guided --defects B-18 B-21 --repetitions 10 --runs 100`

Each repetition of a defect has seeds of its own and searches twice, without and with guidance, until the invariant
monitor reports a violation or until a limit on runs or on processor time. The medians of runs and processor time
are compared. The interval is that of the median of the paired ratios of processor time, by bootstrap, 95 %. A
search that found nothing counts with its limit, so the medians are minima if many searches found nothing; `found`
counts the others. A last line has the ratios of all defects together.

`--against-plain` compares instead the search of today with `search-before.toml`: random schedules alone. With
`--draw 8` the defects are drawn from those that these plain seeds do not find in 10 runs, with seeds that nothing
else uses. Whatever finds a defect at once needs no better search.

`--features` instead runs all of `--runs` in both ways and compares how many features they reached, and `--cost`
prints the share of processor time that computing the coverage of runs adds to them.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from harness.campaigns.guided.guidance import Guidance
from harness.campaigns.statistics import median
from harness.campaigns.worker import SimulatedRuns, warm_up
from harness.defects.search import seen_by
from harness.defects.search_plan import MONITOR, arms_of
from harness.runs import experiment_file as experiments
from harness.runs.coverage import coverage_of
from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate
from system_under_test.defects import DEFECTS

BEFORE = Path(__file__).with_name("search-before.toml")
SEEDS_APART = 100_000
"""Repetitions are so far apart that they share no seed."""

EASY_RUNS = 10
"""A defect that plain seeds find in so many runs is not drawn."""

EASY_FIRST_SEED = 90_000_000
SAMPLES = 2000
RUNS = SimulatedRuns()
"""Its child ends with this process."""
COST_MAX = 0.05
"""Share of processor time that coverage may add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A search: its runs, their processor time, and whether it found the defect."""

    runs: int
    cpu_s: float
    is_found: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of the two ways to search that are compared."""

    name: str
    experiment: Experiment
    is_guided: bool = False


def main() -> int:
    """Prints one JSON object per defect, or the cost; returns 1 if the cost is above its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--defects", nargs="+", default=["B-18"], choices=sorted(DEFECTS))
    parser.add_argument("--draw", type=int, metavar="N", help="draw the defects from the hard ones")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--runs", type=int, default=100, help="limit of each search")
    parser.add_argument("--cpu", type=float, default=float("inf"), metavar="S", help="another one")
    parser.add_argument("--against-plain", action="store_true", help="compare with plain seeds")
    parser.add_argument("--first-repetition", type=int, default=0)
    parser.add_argument("--features", action="store_true", help="compare coverage instead")
    parser.add_argument("--cost", type=int, metavar="SEEDS", help="measure coverage instead")
    arguments = parser.parse_args()
    if arguments.cost:
        return _cost(arguments.cost)
    warm_up()
    if arguments.features:
        return _features(arguments.repetitions, arguments.first_repetition, arguments.runs)
    everything: list[Sequence[Searched]] = []
    names: Sequence[Way] = ()
    defects = hard_defects(arguments.draw) if arguments.draw else arguments.defects
    for defect in defects:
        ways = ways_for(defect, against_plain=arguments.against_plain)
        if ways is None:
            print(f"{defect} has no invariant that the monitor checks", file=sys.stderr)
            return 1
        pairs = []
        for number in range(arguments.repetitions):
            first = (arguments.first_repetition + number) * SEEDS_APART
            pair = [search(way, first, arguments.runs, arguments.cpu) for way in ways]
            print(defect, first, pair, file=sys.stderr, flush=True)
            pairs.append(pair)
        print(json.dumps({"defect": defect, **summary(pairs, ways)}), flush=True)
        everything += pairs
        names = ways
    print(json.dumps({"defects": len(defects), **summary(everything, names)}))
    return 0


def hard_defects(count: int) -> list[str]:
    """Draws defects from those that plain seeds do not find in a few runs."""
    hard = []
    for defect in sorted(DEFECTS):
        ways = ways_for(defect, against_plain=True)
        if ways is None:
            continue
        searched = search(ways[0], EASY_FIRST_SEED, EASY_RUNS, float("inf"))
        print(defect, searched, file=sys.stderr, flush=True)
        if not searched.is_found:
            hard.append(defect)
    drawn = sorted(Random(14).sample(hard, count))
    print(json.dumps({"hard": hard, "drawn": drawn}), flush=True)
    return drawn


def ways_for(defect: str, *, against_plain: bool) -> tuple[Way, Way] | None:
    """Returns the two ways to search for a defect, what was before first; None if the monitor cannot see it."""
    arm = arms_of([DEFECTS[defect]], None).get(f"{defect} {MONITOR}")
    if arm is None:
        return None
    now = Way(name="plain", experiment=arm.experiment)
    if not against_plain:
        return now, replace(now, name="guided", is_guided=True)
    plain = arms_of([DEFECTS[defect]], experiments.load(BEFORE))[arm.name]
    return Way(name="plain", experiment=plain.experiment), replace(now, name="search")


def search(way: Way, first: int, runs_max: int, cpu_max_s: float) -> Searched:
    """Searches until the monitor reports a violation or until a limit."""
    guidance = Guidance("search", way.experiment, first)
    cpu_s, began_s, is_found = 0.0, time.process_time(), False
    for number in range(first, first + runs_max):
        row = _run(guidance, way.experiment, number, is_guided=way.is_guided)
        cpu_s += row["cpu_s"]
        if way.is_guided:
            guidance.add(number, row)
        is_found = not row["error"] and bool(seen_by(MONITOR, row))
        if is_found or cpu_s >= cpu_max_s:
            break
    if way.is_guided:
        cpu_s += time.process_time() - began_s
    return Searched(runs=number - first + 1, cpu_s=cpu_s, is_found=is_found)


def _features(repetitions: int, first_repetition: int, runs: int) -> int:
    """Prints how many features the same number of runs reached, without and with mutants, and their CPU time."""
    experiment = arms_of([DEFECTS["B-18"]], None)["B-18 clients"].experiment
    experiment = replace(experiment, disabled_rules=(), check_invariants=True)
    for repetition in range(first_repetition, first_repetition + repetitions):
        first = repetition * SEEDS_APART
        for way, share in (("plain", 0.0), ("guided", 0.5)):
            guidance, cpu_s = Guidance("search", experiment, first, share=share), 0.0
            for number in range(first, first + runs):
                row = _run(guidance, experiment, number, is_guided=True)
                cpu_s += row["cpu_s"]
                guidance.add(number, row)
            numbers = {"first_seed": first, "way": way, "cpu_s": round(cpu_s, 1)}
            print(json.dumps({**numbers, "features": guidance.counts.curve}), flush=True)
    return 0


def _run(
    guidance: Guidance, experiment: Experiment, number: int, *, is_guided: bool
) -> dict[str, Any]:
    """Runs a number of a search and returns its row."""
    step = guidance.step(number) if is_guided else None
    trial = None if step is None else step.mutant.trial
    return RUNS.row(
        {
            "experiment": experiments.to_data(experiment if trial is None else trial.experiment),
            "seed": number,
            "root_seed": number if trial is None else trial.seed,
            "arm": "search",
            "run": str(number),
            "runs": "",
            "keep": False,
            "coverage": is_guided,
        }
    )


def summary(pairs: Sequence[Sequence[Searched]], ways: Sequence[Way]) -> dict[str, Any]:
    """Returns the medians of both ways, and the interval of the ratio."""
    ratios = [after.cpu_s / before.cpu_s for before, after in pairs]
    stream = Random(1)
    medians = sorted(
        median([ratios[int(stream.random() * len(ratios))] for _ in ratios]) or 0.0
        for _ in range(SAMPLES)
    )
    found = {}
    for index, way in enumerate(ways):
        searched = [pair[index] for pair in pairs]
        found[way.name] = {
            "runs": [one.runs for one in searched],
            "runs_median": median([one.runs for one in searched]),
            "cpu_s_median": round(median([one.cpu_s for one in searched]) or 0.0, 2),
            "found": sum(one.is_found for one in searched),
        }
    return {
        "repetitions": len(pairs),
        **found,
        "cpu_ratio_median": round(median(ratios) or 0.0, 3),
        "cpu_ratio_interval": [round(medians[int(SAMPLES * share)], 3) for share in (0.025, 0.975)],
    }


def _cost(seeds: int) -> int:
    """Measures what coverage adds to a run."""
    base = arms_of([DEFECTS["B-18"]], None)["B-18 monitor"].experiment
    warm_up()
    plain_s = covered_s = 0.0
    for seed in range(seeds):
        experiment, _ = resolve(base, seed)
        began_s = time.process_time()
        result = simulate(experiment, seed)
        plain_s += time.process_time() - began_s
        began_s = time.process_time()
        coverage_of(result)
        covered_s += time.process_time() - began_s
    share = covered_s / plain_s
    print(
        json.dumps(
            {"seeds": seeds, "simulation_s": plain_s, "coverage_s": covered_s, "share": share}
        )
    )
    return 1 if share > COST_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
