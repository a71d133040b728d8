"""Whether guidance finds defects in fewer runs, and what coverage costs.

`python -m benchmarks.bench_guided --defects B-18 B-21 --repetitions 10 --runs 100`

Each repetition of a defect has seeds of its own and searches twice, without and with guidance, until the invariant
monitor reports a violation or until a limit on runs. The medians of runs and processor time are compared. The
interval is that of the median of the paired ratios of processor time, by bootstrap, 95 %. A search that found
nothing counts with its limit, so the medians are minima if many searches found nothing; `found` counts the others.

`--features` instead runs all of `--runs` in both ways and compares how many features they reached, and `--cost`
prints the share of processor time that computing the coverage of runs adds to them.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from harness.campaigns.guided.coverage import coverage_of
from harness.campaigns.guided.guidance import Guidance
from harness.campaigns.statistics import median
from harness.campaigns.worker import run_seed_forked, warm_up
from harness.defects.search import seen_by
from harness.defects.search_plan import MONITOR, arms_of
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate
from system_under_test.defects import DEFECTS

SEEDS_APART = 100_000
"""Repetitions are so far apart that they share no seed."""

SAMPLES = 2000
COST_MAX = 0.05
"""Share of processor time that coverage may add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A search: its runs, their processor time, and whether it found the defect."""

    runs: int
    cpu_s: float
    is_found: bool


def main() -> int:
    """Prints one JSON object per defect, or the cost; returns 1 if the cost is above its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--defects", nargs="+", default=["B-18"], choices=sorted(DEFECTS))
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--runs", type=int, default=100, help="limit of each search")
    parser.add_argument("--first-repetition", type=int, default=0)
    parser.add_argument("--features", action="store_true", help="compare coverage instead")
    parser.add_argument("--cost", type=int, metavar="SEEDS", help="measure coverage instead")
    arguments = parser.parse_args()
    if arguments.cost:
        return _cost(arguments.cost)
    warm_up()
    if arguments.features:
        return _features(arguments.repetitions, arguments.first_repetition, arguments.runs)
    for defect in arguments.defects:
        arm = arms_of([DEFECTS[defect]], None).get(f"{defect} {MONITOR}")
        if arm is None:
            print(f"{defect} has no invariant that the monitor checks", file=sys.stderr)
            return 1
        pairs = []
        for number in range(arguments.repetitions):
            first = (arguments.first_repetition + number) * SEEDS_APART
            pair = [
                search(arm.experiment, first, arguments.runs, is_guided=is_guided)
                for is_guided in (False, True)
            ]
            print(defect, first, pair, file=sys.stderr, flush=True)
            pairs.append(pair)
        print(json.dumps({"defect": defect, **summary(pairs)}), flush=True)
    return 0


def search(experiment: Experiment, first: int, runs_max: int, *, is_guided: bool) -> Searched:
    """Searches until the monitor reports a violation or until the limit."""
    guidance = Guidance("search", experiment, first)
    cpu_s, began_s = 0.0, time.process_time()
    for number in range(first, first + runs_max):
        row = _run(guidance, experiment, number, is_guided=is_guided)
        cpu_s += row["cpu_s"]
        if is_guided:
            guidance.add(number, row)
        if not row["error"] and seen_by(MONITOR, row):
            break
    else:
        row = {}
    if is_guided:
        cpu_s += time.process_time() - began_s
    return Searched(runs=number - first + 1, cpu_s=cpu_s, is_found=bool(row))


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
    return run_seed_forked(
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


def summary(pairs: Sequence[Sequence[Searched]]) -> dict[str, Any]:
    """Returns the medians of both ways, and the interval of the ratio."""
    ratios = [guided.cpu_s / plain.cpu_s for plain, guided in pairs]
    stream = Random(1)
    medians = sorted(
        median([ratios[int(stream.random() * len(ratios))] for _ in ratios]) or 0.0
        for _ in range(SAMPLES)
    )
    ways = {}
    for index, way in enumerate(("plain", "guided")):
        searched = [pair[index] for pair in pairs]
        ways[way] = {
            "runs": [one.runs for one in searched],
            "runs_median": median([one.runs for one in searched]),
            "cpu_s_median": round(median([one.cpu_s for one in searched]) or 0.0, 2),
            "found": sum(one.is_found for one in searched),
        }
    return {
        "repetitions": len(pairs),
        **ways,
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
