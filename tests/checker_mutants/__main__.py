"""Mutation testing of the checkers: `python -m tests.checker_mutants`.

Every comparison, constant, operator and direction of the modules that decide verdicts is changed, one at a time
(`mutants.py`), and tests run until one fails. Comparisons and constants are judged unless `--all-kinds` is given.
A mutant that survives shows a missing test, code without effect, or a change without effect; the last is
explained in `explained.toml`.

Results are kept per mutant and text of its module. A run continues where the last one ended, and judges again
what belongs to a module that changed. `--keep` adds complete modules to `judged.jsonl`.

First, the tests run once and the lines are noted that each executes. Then
a mutant meets the tests that execute its line, fast ones first, up to `--seconds` of processor time. `--thorough`
runs all of them for the mutants that survived so far.

Tools from the package index were compared: cosmic-ray starts the tests anew for every mutant, which takes seconds;
mutmut leaves out code outside of functions and functions with decorators, and has no directions of numpy.

Exit code 0: nothing survived without explanation; 1: something did, or an explanation is wrong; 2: bad arguments,
or a test fails without any mutant.
"""

import argparse
import os
import random
import sys
from pathlib import Path

from tests.checker_mutants.explained import explanation_of, read_explanations
from tests.checker_mutants.mutants import REQUIRED, ROOT, Mutant, mutants_of
from tests.checker_mutants.outcome import Outcomes
from tests.checker_mutants.report import print_report, print_survivors
from tests.checker_mutants.run import Choice, judge_all
from tests.checker_mutants.targets import is_of, modules

RESULTS = ROOT / ".checker-mutants" / "results.jsonl"


def main(arguments: list[str] | None = None) -> int:
    """Judges mutants and prints what became of them."""
    options = parsed(arguments)
    chosen = _chosen_modules(options.only)
    if not chosen:
        print(
            f"no module is called {' or '.join(options.only)}; `--report` lists them",
            file=sys.stderr,
        )
        return 2
    outcomes = Outcomes(options.results, modules())
    all_mutants = [mutant for module in chosen for mutant in mutants_of(module)]
    mutants = [one for one in all_mutants if options.all_kinds or one.kind in REQUIRED]
    if not (options.report or options.list_survivors):
        wanted = wanted_mutants(mutants, outcomes, options)
        choice = Choice(seconds_max=options.seconds, is_thorough=options.thorough)
        try:
            judge_all(
                wanted, outcomes, choice, lines_path=options.results.with_suffix(".lines.json")
            )
        except RuntimeError as problem:
            print(problem, file=sys.stderr)
            return 2
    if options.keep:
        outcomes.keep(all_mutants)
    if options.list_survivors:
        return print_survivors(mutants, outcomes)
    return print_report(mutants, outcomes)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Returns the options that the arguments give."""
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.checker_mutants", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module or folder; repeatable",
    )
    parser.add_argument(
        "--all-kinds", action="store_true", help="also operators and directions of functions"
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="judge N mutants at most, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="processor time of the tests of one mutant"
    )
    parser.add_argument(
        "--survivors",
        action="store_true",
        help="judge again what survived, for example after adding tests",
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="judge again what survived, with every test that executes its line",
    )
    parser.add_argument(
        "--unexplained",
        action="store_true",
        help="judge nothing again that explained.toml explains",
    )
    parser.add_argument("--report", action="store_true", help="judge nothing, print the table")
    parser.add_argument(
        "--list-survivors",
        action="store_true",
        help="judge nothing, print every survivor without explanation",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="add the modules whose mutants are all judged to judged.jsonl, which belongs in the commit",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    return parser


def _chosen_modules(only: list[str]) -> list[str]:
    """Returns the modules in the order of the arguments."""
    found = modules()
    if not only:
        return found
    return list(dict.fromkeys(m for wanted in only for m in found if is_of(m, wanted)))


def wanted_mutants(
    mutants: list[Mutant], outcomes: Outcomes, options: argparse.Namespace
) -> list[Mutant]:
    """Returns the mutants to judge now."""
    explanations = read_explanations() if options.unexplained else []
    wanted = []
    for mutant in mutants:
        outcome = outcomes.get(mutant)
        if outcome is None:
            is_wanted = not (options.survivors or options.thorough)
        else:
            is_wanted = not outcome.is_killed and (
                options.survivors or (options.thorough and not outcome.thorough)
            )
            is_wanted = is_wanted and explanation_of(mutant, explanations) is None
        if is_wanted:
            wanted.append(mutant)
    if options.sample is not None and options.sample < len(wanted):
        rng = random.Random(options.seed)
        chosen = set(rng.sample(range(len(wanted)), options.sample))
        wanted = [mutant for at, mutant in enumerate(wanted) if at in chosen]
    return wanted


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
